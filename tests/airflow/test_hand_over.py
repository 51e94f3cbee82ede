"""The program that starts a job and leaves it; tests/engines/test_airflow.py runs it on Flink."""

import json
import os
import pathlib
import signal
import socket
import threading
import time

import pytest
from apache_beam.portability.api import beam_job_api_pb2
from apache_beam.runners.portability.local_job_service import LocalJobServicer

from beam_dpne.airflow.hand_over import main as hand_over


@pytest.mark.parametrize(
    "engine",
    [
        [],
        ["--runner=PortableRunner", "--job_endpoint=localhost:1", "--environment_type=LOOPBACK"],
    ],
)
def test_a_job_whose_workers_would_end_with_the_program_is_not_handed_over(
    engine, tmp_path, capsys
):
    budget = ["--epsilon=1", "--delta=1e-7", f"--output={tmp_path / 'out'}"]
    given = [str(tmp_path / "report"), "ngrams", f"--input={tmp_path}", *budget, *engine]
    assert hand_over(given) == 2
    assert "environment_type must be EXTERNAL" in capsys.readouterr().err
    assert not (tmp_path / "report").exists()


def test_a_language_model_is_not_handed_over(tmp_path, capsys):
    given = [
        *(str(tmp_path / "report"), "bayesian", "--epsilon=1", "--delta=1e-7"),
        *("--runner=PortableRunner", "--environment_type=EXTERNAL", "--arpa=/m.arpa"),
    ]
    assert hand_over(given) == 2
    assert "arpa must be left out here" in capsys.readouterr().err


class SlowServicer(LocalJobServicer):
    """A job server that answers a second after it has started a job, as one far away does."""

    def Run(self, request, context=None, timeout=None):
        started = super().Run(request, context, timeout)
        time.sleep(1)
        return started


@pytest.fixture(params=[LocalJobServicer, SlowServicer])
def jobs(request):
    """Beam's own job server, in this process."""
    servicer = request.param()
    port = servicer.start_grpc_server()
    servicer.address = f"localhost:{port}"
    yield servicer
    servicer.stop()


def states(jobs):
    """What has become of each job."""
    found = jobs.GetJobs(beam_job_api_pb2.GetJobsRequest()).job_info
    return [beam_job_api_pb2.JobState.Enum.Name(job.state) for job in found]


@pytest.fixture
def hand_over_notes(jobs, tmp_path):
    """Hands a job over whose workers never answer; returns the exit status and the run's folder."""
    (tmp_path / "notes.jsonl").write_text('{"user": "u", "text": "canary"}\n')

    def started(timeout):
        with socket.create_server(("localhost", 0)) as silent:
            status = hand_over(
                [
                    *(str(tmp_path / "report"), "ngrams", f"--input={tmp_path / 'notes.jsonl'}"),
                    *("--epsilon=1", "--delta=1e-7", f"--output={tmp_path / 'out'}"),
                    *("--runner=PortableRunner", f"--job_endpoint={jobs.address}"),
                    "--environment_type=EXTERNAL",
                    f"--environment_config=localhost:{silent.getsockname()[1]}",
                    *(f"--harness_timeout={timeout}", "--max_length=1"),
                ]
            )
            ended = states(jobs)
        folder = pathlib.Path(json.loads((tmp_path / "report").read_text())["folder"])
        assert folder.parent == tmp_path
        return status, ended, folder

    return started


def test_a_job_whose_workers_do_not_start_is_cancelled_and_leaves_no_folder(
    hand_over_notes, capsys
):
    status, ended, folder = hand_over_notes(1)
    assert status == 1
    assert "no worker" in capsys.readouterr().err
    assert ended == ["CANCELLED"]
    assert not folder.exists()


def test_a_program_that_is_terminated_cancels_its_job_and_leaves_no_folder(
    hand_over_notes, jobs, tmp_path
):
    seen = []

    def terminate():
        while "RUNNING" not in states(jobs):
            time.sleep(0.05)
        # The report is there before the job is.
        folder = pathlib.Path(json.loads((tmp_path / "report").read_text())["folder"])
        seen.extend(path.name for path in folder.iterdir())
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=terminate)
    thread.start()
    status, ended, folder = hand_over_notes(0)
    thread.join()
    assert status == 128 + signal.SIGTERM
    assert seen
    assert ended == ["CANCELLED"]
    assert not folder.exists()


def test_a_job_that_cannot_be_sent_leaves_no_folder(tmp_path, capsys):
    (tmp_path / "notes.jsonl").write_text('{"user": "u", "text": "canary"}\n')
    status = hand_over(
        [
            *(str(tmp_path / "report"), "ngrams", f"--input={tmp_path / 'notes.jsonl'}"),
            *("--epsilon=1", "--delta=1e-7", f"--output={tmp_path / 'out'}"),
            *("--runner=PortableRunner", "--job_endpoint=localhost:1", "--max_length=1"),
            *("--job_server_timeout=1", "--environment_type=EXTERNAL"),
            "--environment_config=localhost:1",
        ]
    )
    assert status == 1
    assert "canary" not in capsys.readouterr().err
    assert (tmp_path / "report").exists()
    assert list(tmp_path.glob(".beam_dpne-*")) == []
