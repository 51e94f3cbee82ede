"""numpy's setting on Zen 4, where its sorts by AVX-512 are slow."""

import json
import subprocess
import sys

import pytest

from beam_dpne.elements.processor import numpy_settings

# What Linux says of a Zen 4, cut short.
ZEN_4 = """processor\t: 0
vendor_id\t: AuthenticAMD
cpu family\t: 25
model\t\t: 17
flags\t\t: fpu avx avx2 avx512f avx512dq avx512vl
power management:

processor\t: 1
vendor_id\t: AuthenticAMD
"""
OTHERS = {
    "Zen 3": ("avx512f avx512dq avx512vl", ""),
    "Zen 5": ("family\t: 25", "family\t: 26"),
    "an Intel": ("AuthenticAMD", "GenuineIntel"),
}
LOOK = """
import json, os, sys
from beam_dpne.cli import main
assert "numpy" not in sys.modules
main.run_command(main.command_of(["plan"])[0], ["--epsilon=1", "--delta=1e-7", "--json"])
import numpy
found = numpy._core._multiarray_umath.__cpu_features__
setting = os.environ.get("NPY_DISABLE_CPU_FEATURES")
print(json.dumps([setting, [found.get(name) for name in sys.argv[1:]]]))
"""


@pytest.fixture
def cpuinfo(tmp_path, monkeypatch):
    monkeypatch.delenv("NPY_DISABLE_CPU_FEATURES", raising=False)
    monkeypatch.delenv("NPY_ENABLE_CPU_FEATURES", raising=False)
    path = tmp_path / "cpuinfo"
    path.write_text(ZEN_4)
    return path


def test_numpy_does_without_avx512_on_zen_4(cpuinfo):
    (names,) = numpy_settings(cpuinfo).values()
    # numpy knows all of them: it would warn of another name, and of one that a processor lacks.
    command = [sys.executable, "-W", "error", "-c", "import numpy"]
    environment = {"NPY_DISABLE_CPU_FEATURES": names}
    said = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert b"not part of the dispatched optimizations" not in said.stderr
    assert "512" in names or "V4" in names


@pytest.mark.parametrize("name", OTHERS)
def test_other_processors_keep_numpy_as_it_is(name, cpuinfo):
    cpuinfo.write_text(ZEN_4.replace(*OTHERS[name]))
    assert not numpy_settings(cpuinfo)


def test_without_a_description_of_processors_nothing_is_set(cpuinfo):
    assert not numpy_settings(cpuinfo.with_name("missing"))


@pytest.mark.parametrize("name", ["NPY_DISABLE_CPU_FEATURES", "NPY_ENABLE_CPU_FEATURES"])
def test_what_the_user_has_set_stays(name, cpuinfo, monkeypatch):
    monkeypatch.setenv(name, "")
    assert not numpy_settings(cpuinfo)


def test_a_program_sets_it_before_numpy_is_imported(cpuinfo):
    names = (*numpy_settings(cpuinfo).values(),)[0].split()
    done = subprocess.run([sys.executable, "-c", LOOK, *names], capture_output=True, check=True)
    setting, features = json.loads(done.stdout.splitlines()[-1])
    assert setting == numpy_settings().get("NPY_DISABLE_CPU_FEATURES")
    if setting is not None:  # This machine is a Zen 4.
        assert not any(features)
