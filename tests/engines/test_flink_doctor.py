"""The doctor of Flink clusters: on recorded answers of real clusters, on wrong ports, and on a cluster.

`flink_answers.json` holds answers of Flink 1.19.3 as they were, with shorter paths: of the cluster of
`deploy.flink` ("healthy"), and of one without Beam's jars and with Flink's usual settings ("bare"). Of
the logs they hold some lines. The class paths of the healthy one were recorded later than the rest.
"""

import concurrent.futures
import contextlib
import copy
import datetime
import functools
import http.server
import io
import ipaddress
import json
import os
import pathlib
import re
import socket
import ssl
import subprocess
import sys
import threading

import grpc
import pytest
from apache_beam.internal import pickler
from apache_beam.options.pipeline_options import PipelineOptions
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from rich.console import Console

from beam_dpne import engines
from beam_dpne.errors import EngineError
from deploy.downloads import versions
from deploy.flink import __main__ as program
from deploy.flink import asking, checks, class_paths, doctor, probe
from deploy.flink.checks import Finding
from deploy.flink.probe import Report
from tests.engines.conftest import deploy
from tests.engines.flink import free_ports

pytest_plugins = ["tests.engines.flink_cluster"]

ANSWERS = json.loads(pathlib.Path(__file__).with_name("flink_answers.json").read_text())
HEALTHY, BARE = ANSWERS["healthy"], ANSWERS["bare"]
SETTINGS = checks.settings_of(HEALTHY["/jobmanager/config"])
TASK_MANAGERS = HEALTHY["/taskmanagers"]["taskmanagers"]
PLAN = checks.plan_of(5, None, "adaptive")
REPORT = Report("host-a", 7, 0, "3.11.7", "2.77.0", "0.1.0", True)


class _Replay(http.server.BaseHTTPRequestHandler):
    """Answers with what `answers` holds for a path: JSON, a text, or (status, bytes)."""

    def __init__(self, answers, *arguments):
        self.answers = answers
        super().__init__(*arguments)

    def do_GET(self):
        given = self.answers.get(self.path, (404, b'{"errors":["Not found."]}'))
        if isinstance(given, str):
            given = 200, given.encode()
        status, body = given if isinstance(given, tuple) else (200, json.dumps(given).encode())
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format, *arguments):
        pass


@contextlib.contextmanager
def http_server(answers, context=None):
    """Serves answers on a free port; yields HOST:PORT."""
    with http.server.ThreadingHTTPServer(
        ("localhost", 0), functools.partial(_Replay, answers)
    ) as server:
        if context is not None:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"localhost:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


@contextlib.contextmanager
def grpc_server():
    """A gRPC server without any service."""
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(1))
    port = server.add_insecure_port("localhost:0")
    server.start()
    try:
        yield f"localhost:{port}"
    finally:
        server.stop(None)


@contextlib.contextmanager
def tcp_server(said):
    """Says something to whoever connects, or with None accepts and never answers."""
    with socket.create_server(("localhost", 0)) as server:
        if said is not None:

            def serve():
                with contextlib.suppress(OSError):
                    while True:
                        with server.accept()[0] as one:
                            one.sendall(said)
                            one.recv(1000)

            threading.Thread(target=serve, daemon=True).start()
        yield f"localhost:{server.getsockname()[1]}"


