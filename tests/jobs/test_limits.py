"""What a container limits: cores, memory, folders that can be written, memory without a name."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from beam_dpne.jobs import limits
from tests.conftest import ROOT

MIB = 2**20
# What mountinfo says of the hierarchies of control groups, with the folders at their tops.
UNIFIED = "31 23 0:28 {top} /sys/fs/cgroup rw,nosuid,nodev - cgroup2 cgroup rw,nsdelegate"
CPU = "32 31 0:29 {top} /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct"
MEMORY = "35 31 0:32 {top} /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory"
V1_NONE = "9223372036854771712"
POD = "/kubepods.slice/kubepods-pod1.slice/cri-containerd-2.scope"


def of_v1(top: str) -> tuple[str, ...]:
    return CPU.format(top=top), MEMORY.format(top=top)


# Each: the group of the process, mounts, files, and what is found: cores of 16, MiB.
LAYOUTS = {
    "no groups": ("", (), {}, 16, None),
    "v2, no limit": ("0::/", (UNIFIED.format(top="/"),), {"cpu.max": "max 100000"}, 16, None),
    "v2, in its own namespace": (
        "0::/",
        (UNIFIED.format(top="/"),),
        {"cpu.max": "200000 100000", "memory.max": str(512 * MIB), "memory.high": "max"},
        2,
        512,
    ),
    "v2, a part of a core": (
        "0::/",
        (UNIFIED.format(top="/"),),
        {"cpu.max": "50000 100000"},
        1,
        None,
    ),
    "v2, a core and a half": (
        "0::/",
        (UNIFIED.format(top="/"),),
        {"cpu.max": "150000 100000"},
        2,
        None,
    ),
    "v2, slowed before it is killed": (
        "0::/",
        (UNIFIED.format(top="/"),),
        {"memory.max": str(512 * MIB), "memory.high": str(256 * MIB)},
        16,
        256,
    ),
    "v2, groups of the machine": (
        f"0::{POD}",
        (UNIFIED.format(top="/"),),
        {
            f"{POD[1:]}/cpu.max": "max 100000",
            f"{POD[1:]}/memory.max": str(700 * MIB),
            "kubepods.slice/kubepods-pod1.slice/cpu.max": "300000 100000",
            "kubepods.slice/memory.max": str(600 * MIB),
            "kubepods.slice/other.scope/cpu.max": "100000 100000",
        },
        3,
        600,
    ),
    "v2, the name of outside": (
        f"0::{POD}",
        (UNIFIED.format(top=POD),),
        {"cpu.max": "400000 100000", "memory.max": str(300 * MIB)},
        4,
        300,
    ),
    "v2, beside the top": (
        "0::/../2",
        (UNIFIED.format(top="/"),),
        {"cpu.max": "400000 100000"},
        4,
        None,
    ),
    "v1, the name of outside": (
        f"4:memory:{POD}\n1:cpu,cpuacct:{POD}",
        of_v1(POD),
        {
            "cpu,cpuacct/cpu.cfs_quota_us": "250000",
            "cpu,cpuacct/cpu.cfs_period_us": "100000",
            "memory/memory.limit_in_bytes": str(400 * MIB),
        },
        3,
        400,
    ),
    "v1, no limit, beside v2": (
        "9:name=systemd:/\n4:memory:/\n1:cpu,cpuacct:/\n0::/",
        (
            *of_v1("/"),
            UNIFIED.format(top="/").replace("cgroup rw,nosuid", "cgroup/unified rw,nosuid"),
        ),
        {
            "cpu,cpuacct/cpu.cfs_quota_us": "-1",
            "cpu,cpuacct/cpu.cfs_period_us": "100000",
            "memory/memory.limit_in_bytes": V1_NONE,
        },
        16,
        None,
    ),
}


def laid_out(root: pathlib.Path, layout: str) -> str:
    """Makes the files of a layout below a folder."""
    groups, mounts, files, *_ = LAYOUTS[layout]
    texts = {
        "proc/self/cgroup": groups,
        "proc/self/mountinfo": "\n".join(
            ("27 1 254:0 / / rw,relatime - ext4 /dev/vda rw", *mounts)
        ),
        **{f"sys/fs/cgroup/{name}": text for name, text in files.items()},
    }
    for name, text in texts.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n" if text else "")
    (root / "sys/fs/cgroup").mkdir(parents=True, exist_ok=True)
    return str(root)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_limits_of_control_groups_are_those_of_the_container(layout, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _process: range(16))
    *_, cores, mebibytes = LAYOUTS[layout]
    root = laid_out(tmp_path, layout)
    assert limits.cores(root) == cores
    of_machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert limits.memory(root) == (of_machine if mebibytes is None else mebibytes * MIB)


def test_cores_are_those_on_which_the_process_may_run():
    script = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})"
    script = f"{script}; from beam_dpne.jobs import limits; print(limits.cores())"
    found = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, check=True
    )
    assert found.stdout == b"1\n"


# Begins a container, in which Linux tells of its groups what files say, nothing but one folder can be
# written, /dev/shm is small, and the user has a number and neither a name nor a home. Its arguments
# are the layout, that folder (none if it is empty), and the command.
CONTAINER = """
set -e
mount --bind "$1/proc/self/cgroup" /proc/$$/cgroup
mount --bind "$1/proc/self/mountinfo" /proc/$$/mountinfo
mount --bind "$1/sys/fs/cgroup" /sys/fs/cgroup
mount -t tmpfs -o size=64k none /dev/shm
test -z "$2" || mount --bind "$2" "$2"
for folder in /tmp /var/tmp; do
  mount --rbind $folder $folder
  mount -o remount,bind,ro $folder
