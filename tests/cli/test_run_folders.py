"""The run's temporary folder: private on this machine, gone with the run, found after SIGKILL."""

import contextlib
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest

from beam_dpne.cli.run_folders import PREFIX, delete_at_once, run_folder
from beam_dpne.elements.coders import BatchCoder, spill
from beam_dpne.elements.side_inputs import SetStore
from beam_dpne.errors import UsageError
from beam_dpne.ngrams.elements import PresentGrams
from beam_dpne.storage.run_files import Markers, make_marker
from tests.conftest import ROOT

RUN = """
import sys
from beam_dpne.cli.run_folders import PREFIX, run_folder
with run_folder(sys.argv[1], PREFIX + sys.argv[2], embedded=True) as folder:
    with open(folder + "/standing-1-2.arrow", "w") as file:
        file.write("private")
    print("ready", flush=True)
    sys.stdin.read()
"""


@contextlib.contextmanager
def other_run(parent: pathlib.Path, name: str) -> Iterator[subprocess.Popen]:
    """An embedded run of another process that has written a set; it ends when stdin does."""
    command = [sys.executable, "-c", RUN, str(parent), name]
    piped = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=ROOT, **piped) as process:
        try:
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


def names(folder: pathlib.Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("failed", [False, True])
@pytest.mark.parametrize("parent", ["plain", "run[1]*"])
@pytest.mark.parametrize("embedded", [False, True])
def test_the_temporary_folder_goes_with_the_run(tmp_path, failed, parent, embedded):
    parent = tmp_path / parent
    parent.mkdir()
    (parent / "other").write_text("stays")
    try:
        with run_folder(str(parent), "run", embedded=embedded) as folder:
            make_marker(Markers(folder).wanted)
            Markers(folder).report_start()
            assert pathlib.Path(Markers(folder).started).exists()
            if failed:
                raise KeyboardInterrupt
    except KeyboardInterrupt:
        assert failed
    assert [path.name for path in parent.iterdir()] == ["other"]


def test_nobody_else_can_read_the_folder_of_an_embedded_run(tmp_path):
    with run_folder(str(tmp_path), "run", embedded=True) as folder:
        assert os.stat(folder).st_mode & 0o777 == 0o700


def test_the_next_run_deletes_what_a_killed_one_left_and_nothing_else(tmp_path):
    parent = tmp_path / "parent"
    parent.mkdir()
    with other_run(parent, "live"), other_run(parent, "killed") as killed:
        killed.kill()
        killed.wait()
        elsewhere = shutil.copytree(parent / f"{PREFIX}killed", tmp_path / "elsewhere")
        (parent / f"{PREFIX}link").symlink_to(elsewhere)
        make_marker(Markers(str(parent / f"{PREFIX}engine")).wanted)
        (parent / f"{PREFIX}file").write_text("theirs")
        others = [f"{PREFIX}{name}" for name in ("engine", "file", "link", "live")]
        assert names(parent) == sorted([*others, f"{PREFIX}killed"])
        with run_folder(str(parent), f"{PREFIX}next", embedded=True):
            assert names(parent) == sorted([*others, f"{PREFIX}next"])
        assert names(parent) == others
        assert (parent / f"{PREFIX}live" / "standing-1-2.arrow").read_text() == "private"
        assert (elsewhere / "standing-1-2.arrow").exists()


def test_a_job_on_an_engine_is_not_deleted_by_an_embedded_run(tmp_path):
    with run_folder(str(tmp_path), f"{PREFIX}engine") as folder:
        make_marker(Markers(folder).wanted)
        with run_folder(str(tmp_path), f"{PREFIX}next", embedded=True):
            assert pathlib.Path(Markers(folder).wanted).exists()


def test_a_run_that_is_ended_at_once_deletes_its_folder_and_names_that_of_an_engine(
    tmp_path, capsys
):
    alone = run_folder(str(tmp_path), f"{PREFIX}embedded", embedded=True)
    with alone as deleted, run_folder(str(tmp_path), f"{PREFIX}engine") as shared:
        pathlib.Path(deleted, "standing-1-2.arrow").write_text("private")
        make_marker(Markers(shared).wanted)
        delete_at_once()
        assert names(tmp_path) == [f"{PREFIX}engine"]
        said = capsys.readouterr().err
    assert f"the temporary folder {shared} may be left" in said
    assert deleted not in said
    delete_at_once()
    assert capsys.readouterr().err == ""


def test_a_folder_that_cannot_be_made_names_the_setting(tmp_path):
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(UsageError, match="temp_location must be writable"),
        run_folder(str(tmp_path / "file"), "run", embedded=True),
    ):
        pass


def test_a_run_that_has_ended_has_no_set_open(tmp_path):
    standing = PresentGrams(
        length=2,
        round=1,
        keys=np.arange(9),
        cells=np.zeros(9, np.int32),
        found=np.zeros(9, np.int8),
    )
    coder = BatchCoder(PresentGrams)
    with run_folder(str(tmp_path), "run", embedded=True) as folder:
        encoded = coder.encode(spill(standing, SetStore(folder=folder, limit=10)))
        assert coder.decode(encoded) is coder.decode(encoded)
    with pytest.raises(FileNotFoundError):
        coder.decode(encoded)