@pytest.fixture(scope="module")
def tls(tmp_path_factory) -> ssl.SSLContext:
    """A server's TLS with a certificate that it has signed itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.timezone.utc)
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + certificate.public_bytes(serialization.Encoding.PEM)
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    return context


def given_of(**others) -> doctor.Given:
    settings = {
        "flink_master": "localhost:1",
        "job_endpoint": None,
        "environment_type": "EXTERNAL",
        "environment_config": None,
        "parallelism": 2,
        "temp_location": None,
        "harness_timeout": 60,
        "timeout": 1,
        "plan": PLAN,
    }
    return doctor.Given(**{**settings, **others})


def statuses(findings) -> dict[str, str]:
    return {finding.subject: finding.status for finding in findings}


def test_a_cluster_as_it_should_be_is_ok():
    with http_server(HEALTHY) as address:
        found = list(doctor.look(given_of(flink_master=address)))
    # The memory of the harness cannot be seen, and no job server was named.
    assert statuses(found).pop("Process memory") == "unknown"
    assert statuses(found).pop("Job server") == "unknown"
    others = [one for one in found if one.subject not in {"Process memory", "Job server"}]
    assert len(others) == 12
    assert {one.status for one in others} == {"ok"}, others


def test_a_cluster_with_usual_settings_lacks_what_it_lacks():
    plan = checks.plan_of(6, None, "adaptive")
    with http_server(BARE) as address:
        found = list(doctor.look(given_of(flink_master=address, plan=plan)))
    wrong = {subject: of for subject, of in statuses(found).items() if of in {"limited", "missing"}}
    assert wrong == {
        "Beam's jars in Flink's lib": "limited",
        "beam-flow-control.jar": "limited",
        "Class loading": "limited",
        "Managed memory": "missing",
        "Network buffers": "missing",
        "Restarts": "limited",
        "Full memory": "limited",
    }
    assert all(one.advice for one in found if one.status in {"limited", "missing"})


def test_canaries_of_both_clusters_show_their_planner_and_settings():
    job = HEALTHY[f"/jobs/{HEALTHY['/jobs/overview']['jobs'][0]['jid']}/config"]
    assert checks.planner(job, checks.plan_of(26, None, "adaptive")).status == "ok"
    assert [one.status for one in checks.job_settings(job)] == ["ok", "ok"]
    without = BARE[f"/jobs/{BARE['/jobs/overview']['jobs'][0]['jid']}/config"]
    assert checks.planner(without, checks.plan_of(4, None, "adaptive")).status == "limited"
    refused = checks.planner(without, checks.plan_of(5, None, "adaptive"))
    assert refused.status == "missing"
    assert "--max_length 4," in refused.advice
    assert "your own machine" in refused.advice


def test_settings_that_do_not_reach_flink_are_missing():
    job = copy.deepcopy(HEALTHY[f"/jobs/{HEALTHY['/jobs/overview']['jobs'][0]['jid']}/config"])
    job["execution-config"]["execution-mode"] = "PIPELINED"
    job["execution-config"]["user-config"]["environmentCacheMillis"] = "0"
    found = checks.job_settings(job)
    assert statuses(found) == {
        "--environment_cache_millis": "missing",
        "--execution_mode_for_batch": "missing",
    }
    assert "Flink got 0 where the launcher sent 120000" in found[0].text


@pytest.mark.parametrize(
    ("version", "status"), [("1.19.0", "ok"), ("1.20.1", "missing"), ("2.0.0", "missing")]
)
def test_flink_of_another_minor_version_is_missing(version, status):
    wanted = versions()["FLINK_VERSION"]
    assert checks.flink_version({"flink-version": version}, wanted).status == status


@pytest.mark.parametrize(
    ("names", "status"),
    [
        (["beam-runners-flink-1.19-2.62.0.jar"], "ok"),
        (["beam-runners-flink-1.19-job-server-2.62.0.jar"], "ok"),
        (["beam-runners-flink-1.19-2.60.0.jar"], "limited"),
        (["beam-runners-flink-1.18-2.62.0.jar"], "missing"),
        (["flink-dist-1.19.3.jar", "beam-runners-core-java-2.62.0.jar"], "limited"),
        (None, "unknown"),
    ],
)
def test_the_class_path_of_the_job_manager_is_looked_at(names, status):
    paths = None if names is None else {"classpath": [f"/opt/flink/lib/{name}" for name in names]}
    assert class_paths.beam_jars(paths, "2.62.0", "1.19.3").status == status


def test_an_older_flink_that_hides_its_class_path_is_looked_at_all_the_same():
    hidden = {path: of for path, of in HEALTHY.items() if path != "/jobmanager/environment"}
    with http_server(hidden) as address:
        found = statuses(doctor.look(given_of(flink_master=address)))
    assert found["Beam's jars in Flink's lib"] == "unknown"
    assert found["beam-flow-control.jar"] == "ok"
    assert found["Slots"] == "ok"


LOG = HEALTHY["/taskmanagers/taskmanager-1/log"]
FLOW = "/opt/flink/lib/beam-flow-control.jar"
PATHS = HEALTHY["/jobmanager/environment"]["classpath"]
WITHOUT = [path for path in PATHS if path != FLOW]


def log_of(paths) -> str:
    """The recorded beginning of a log with another class path."""
    return re.sub("Classpath: .*", f"Classpath: {':'.join(paths)}", LOG)


def flow_of(logs, paths=None) -> Finding:
    answer = None if paths is None else {"classpath": paths}
    return class_paths.flow_control(answer, logs, changed(2, frameworkOffHeap=256))


def test_flow_control_is_read_in_the_logs_of_task_managers():
    assert flow_of([LOG, LOG]) == Finding(
        "beam-flow-control.jar",
        "ok",
        "the logs of 2 TaskManagers show that it comes before Beam's jars.",
    )
    assert "the logs of 1 of 2 TaskManagers" in flow_of([LOG]).text


@pytest.mark.parametrize(
    "paths",
    [
        pytest.param(WITHOUT, id="absent"),
        pytest.param([*WITHOUT, FLOW], id="behind Beam's jars"),
        pytest.param([path for path in PATHS if "sdks-java-core" not in path], id="without Beam's"),
        pytest.param(
            ["/lib/beam-runners-flink-1.19-job-server-2.62.0.jar", FLOW], id="behind a merged jar"
        ),
    ],
)
def test_one_task_manager_without_flow_control_limits_the_input_of_a_task(paths):
    # That the JobManager has the jar does not help: tasks send from TaskManagers.
    found = flow_of([LOG, log_of(paths)], PATHS)
    assert found.status == "limited"
    assert "the logs of 1 of 2 TaskManagers show" in found.text
    # 256 MiB off-heap, of which Flink reads into 64.
    assert "room for 192 MiB for each slot" in found.text
    assert "--parallelism" in found.advice


def test_flow_control_before_one_merged_jar_of_beam_counts():
    jars = [FLOW, "/opt/flink/lib/beam-runners-flink-1.19-job-server-2.62.0.jar"]
    assert flow_of([log_of(jars)] * 2).status == "ok"


@pytest.mark.parametrize("log", [None, "", "a log that was cut\n"])
def test_flow_control_is_not_known_of_task_managers_whose_logs_do_not_show_it(log):
    assert flow_of([LOG, log], PATHS).status == "unknown"
    assert "In the JobManager's it comes before" in flow_of([log, log], PATHS).text
    assert flow_of([log, log], WITHOUT).status == "limited"
    assert flow_of([log, log]).status == "unknown"
    assert "does not show the JobManager's" in flow_of([log, log]).text


def test_only_the_beginning_of_a_log_is_read():
    log = log_of(WITHOUT) + "a line of a job\n" * 100_000
    with http_server({"/taskmanagers/a%20b/log": log}) as address:
        given = given_of(flink_master=address)
        read = doctor._log(given, "a b")
        assert doctor._log(given, "absent") is None
    assert read == log[: len(read)]
    assert 1 << 16 < len(read) < 1 << 20
    assert flow_of([read, LOG]).status == "limited"


def changed(count: int = 1, **memory) -> list:
    """Recorded TaskManagers with other numbers."""
    one = copy.deepcopy(TASK_MANAGERS[0])
    one["memoryConfiguration"] |= {name: mib << 20 for name, mib in memory.items()}
    return [one] * count


def test_slots():
    assert checks.slots(TASK_MANAGERS, 2) == Finding(
        "Slots", "ok", "2 TaskManagers with 2 slots, 2 of them free, for --parallelism 2."
    )
    assert "--parallelism 2 would use all" in checks.slots(TASK_MANAGERS, 1).advice
    busy = [{**one, "freeSlots": 0} for one in TASK_MANAGERS]
    assert checks.slots(busy, 2).status == "limited"
    assert checks.slots([], 2).status == "missing"


def test_without_task_managers_memory_is_not_looked_at():
    empty = {**HEALTHY, "/taskmanagers": {"taskmanagers": []}}
    with http_server(empty) as address:
        found = statuses(doctor.look(given_of(flink_master=address)))
    assert found["Slots"] == "missing"
    assert "Managed memory" not in found
    assert found["Restarts"] == "ok"


@pytest.mark.parametrize(
    ("mib", "lengths", "status"),
    [
        # 27 rounds, the corpus and the numbers of users: 29 groupings of two sorts of 4.7 MiB each.
        (273, 9, "ok"),
        (272, 9, "missing"),
        (768, 26, "ok"),
    ],
)
def test_managed_memory_must_suffice_for_all_rounds_together(mib, lengths, status):
    plan = checks.plan_of(lengths, None, "adaptive")
    assert checks.managed_memory(changed(managedMemory=mib), plan).status == status


def test_too_little_managed_memory_names_the_jobs_that_fit():
    plan = checks.plan_of(9, None, "adaptive")
    advice = checks.managed_memory(changed(managedMemory=128), plan).advice
    assert "managed.size to 273m" in advice
    found = re.findall(r"--max_length (\d+)( --rounds 1| --strategy one_round)?", advice)
    assert [option for _, option in found] == ["", " --rounds 1", " --strategy one_round"]
    ways = (None, "adaptive"), (1, "adaptive"), (None, "one_round")
    for (length, _), way in zip(found, ways, strict=True):
        for longer, status in ((0, "ok"), (1, "missing")):
            other = checks.plan_of(int(length) + longer, *way)
            assert checks.managed_memory(changed(managedMemory=128), other).status == status


def test_managed_memory_is_that_of_a_slot():
    (one,) = changed(managedMemory=256)
    plan = checks.plan_of(9, None, "adaptive")
    assert checks.managed_memory([{**one, "slotsNumber": 2}], plan).status == "missing"


@pytest.mark.parametrize(
    ("mib", "buffers", "strategy", "status"),
    [
        # Flink's default of 512 buffers; 128 MiB were too little in a real run.
        (128, None, "adaptive", "missing"),
        # A released set has ten readers: 10 x 16 MiB, and 8 MiB to read.
        (167, None, "adaptive", "missing"),
        (168, None, "adaptive", "ok"),
        (88, None, "one_round", "ok"),
        (96, "64", "adaptive", "ok"),
    ],
)
def test_network_memory_must_hold_the_buffers_of_all_results(mib, buffers, strategy, status):
    name = "taskmanager.network.sort-shuffle.min-buffers"
    settings = {} if buffers is None else {name: buffers}
    plan = checks.plan_of(5, None, strategy)
    found = checks.network_memory(changed(networkMemory=mib), settings, plan)
    assert found.status == status


def test_the_heap_bounds_the_text_of_a_task():
    assert "128 MiB of text" in checks.heap(TASK_MANAGERS).text
    small = checks.heap(changed(taskHeap=64, frameworkHeap=128))
    assert small.status == "limited"
    assert "--parallelism" in small.advice


def test_a_shallow_stack_limits_the_rounds():
    bare = {"jvm": {"options": ["-Xmx1g"]}}
    long, short = (checks.plan_of(length, None, "adaptive") for length in (26, 8))
    assert checks.stack(bare, long).status == "limited"
    assert checks.stack(bare, short).status == "ok"
    assert checks.stack({"jvm": {"options": ["-Xss16m"]}}, long).status == "ok"


def test_what_happens_at_a_failure_is_looked_at():
    assert [one.status for one in checks.failures(SETTINGS)] == ["ok", "ok"]
    assert [one.status for one in checks.failures({})] == ["limited", "limited"]
    older = {
        "restart-strategy": "exponential-delay",
        "env.java.opts": "-XX:+ExitOnOutOfMemoryError",
    }
    assert [one.status for one in checks.failures(older)] == ["ok", "ok"]


HERE = ("3.11.2", "2.77.0", "0.1.0")


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"python": "3.12.1"}, "Python 3.12.1"),
        ({"beam": "2.70.0"}, "apache-beam 2.70.0"),
        ({"beam_dpne": "0.0.9"}, "beam_dpne 0.0.9"),
        ({"beam_dpne": None}, "no beam_dpne"),
    ],
)
def test_other_versions_on_a_worker_are_named(other, said):
    assert checks.versions([REPORT], HERE).status == "ok"
    mixed = [REPORT, Report(**{**vars(REPORT), **other})]
    found = checks.versions(mixed, HERE)
    assert found.status == "missing"
    assert f"workers have {said}; the launcher has" in found.text


def test_python_that_is_started_anew_for_each_stage_is_noticed():
    def processes(*pids):
        return [
            Report(**{**vars(REPORT), "pid": pid, "stage": stage}) for stage, pid in enumerate(pids)
        ]

    assert checks.kept_harnesses(processes(7, 7, 7), 1).status == "ok"
    assert checks.kept_harnesses(processes(7, 8, 7), 2).status == "ok"
    found = checks.kept_harnesses(processes(7, 8, 9), 2)
    assert found.status == "limited"
    assert "3 Python processes did 3 stages on 2 TaskManagers" in found.text


def test_storage_that_a_worker_does_not_see_is_missing():
    blind = Report(**{**vars(REPORT), "host": "host-b", "sees_file": False})
    assert checks.storage([REPORT], "/shared").status == "ok"
    assert checks.storage([REPORT], None).status == "unknown"
    found = checks.storage([REPORT, blind], "/shared")
    assert found.status == "missing"
    assert "host-b" in found.text
    assert "host-a" not in found.text
    assert "Mount the same folder" in found.advice
    assert "Give an absolute path" in checks.storage([blind], "shared").advice


def wrong_of(address, **others) -> str:
    with pytest.raises(asking.NoAnswerError) as raised:
        asking.flink(address, "/config", timeout=1, **others)
    return str(raised.value)


def test_a_wrong_address_of_flink_is_described(tls):
    (closed,) = free_ports(1)
    assert wrong_of(f"localhost:{closed}") == "Nobody listens there."
    assert "not known" in wrong_of("no-such-host.invalid:8081")
    with tcp_server(None) as address:
        assert "did not answer within 1 s" in wrong_of(address)
    with tcp_server(b"220 mail.example ready\r\n") as address:
        assert "neither HTTP nor gRPC" in wrong_of(address)
    with grpc_server() as address:
        assert "It speaks gRPC, as Beam's job server" in wrong_of(address)
    with http_server({}, tls) as address:
        assert "It speaks TLS; write https://" in wrong_of(address)
        assert "does not trust its certificate" in wrong_of(f"https://{address}")
    with http_server(HEALTHY) as address:
        assert "does not speak TLS" in wrong_of(f"https://{address}")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((200, b"<html>a page</html>"), "not as Flink does"),
        ((404, b""), "HTTP 404"),
        ((401, b""), "asks for a password"),
        ((503, b""), "HTTP 503"),
        ((200, b'["no", "Flink"]'), "not as Flink does"),
        ((200, b'{"status": "up"}'), "not as Flink does"),
    ],
)
def test_http_that_is_not_flinks_is_described(answer, said):
    with http_server({"/config": answer}) as address:
        (found, _) = doctor.look(given_of(flink_master=address))
    assert found.status == "missing"
    assert said in found.text


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("/jobmanager/config", [{"key": "no value"}]),
        ("/jobmanager/config", (500, b"")),
        ("/jobmanager/config", (404, b"")),
        ("/jobmanager/environment", (500, b"")),
        ("/taskmanagers", {}),
        ("/taskmanagers", []),
        ("/taskmanagers", (500, b"")),
    ],
)
def test_half_an_answer_of_flink_is_no_traceback(path, answer):
    with http_server({**HEALTHY, path: answer}) as address:
        found = list(doctor.look(given_of(flink_master=address)))
    assert statuses(found)["Flink's REST interface"] == "missing"


def test_a_proxy_of_the_environment_is_named(monkeypatch):
    with tcp_server(b"no proxy\r\n") as proxy:
        monkeypatch.setenv("http_proxy", f"http://{proxy}")
        monkeypatch.setenv("no_proxy", "")
        said = wrong_of("flink.example:8081")
    assert "through the proxy of http_proxy; set no_proxy=flink.example" in said


def no_job_service(endpoint) -> str:
    with pytest.raises(asking.NoAnswerError) as raised:
        asking.job_service(endpoint, timeout=1)
    return str(raised.value)


def test_a_wrong_job_endpoint_is_described(tls):
    (closed,) = free_ports(1)
    assert no_job_service(f"localhost:{closed}") == "Nobody listens there."
    with http_server(HEALTHY) as address:
        assert "It speaks HTTP (200 OK), as Flink's REST does" in no_job_service(address)
    with grpc_server() as address:
        assert "It speaks gRPC, but is not a job server" in no_job_service(address)
    with http_server({}, tls) as address:
        assert "It speaks TLS" in no_job_service(address)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("StatusRuntimeException: UNAVAILABLE: io exception", "does not reach the pool of workers"),
        ("ModuleNotFoundError: No module named 'apache_beam'", "has no apache-beam"),
        ("ModuleNotFoundError: No module named 'text'", "lacks a module"),
        ("java.io.IOException: Insufficient number of network buffers", "too few network buffers"),
        ('Cannot run program "docker"', "cannot start a program"),
        ("TypeError: code() argument 13 must be str", "another minor version"),
        ("anything else\nand more", "the job failed"),
    ],
)
def test_a_failed_canary_says_why(error, said):
    given = given_of(environment_config="pool:50000")
    found = doctor._failed(given, "name", EngineError(f"the workers failed: {error}"))
    assert (found.subject, found.status) == ("Canary", "missing")
    assert said in found.text
    assert "environment_config=pool:50000" in found.text
    assert found.advice


def test_what_flink_recorded_of_a_canary_that_hangs_says_why():
    refused = "Connection refused: pool/10.0.0.7:50000"
    entry = {"stacktrace": f"…StatusRuntimeException: UNAVAILABLE: io exception…{refused}\n\tat …"}
    answers = {
        "/jobs/overview": {"jobs": [{"name": "canary", "jid": "ab12"}]},
        "/jobs/ab12/exceptions": {"exceptionHistory": {"entries": [entry]}},
    }
    late = EngineError("no worker did a first step within 60 s (harness_timeout)")
    with http_server(answers) as address:
        found = doctor._failed(given_of(flink_master=address), "canary", late)
    assert "does not reach the pool" in found.text
    assert "connection refused at pool/10.0.0.7:50000)" in found.text
    assert "within 60 s" in doctor._failed(given_of(), "canary", late).text


# Beam's own job server, in this process.
EMBED = ("--runner=PortableRunner", "--job_endpoint=embed", "--environment_type=LOOPBACK")


def test_harnesses_report_what_they_are_and_see(tmp_path):
    (tmp_path / "there").write_text("")
    for name, seen in (("there", True), ("absent", False)):
        options = PipelineOptions([*EMBED, *engines.FLINK_OPTIONS])
        pipeline = probe.build(options, parallelism=2, file=str(tmp_path / name))
        reports = probe.reports(engines.run_first(pipeline, 60))
        assert {one.stage for one in reports} == {0, 1, 2}
        assert {one.pid for one in reports} == {os.getpid()}
        assert {one.sees_file for one in reports} == {seen}
        launcher = (sys.version.split()[0], reports[0].beam, reports[0].beam_dpne)
        assert checks.versions(reports, launcher).status == "ok"


def test_workers_do_not_need_this_repository(tmp_path):
    """The canary's code travels by value, so that a worker without beam_dpne can say so."""
    packed = tmp_path / "packed"
    packed.write_bytes(pickler.dumps(probe._Look(0, None)))
    code = """
import sys
class Refuse:
    def find_spec(self, name, *_):
        if name.partition(".")[0] in {"deploy", "beam_dpne"}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Refuse())
from apache_beam.internal import pickler
look = pickler.loads(open(sys.argv[1], "rb").read())
look.setup()
print(look.report.metric_name.name, list(look.process(5)))
"""
    ended = subprocess.run(
        [sys.executable, "-c", code, packed], capture_output=True, text=True, check=True
    )
    said, _, passed = ended.stdout.rpartition(" ")
    assert json.loads(said)["beam_dpne"] is None
    assert passed.strip() == "[5]"


