"""SciPy's special functions, which are loaded late."""

import subprocess
import sys

import pytest
from scipy import special as scipys

from beam_dpne.mechanism import special


@pytest.mark.parametrize("name", ["ndtri", "log_ndtr", "erfcx", "roots_legendre"])
def test_the_functions_are_those_of_scipy(name):
    assert getattr(special, name) is getattr(scipys, name)


def test_an_unknown_function_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no_such_function"):
        _ = special.no_such_function


def test_a_wrong_parameter_of_a_plan_does_not_load_scipy():
    code = (
        "import sys\n"
        "from beam_dpne import PrivacyPlan\n"
        "try:\n"
        "    PrivacyPlan(epsilon=1, delta=1e-7, max_length=0)\n"
        "except ValueError:\n"
        "    assert 'scipy' not in sys.modules\n"
        "    PrivacyPlan(epsilon=1, delta=1e-7)\n"
        "    assert 'scipy.special' in sys.modules\n"
        "else:\n"
        "    raise AssertionError('the plan was accepted')\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
