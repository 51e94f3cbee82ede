"""What the benchmarks read: parts and multiples of the data, made in a temporary directory.

Everything is streamed: a large parent would show up in its children's peak memory.
"""

import argparse
import gzip
import itertools
import json
import pathlib

ROOT = pathlib.Path(__file__).parents[2]
MSNBC = ROOT / "pipelines" / "data" / "msnbc990928.seq.gz"
TITLES = ROOT / "pipelines" / "data" / "reddit_titles_sample.jsonl.gz"
_SEQUENCES = b"% Sequences:"
_MOST_VISITS = 400  # --max_num_tokens of the paper's authors' scripts
_LEVEL = 6  # programs estimate the size of the text by that of the file


def existing_file(path: str) -> pathlib.Path:
    """The file that an option of a benchmark names, without links."""
    if not pathlib.Path(path).is_file():
        raise argparse.ArgumentTypeError(f"must name an existing file, got {path}")
    return pathlib.Path(path).resolve()


def in_a_folder(path: str) -> pathlib.Path:
    """The file that an option names and a benchmark writes."""
    if not pathlib.Path(path).parent.is_dir():
        raise argparse.ArgumentTypeError(f"must name a file in an existing folder, got {path}")
    return pathlib.Path(path)


def some_users(source: pathlib.Path, target: pathlib.Path, *, count=None, step=1) -> pathlib.Path:
    """Header and users of the MSNBC data: every `step`-th of the first `count`."""
    with gzip.open(source) as lines, gzip.open(target, "wb", _LEVEL) as kept:
        for line in lines:
            kept.write(line)
            if line.startswith(_SEQUENCES):
                break
        users = (line for line in lines if line.strip())
        kept.writelines(itertools.islice(users, 0, count, step))
    return target


def msnbc_records(source: pathlib.Path, target: pathlib.Path) -> pathlib.Path:
    """JSON lines of user and visits, without users who have more visits than the protocol keeps."""
    with gzip.open(source, "rt") as lines, gzip.open(target, "wt", _LEVEL) as kept:
        for line in lines:
            if line.startswith(_SEQUENCES.decode()):
                break
        visits = filter(None, (line.strip() for line in lines))
        for user, text in enumerate(visits, 1):
            if len(text.split()) <= _MOST_VISITS:
                kept.write(json.dumps({"user": str(user), "text": text}) + "\n")
    return target


def some_records(source: pathlib.Path, target: pathlib.Path, *, count: int) -> pathlib.Path:
    """The first records."""
    with gzip.open(source) as lines, gzip.open(target, "wb", _LEVEL) as kept:
        kept.writelines(itertools.islice(lines, count))
    return target


def more_users(source: pathlib.Path, target: pathlib.Path, *, times: int) -> pathlib.Path:
    """All records several times over, each time with other names of users."""
    with gzip.open(target, "wb", _LEVEL) as copies:
        for copy in range(times):
            with gzip.open(source) as lines:
                for line in lines:
                    record = json.loads(line)
                    record["user"] = f"{copy}-{record['user']}"
                    copies.write(json.dumps(record, ensure_ascii=False).encode() + b"\n")
    return target


def one_word(target: pathlib.Path, *, users: int, words: int) -> pathlib.Path:
    """Users whose one document repeats one word: nearly all positions survive all lengths."""
    text = " ".join(["word"] * words)
    with open(target, "w", encoding="utf-8") as file:
        for user in range(users):
            file.write(json.dumps({"user": f"u{user}", "text": text}) + "\n")
    return target
