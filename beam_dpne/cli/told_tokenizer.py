"""A tokenizer of the user's own whose errors reach the failure log with their cause.

`tokenize` withholds what such a tokenizer raises. An engine hands on a worker's traceback as text,
so the cause must be in the traceback when the operator asked for it; stderr never has it.
"""

import pyarrow as pa

from beam_dpne.documents.key_context import tokenizer_identity
from beam_dpne.documents.tokenizers import TOKENIZERS, Tokenizer, resolve_tokenizer, tokenizer_name
from beam_dpne.errors import TokenizerError


def with_cause(tokenizer: str | Tokenizer) -> str | Tokenizer:
    """Returns a tokenizer with the same tokens and the same name whose errors keep their cause.

    Args:
      tokenizer: a name, or a function; the package's own stay as they are.

    >>> with_cause("words")
    'words'
    """
    own = TOKENIZERS if isinstance(tokenizer, str) else TOKENIZERS.values()
    return tokenizer if tokenizer in own else _WithCause(tokenizer)


class _WithCause:
    """Calls a tokenizer; a name is looked up where it is called, on a worker."""

    def __init__(self, tokenizer: str | Tokenizer) -> None:
        # The run key is bound to name and version: they must be those of the tokenizer itself.
        identity = tokenizer_identity(tokenizer)
        self.tokenizer_name = identity["name"]
        self.version = identity["version"]
        self._tokenizer = tokenizer

    def __call__(self, texts: pa.Array) -> pa.ListArray:
        """Returns the tokens."""
        try:
            return resolve_tokenizer(self._tokenizer)(texts)
        except TokenizerError:
            raise
        except (Exception, SystemExit) as error:
            raise TokenizerError(
                f"tokenizer {tokenizer_name(self)} raised {type(error).__name__} "
                "(its message is left out because it may quote a text)."
            ) from error
