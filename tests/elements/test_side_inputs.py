"""Large released sets travel as files: the same release, mapped arrays, nothing left behind."""

import collections
import dataclasses
import pathlib
import random
from concurrent.futures import ThreadPoolExecutor

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.io.filesystems import FileSystems
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from beam_dpne import NgramsPlan, PrivateNgrams, RunKey
from beam_dpne.elements import encoding
from beam_dpne.elements.coders import BatchCoder
from beam_dpne.elements.encoding import SetStore, spill
from beam_dpne.ngrams import elements, range_steps
from beam_dpne.ngrams.elements import PresentGrams
from beam_dpne.steps import GramSet, length_rule
from tests.ngrams.test_oracle import KEY, run_kernels, words_of
from tests.support.files import far
from tests.support.pipelines import keep

VOCABULARY = GramSet(
    length=1,
    keys=np.arange(3),
    scores=np.array([1.0, 2.0, 3.0]),
    words=pa.array(["a", "b", "日本"]),
    parent_size=1,
    vocabulary_size=3,
    rule=length_rule(length=1, noise_stddev=2.0, threshold=9.0),
)


def same(left: GramSet, right: GramSet) -> bool:
    arrays = np.array_equal(left.keys, right.keys) and np.array_equal(left.scores, right.scores)
    public = [
        dataclasses.replace(s, keys=None, scores=None, words=None, stored=None)
        for s in (left, right)
    ]
    return arrays and left.words == right.words and str(public[0]) == str(public[1])


def test_a_small_set_stays_an_element(tmp_path):
    assert spill(VOCABULARY, SetStore(folder=str(tmp_path), limit=10**6)) is VOCABULARY
    assert spill(VOCABULARY, None) is VOCABULARY
    assert not list(tmp_path.iterdir())


def test_a_large_set_is_encoded_as_an_address_and_comes_back_equal(tmp_path):
    kept = spill(VOCABULARY, SetStore(folder=str(tmp_path / "new"), limit=10))
    (path,) = (tmp_path / "new").iterdir()
    encoded = BatchCoder(GramSet).encode(kept)
    assert str(path).encode() in encoded
    assert "日本".encode() not in encoded
    back = BatchCoder(GramSet).decode(encoded)
    assert same(back, VOCABULARY)
    assert BatchCoder(GramSet).encode(back) == encoded, "it travels on as an address"


def test_bundles_of_one_process_share_one_mapping(tmp_path):
    encoded = BatchCoder(GramSet).encode(
        spill(VOCABULARY, SetStore(folder=str(tmp_path), limit=10))
    )
    assert BatchCoder(GramSet).decode(encoded) is BatchCoder(GramSet).decode(encoded)
    keys = BatchCoder(GramSet).decode(encoded).keys
    assert not keys.flags.owndata
    assert not keys.flags.writeable


@pytest.mark.parametrize("length", [1, 2])
def test_what_is_present_after_a_round_is_stored_and_comes_back_equal(tmp_path, length):
    present = PresentGrams(
        length=length,
        round=2,
        keys=np.arange(3),
        cells=np.array([0, -3, -200], np.int32),
        found=np.array([1, 0, 0], np.int8),
        words=pa.array(["a", "b", "日本"]) if length == 1 else None,
        parent_size=7,
        vocabulary_size=9,
        rule=VOCABULARY.rule,
    )
    coder = BatchCoder(PresentGrams)
    kept = spill(present, SetStore(folder=str(tmp_path), limit=10))
    (path,) = tmp_path.iterdir()
    assert path.name.startswith("PresentGrams-")
    assert str(path).encode() in coder.encode(kept)
    for back in (coder.decode(coder.encode(kept)), coder.decode(coder.encode(present))):
        for name in ("keys", "cells", "found"):
            assert getattr(back, name).dtype == getattr(present, name).dtype
            assert getattr(back, name).tolist() == getattr(present, name).tolist()
        assert back.words == present.words
        for name in ("length", "round", "parent_size", "vocabulary_size", "rule"):
            assert getattr(back, name) == getattr(present, name)


@pytest.mark.parametrize("damage", [lambda b: b[:-1], lambda b: b[:-1] + bytes([b[-1] ^ 1])])
def test_a_damaged_file_is_refused(tmp_path, damage):
    kept = spill(VOCABULARY, SetStore(folder=str(tmp_path), limit=10))
    (path,) = tmp_path.iterdir()
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match="not what the run stored"):
        BatchCoder(GramSet).decode(BatchCoder(GramSet).encode(kept))


