"""Reading documents and writing what the operator needs to know about them."""

from beam_dpne.io.checks import check_fields
from beam_dpne.io.files import InputFile, match_inputs
from beam_dpne.io.options import FORMATS, InputError, ReadOptions
from beam_dpne.io.reading import ReadDocuments, ReadResult
from beam_dpne.io.rejects import Reject, WriteRejects

__all__ = [
    "FORMATS",
    "InputError",
    "InputFile",
    "ReadDocuments",
    "ReadOptions",
    "ReadResult",
    "Reject",
    "WriteRejects",
    "check_fields",
    "match_inputs",
]