def test_the_file_of_the_launcher_is_there_for_a_while(tmp_path):
    with doctor._shared_file(str(tmp_path)) as file:
        assert [str(path) for path in tmp_path.iterdir()] == [file]
    assert list(tmp_path.iterdir()) == []
    with doctor._shared_file(None) as file:
        assert file is None


def test_a_temporary_location_that_does_not_exist_is_missing_and_not_made(tmp_path):
    given = given_of(job_endpoint="localhost:1", temp_location=str(tmp_path / "absent"))
    (found,) = doctor._canary(given, task_managers=1)
    assert (found.subject, found.status) == ("Shared storage", "missing")
    assert "there is no such folder" in found.text
    assert not (tmp_path / "absent").exists()


def run_program(monkeypatch, *arguments) -> int:
    monkeypatch.setattr(sys, "argv", ["deploy.flink", "doctor", *arguments])
    return program.main()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "--flink_master"),
        (["--flink_master", "localhost"], "--flink_master must be HOST:PORT, got 'localhost'"),
        (["--flink_master", "h:99999"], "--flink_master must be HOST:PORT"),
        (["--flink_master", "h:1", "--job_endpoint", "h"], "--job_endpoint must be HOST:PORT"),
        (["--flink_master", "h:1", "--job_endpoint", "h:2"], "--environment_config is missing"),
        (["--flink_master", "h:1", "--environment_type", "MAGIC"], "must be EXTERNAL, DOCKER"),
        (["--flink_master", "h:1", "--parallelism", "0"], "must be a whole number above 0"),
        (
            ["--flink_master", "h:1", "--strategy", "one_round", "--rounds", "2"],
            "rounds must be left out",
        ),
    ],
)
def test_wrong_use_ends_with_status_2(arguments, said, monkeypatch, capsys):
    with pytest.raises(SystemExit) as ended:
        run_program(monkeypatch, *arguments)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_lines_are_plain_where_no_terminal_is(monkeypatch, capsys):
    with http_server(BARE) as address:
        assert run_program(monkeypatch, "--flink_master", address) == 1
    out = capsys.readouterr().out
    assert "\x1b" not in out
    lines = out.splitlines()
    assert "ok      Flink version: 1.19.3; 1.19 is supported." in lines
    assert any(line.startswith("limited Class loading: classloader.resolve") for line in lines)
    assert lines[-1].startswith("A job would not run. Missing: ")


