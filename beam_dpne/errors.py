"""Errors of this package.

The message of each is written here in the project and holds no data of a user, so programs may print
it. Messages of all other errors may quote data, and programs withhold them, but for those of a plain
`ValueError` or `FileNotFoundError` before anything is read.
"""

from collections.abc import Callable


class BeamDpneError(Exception):
    """Base of the errors whose messages programs may print, because they hold no private data."""


class AccessError(BeamDpneError, ValueError):
    """Storage cannot be used as asked; the message holds no data of it."""


class BudgetError(BeamDpneError, ValueError):
    """Ledgers cannot be composed, or a budget does not allow a run; the message holds no data."""


class EngineError(BeamDpneError, RuntimeError):
    """The workers of an engine do not start; the message holds no data of the pipeline."""


class ExportError(BeamDpneError, ValueError):
    """A release cannot be exported as asked; the message holds no n-gram and no item."""


class InputError(BeamDpneError, ValueError):
    """An input cannot be read as asked; the message holds no data of it."""


class PlotsUnavailableError(BeamDpneError, ValueError):
    """The package matplotlib is not installed."""


class PublicCountsError(BeamDpneError, ValueError):
    """Public counts are not valid; the message may quote a line number, never a text."""


class ReleaseError(BeamDpneError, ValueError):
    """A release cannot be published or read; the message holds no n-gram and no item."""


class ReportError(BeamDpneError, ValueError):
    """An evaluation cannot be written as asked; the message holds no data."""


class RunError(BeamDpneError, RuntimeError):
    """A run failed; the message holds no data, and a program ends with status 1.

    Attributes:
      details: returns what the engine has recorded of the failure, which may hold data; None if
        there is no engine to ask.
    """

    def __init__(self, message: str, details: Callable[[], str] | None = None) -> None:
        """Takes the message, and how to get more for the operator."""
        super().__init__(message)
        self.details = details


class RunKeyError(BeamDpneError, ValueError):
    """A run key cannot be read, or differs from the launcher's."""


class SharedStorageError(BeamDpneError, ValueError):
    """Launcher and workers do not share storage, or the launcher gave the run up."""


class TokenizerError(BeamDpneError, ValueError):
    """A tokenizer breaks its contract; the message holds no text and no count."""


class TooManyRejectedError(BeamDpneError, ValueError):
    """A larger share of the records was rejected than is allowed; the message holds no record."""


class UsageError(BeamDpneError, ValueError):
    """A parameter is wrong; a program ends with status 2 before it reads any data."""


def may_be_printed(name: str) -> bool:
    """Whether an error of this class, given by its full name, has a message without private data.

    Only classes of this module count: a subclass that somebody else wrote may quote anything.

    >>> may_be_printed("beam_dpne.errors.ReleaseError"), may_be_printed("builtins.ValueError")
    (True, False)
    """
    module, _, kind = name.rpartition(".")
    found = globals().get(kind) if module == __name__ else None
    return isinstance(found, type) and issubclass(found, BeamDpneError)