@pytest.mark.parametrize(("strategy", "pruning"), [("adaptive", "both"), ("one_round", "single")])
def test_a_limit_of_one_byte_does_not_change_the_release(tmp_path, strategy, pruning):
    plan = NgramsPlan(
        epsilon=20,
        delta=1e-3,
        max_length=4,
        max_contributions=9,
        pruning=pruning,
        strategy=strategy,
    )
    documents = {f"user {i}": [f"good morning to you number {i % 7}".split()] for i in range(200)}
    expected = run_kernels(documents, plan, KEY, random.Random(0), partitions=3)
    rows = [(user, text) for user, texts in documents.items() for text in texts]
    store = SetStore(folder=str(tmp_path / "s"), limit=1)
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        run = PrivateNgrams(plan=plan, run_key=KEY, store=store, tokenizer="tokens")
        sets = keep((pipeline | beam.Create(rows) | run).released | beam.Flatten())
    released = words_of(sets)
    assert released == words_of(expected.sets)
    assert ("good", "morning", "to") in released[3]
    files = list((tmp_path / "s").iterdir())
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    kept = collections.Counter(path.name.partition("-")[0] for path in files)
    assert kept["GramSet"] >= 3
    assert kept["PresentGrams"] >= 5 if plan.is_adaptive else not kept["PresentGrams"]


def test_the_program_leaves_no_temporary_files(cli, tmp_path):
    data = tmp_path / "notes.jsonl"
    lines = [f'{{"user": "u{i}", "text": "good morning to you"}}\n' for i in range(200)]
    data.write_text("".join(lines))
    (tmp_path / "key").write_text("5eed" * 16)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    options = (
        *("ngrams", "--input", data, "--run_key_file", tmp_path / "key"),
        *("--epsilon", 10, "--delta", 1e-4, "--max_length", 2),
    )
    seen = []
    store = encoding.store_file

    def watched(folder, *others):
        seen.append(pathlib.Path(folder).parent.parent)
        return store(folder, *others)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encoding, "store_file", watched)
        limited = ("--side_input_limit", 1, "--temp_location", temporary, "--runner", "FnApiRunner")
        ended = cli(*options, "--output", tmp_path / "a", *limited)
    assert ended.status == 0, ended.err
    assert set(seen) == {temporary}
    assert not list(temporary.glob(".beam_dpne-*/*"))
    assert cli(*options, "--output", tmp_path / "b").status == 0
    files = [
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in "ab"
    ]
    assert files[0] == files[1]


def test_a_remote_set_is_fetched_once_by_all_threads_and_a_damaged_one_is_refused(
    tmp_path, monkeypatch
):
    opened = []
    real = FileSystems.open

    def counted(path, **settings):
        opened.append(path)
        return real(path, **settings)

    monkeypatch.setattr(FileSystems, "open", counted)
    kept = spill(VOCABULARY, SetStore(folder=far(tmp_path / "far"), limit=10))
    encoded = BatchCoder(GramSet).encode(kept)
    with ThreadPoolExecutor(8) as threads:
        sets = list(threads.map(BatchCoder(GramSet).decode, [encoded] * 8))
    assert len(opened) == 1
    assert all(one is sets[0] for one in sets)
    (file,) = (tmp_path / "far").iterdir()
    encoding.forget()
    file.write_bytes(b"damaged")
    with pytest.raises(encoding.SharedStorageError, match="not what the run stored"):
        BatchCoder(GramSet).decode(encoded)


def test_two_runs_name_the_file_of_one_present_set_differently(tmp_path):
    """Else whoever lists the folder could confirm a guess of what stands after a round."""
    shard = elements.HistogramShard(
        length=1,
        round=2,
        keys=np.arange(3),
        weights=np.zeros(3, np.int64),
        cells=np.zeros(3, np.int64),
        found=np.zeros(3, np.int8),
        words=pa.array(["a", "b", "c"]),
    )
    store = SetStore(folder=str(tmp_path), limit=10)
    keys = [RunKey(bytes([key]) * 32) for key in (1, 2, 1)]
    kept = [
        range_steps._merge_present(
            elements.ROOT, [(0, shard)], round_number=1, store=store, run_key=key
        )
        for key in keys
    ]
    paths = [present.stored.path for present in kept]
    assert paths[0] == paths[2] != paths[1]
