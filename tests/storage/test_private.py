"""Private folders: of their owner alone, deleted when their run has ended, and never through a link."""

import fcntl
import os
import pathlib
import signal
import socket
import stat
import subprocess
import sys

import pytest

from beam_dpne.errors import AccessError
from beam_dpne.reading.rejects import Reject, write_rejects
from beam_dpne.storage.directories import directory_at
from beam_dpne.storage.private import one_at_a_time, private_home, run_folder

# Says where its folder is, and stays in it until it is killed or its stdin ends.
RUN = """
import sys
from beam_dpne.storage.private import run_folder
with run_folder(sys.argv[1]) as folder:
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def start(tmp_path):
    """Starts a process that is in a run's folder; returns it and the folder."""
    processes = []

    def run():
        command = [sys.executable, "-c", RUN, tmp_path]
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
        processes.append(process)
        return process, pathlib.Path(process.stdout.readline().strip())

    yield run
    for process in processes:
        process.communicate()


def mode(path) -> int:
    return stat.S_IMODE(os.lstat(path).st_mode)


def test_a_folder_and_its_files_are_of_their_owner_alone(tmp_path):
    before = os.umask(0)
    try:
        with run_folder(str(tmp_path / "new")) as folder:
            directory_at(folder, is_private=True).put("PresentGrams.batch", b"private words")
            # As on a machine that does not share the disk, where it is made.
            directory_at(f"{folder}/elsewhere", is_private=True).put(
                "PresentGrams.batch", b"private"
            )
            folders = (os.path.dirname(folder), folder, f"{folder}/elsewhere")
            assert [mode(path) for path in folders] == [0o700] * 3
            assert mode(f"{folder}/PresentGrams.batch") == 0o600
    finally:
        os.umask(before)
    assert not os.path.exists(folder)


def test_what_killed_runs_left_is_deleted_and_nothing_else_is(tmp_path, start):
    killed, left = start()
    (left / "PresentGrams-1.batch").touch()
    _, used = start()
    home = left.parent
    host = socket.gethostname()
    others = [f"job-{host}-abcd1234", f"run-{host}-1-abcd1234", f"run-other{host}-abcd1234"]
    for name in others:
        (home / name).mkdir()
    (home / f"run-{host}-linked12").symlink_to(tmp_path)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    with run_folder(str(tmp_path)) as own:
        found = {path.name for path in home.iterdir()}
        kept = {*others, used.name, f"run-{host}-linked12", os.path.basename(own)}
        assert found == kept


def test_the_folder_of_a_job_stays_while_its_launcher_may_be_dead(tmp_path):
    with run_folder(str(tmp_path), ends_with_launcher=False) as job, run_folder(str(tmp_path)):
        assert os.path.basename(job).startswith("job-")
        assert os.path.isdir(job)


@pytest.mark.parametrize("planted", ["a link", "a folder for all", "a file"])
def test_what_somebody_else_has_planted_is_refused_and_left_alone(tmp_path, planted):
    target = tmp_path / "target"
    target.mkdir(0o700)
    home = tmp_path / "around" / f".beam_dpne-{os.getuid()}"
    home.parent.mkdir()
    if planted == "a link":
        home.symlink_to(target)
    elif planted == "a file":
        home.touch()
    else:
        home.mkdir()
        home.chmod(0o777)
    with pytest.raises(AccessError, match="that you own and nobody else can use"):
        private_home(str(home.parent))
    assert not list(target.iterdir())


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(AccessError, match=r"temp_location.*File exists"):
        private_home(str(tmp_path / "file"))


def test_a_lock_that_was_cleaned_away_fails_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with one_at_a_time("work"):
        with pytest.raises(BlockingIOError), one_at_a_time("work"):
            pass
        (lock,) = pathlib.Path(private_home()).iterdir()
        lock.unlink()
    with one_at_a_time("work"):
        pass


def test_a_directory_that_goes_while_it_is_reserved_is_made_and_reserved_again(
    tmp_path, monkeypatch
):
    """As when another run, which has made it, ends between its being opened and its being locked."""
    place = tmp_path / "out"
    lock = fcntl.flock

    def lock_what_is_gone(handle, how):
        monkeypatch.setattr(fcntl, "flock", lock)
        place.rmdir()
        lock(handle, how)

    monkeypatch.setattr(fcntl, "flock", lock_what_is_gone)
    with directory_at(str(place)).reserved():
        assert place.is_dir()
        with pytest.raises(BlockingIOError), directory_at(str(place)).reserved():
            pass
    assert not place.exists()


def test_rejects_replace_a_link_and_are_of_their_owner_alone(tmp_path):
    target = tmp_path / "target"
    target.write_text("kept")
    path = pathlib.Path(write_rejects(str(tmp_path / "rejects"), []))
    path.unlink()
    path.symlink_to(target)
    write_rejects(str(tmp_path / "rejects"), [Reject("in.csv", 0, "row", "no text")])
    assert target.read_text() == "kept"
    assert (path.is_symlink(), mode(path)) == (False, 0o600)
    assert list(path.parent.iterdir()) == [path]
