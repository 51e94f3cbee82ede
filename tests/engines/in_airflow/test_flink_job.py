"""The wait for a job at Flink, and its cancellation, against a server with Flink's recorded answers.

Run by Airflow's own Python, which `tests/engines/test_airflow.py` starts.
"""

import asyncio
import json

import pytest
from airflow.sdk._shared.module_loading import import_string
from airflow.sdk.exceptions import AirflowException
from flink_server import JOB, RECORDED, serve_flink

from beam_dpne.airflow.flink import FlinkJobTrigger, cancel_jobs, newest_job, reason_of


@pytest.fixture
def flink():
    with serve_flink() as served:
        served.states("RUNNING")
        yield served


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / ".beam_dpne-0123"
    made.mkdir()
    (made / "wanted").write_text("1\n")
    return made


def trigger(address, folder, **fields):
    return FlinkJobTrigger(
        flink_master=address, job=JOB, folder=str(folder), poll_interval=0.01, **fields
    )


def events(waiting):
    async def collect():
        return [event.payload async for event in waiting.run()]

    return asyncio.run(asyncio.wait_for(collect(), timeout=30))


@pytest.mark.parametrize("state", ["FINISHED", "FAILED", "CANCELED"])
def test_the_wait_ends_with_the_job_and_hands_its_state_on(flink, folder, state):
    flink.states("RUNNING", "RUNNING", state)
    assert events(trigger(flink.address, folder)) == [
        {"state": state, "job": JOB, "folder": str(folder)}
    ]
    assert flink.asked == [f"GET /jobs/{JOB}"] * 3
    assert folder.exists()


def test_a_job_that_flink_has_forgotten_ends_the_wait(flink, folder):
    flink.answers = {}
    assert [event["state"] for event in events(trigger(flink.address, folder))] == ["FORGOTTEN"]


def test_errors_of_flink_do_not_end_the_wait_before_its_patience_does(flink, folder):
    running, done = (200, RECORDED["states"]["RUNNING"]), (200, RECORDED["states"]["FINISHED"])
    flink.answers[f"GET /jobs/{JOB}"] = [running, (500, {}), (503, {}), done]
    assert [event["state"] for event in events(trigger(flink.address, folder))] == ["FINISHED"]


def test_a_flink_that_does_not_answer_ends_the_wait_at_last(folder):
    with serve_flink() as gone:
        pass
    found = events(trigger(gone.address, folder, patience=0.2))
    assert [event["state"] for event in found] == ["UNREACHABLE"]


def test_the_triggerer_makes_the_same_trigger_again(flink, folder):
    path, fields = trigger(flink.address, folder, patience=7).serialize()
    again = import_string(path)(**json.loads(json.dumps(fields)))
    assert again.serialize() == (path, fields)
    assert fields["patience"] == 7


def test_a_user_who_stops_the_deferred_task_cancels_the_job_and_makes_it_publish_nothing(
    flink, folder
):
    cancel = f"PATCH /jobs/{JOB}?mode=cancel"
    flink.answers[cancel] = [(202, {})]
    asyncio.run(trigger(flink.address, folder).on_kill())
    assert flink.asked == [cancel]
    assert not folder.exists()


def test_the_job_publishes_nothing_even_if_flink_cannot_be_asked_to_cancel_it(folder):
    with serve_flink() as gone:
        pass
    asyncio.run(trigger(gone.address, folder).on_kill())
    assert not folder.exists()


def test_no_other_folder_than_a_run_s_is_deleted(flink, tmp_path):
    with pytest.raises(ValueError, match="must be the temporary folder of a run"):
        asyncio.run(trigger(flink.address, tmp_path).on_kill())
    assert tmp_path.exists()


def test_a_job_is_found_by_its_name_the_newest_if_there_are_several(flink):
    flink.answers["GET /jobs/overview"] = [(200, RECORDED["overview"])]
    name = RECORDED["name"]
    older = [job for job in RECORDED["overview"]["jobs"] if job["name"] == name]
    assert len(older) > 1
    assert newest_job(flink.address, name) == JOB
    with pytest.raises(AirflowException, match="has no job another"):
        newest_job(flink.address, "another")


def test_the_jobs_of_a_name_that_have_not_ended_are_cancelled(flink):
    ids = ("1" * 32, "2" * 32, "3" * 32)
    states = (("mine", "RUNNING"), ("mine", "FINISHED"), ("another", "RUNNING"))
    jobs = [
        {"jid": job, "name": name, "state": state, "start-time": 1}
        for job, (name, state) in zip(ids, states, strict=True)
    ]
    cancel = f"PATCH /jobs/{ids[0]}?mode=cancel"
    flink.answers = {"GET /jobs/overview": [(200, {"jobs": jobs})], cancel: [(202, {})]}
    cancel_jobs(flink.address, "mine")
    assert flink.asked == ["GET /jobs/overview", cancel]
    flink.answers[cancel] = [(500, {})]
    with pytest.raises(AirflowException, match="does not answer"):
        cancel_jobs(flink.address, "mine")


def test_a_reason_is_printed_if_it_is_ours_and_withheld_otherwise(flink):
    path = f"GET /jobs/{JOB}/exceptions"
    flink.answers[path] = [(200, RECORDED["exceptions"])]
    assert "Recovery is suppressed" not in reason_of(flink.address, JOB)
    assert "withheld" in reason_of(flink.address, JOB)
    ours = (
        "java.lang.RuntimeException: Error received from SDK harness for instruction 4: "
        "Traceback (most recent call last):\n"
        '  File "apache_beam/runners/common.py", line 1501, in process\n'
        "beam_dpne.errors.TooManyRejectedError: too many records were rejected.\n"
        "\tat org.apache.beam.runners.fnexecution.control.FnApiControlClient\n"
    )
    flink.answers[path] = [(200, {"exceptionHistory": {"entries": [{"stacktrace": ours}]}})]
    assert reason_of(flink.address, JOB) == "too many records were rejected."
    flink.answers = {}
    assert reason_of(flink.address, JOB) == "Flink does not give a reason."
