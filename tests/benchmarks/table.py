"""The table of ratios. Each part runs its commands in turn, so that what slows one slows all."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from tests.benchmarks.machine import usable_cores
from tests.benchmarks.measure import Run, interleaved
from tests.benchmarks.report import (
    Figure,
    Listing,
    Report,
    cpu_seconds,
    megabytes,
    ratios,
    seconds,
    stands_out,
    without,
)
from tests.benchmarks.workloads import (
    DEFAULT,
    LONG_USERS_PRIVACY,
    ONE_ROUND,
    PROTOCOL_PRIVACY,
    Setting,
    Workload,
    floor_on_records,
    has_workers,
    product_on_records,
)

IMPORT = "import apache_beam"
ERROR = "error of a parameter"
FLOOR = "floor"
_WRONG_PARAMETER = 2  # exit status
_NOISE = 0.2  # of start-up, on a machine that others use
_MEGABYTES_OF_MSNBC = 1000


@dataclasses.dataclass(frozen=True)
class Ratio:
    """A row: a quantity of one command over that of another, within each repeat.

    Attributes:
      what: the row's name.
      above: the command whose quantity is divided.
      below: the command by whose quantity it is divided.
      target: what the median should be at most.
      of: the quantity.
      start_ups: the same two commands for one user; with them there is no verdict on a run that
        hardly exceeds its start-up.
      is_work: whether start-up is taken off both.
      at_least: whether the target is what the median should be at least.
    """

    what: str
    above: str
    below: str
    target: float | None = None
    of: Callable[[Sequence[Run]], list[float]] = seconds
    start_ups: tuple[str, str] | None = None
    is_work: bool = False
    at_least: bool = False

    def figure(self, part: str, runs: Mapping[str, Sequence[Run]]) -> Figure:
        """The row's ratios, one for each repeat."""
        whole = [self.of(runs[name]) for name in (self.above, self.below)]
        start_ups = [self.of(runs[name]) for name in self.start_ups or ()]
        compared, clear = whole, True
        if start_ups:
            clear = all(stands_out(*pair, _NOISE) for pair in zip(whole, start_ups, strict=True))
        if self.is_work:
            compared = [without(*pair) for pair in zip(whole, start_ups, strict=True)]
        values = ratios(*compared)
        return Figure(part, self.what, values, "×", self.target, clear, self.at_least)


def one_user(name: str) -> str:
    """The name of a command when its data have one user."""
    return f"{name}, one user"


def over_floor(target: float | None) -> list[Ratio]:
    """Rows of the paper's algorithm over the numpy program."""
    start_ups = one_user(ONE_ROUND), one_user(FLOOR)
    given = {"above": ONE_ROUND, "below": FLOOR, "start_ups": start_ups}
    return [
        Ratio("one_round / floor, time", **given, target=target),
        Ratio("one_round / floor, time without start-up", **given, is_work=True),
        Ratio("one_round / floor, CPU time", **given, of=cpu_seconds),
    ]


def over_one_round(target: float, memory: float | None = None) -> list[Ratio]:
    """Rows of the default strategy over the paper's algorithm."""
    start_ups = one_user(DEFAULT), one_user(ONE_ROUND)
    given = {"above": DEFAULT, "below": ONE_ROUND}
    return [
        Ratio("default / one_round, time", **given, target=target, start_ups=start_ups),
        Ratio(
            "default / one_round, CPU time",
            **given,
            target=target,
            of=cpu_seconds,
            start_ups=start_ups,
        ),
        Ratio(
            "default / one_round, time without start-up",
            **given,
            start_ups=start_ups,
            is_work=True,
        ),
        Ratio("default / one_round, peak memory", **given, target=memory, of=megabytes),
    ]


def start_up_commands(workload: Workload) -> dict[str, list[str]]:
    """Commands of which the start of the interpreter and of Beam is all."""
    return {
        IMPORT: ["-c", "import apache_beam"],
        one_user(ONE_ROUND): workload.product(workload.start_up),
        one_user(DEFAULT): workload.product(workload.start_up, DEFAULT),
        ERROR: [*workload.product(workload.start_up), "--max_length=0"],
    }


def workload_commands(workload: Workload) -> dict[str, list[str]]:
    """The floor and both strategies, on all of the data and on one user."""
    commands = {}
    for name, data in ((one_user, workload.start_up), (str, workload.data)):
        commands[name(FLOOR)] = workload.floor(data)
        commands[name(ONE_ROUND)] = workload.product(data)
        commands[name(DEFAULT)] = workload.product(data, DEFAULT)
    return commands


def speed_ups(cores: int, *, has_option: bool) -> tuple[dict[int, float], list[str]]:
    """Numbers of workers with the speed-up that is asked of each, and why there are none."""
    if not has_option:
        return {}, ["all cores: `beam-dpne ngrams` has no option for a number of workers"]
    if cores < 2:
        return {}, ["all cores: only one core may be used"]
    return {2: 1.6} | ({cores: 2.5} if cores >= 4 else {}), []


