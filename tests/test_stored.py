"""Large released sets travel as files: the same release, mapped arrays, nothing left behind."""

import dataclasses
import os
import pathlib
import pickle

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from beam_dpne import (
    DecodeGrams,
    GramSet,
    PrivacyPlan,
    PrivateNgrams,
    RunKey,
    batches,
    length_rule,
    selection,
    stored,
)
from beam_dpne.batches import ROOT, GramSetCoder, StandingGrams, StandingGramsCoder, kept_small
from beam_dpne.stored import SetStore

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
    assert kept_small(VOCABULARY, SetStore(folder=str(tmp_path), limit=10**6)) is VOCABULARY
    assert kept_small(VOCABULARY, None) is VOCABULARY
    assert not list(tmp_path.iterdir())


def test_a_large_set_is_encoded_as_an_address_and_comes_back_equal(tmp_path):
    kept = kept_small(VOCABULARY, SetStore(folder=str(tmp_path / "new"), limit=10))
    (path,) = (tmp_path / "new").iterdir()
    encoded = GramSetCoder().encode(kept)
    assert str(path).encode() in encoded
    assert "日本".encode() not in encoded
    back = GramSetCoder().decode(encoded)
    assert same(back, VOCABULARY)
    assert GramSetCoder().encode(back) == encoded, "it travels on as an address"


def test_storing_twice_is_one_file(tmp_path):
    store = SetStore(folder=str(tmp_path), limit=10)
    first, second = (kept_small(VOCABULARY, store) for _ in range(2))
    assert first.stored == second.stored
    assert len(list(tmp_path.iterdir())) == 1


def test_bundles_of_one_process_share_one_mapping(tmp_path):
    encoded = GramSetCoder().encode(
        kept_small(VOCABULARY, SetStore(folder=str(tmp_path), limit=10))
    )
    assert GramSetCoder().decode(encoded) is GramSetCoder().decode(encoded)
    keys = GramSetCoder().decode(encoded).keys
    assert not keys.flags.owndata
    assert not keys.flags.writeable


@pytest.mark.parametrize("length", [1, 2])
def test_what_stands_after_a_round_is_stored_and_comes_back_equal(tmp_path, length):
    standing = StandingGrams(
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
    coder = StandingGramsCoder()
    kept = kept_small(standing, SetStore(folder=str(tmp_path), limit=10))
    (path,) = tmp_path.iterdir()
    assert path.name.startswith(f"standing-2-{length}-")
    assert str(path).encode() in coder.encode(kept)
    for back in (coder.decode(coder.encode(kept)), coder.decode(coder.encode(standing))):
        for name in ("keys", "cells", "found"):
            assert getattr(back, name).dtype == getattr(standing, name).dtype
            assert getattr(back, name).tolist() == getattr(standing, name).tolist()
        assert back.words == standing.words
        for name in ("length", "round", "parent_size", "vocabulary_size", "rule"):
            assert getattr(back, name) == getattr(standing, name)


@pytest.mark.parametrize("damage", [lambda b: b[:-1], lambda b: b[:-1] + bytes([b[-1] ^ 1])])
def test_a_damaged_file_is_refused(tmp_path, damage):
    kept = kept_small(VOCABULARY, SetStore(folder=str(tmp_path), limit=10))
    (path,) = tmp_path.iterdir()
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match="not what the run stored"):
        stored.mapped.__wrapped__(kept.stored)


@pytest.mark.parametrize("pruning", ["both", "single"])
@pytest.mark.parametrize("strategy", ["adaptive", "one_round"])
def test_a_limit_of_one_byte_does_not_change_the_release(tmp_path, strategy, pruning):
    plan = PrivacyPlan(
        epsilon=20,
        delta=1e-3,
        max_length=4,
        max_contributions=9,
        pruning=pruning,
        strategy=strategy,
    )
    users = [(f"user {i}", f"good morning to you number {i % 7}") for i in range(200)]
    rows = []
    for name, store in (
        ("elements", None),
        ("files", SetStore(folder=str(tmp_path / "s"), limit=1)),
    ):
        path = tmp_path / name
        with beam.Pipeline(runner=FnApiRunner()) as pipeline:
            documents = pipeline | beam.Create(users)
            result = documents | PrivateNgrams(plan=plan, run_key=RunKey(bytes(32)), store=store)
            lines = (
                result.released
                | DecodeGrams()
                | beam.FlatMap(lambda rows: map(str, rows.to_pylist()))
            )
            _ = lines | beam.io.WriteToText(str(path), shard_name_template="")
        rows.append(sorted(path.read_text().splitlines()))
    assert rows[0] == rows[1]
    assert any("'length': 3" in row for row in rows[0])
    kept = {path.name.rpartition("-")[0] for path in (tmp_path / "s").iterdir()}
    assert {"released-1", "released-2", "released-3"} <= kept
    standing = {"standing-1-1", "standing-1-2", "standing-2-2", "standing-1-3", "standing-2-3"}
    assert standing <= kept if plan.is_adaptive else not standing & kept


