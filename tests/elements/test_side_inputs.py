"""Large released sets travel as files: the same release, mapped arrays, nothing left behind."""

import contextlib
import dataclasses
import os
import pathlib
import pickle
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from beam_dpne import GramSet, PrivacyPlan, PrivateNgrams, RunKey, length_rule
from beam_dpne.elements import side_inputs
from beam_dpne.elements.coders import BatchCoder, spill
from beam_dpne.elements.side_inputs import SetStore
from beam_dpne.ngrams import candidates, elements, threshold
from beam_dpne.ngrams.elements import PresentGrams
from tests.conftest import ROOT
from tests.ngrams.test_oracle import KEY, run_kernels, words_of
from tests.support.far_files import far
from tests.support.kept import keep

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


def test_storing_twice_is_one_file(tmp_path):
    store = SetStore(folder=str(tmp_path), limit=10)
    first, second = (spill(VOCABULARY, store) for _ in range(2))
    assert first.stored == second.stored
    assert len(list(tmp_path.iterdir())) == 1


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
    assert path.name.startswith(f"present-2-{length}-")
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
    plan = PrivacyPlan(
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
    kept = {path.name.rpartition("-")[0] for path in (tmp_path / "s").iterdir()}
    assert {"released-1", "released-2", "released-3"} <= kept
    present = {"present-1-1", "present-1-2", "present-2-2", "present-1-3", "present-2-3"}
    assert present <= kept if plan.strategy_value.has_user_budgets else not present & kept


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
    store = side_inputs.store

    def watched(folder, *others):
        seen.append(pathlib.Path(folder).parent)
        return store(folder, *others)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(side_inputs, "store", watched)
        limited = ("--side_input_limit", 1, "--temp_location", temporary)
        ended = cli(*options, "--output", tmp_path / "a", *limited)
    assert ended.status == 0, ended.err
    assert set(seen) == {temporary}
    assert not list(temporary.iterdir())
    assert cli(*options, "--output", tmp_path / "b").status == 0
    files = [
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in "ab"
    ]
    assert files[0] == files[1]


def test_a_pickled_set_keeps_its_address(tmp_path):
    kept = spill(VOCABULARY, SetStore(folder=str(tmp_path), limit=10))
    assert pickle.loads(pickle.dumps(kept.stored)) == kept.stored


STANDING = PresentGrams(
    length=2,
    round=1,
    keys=np.arange(7000, 7009),
    cells=np.zeros(9, np.int32),
    found=np.zeros(9, np.int8),
)


@pytest.fixture
def kept_far(tmp_path) -> str:
    """A private set on storage from where workers fetch it, encoded, in hexadecimal digits."""
    kept = spill(STANDING, SetStore(folder=far(tmp_path / "far"), limit=10))
    return BatchCoder(PresentGrams).encode(kept).hex()


@contextlib.contextmanager
def worker(kept: str, temporary: pathlib.Path) -> Iterator[subprocess.Popen]:
    """A process that has a set open, with a temporary directory for its copies."""
    temporary.mkdir(exist_ok=True)
    with subprocess.Popen(
        [sys.executable, "-m", "tests.support.set_worker", kept],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(temporary)},
    ) as process:
        try:
            assert process.stdout.readline().startswith("opened")
            yield process
        finally:
            process.kill()


def asked(process: subprocess.Popen) -> str:
    """Returns which keys a worker says that its set has."""
    process.stdin.write("which\n")
    process.stdin.flush()
    return process.stdout.readline().strip()


def test_nothing_of_a_fetched_set_outlives_its_worker_and_others_keep_theirs(kept_far, tmp_path):
    """Workers that share a temporary directory end in three ways; others' files there stay."""
    temporary, elsewhere = tmp_path / "temporary", tmp_path / "elsewhere"
    temporary.mkdir()
    elsewhere.mkdir()
    (temporary / f"beam_dpne-sets-{os.getuid()}").symlink_to(elsewhere)
    (temporary / "beam_dpne-theirs").write_text("theirs")
    before = sorted(temporary.iterdir())

    def nothing_is_left() -> bool:
        return sorted(temporary.iterdir()) == before and list(elsewhere.iterdir()) == []

    with worker(kept_far, temporary) as first:
        with worker(kept_far, temporary) as second:
            assert asked(second) == str(STANDING.keys.tolist())
            assert nothing_is_left()
            second.kill()
            assert second.wait(timeout=30) == -signal.SIGKILL
            assert nothing_is_left()
        with worker(kept_far, temporary) as third:
            shutil.rmtree(tmp_path / "far")
            for process in (first, third):
                assert asked(process) == str(STANDING.keys.tolist())
            third.send_signal(signal.SIGTERM)
            assert third.wait(timeout=30) == -signal.SIGTERM
            assert nothing_is_left()
        assert asked(first) == str(STANDING.keys.tolist())
        first.stdin.close()
        assert first.wait(timeout=30) == 0
    assert nothing_is_left()
    assert (temporary / "beam_dpne-theirs").read_text() == "theirs"


