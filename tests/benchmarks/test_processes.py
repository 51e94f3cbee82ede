"""What processes took, of real trees of processes: launcher, engine's program, pool of workers."""

import contextlib
import subprocess
import sys
import time

import psutil
import pytest

from tests.benchmarks.processes import ENGINE, HARNESS, LAUNCHER, Cost, Sampler, as_json, kind_of
from tests.engines.flink import free_ports

MEGABYTE = 1_000_000
# Burns seconds of CPU time with so many MB of memory, and prints what the system counted.
BURN = """
import sys, time
seconds, held = float(sys.argv[1]), b"x" * (int(sys.argv[2]) * 1_000_000)
while time.process_time() < seconds: pass
print(time.process_time(), flush=True)
time.sleep(0.3)
"""
# Burns half a second, says so, and burns a quarter more when it is told.
TWICE = """
import time
for until in 0.5, 0.75:
    while time.process_time() < until: pass
    print(time.process_time(), flush=True)
    input()
"""
# A process that starts two of them, one after the other, and does nothing itself.
PARENT = """
import subprocess, sys
for megabytes in "20", "150":
    subprocess.run([sys.executable, "-c", sys.argv[1], "0.7", megabytes], check=True)
"""


@contextlib.contextmanager
def child_of(*command):
    """Starts a process, and ends it when nobody needs it any longer."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, **pipes, text=True) as child:
        try:
            yield child
        finally:
            child.kill()


def wait_until(condition):
    until = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_the_cpu_time_and_memory_of_children_count_although_they_have_ended():
    with child_of(sys.executable, "-c", PARENT, BURN) as child, Sampler(lambda: [child.pid]) as one:
        counted = sum(map(float, child.communicate(timeout=60)[0].split()))
    assert child.returncode == 0
    assert one.costs.keys() == {LAUNCHER}
    cost = one.costs[LAUNCHER]
    # The three interpreters start in some hundredths of a second.
    assert counted - 0.1 < cost.cpu < counted + 0.5
    # The larger child, and not the sum of those that ran one after the other.
    assert 150 * MEGABYTE < cost.peak < 200 * MEGABYTE
    assert cost.peak < one.together < cost.peak + 40 * MEGABYTE


def test_time_from_before_the_measurement_does_not_count():
    with child_of(sys.executable, "-c", TWICE) as child:
        before = float(child.stdout.readline())
        with Sampler(lambda: [child.pid]) as one:
            child.stdin.write("\n")
            child.stdin.flush()
            counted = float(child.stdout.readline()) - before
    assert before >= 0.5
    assert one.costs[LAUNCHER].cpu == pytest.approx(counted, abs=0.05)


def test_a_process_that_starts_later_is_found():
    started = []
    with Sampler(lambda: started) as one:
        time.sleep(0.2)
        with child_of("sleep", "30") as child:
            started.append(child.pid)
            time.sleep(1)
    assert one.costs.keys() == {ENGINE}
    assert one.costs[ENGINE].cpu < 0.1
    assert one.costs[ENGINE].peak == one.together > 0


def test_a_sample_of_processes_that_are_gone_is_empty():
    with child_of("true") as child:
        child.wait()
    with Sampler(lambda: [child.pid]) as one:
        time.sleep(0.2)
    assert one.costs == {}
    assert one.together == 0


def test_this_program_is_a_launcher_and_others_are_the_engine():
    assert kind_of(psutil.Process()) == LAUNCHER
    with child_of("sleep", "30") as child:
        process = psutil.Process(child.pid)
        wait_until(process.cmdline)
        assert kind_of(process) == ENGINE
    assert kind_of(process) is None


@pytest.mark.parametrize(
    "module", ["beam_dpne.engines.worker_pool", "apache_beam.runners.worker.worker_pool_main"]
)
def test_a_pool_of_workers_is_the_harness(module):
    (port,) = free_ports(1)
    command = [sys.executable, "-m", module, f"--service_port={port}"]
    with child_of(*command) as child, Sampler(lambda: [child.pid]) as one:
        process = psutil.Process(child.pid)
        wait_until(lambda: process.cpu_times().user > 0.3)
        assert kind_of(process) == HARNESS
        time.sleep(1)
        child.terminate()
        child.wait()
    assert one.costs.keys() == {HARNESS}
    assert one.costs[HARNESS].cpu > 0.2
    assert one.costs[HARNESS].peak > 10 * MEGABYTE


def test_a_harness_whose_memory_the_system_takes_back_is_no_launcher():
    hold = "held = b'x' * 300_000_000; print(flush=True); input()"
    with child_of(sys.executable, "-c", hold, "worker_pool") as child:
        child.stdout.readline()
        process = psutil.Process(child.pid)
        kinds = {kind_of(process)}
        child.kill()
        while process.status() != psutil.STATUS_ZOMBIE:
            kinds.add(kind_of(process))
        kinds.add(kind_of(process))
    assert kinds == {HARNESS, None}


def test_costs_are_written_in_seconds_and_megabytes():
    assert as_json({ENGINE: Cost(1.239, 2_600_000)}) == {ENGINE: {"cpu": 1.24, "megabytes": 3}}
    assert as_json({}) == {}
