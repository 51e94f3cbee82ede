"""`beam-dpne series create` and `series show`."""

import msgspec

from beam_dpne.accounting.population import Note
from beam_dpne.accounting.series import Series, create_series, open_series
from beam_dpne.cli import display
from beam_dpne.cli.releases import spent
from beam_dpne.cli.settings import CreatingSeries, ShowingSeries
from beam_dpne.jobs.made import Made

# So many digits of the SHA-256 of a ledger tell releases apart.
_DIGITS = 12


def create(made: Made, _beam_arguments: list[str]) -> None:
    """Makes a series, and prints how a release of it is run.

    Raises:
      BudgetError, UsageError: The folders cannot be those of a new series.
    """
    asked = made[CreatingSeries]
    create_series(
        asked.folder,
        asked.participants,
        releases=asked.releases,
        releases_per_user=asked.releases_per_user,
        epsilon=asked.epsilon,
        delta=asked.delta,
    )
    folder = asked.folder
    participants = asked.participants
    display.print_notice(
        f"the series is in {folder}. Give each run --series {folder} and --participants {participants} "
        f"instead of epsilon and delta. {participants} is as secret as the data."
    )


def show(made: Made, _beam_arguments: list[str]) -> None:
    """Prints the releases of a series, and what one user has spent at most.

    Raises:
      BudgetError: There is no series, or a file of it cannot be read.
    """
    asked = made[ShowingSeries]
    series = open_series(asked.folder)
    runs = series.runs()
    total = series.total(runs)
    listed = [
        {
            "number": number,
            "state": "started" if isinstance(run, Note) else "released",
            "program": run.program,
            "epsilon": run.expense.epsilon,
            "delta": run.expense.delta,
            "name": name,
            "release": run.output if isinstance(run, Note) else run.release.title,
            "ledger_sha256": None if isinstance(run, Note) else run.sha256,
        }
        for number, (name, run) in runs.items()
    ]
    left = series.releases - len(runs)
    if asked.json:
        facts = {
            "schema": "beam_dpne/series-account/1",
            "id": series.id,
            "releases": series.releases,
            "releases_per_user": series.releases_per_user,
            "cap": series.cap,
            "runs": listed,
            "total": total,
            "releases_left": left,
        }
        print(msgspec.json.format(msgspec.json.encode(facts), indent=2).decode())
        return
    title = _title(series)
    if listed:
        rows = [
            {**each, "ledger_sha256": each["ledger_sha256"] and each["ledger_sha256"][:_DIGITS]}
            for each in listed
        ]
        display.print_table(title, rows)
    else:
        display.print_line(f"{title}.")
    if total is None:
        display.print_line("Nothing is spent.")
    else:
        display.print_line(f"One user has spent at most {spent(total)}.")
    display.print_line(f"Releases left: {left}.")


def _title(series: Series) -> str:
    times = series.releases_per_user
    return (
        f"{series.releases} releases, of which each user takes part in {times} at most: "
        f"{spent(series.cap)}"
    )
