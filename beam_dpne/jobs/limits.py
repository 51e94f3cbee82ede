"""The cores and the memory that a run may use: those that its container has, not those of the machine.

A container limits its processes by control groups of Linux, in version 2 (`cpu.max`, `memory.max`) or
version 1 (`cpu.cfs_quota_us`, `memory.limit_in_bytes`). A group is bound by its own limits and by those
of the groups around it, as far as the container shows them.
"""

import contextlib
import math
import os
import pathlib
from collections.abc import Iterator
from typing import NamedTuple

# A process takes 60 to 150 MB beside its share of the data, and this one about twice that.
MEMORY_OF_PROCESS = 256 * 2**20


def cores(root: str = "/") -> int:
    """Returns the number of cores that this process may use: those it may run on, or its quota.

    A quota of one core and a half is two cores, which then have some idle time.

    Args:
      root: the folder in which `proc` and the control groups are.
    """
    has_affinity = hasattr(os, "sched_getaffinity")
    allowed = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    quotas = [math.ceil(quota) for group in _groups(root) for quota in _quotas(group)]
    return max(1, min([allowed, *quotas]))


def memory(root: str = "/") -> int | None:
    """Returns the bytes of memory that this process may use with those beside it; None if unknown.

    Args:
      root: the folder in which `proc` and the control groups are.
    """
    limits = [limit for group in _groups(root) for limit in _memory_limits(group)]
    # The system has no such number on macOS and on Windows.
    with contextlib.suppress(AttributeError, OSError, ValueError):
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min(limits, default=None)


class _Mount(NamedTuple):
    """Where control groups are seen: the group at the top, the folder, the controllers."""

    top: str
    folder: str
    controllers: frozenset[str]


def _groups(root: str) -> Iterator[pathlib.Path]:
    """Yields the folders of the control groups of this process, and of those around them."""
    mounts = list(_mounts(root))
    for line in _lines(pathlib.Path(root, "proc/self/cgroup")):
        _, names, group = line.split(":", 2)
        controllers = frozenset(names.split(",")) - {""}
        for mount in mounts:
            # Version 2 has one hierarchy, whose controllers have no names here.
            if mount.controllers & controllers or not mount.controllers | controllers:
                yield from _inside_out(root, mount, group)
                break


def _mounts(root: str) -> Iterator[_Mount]:
    for line in _lines(pathlib.Path(root, "proc/self/mountinfo")):
        # Between the fields of the mount and those of its file system are some, then a dash.
        mount, _, system = line.partition(" - ")
        _, _, _, top, folder, *_ = mount.split(" ")
        kind, _, options = system.split(" ", 2)
        if kind == "cgroup2":
            yield _Mount(top, folder, frozenset())
        elif kind == "cgroup":
            yield _Mount(top, folder, frozenset(options.split(",")))


def _inside_out(root: str, mount: _Mount, group: str) -> Iterator[pathlib.Path]:
    """Yields the folders from that of a group up to that of the mount."""
    top = pathlib.Path(root, mount.folder.lstrip("/"))
    # A container may see no group but its own, at the top, under the name that it has outside.
    try:
        below = pathlib.PurePosixPath(group).relative_to(mount.top)
    except ValueError:
        below = pathlib.PurePosixPath()
    if ".." in below.parts or not (top / below).is_dir():
        below = pathlib.PurePosixPath()
    folder = top / below
    while folder != top:
        yield folder
        folder = folder.parent
    yield top


def _quotas(group: pathlib.Path) -> Iterator[float]:
    """Yields the cores that a group may use on average."""
    for line in _lines(group / "cpu.max"):
        quota, period = line.split()
        if quota != "max":
            yield int(quota) / int(period)
    quotas = _lines(group / "cpu.cfs_quota_us")
    periods = _lines(group / "cpu.cfs_period_us")
    for quota, period in zip(quotas, periods, strict=False):
        # -1 is no quota.
        if int(quota) > 0:
            yield int(quota) / int(period)


def _memory_limits(group: pathlib.Path) -> Iterator[int]:
    """Yields the bytes at which the processes of a group are slowed down or killed."""
    for name in ("memory.max", "memory.high", "memory.limit_in_bytes"):
        for line in _lines(group / name):
            if line != "max":
                yield int(line)


def _lines(path: pathlib.Path) -> list[str]:
    """Returns the lines of a file; none if it is not there or cannot be read."""
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
