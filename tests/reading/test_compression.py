"""Compressed files as people have them: members, padding, windows, archives, and wrong names."""

import bz2
import gzip
import lzma

import pytest
import zstandard

from beam_dpne.errors import InputError
from beam_dpne.reading.files import match_inputs
from beam_dpne.reading.options import ReadOptions
from beam_dpne.reading.records import check_fields
from tests.reading.files import CANARY, COMPRESS, read, write, zipped

LINES = [b'{"user":"%d","text":"%s"}\n' % (number, b"tea " * 500) for number in range(40)]
WHOLE = b"".join(LINES)
OF_MEMBERS = [(name, pack) for name, pack in COMPRESS.items() if name not in ("", ".zip")]
ROWS = [(str(number), "tea " * 500) for number in range(40)]


def large(data: bytes, *, sized: bool) -> bytes:
    """Data as zstd --long=31 compresses them, from a file or from a pipe."""
    parameters = zstandard.ZstdCompressionParameters(
        window_log=31, write_content_size=sized, enable_ldm=True
    )
    packer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    return packer.compress(data) + packer.flush()


@pytest.mark.parametrize(
    ("ending", "data"),
    [
        *((name, pack(WHOLE[:777]) + pack(WHOLE[777:])) for name, pack in OF_MEMBERS),
        *((name, pack(WHOLE[:9]) + pack(b"") + pack(WHOLE[9:])) for name, pack in OF_MEMBERS),
        (".gz", gzip.compress(WHOLE) + bytes(1000)),
        (".gz", gzip.compress(WHOLE[:99]) + gzip.compress(WHOLE[99:], 1) + bytes(70_000)),
        (".xz", lzma.compress(WHOLE) + bytes(64)),
        (".bz2", bz2.compress(WHOLE, 1) + bytes(7)),
        (".zst", large(WHOLE, sized=False)),
        (".zst", large(WHOLE[:99], sized=False) + large(WHOLE[99:], sized=False)),
        (".zip", zipped(("folder/", b""), ("folder/a.jsonl", WHOLE))),
    ],
)
def test_a_file_is_read_whole_however_it_was_compressed(tmp_path, ending: str, data: bytes) -> None:
    assert read([write(tmp_path / f"a.jsonl{ending}", data)]) == (ROWS, [])


@pytest.mark.parametrize(
    ("ending", "data"),
    [
        *((name, pack(WHOLE) + b"behind") for name, pack in OF_MEMBERS),
        *((name, pack(WHOLE) + pack(WHOLE)[:30]) for name, pack in OF_MEMBERS),
        (".zst", large(WHOLE, sized=False)[:-9]),
    ],
)
def test_what_follows_a_member_is_never_left_out_in_silence(
    tmp_path, ending: str, data: bytes
) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read([write(tmp_path / f"a.jsonl{ending}", data)])


def test_what_a_mac_puts_beside_a_file_is_no_file(tmp_path) -> None:
    members = ("a", WHOLE), ("__MACOSX/._a", b"\0\5\x16\7")
    alone = read([write(tmp_path / "a.jsonl.zip", zipped(members[0]))])
    assert read([write(tmp_path / "b.jsonl.zip", zipped(*members))]) == alone


@pytest.mark.parametrize("members", [(), (("a", WHOLE), ("b", WHOLE))])
def test_an_archive_of_several_files_is_refused(tmp_path, members) -> None:
    path = write(tmp_path / "a.jsonl.zip", zipped(*members))
    with pytest.raises(InputError, match=r"must have one file that is not encrypted"):
        read([path])


@pytest.mark.parametrize("ending", [ending for ending in COMPRESS if ending])
@pytest.mark.parametrize("kind", ["jsonl", "json", "csv"])
def test_a_compressed_file_whose_name_does_not_say_so_is_named(
    tmp_path, kind: str, ending: str
) -> None:
    data = f"user,text\na,{CANARY}\n" if kind == "csv" else f'{{"user":"a","text":"{CANARY}"}}'
    path = write(tmp_path / f"a.{kind}", COMPRESS[ending](data.encode()))
    with pytest.raises(InputError, match=rf"must have a name that ends in \{ending}") as told:
        check_fields(match_inputs([str(path)]), ReadOptions())
    assert CANARY not in str(told.value)
