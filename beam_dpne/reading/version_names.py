"""Names of versions of lake tables, whose files are Parquet."""

import re

VERSION_OF_DELTA = re.compile(r"(.+)@v([0-9]{1,18})")
VERSION_OF_ICEBERG = re.compile(r".+/metadata/[^/]+\.metadata\.json")
