"""Starting engines: what is missing is named, what is there is looked at; no engine is started."""

import sys

import pytest

from deploy import processes
from deploy.downloads import DeployError
from deploy.flink import doctor
from deploy.processes import Daemons, listens, until
from tests.engines.conftest import deploy
from tests.engines.flink import free_ports

SERVER = "import socket, sys, time; s = socket.create_server(('localhost', int(sys.argv[1])));"
WAITING = f"{SERVER} time.sleep(60)"


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        ("prism", "go must be in PATH, and is not; install Go"),
        ("spark start --state .", "java must be in PATH, and is not; install openjdk-17"),
        ("flink start --state .", "java must be in PATH, and is not; install openjdk-17"),
    ],
)
def test_a_missing_tool_is_named(tmp_path, engine, said):
    name, *arguments = engine.replace(" .", f" {tmp_path}").split()
    ended = deploy(name, *arguments, PATH=str(tmp_path), XDG_CACHE_HOME=str(tmp_path), JAVA_HOME="")
    assert (ended.status, ended.out) == (1, "")
    assert said in ended.err


def test_daemons_are_listed_until_they_are_stopped(tmp_path, capsys):
    daemons, (port,) = Daemons(tmp_path), free_ports(1)
    command = [sys.executable, "-c", WAITING, str(port)]
    daemons.start("server", command, ready=listens(port))
    try:
        assert processes.print_status(daemons) == 0
        assert f"server: runs as process {daemons.pid('server')}" in capsys.readouterr().out
        with pytest.raises(DeployError, match="server runs already"):
            daemons.start("server", command)
        with pytest.raises(DeployError, match=f"listening on {port}"):
            processes.require_free_ports(port)
        daemons.kill("server")
        assert processes.print_status(daemons) == 1
        assert "server: has died" in capsys.readouterr().out
        # The number of a process that has ended may be that of another.
        (tmp_path / "server.pid").write_text("1 123.0\n")
        assert daemons.pid("server") is None
    finally:
        assert daemons.stop_all() == ["server"]
    assert daemons.status() == {}


@pytest.mark.parametrize(
    ("code", "said"),
    [("raise ValueError('no luck')", "ended before it was ready"), (WAITING, "did not happen")],
)
def test_a_daemon_that_does_not_start_shows_its_log(tmp_path, code, said):
    (port,) = free_ports(1)
    daemons, command = Daemons(tmp_path), [sys.executable, "-c", code, str(port)]
    with pytest.raises(DeployError, match=said) as raised:
        daemons.start("server", command, ready=lambda: False, timeout=1)
    assert ("no luck" in str(raised.value)) == ("luck" in code)
    assert daemons.status() == {}
    until(lambda: not listens(port)(), timeout=10, what="end of the server")


MIB = 1 << 20
# Flink as it comes: without Beam's jars, with its usual settings.
BARE = {
    "/config": {"flink-version": "1.20.1"},
    "/jobmanager/config": [{"key": "restart-strategy.type", "value": "none"}],
    "/jobmanager/environment": {"classpath": ["/lib/flink-dist.jar"], "jvm": {"options": []}},
    "/taskmanagers": {
        "taskmanagers": [
            {
                "id": "a",
                "slotsNumber": 2,
                "freeSlots": 0,
                "memoryConfiguration": {
                    "managedMemory": 256 * MIB,
                    "networkMemory": 128 * MIB,
                    "taskHeap": 256 * MIB,
                    "frameworkHeap": 128 * MIB,
                },
            }
        ]
    },
    "/jobs/overview": {
        "jobs": [{"jid": "j", "name": "titles", "state": "FAILED", "start-time": 1}]
    },
    "/jobs/j/exceptions": {
        "exceptionHistory": {"entries": [{"exceptionName": "java.io.SomeError"}]}
    },
    "/jobs/j/config": {"execution-config": {"user-config": {}}},
}


def test_the_doctor_names_what_a_bare_cluster_lacks(monkeypatch, capsys):
    monkeypatch.setattr(doctor.Rest, "get", lambda _, path: BARE[path])
    assert doctor.look("localhost:8081", rounds=15, parallelism=2) == 1
    lines = capsys.readouterr().out.splitlines()
    found = {line[8:].partition(":")[0]: (line.split()[0], line) for line in lines}
    assert {subject: status for subject, (status, _) in found.items()} == {
        "Flink": "missing",
        "Beam's jars": "limited",
        "beam-flow-control.jar": "limited",
        "Java's stack": "limited",
        "classloader.resolve-order": "limited",
        "restart-strategy.type": "limited",
        "TaskManagers": "limited",
        "Managed memory": "missing",
        "Network memory": "missing",
        "Java heap": "ok",
        "Last job": "limited",
        "planner.jar": "limited",
    }
    # A slot has half of the memory of its TaskManager.
    assert "128 MiB for each slot; 15 rounds in all need 160" in found["Managed memory"][1]
    assert "titles: FAILED, SomeError." in found["Last job"][1]


def test_an_address_where_no_flink_answers_is_one_line(capsys):
    (port,) = free_ports(1)
    assert doctor.look(f"localhost:{port}", rounds=15, parallelism=2) == 1
    assert capsys.readouterr().out.startswith("missing REST interface: no Flink answers at")
