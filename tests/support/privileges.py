"""Permissions as they bind users: root, who may read and write anywhere, becomes nobody for a while."""

import contextlib
import os
from collections.abc import Iterator

_NOBODY = 65534


@contextlib.contextmanager
def without_privileges() -> Iterator[None]:
    """Gives up the rights of root, also where `os.access` asks for the real user, for a while."""
    is_root = os.getuid() == os.geteuid() == 0
    if is_root:
        os.setresuid(_NOBODY, _NOBODY, 0)
    try:
        yield
    finally:
        if is_root:
            os.setresuid(0, 0, 0)
