"""The mechanism and the plans need neither Beam nor Arrow, also not by the modules that they import."""

import pkgutil
import subprocess
import sys

import beam_dpne.mechanism

MODULES = [
    *(
        f"beam_dpne.mechanism.{each.name}"
        for each in pkgutil.iter_modules(beam_dpne.mechanism.__path__)
    ),
    "beam_dpne.ngrams.adaptive",
    "beam_dpne.ngrams.plan",
    "beam_dpne.ngrams.strategies",
]


def test_there_are_modules():
    assert "beam_dpne.mechanism.randomness" in MODULES
    assert len(MODULES) > 10


def test_the_mechanism_and_the_plan_import_neither_beam_nor_arrow():
    program = "import sys\n" + "".join(f"import {module}\n" for module in MODULES)
    program += "print([name for name in ('apache_beam', 'pyarrow') if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout == "[]\n", done.stderr
