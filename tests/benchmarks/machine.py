"""Where a run was made, with what, and when."""

import datetime
import importlib.metadata
import os
import pathlib
import platform
from collections.abc import Sequence
from typing import Any

import psutil
from packaging.requirements import Requirement

from beam_dpne.version import __version__
from tests.benchmarks.measure import answer

_OURS = "beam-dpne"
_PACKAGES = ("apache-beam", "numpy", "pyarrow", "scipy")
_CPU_INFO = pathlib.Path("/proc/cpuinfo")


def usable_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def describe() -> dict[str, Any]:
    """Machine, load, versions and date, as JSON has them; no name of the machine."""
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": {
            "processor": _processor(),
            "cores": usable_cores(),
            "memory_gigabytes": round(psutil.virtual_memory().total / 1e9, 1),
            "system": platform.system(),
        },
        "load_at_start": round(os.getloadavg()[0], 2),
        "versions": _versions(),
        "extras": extras(),
    }


def extras(package: str = _OURS) -> list[str]:
    """The extras whose packages are all installed; Beam imports some of them, which takes time."""
    names = importlib.metadata.metadata(package).get_all("Provides-Extra") or []
    return sorted(name for name in names if _is_installed(package, name))


def _is_installed(package: str, extra: str) -> bool:
    required = map(Requirement, importlib.metadata.requires(package) or [])
    of_extra = [one for one in required if one.marker and one.marker.evaluate({"extra": extra})]
    for requirement in of_extra:
        if requirement.name == package:
            if not all(_is_installed(package, name) for name in requirement.extras):
                return False
        elif not any(importlib.metadata.distributions(name=requirement.name)):
            return False
    return bool(of_extra)


def in_words(names: Sequence[str] | None) -> str:
    """The extras of an environment for a sentence; None where they were not recorded."""
    if names is None:
        return "extras not recorded"
    return f"extras {', '.join(names)}" if names else "no extras"


def in_one_line(run: dict[str, Any]) -> str:
    """The same for a heading."""
    cores, python = run["machine"]["cores"], run["versions"]["python"]
    load = run["load_at_start"]
    return f"{cores} cores, Python {python}, {in_words(run['extras'])}, load {load} at start"


def _versions() -> dict[str, str]:
    mechanism = answer(
        "from beam_dpne.documents.key_context import MECHANISM_VERSION; print(MECHANISM_VERSION)"
    )
    packages = {name: importlib.metadata.version(name) for name in _PACKAGES}
    ours = {"beam-dpne": __version__, "mechanism": mechanism}
    return {"python": platform.python_version(), **packages, **ours}


def _processor() -> str:
    if _CPU_INFO.is_file():
        for line in _CPU_INFO.read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
