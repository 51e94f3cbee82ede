"""Memory of a cluster's workers, of real processes: one that listens as a TaskManager, and a pool."""

import os
import signal
import sys

import pytest

from deploy.flink.memory import ELSEWHERE, sample
from deploy.flink.rest import until
from deploy.processes import Daemons
from tests.engines.flink import free_ports

TASK_MANAGER, POOL = "taskmanager-1", "pool"
# Closes its port when it gets SIGUSR1, and goes on.
LISTENS = """
import signal, socket, sys, time
signal.signal(signal.SIGUSR1, lambda *_: server.close())
server = socket.create_server(("localhost", int(sys.argv[1])))
while True: time.sleep(1)
"""
# A process of the name that the pool gives a harness.
FORKS = """
import os, pathlib, sys, time
if not os.fork(): pathlib.Path("/proc/self/comm").write_text(f"harness:{sys.argv[1]}")
time.sleep(60)
"""

pytestmark = pytest.mark.skipif(not os.path.exists("/proc/self/comm"), reason="needs /proc")


def test_a_harness_stays_its_task_managers_until_that_is_gone(tmp_path):
    daemons = Daemons(tmp_path)
    (port,) = free_ports(1)
    owners: dict[int, str] = {}

    def owners_of_harnesses(known=None):
        found = sample(daemons, (POOL,), known)
        return [name for name, of in found.items() if of.harnesses.processes]

    try:
        listener = daemons.start(TASK_MANAGER, [sys.executable, "-c", LISTENS, str(port)])
        daemons.start(POOL, [sys.executable, "-c", FORKS, str(port)])
        until(lambda: owners_of_harnesses(owners) == [TASK_MANAGER], timeout=30, what="a harness")
        assert owners == {port: TASK_MANAGER}
        os.kill(listener, signal.SIGUSR1)
        until(lambda: owners_of_harnesses() == [ELSEWHERE], timeout=30, what="a closed port")
        assert owners_of_harnesses(owners) == [TASK_MANAGER]
        daemons.kill(TASK_MANAGER)
        assert owners_of_harnesses(owners) == [ELSEWHERE]
    finally:
        for name in (TASK_MANAGER, POOL):
            daemons.stop(name)
