"""Errors of programs, by exit status."""

from collections.abc import Callable


class UsageError(ValueError):
    """A parameter is wrong: exit status 2, nothing has been read."""


class RunError(RuntimeError):
    """A run failed; the message holds no data: exit status 1.

    Attributes:
      details: returns what the engine has recorded of the failure, which may hold data; None if
        there is no engine to ask.
    """

    def __init__(self, message: str, details: Callable[[], str] | None = None) -> None:
        """Takes the message, and how to get more for the operator."""
        super().__init__(message)
        self.details = details