def test_lines_are_columns_on_a_terminal():
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=80, highlight=False)
    doctor._show(console, Finding("Subject [x]", "missing", "word " * 40, "Do [this]. " * 12))
    shown = re.sub(r"\x1b\[[0-9;]*m", "", file.getvalue()).splitlines()
    assert shown[0].startswith("missing Subject [x]")
    assert all(len(line) <= 80 for line in shown)
    assert all(line.startswith(" " * 33) for line in shown[1:])
    assert any("→ Do [this]." in line for line in shown)


@pytest.mark.parametrize(
    ("found", "status", "said"),
    [
        ([Finding("Canary", "ok", "")], 0, "A job would run."),
        ([Finding("Canary", "ok", ""), Finding("Heap", "limited", "")], 0, "with limits: Heap."),
        ([Finding("Canary", "ok", ""), Finding("Heap", "missing", "")], 1, "Missing: Heap."),
        ([Finding("Slots", "ok", "")], 1, "is not known"),
        ([Finding("Canary", "ok", ""), Finding("Heap", "unknown", "")], 0, "A job would run."),
    ],
)
def test_the_exit_status_says_whether_a_job_would_run(found, status, said):
    file = io.StringIO()
    assert doctor._conclude(Console(file=file, width=200), found) == status
    assert said in file.getvalue()


