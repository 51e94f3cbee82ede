"""Reading documents and writing what the operator needs to know about them."""

from beam_dpne.errors import AccessError, InputError, TooManyRejectedError
from beam_dpne.reading.beginnings import check_fields
from beam_dpne.reading.files import InputFile, match_inputs
from beam_dpne.reading.options import FORMATS, ReadOptions
from beam_dpne.reading.rejects import Reject, Tally, WriteRejects, tidied
from beam_dpne.reading.transform import ReadDocuments, ReadResult
from beam_dpne.storage.directories import connect_anonymously_to_emulators

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
