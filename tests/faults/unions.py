"""Set unions of all kinds in one pipeline: what every policy's own steps do is in it."""

import pathlib

import apache_beam as beam

from beam_dpne import DecodeGrams, PrivacyPlan, PrivateNgrams, PrivateSetUnion, RunKey, SetUnionPlan
from beam_dpne.set_union.elements import ItemSet, item_table
from tests.faults import conftest

POLICIES = ("weighted_gaussian", "screened_gaussian", "sips", "mad2r")
_KEY = RunKey.from_hex("a5" * 32)


class Unions:
    """`PrivateSetUnion` under several policies, and n-grams of words that such a policy finds."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder

    def release(self, runner: beam.runners.PipelineRunner, name: str) -> dict[str, list[bytes]]:
        """What each of them releases: lines with items and scores, sorted."""
        pairs = [(record["user"], record["text"].split()) for record in conftest.rows(300, 9)]
        # So rare that the first two rounds leave some of them undecided.
        for kinds in (25, 40, 60, 80, 120):
            pairs += [(f"user{kinds}-{i}", [f"rare{kinds}-{i % kinds}"]) for i in range(240)]
        with beam.Pipeline(runner=runner) as pipeline:
            items_of_users = pipeline | beam.Create(pairs)
            for policy in POLICIES:
                union = PrivateSetUnion(
                    plan=SetUnionPlan(epsilon=8, delta=1e-4, policy=policy),
                    partitions=5,
                    run_key=_KEY,
                )
                released = (items_of_users | f"{policy}" >> union).released
                # The rows have numbers of users, which `CountItems` measures.
                lines = released | f"{policy}/Lines" >> beam.FlatMap(_lines_of)
                _ = lines | f"{policy}/Write" >> self._write(name, policy)
            plan = PrivacyPlan(
                epsilon=8,
                delta=1e-4,
                max_length=2,
                vocabulary_policy="screened_gaussian",
                rounds=1,
            )
            ngrams = PrivateNgrams(plan=plan, tokenizer="tokens", partitions=5, run_key=_KEY)
            grams = (items_of_users | "Ngrams" >> ngrams).released | "Decode" >> DecodeGrams()
            lines = grams | "Ngrams/Lines" >> beam.FlatMap(lambda rows: map(str, rows.to_pylist()))
            _ = lines | "Ngrams/Write" >> self._write(name, "ngrams")
        return {
            kind: sorted(self._path(name, kind).read_bytes().splitlines())
            for kind in (*POLICIES, "ngrams")
        }

    def _path(self, name: str, kind: str) -> pathlib.Path:
        return self._folder / f"{name} {kind}"

    def _write(self, name: str, kind: str) -> beam.PTransform:
        path = str(self._path(name, kind))
        return beam.io.WriteToText(path, num_shards=1, shard_name_template="")


def _lines_of(items: ItemSet) -> list[str]:
    return [str(row) for row in item_table([items]).to_pylist()]
