"""Errors of this package.

The message of each is written here in the project and holds no text of a record, so programs may print
it. Messages of all other errors may quote data, and programs withhold them, but for those of a plain
`ValueError` or `FileNotFoundError` before anything is read.
"""

import builtins
import logging
import os
import re
import sys
import threading

WITHHELD = "; its message is withheld, since it may quote the data."
# Packages whose programmers have named their errors. Elsewhere, as in the module of a tokenizer that an
# operator wrote, a class may be made while the program runs, and named by a text of the data.
_LIBRARIES = frozenset(
    {
        *sys.stdlib_module_names,
        *(
            "apache_beam",
            "beam_dpne",
            "cryptography",
            "google",
            "grpc",
            "ijson",
            "jinja2",
            "msgspec",
        ),
        *("numpy", "pandas", "pyarrow", "rich", "scipy", "tokenizers"),
    }
)
_ERRNO = re.compile(r"\[Errno (\d{1,4})\]")
# It hands nothing on to the handlers of a caller, and `failure_log` gives it the only one that writes.
UNHANDLED = logging.getLogger(f"{__name__}.unhandled")
UNHANDLED.propagate = False
UNHANDLED.addHandler(logging.NullHandler())
_WHILE_RUNNING = re.compile(r"(?: \[while running '[^']*'\])+$")


def installing(extra: str) -> str:
    """Returns the command that installs an extra; no index has this package.

    >>> installing("plots")
    "pip install '.[plots]' in the checkout of beam-dpne"
    """
    return f"pip install '.[{extra}]' in the checkout of beam-dpne"


class BeamDpneError(Exception):
    """Base of the errors whose messages programs may print, because they hold no text of a record."""


class AccessError(BeamDpneError, ValueError):
    """Storage cannot be used as asked; the message holds no data of it."""


class BudgetError(BeamDpneError, ValueError):
    """Ledgers cannot be composed, or a budget does not allow a run; the message holds no data."""


class EngineError(BeamDpneError, RuntimeError):
    """The workers of an engine do not start; the message holds no data of the pipeline."""


class ExportError(BeamDpneError, ValueError):
    """A release cannot be exported as asked; the message holds no n-gram and no item."""


class InputError(BeamDpneError, ValueError):
    """An input cannot be read as asked; the message holds no data of it.

    Attributes:
      path: The file that lacks a field, if the names of its fields help an operator; else "".
      beside: The message without what it says of fields, to which all names are added for an operator.
    """

    def __init__(self, message: str, *, path: str = "", beside: str = "") -> None:
        super().__init__(message)
        self.path = path
        self.beside = beside or message


class AbsentFieldError(InputError):
    """A file lacks a field, or has it several times."""


class PublicCountsError(BeamDpneError, ValueError):
    """Public counts are not valid; the message may quote a line number, never a text."""


class ReleaseError(BeamDpneError, ValueError):
    """A release cannot be published or read; the message holds no n-gram and no item."""


class RunError(BeamDpneError, RuntimeError):
    """A run failed; the message holds no data, and a program ends with status 1."""


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


def is_ours(kind: type) -> bool:
    """Whether errors of a class have messages without the text of a record.

    Only classes of this module count: a subclass that somebody else wrote may quote anything.

    >>> is_ours(ReleaseError), is_ours(ValueError)
    (True, False)
    """
    return kind.__module__ == __name__ and issubclass(kind, BeamDpneError)


def kind_of(error: BaseException) -> str:
    """Returns the name of an error's class, or of its nearest base that a known library defines.

    >>> kind_of(KeyError("a text")), kind_of(type("a text", (KeyError,), {})())
    ('KeyError', 'KeyError')
    """
    return next(each.__name__ for each in type(error).__mro__ if _is_of_library(each))


def _is_of_library(kind: type) -> bool:
    """Whether a known library has a class under the class's own name."""
    name = kind.__module__
    # A class that is made while the program runs may have anything there.
    if not isinstance(name, str) or name.partition(".")[0] not in _LIBRARIES:
        return False
    return getattr(sys.modules.get(name), kind.__name__, None) is kind


def printable_reason(error: BaseException) -> str:
    """Returns why a run failed, without data: a message of this package, or the error's type.

    An engine reports an error as a text that contains tracebacks. Only the line after the frames of
    the last traceback is read, and it is returned only if it begins with an error class of this
    package. A record would be returned only if it imitated a whole traceback in a library's message.
    """
    own = own_reason(error)
    if own is not None:
        return own
    name = kind_of(error)
    message = str(error)
    raised, _, said = _raised(message).partition(": ")
    if isinstance(getattr(builtins, raised, None), type):
        name = raised
        message = said
    found = _ERRNO.match(message)
    return f"{os.strerror(int(found[1]))}." if found else f"{name}{WITHHELD}"


def own_reason(error: BaseException) -> str | None:
    """Returns the message of the error of this package that failed a run, or None if it was another."""
    message = str(error)
    if is_ours(type(error)):
        return _WHILE_RUNNING.sub("", message)
    raised, _, said = _raised(message).partition(": ")
    module, _, kind = raised.rpartition(".")
    if module == __name__ and is_ours(globals().get(kind, object)):
        return _WHILE_RUNNING.sub("", said)
    return None


def _raised(text: str) -> str:
    """Returns the line that names the error of the last traceback in a text, or an empty one."""
    _, mark, frames = text.rpartition("Traceback (most recent call last):")
    lines = frames.splitlines()[1:] if mark else []
    return next((line for line in lines if line and not line[0].isspace()), "")


def withhold_unhandled() -> None:
    """Lets errors that nobody handles be logged in a failure log, and nowhere else, as from now on.

    The interpreter prints an error that ends a thread, or that nobody can catch (in a finalizer), and
    its message may quote the data. So does a handler that the caller has for all that is logged.
    """
    threading.excepthook = sys.unraisablehook = lambda unhandled: UNHANDLED.error(
        "Nobody has handled an error.", exc_info=unhandled.exc_value
    )