def run_all(
    commands: Mapping[str, Sequence[str]], repeats: int, *, warm_up: bool = True
) -> dict[str, list[Run]]:
    """Runs the commands in turn; each runs once before, so that its bytecode is written."""
    statuses = {ERROR: _WRONG_PARAMETER}
    return interleaved(commands, repeats, warm_up=warm_up, statuses=statuses)


def measure_start_up(setting: Setting) -> Report:
    """One user, and an error of a parameter, over the import of Beam."""
    targets = {one_user(DEFAULT): 1.7, one_user(ONE_ROUND): 1.5, ERROR: 0.4}
    rows = [Ratio(f"{name} / {IMPORT}", name, IMPORT, at_most) for name, at_most in targets.items()]
    rows += [
        Ratio(f"{name} / {IMPORT}, CPU time", name, IMPORT, of=cpu_seconds) for name in targets
    ]
    return _report(setting, "start-up", start_up_commands(setting.reddit), rows)


def measure_msnbc(setting: Setting) -> Report:
    """File to release on MSNBC."""
    rows = [*over_floor(2.5), *over_one_round(1.5)]
    return _report(setting, "MSNBC", workload_commands(setting.msnbc), rows, memory_of=ONE_ROUND)


def measure_titles(setting: Setting) -> Report:
    """File to release on Reddit titles, and on more cores where the program has them."""
    commands = workload_commands(setting.reddit)
    rows = [*over_floor(2.0), *over_one_round(1.5, memory=1.3)]
    workers, omitted = speed_ups(usable_cores(), has_option=has_workers())
    for number in (0, 1, *workers) if workers else ():
        command = setting.reddit.product(setting.reddit.data, DEFAULT)
        commands[_with(number)] = [*command, f"--workers={number}"]
    for number, faster in workers.items():
        rows += _over_fewer(number, faster)
    found = _report(setting, "titles", commands, rows)
    return dataclasses.replace(found, omitted=omitted)


def measure_long_users(setting: Setting) -> Report:
    """File to release on public titles dealt to made-up users of 2,000 words each."""
    commands = {}
    for name, data in ((one_user, setting.reddit.start_up), (str, setting.long_users)):
        for strategy in (ONE_ROUND, DEFAULT):
            command = product_on_records(data, LONG_USERS_PRIVACY, strategy)
            commands[name(strategy)] = command
    return _report(setting, "2,000 words a user", commands, over_one_round(1.6))


def measure_protocol(setting: Setting) -> Report:
    """MSNBC as the paper's authors' PySpark program reads it: JSON lines, numbers as words."""
    data = setting.protocol
    beam, floor = "Beam (one_round)", "numpy"
    commands = {
        floor: floor_on_records(data, PROTOCOL_PRIVACY),
        beam: product_on_records(data, PROTOCOL_PRIVACY),
    }
    found = _runs(setting, commands)
    figures = [
        Figure("protocol", f"{name}, whole process", seconds(runs), "s")
        for name, runs in found.items()
    ]
    figures.append(Ratio("Beam / numpy, time", beam, floor).figure("protocol", found))
    return Report(figures, [_listing("protocol", found)])


def _with(workers: int) -> str:
    names = {0: f"{DEFAULT}, the graph of engines", 1: f"{DEFAULT}, 1 worker"}
    return names.get(workers, f"{DEFAULT}, {workers} workers")


def _over_fewer(number: int, faster: float) -> list[Ratio]:
    """Rows of many threads against one, and against the graph of engines, which has one as well."""
    many, start_up = _with(number), one_user(DEFAULT)
    given = {"below": many, "start_ups": (start_up, start_up), "at_least": True}
    graph, one = _with(0), _with(1)
    return [
        Ratio(f"{graph} / {number} workers, time", graph, target=faster, **given),
        Ratio(f"{one} / {number} workers, time", one, **given),
        Ratio(f"{many} / the graph of engines, peak memory", many, graph, 1.3, of=megabytes),
    ]


def _report(
    setting: Setting,
    part: str,
    commands: Mapping[str, Sequence[str]],
    rows: Sequence[Ratio],
    memory_of: str | None = None,
) -> Report:
    runs = _runs(setting, commands)
    figures = [row.figure(part, runs) for row in rows]
    if memory_of:
        values = megabytes(runs[memory_of])
        what = f"{memory_of}, peak memory"
        figures.append(Figure(part, what, values, "MB", _MEGABYTES_OF_MSNBC))
    return Report(figures, [_listing(part, runs)])


def _runs(setting: Setting, commands: Mapping[str, Sequence[str]]) -> dict[str, list[Run]]:
    return run_all(commands, setting.repeats, warm_up=not setting.small)


def _listing(part: str, runs: Mapping[str, Sequence[Run]]) -> Listing:
    quantities = seconds, cpu_seconds, megabytes
    rows = [
        (name, *(Figure("", "", of(its_runs), "").median for of in quantities))
        for name, its_runs in runs.items()
    ]
    headings = ("process", "seconds", "CPU seconds", "peak MB")
    return Listing(f"Whole processes, {part}: medians", headings, rows)
