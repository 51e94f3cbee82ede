"""Permissions as they bind users: root, who may read and write anywhere, becomes nobody for a while."""

import contextlib
import os
from collections.abc import Iterator

_NOBODY = 65534


@contextlib.contextmanager
def without_privileges() -> Iterator[None]:
    """Gives up root's rights in this process, and takes them back."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(_NOBODY)
    try:
        yield
    finally:
        os.seteuid(user)
