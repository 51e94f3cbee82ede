"""Errors of programs, by exit status."""


class UsageError(ValueError):
    """A parameter is wrong: exit status 2, nothing has been read."""


class RunError(RuntimeError):
    """A run failed; the message holds no data: exit status 1."""