def test_the_program_leaves_no_temporary_files(cli, tmp_path):
    data = tmp_path / "notes.jsonl"
    lines = [f'{{"user": "u{i}", "text": "good morning to you"}}\n' for i in range(200)]
    data.write_text("".join(lines))
    (tmp_path / "key").write_text("5eed" * 16)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    options = (
        "ngrams",
        "--input",
        data,
        "--epsilon",
        10,
        "--delta",
        1e-4,
        "--run_key_file",
        tmp_path / "key",
    )
    seen = []
    store = stored.store

    def watched(folder, *others):
        seen.append(pathlib.Path(folder).parent)
        return store(folder, *others)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches.stored, "store", watched)
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


def test_old_copies_of_a_worker_are_deleted_and_fresh_ones_kept(tmp_path):
    old, fresh = tmp_path / "old.arrow", tmp_path / "fresh.arrow"
    for path in (old, fresh):
        path.write_bytes(b"x")
    os.utime(old, (0, 0))
    stored._remove_old(str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["fresh.arrow"]


def test_a_pickled_set_keeps_its_address(tmp_path):
    kept = kept_small(VOCABULARY, SetStore(folder=str(tmp_path), limit=10))
    assert pickle.loads(pickle.dumps(kept.stored)) == kept.stored


def test_copies_lie_in_a_folder_of_our_own(tmp_path, monkeypatch):
    monkeypatch.setattr(stored.tempfile, "tempdir", str(tmp_path))
    folder = pathlib.Path(stored._own_folder())
    assert folder.stat().st_mode & 0o777 == 0o700
    assert stored._own_folder() == str(folder)
    folder.chmod(0o777)
    assert pathlib.Path(stored._own_folder()) != folder
    folder.rmdir()
    (tmp_path / "elsewhere").mkdir()
    folder.symlink_to(tmp_path / "elsewhere")
    assert pathlib.Path(stored._own_folder()) != folder


def test_a_remote_set_is_fetched_once_and_a_damaged_copy_again(tmp_path, monkeypatch):
    kept = kept_small(VOCABULARY, SetStore(folder=str(tmp_path / "remote"), limit=10)).stored
    monkeypatch.setattr(stored.tempfile, "tempdir", str(tmp_path))
    opened = []
    real = stored.FileSystems.open

    def counted(path, **settings):
        opened.append(path)
        return real(path, **settings)

    monkeypatch.setattr(stored.FileSystems, "open", counted)
    first = stored._fetched(kept)
    assert stored._fetched(kept) == first
    assert len(opened) == 1
    (copy,) = (path for path in pathlib.Path(stored._own_folder()).iterdir())
    copy.write_bytes(b"damaged")
    assert stored._fetched(kept).size == kept.size
    assert len(opened) == 2


def test_the_name_of_a_private_set_s_file_is_made_with_a_secret(tmp_path):
    standing = StandingGrams(
        length=2,
        round=1,
        keys=np.arange(9),
        cells=np.zeros(9, np.int32),
        found=np.zeros(9, np.int8),
    )
    store = SetStore(folder=str(tmp_path), limit=10)
    names = [kept_small(standing, store, bytes([key]) * 32).stored.path for key in (1, 2, 1)]
    assert names[0] == names[2] != names[1]


def test_two_runs_name_the_file_of_one_standing_set_differently(tmp_path):
    """Else whoever lists the folder could confirm a guess of what stands after a round."""
    part = StandingGrams(
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
        selection._merge_standing_and_keep(ROOT, [part], round_number=1, store=store, run_key=key)
        for key in keys
    ]
    paths = [standing.stored.path for standing in kept]
    assert paths[0] == paths[2] != paths[1]
