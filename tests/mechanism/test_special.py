"""A wrong parameter is refused before SciPy is loaded, which takes longer than all other checks."""

import subprocess
import sys


def test_a_wrong_parameter_of_a_plan_does_not_load_scipy():
    code = (
        "import sys\n"
        "from beam_dpne import PrivacyPlan\n"
        "try:\n"
        "    PrivacyPlan(epsilon=-1, delta=1e-7)\n"
        "except ValueError:\n"
        "    assert 'scipy' not in sys.modules\n"
        "else:\n"
        "    raise AssertionError('the plan was accepted')\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
