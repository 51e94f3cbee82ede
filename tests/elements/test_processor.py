"""numpy's setting on Zen 4, where its sorts by AVX-512 are slow."""

import ast
import subprocess
import sys

import pytest

from beam_dpne.elements.processor import numpy_settings

# What Linux says of a Zen 4, with some of its flags; another processor follows.
FLAGS = [f"flag{number}" for number in range(120)]
ZEN_4 = f"""processor\t: 0
vendor_id\t: AuthenticAMD
cpu family\t: 25
model\t\t: 17
flags\t\t: {" ".join(FLAGS)} avx avx2 avx512f avx512dq avx512vl
power management:

processor\t: 1
vendor_id\t: unknown
cpu family\t: 6
"""
OTHERS = {
    "Zen 3": ("avx512f avx512dq avx512vl", ""),
    "Zen 5": ("family\t: 25", "family\t: 26"),
    "an Intel": ("AuthenticAMD", "GenuineIntel"),
}
LOOK = """
import os, sys
from beam_dpne.elements import processor

def settings():
    assert "numpy" not in sys.modules or "TOLD" in os.environ
    return {"TOLD": "in time"}

processor.numpy_settings = settings
"""
PROGRAMS = {
    "beam-dpne": "from beam_dpne.cli import main; main.main(['plan', '--epsilon=1', '--delta=1e-7'])",
    "pipelines/msnbc.py": "from pipelines import msnbc; msnbc.release_msnbc(['--epsilon=-1'])",
    "deploy/worker_pool.py": "from deploy import worker_pool; worker_pool.serve = lambda *_: None; "
    "worker_pool.main(['--service_port=1']); import numpy",
}


@pytest.fixture
def cpuinfo(tmp_path, monkeypatch):
    monkeypatch.delenv("NPY_DISABLE_CPU_FEATURES", raising=False)
    monkeypatch.delenv("NPY_ENABLE_CPU_FEATURES", raising=False)
    path = tmp_path / "cpuinfo"
    path.write_text(ZEN_4)
    return path


def test_numpy_does_without_avx512_on_zen_4(cpuinfo):
    (names,) = numpy_settings(cpuinfo).values()
    look = "from numpy._core._multiarray_umath import __cpu_features__ as found; print(found)"
    # A warning would say that numpy does not know a name; not that this processor lacks a feature.
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", look],
        env={"NPY_DISABLE_CPU_FEATURES": names},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "not part of the dispatched optimizations" not in done.stderr
    found = ast.literal_eval(done.stdout)
    assert not any(found.get(name) for name in ("X86_V4", "AVX512_SKX"))
    assert {"X86_V4", "AVX512_SKX"} & set(names.split()) & set(found)


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


@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_tell_numpy_before_they_import_it(program):
    check = "assert os.environ['TOLD'] == 'in time' and 'numpy' in sys.modules"
    code = f"{LOOK}\n{PROGRAMS[program]}\n{check}"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