def options_of(cluster, **others) -> list:
    options = {
        "flink_master": cluster.rest.address,
        "job_endpoint": f"localhost:{cluster.ports.job}",
        "environment_config": f"localhost:{cluster.ports.workers}",
        **others,
    }
    return [part for name, value in options.items() for part in (f"--{name}", value)]


@pytest.mark.engines
@pytest.mark.flink
def test_the_doctor_finds_nothing_missing_on_the_cluster(cluster, tmp_path):
    known = set(cluster.rest.jobs())
    options = options_of(cluster, max_length=26, temp_location=tmp_path, harness_timeout=300)
    ended = deploy("flink", "doctor", *options)
    assert ended.status == 0, ended.out + ended.err
    lines = [line for line in ended.out.splitlines() if not line.startswith(" ")]
    assert lines[-1] == "A job would run."
    assert {line.split()[0] for line in lines[:-1]} == {"ok", "unknown"}
    assert [line for line in lines if line.startswith("unknown")] == [
        line for line in lines if "Process memory" in line
    ]
    assert any(line.startswith("ok      planner.jar:") for line in lines)
    assert any(
        "2 Python processes did 3 stages on 2 TaskManagers" in line for line in lines
    ) or any("1 Python process did 3 stages on 2 TaskManagers" in line for line in lines)
    new = [of for job, of in cluster.rest.jobs().items() if job not in known]
    assert [of["state"] for of in new] == ["FINISHED"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.engines
@pytest.mark.flink
def test_the_doctor_names_a_pool_that_does_not_answer(cluster):
    (closed,) = free_ports(1)
    options = options_of(cluster, environment_config=f"localhost:{closed}", harness_timeout=60)
    known = set(cluster.rest.jobs())
    ended = deploy("flink", "doctor", *options)
    assert ended.status == 1, ended.out + ended.err
    missing = [line for line in ended.out.splitlines() if line.startswith("missing")]
    assert len(missing) == 1
    assert missing[0].startswith(
        "missing Canary: a TaskManager does not reach the pool of workers."
    )
    assert f"environment_config=localhost:{closed}" in missing[0]
    assert "Traceback" not in ended.err
    new = [of["state"] for job, of in cluster.rest.jobs().items() if job not in known]
    assert set(new) <= {"CANCELED", "FAILED"}
