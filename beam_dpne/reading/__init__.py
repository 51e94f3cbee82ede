"""Reading users' documents from files, and writing the records that were rejected."""

from beam_dpne.errors import AccessError, InputError, TooManyRejectedError
from beam_dpne.reading.files import InputFile, match_inputs
from beam_dpne.reading.headers import check_fields
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

# It is called here because a worker may import any module of this room first, and then use storage.
connect_anonymously_to_emulators()
