"""python pipelines/beam_yaml.py --yaml_pipeline_file FILE --jinja_variables JSON

Launches a pipeline of Beam YAML, which may use the transforms of this package. The YAML template starts
this program. Its options are those of `python -m apache_beam.yaml.main`.
"""

import logging

from apache_beam.yaml.main import run

if __name__ == "__main__":
    logging.getLogger().setLevel(logging.INFO)
    run()
