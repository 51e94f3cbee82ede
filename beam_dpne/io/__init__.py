"""Reading documents and writing what the operator needs to know about them."""

from beam_dpne.io.checks import check_fields
from beam_dpne.io.files import InputFile, match_inputs
from beam_dpne.io.options import FORMATS, InputError, ReadOptions
from beam_dpne.io.reading import ReadDocuments, ReadResult
from beam_dpne.io.rejects import Reject, WriteRejects, tidied
from beam_dpne.io.schemes import AccessError, connect_anonymously_to_emulators
from beam_dpne.io.tally import Tally, TooManyRejectedError

__all__ = [
    "FORMATS",
    "AccessError",
    "InputError",
    "InputFile",
    "ReadDocuments",
    "ReadOptions",
    "ReadResult",
    "Reject",
    "Tally",
    "TooManyRejectedError",
    "WriteRejects",
    "check_fields",
    "match_inputs",
    "tidied",
]

# Here, because workers use storage from whatever of this package they import first.
connect_anonymously_to_emulators()