done
mount -o remount,bind,ro /
shift 2
cd /
exec unshare --user --map-user=12345 --map-group=12345 env -u HOME "$@"
"""
# A tokenizer that says which process calls it.
SAYING = """
import os
import sys
from beam_dpne.documents.tokenizers import resolve_tokenizer

def words(texts):
    print("PROCESS", os.getpid(), file=sys.stderr, flush=True)
    return resolve_tokenizer("words")(texts)
"""
# Runs what follows without the system call that makes memory without a name.
WITHOUT_MEMFD = """
import ctypes
import os
import struct
import sys

number = {"x86_64": 319, "aarch64": 279}[os.uname().machine]
# Load the number of the call; if it is this one, it fails with EPERM; all others are allowed.
steps = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, 0x50001), (0x06, 0, 0, 0x7FFF0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
program = ctypes.create_string_buffer(struct.pack("HP", len(steps), ctypes.addressof(code)))
call = ctypes.CDLL(None, use_errno=True).prctl
assert call(38, 1, 0, 0, 0) == 0
assert call(22, 2, program) == 0, os.strerror(ctypes.get_errno())
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.fixture
def corpus(tmp_path):
    """Files of texts, a run key and a tokenizer, and the options of a run over them."""
    for part in range(8):
        lines = [{"user": f"{part}-{user}", "text": "good morning to all"} for user in range(20)]
        (tmp_path / f"{part}.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (tmp_path / "run.key").write_text(bytes(range(32)).hex())
    (tmp_path / "run.key").chmod(0o600)
    (tmp_path / "saying.py").write_text(SAYING)
    plan = ("--epsilon", "10", "--delta", "1e-4", "--max_length", "2", "--partitions", "8")
    return (
        *("--input", f"{tmp_path}/*.jsonl", "--run_key_file", f"{tmp_path}/run.key"),
        *("--tokenizer", "saying:words", *plan),
    )


def run(corpus, output, *options, around=(), temporary=None):
    """Makes a release as a process; `around` are the commands that start it."""
    folder = pathlib.Path(corpus[1]).parent
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}"}
    environment.pop("TMPDIR", None)
    if temporary is not None:
        environment["TMPDIR"] = str(temporary)
    command = (
        sys.executable,
        "-m",
        "beam_dpne",
        "ngrams",
        *corpus,
        "--output",
        str(output),
        *options,
    )
    return subprocess.run(
        [*around, *command], env=environment, capture_output=True, text=True, check=False
    )


def container(layout, place):
    return (
        "unshare",
        "--map-root-user",
        "--mount",
        "sh",
        "-c",
        CONTAINER,
        "sh",
        layout,
        str(place),
    )


def processes(ended) -> int:
    said = [line for line in ended.stderr.splitlines() if line.startswith("PROCESS ")]
    return len({*said})


def lengthen(folder: pathlib.Path) -> None:
    """Adds blank lines, which are passed over, to a corpus: so many that two processes share it."""
    for file in folder.glob("*.jsonl"):
        file.write_bytes(file.read_bytes() + b"\n" * 2**21)


def content(folder: pathlib.Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(folder.iterdir())]


def test_a_run_in_a_container_keeps_its_limits_and_releases_the_same(corpus, tmp_path):
    place = tmp_path / "place"
    place.mkdir()
    layout = laid_out(tmp_path / "layout", "v2, slowed before it is killed")
    around = container(layout, place)
    lengthen(tmp_path)
    by_itself = run(corpus, place / "one", around=around, temporary=place)
    assert by_itself.returncode == 0, by_itself.stderr
    assert processes(by_itself) == 1
    is_told = "256 MiB of memory" in by_itself.stderr
    assert is_told == (limits.cores() > 1)
    with_two = run(corpus, place / "two", "--workers", "2", around=around, temporary=place)
    assert with_two.returncode == 0, with_two.stderr
    assert processes(with_two) > 1
    assert content(place / "one") == content(place / "two")


def test_a_short_corpus_is_for_one_process_and_a_longer_one_for_several(corpus, tmp_path):
    by_itself = run(corpus, tmp_path / "one")
    assert processes(by_itself) == 1
    lengthen(tmp_path)
    shared = run(corpus, tmp_path / "two")
    assert (processes(shared) > 1) == (limits.cores() > 1)
    assert content(tmp_path / "one") == content(tmp_path / "two")


def test_a_root_that_cannot_be_written_is_refused_with_the_remedy(corpus, tmp_path):
    layout = laid_out(tmp_path / "layout", "no groups")
    ended = run(corpus, tmp_path / "release", around=container(layout, ""))
    assert ended.returncode == 2
    (said,) = [line for line in ended.stderr.splitlines() if not line.startswith("PROCESS")]
    assert "name it by TMPDIR" in said
    assert not (tmp_path / "release").exists()


def test_one_process_does_the_work_where_memory_cannot_be_shared(corpus, tmp_path):
    around = (sys.executable, "-c", WITHOUT_MEMFD)
    ended = run(corpus, tmp_path / "one", "--workers", "2", around=around)
    assert ended.returncode == 0, ended.stderr
    assert "memfd_create" in ended.stderr
    assert processes(ended) == 1
    with_two = run(corpus, tmp_path / "two", "--workers", "2")
    assert processes(with_two) > 1
    assert content(tmp_path / "one") == content(tmp_path / "two")


@pytest.mark.parametrize(
    ("command", "remedy"),
    [
        (("deploy.spark", "status"), "XDG_CACHE_HOME"),
        (("deploy.flink", "status"), "XDG_CACHE_HOME"),
        (
            ("beam_dpne", "ngrams", "--plan", "~/plan.json", "--output", "a"),
            "--plan cannot be read",
        ),
    ],
)
def test_a_user_without_a_home_is_told_what_is_missing(command, remedy):
    nobody = (
        "unshare",
        "--user",
        "--map-user=12345",
        "env",
        "--unset=HOME",
        "--unset=XDG_CACHE_HOME",
    )
    ended = subprocess.run(
        [*nobody, sys.executable, "-m", *command],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode in (1, 2)
    assert remedy in ended.stderr
    assert "Traceback" not in ended.stderr
