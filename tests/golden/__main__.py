"""Records the releases under fixed keys anew: `python -m tests.golden`.

It refuses while a recorded release has changed and the mechanism version has not: raise
`beam_dpne.documents.run_keys.MECHANISM_VERSION` first, and say in the commit why releases change.
Likewise for constants that decide releases (small ones do not notice all of them), and for what a
tokenizer makes of texts, and the tokenizer's version.
"""

import json
import pathlib
import sys
import tempfile

from beam_dpne.counts import rule
from beam_dpne.documents.run_keys import MECHANISM_VERSION, tokenizer_identity
from beam_dpne.mechanism import gaussian, randomness, rules, thresholds
from beam_dpne.ngrams import adaptive, tolerances
from beam_dpne.ngrams import plan as ngrams_plan
from beam_dpne.phrase_counts import plan as phrase_plan
from beam_dpne.set_union import plan as union_plan
from tests.golden.cases import CASES, TOKENIZERS, release_digest, tokens_digest, write_inputs

RECORDED = pathlib.Path(__file__).with_name("releases.json")


_MODULES = (
    adaptive,
    gaussian,
    ngrams_plan,
    phrase_plan,
    randomness,
    union_plan,
    rule,
)
_MODULES += (rules, thresholds, tolerances)
# Names of choices, and limits that refuse.
_NO_NUMBERS = {"MAX_BUDGET"}
_NO_NUMBERS |= {*(name for name in vars(union_plan) if name.endswith("POLICIES"))}


def constants() -> dict[str, str]:
    """The numbers of the modules that decide releases, by module and name."""
    return {
        f"{module.__name__.rpartition('.')[2]}.{name}": repr(value)
        for module in _MODULES
        for name, value in vars(module).items()
        if name.isupper() and name[0] != "_" and name not in _NO_NUMBERS
        if isinstance(value, int | float | tuple | dict)
    }


def recorded() -> dict:
    """The mechanism version and the digests that are kept."""
    return json.loads(RECORDED.read_text())


def tokens_of(name: str) -> dict[str, str]:
    """A tokenizer's own version, without that of Unicode's tables, and the digest of its tokens."""
    version = tokenizer_identity(name)["version"].split(",")[0]
    return {"version": version, "tokens": tokens_digest(name)}


def changed(before: dict, releases: dict[str, str], tokenizers: dict[str, dict]) -> list[str]:
    """Names the recorded releases and tokens that are others now under the same version."""
    kept, same = before["releases"], before["mechanism_version"] == MECHANISM_VERSION
    others = [
        name for name in releases if same and kept.get(name, releases[name]) != releases[name]
    ]
    known = before["constants"]
    others += [name for name, now in constants().items() if same and known.get(name, now) != now]
    for name, now in tokenizers.items():
        then = before["tokenizers"].get(name, now)
        if then["version"] == now["version"] and then["tokens"] != now["tokens"]:
            others.append(name)
    return others


def main() -> int:
    """Releases every case and writes the digests."""
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder)
        write_inputs(place)
        releases = {name: release_digest(name, place) for name in CASES}
    tokenizers = {name: tokens_of(name) for name in TOKENIZERS}
    if RECORDED.exists() and (others := changed(recorded(), releases, tokenizers)):
        print("Changed under one version:", *others, file=sys.stderr)
        return 1
    whole = {
        "mechanism_version": MECHANISM_VERSION,
        "constants": constants(),
        "releases": releases,
        "tokenizers": tokenizers,
    }
    RECORDED.write_text(json.dumps(whole, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