def test_a_worker_lets_go_of_a_set_when_the_run_deletes_its_file(tmp_path, monkeypatch):
    """Also of what was computed from it; before that it is kept, although no bundle uses it."""
    monkeypatch.setattr(side_inputs, "_LOOK_SECONDS", 0.05)
    monkeypatch.setattr(side_inputs, "_open_sets", side_inputs._OpenSets())
    encoded = BatchCoder(PresentGrams).encode(
        spill(STANDING, SetStore(folder=str(tmp_path / "run"), limit=10))
    )
    present = BatchCoder(PresentGrams).decode(encoded)
    candidates._rows_in(present, present)
    kept = weakref.ref(present)
    del present
    time.sleep(0.3)
    assert kept() is not None
    shutil.rmtree(tmp_path / "run")
    until = time.monotonic() + 10
    while kept() is not None and time.monotonic() < until:
        time.sleep(0.05)
    assert kept() is None


def test_a_remote_set_is_fetched_once_by_all_threads_and_a_damaged_one_is_refused(
    tmp_path, monkeypatch
):
    opened = []
    real = side_inputs.FileSystems.open

    def counted(path, **settings):
        opened.append(path)
        return real(path, **settings)

    monkeypatch.setattr(side_inputs.FileSystems, "open", counted)
    kept = spill(VOCABULARY, SetStore(folder=far(tmp_path / "far"), limit=10))
    encoded = BatchCoder(GramSet).encode(kept)
    with ThreadPoolExecutor(8) as threads:
        sets = list(threads.map(BatchCoder(GramSet).decode, [encoded] * 8))
    assert len(opened) == 1
    assert all(one is sets[0] for one in sets)
    (file,) = (tmp_path / "far").iterdir()
    side_inputs.forget(far(tmp_path / "far"))
    for damaged in (b"damaged", b""):
        file.write_bytes(damaged)
        with pytest.raises(side_inputs.SharedStorageError, match="not what the run stored"):
            BatchCoder(GramSet).decode(encoded)


def set_of(size: int) -> GramSet:
    return GramSet(length=1, keys=np.arange(size), scores=np.ones(size))


def test_threads_that_share_a_set_compute_its_value_once():
    computed = []

    def slow_size(grams: GramSet) -> int:
        computed.append(len(grams))
        time.sleep(0.05)
        return len(grams)

    size_of = side_inputs.CachedForSets(slow_size, maxsize=2)
    sets = [set_of(3), set_of(4)]
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(size_of, sets * 8))
    assert found == [3, 4] * 8
    assert sorted(computed) == [3, 4]


def test_a_cached_value_is_never_that_of_another_set():
    """Also of one that was freed, whose place in memory another set has taken."""
    size_of = side_inputs.CachedForSets(len, maxsize=2)
    assert [size_of(set_of(size)) for size in range(200)] == list(range(200))


def test_an_error_of_one_thread_does_not_stop_the_others():
    size_of = side_inputs.CachedForSets(lambda grams: 12 // len(grams), maxsize=2)
    with pytest.raises(ZeroDivisionError):
        size_of(set_of(0))
    found = []
    other = threading.Thread(target=lambda: found.append(size_of(set_of(3))), daemon=True)
    other.start()
    other.join(10)
    assert found == [4]


def test_the_name_of_a_private_set_s_file_is_made_with_a_secret(tmp_path):
    store = SetStore(folder=str(tmp_path), limit=10)
    names = [spill(STANDING, store, bytes([key]) * 32).stored.path for key in (1, 2, 1)]
    assert names[0] == names[2] != names[1]


def test_two_runs_name_the_file_of_one_present_set_differently(tmp_path):
    """Else whoever lists the folder could confirm a guess of what stands after a round."""
    part = PresentGrams(
        length=1,
        round=1,
        keys=np.arange(3),
        cells=np.zeros(3, np.int32),
        found=np.zeros(3, np.int8),
        words=pa.array(["a", "b", "c"]),
    )
    store = SetStore(folder=str(tmp_path), limit=10)
    keys = [RunKey(bytes([key]) * 32) for key in (1, 2, 1)]
    kept = [
        threshold._merge_present_and_spill(
            elements.ROOT, [part], round_number=1, store=store, run_key=key
        )
        for key in keys
    ]
    paths = [present.stored.path for present in kept]
    assert paths[0] == paths[2] != paths[1]
