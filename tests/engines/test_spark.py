"""The same release on Spark: in one Java machine, and on a standalone cluster."""

import pytest

from deploy.spark import Spark
from tests.engines.conftest import deploy

pytestmark = [pytest.mark.engines, pytest.mark.spark]


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    """Starts Spark and returns it; all are stopped in the end."""
    running = []

    def start(**settings) -> Spark:
        running.append(Spark(tmp_path_factory.mktemp("spark"), **settings))
        running[-1].start()
        return running[-1]

    yield start
    for spark in running:
        spark.daemons.stop_all()


def test_local_spark_releases_what_the_embedded_runner_does(started, check_same, check_same_series):
    spark = started()
    check_same("one_round", *spark.job_options())
    check_same_series(*spark.job_options())
    status = deploy("spark", "status", "--state", spark.daemons.state)
    assert (status.status, status.out.split(":")[0]) == (0, "jobserver")
    taken = deploy("spark", "start", "--state", spark.daemons.state / "other")
    assert taken.status == 1
    assert f"got somebody listening on {spark.job_port}" in taken.err


def test_standalone_cluster_releases_what_the_embedded_runner_does(started, check_same, tmp_path):
    spark = started(master=None, job_port=8299)
    check_same("screened_gaussian", *spark.job_options(), "--temp_location", tmp_path / "temporary")
    # The first of the two jobs shows that workers start.
    applications = spark.cluster_state()["completedapps"]
    assert [(each["state"], each["cores"]) for each in applications] == [("FINISHED", 2)] * 2
    # Executors have all jars: the folder of a job on the worker holds logs and one jar, not 300 MB.
    folders = list((spark.daemons.state / "temporary" / "work").iterdir())
    assert [len(list(folder.rglob("*.jar"))) for folder in folders] == [1, 1]
