"""`python -m tests.cli.record_crossing`: finds the rows of `test_crossing`, and records them.

To find them takes ten seconds, which each process of each run of the tests would pay.
"""

import itertools
import json
from typing import Any, cast

from covertable import make

from tests.cli.test_crossing import FACTORS, NEVER, ROWS, Levels, Row, allowed, pairs_of

# Levels that cost seconds. A row has the cheap level instead where each pair of levels that it had is
# in another row, or in the changed one.
CHEAPER = {
    "runner": (("yaml", "FnApiRunner", "DirectRunner", "2"), "1"),
    "again": (("overwrite", "retry", "reformat"), "once"),
    "then": (("compare",), "check"),
    "budget": (("add", "settle", "run"), "none"),
}


def rows() -> list[dict[str, Any]]:
    """Returns rows in which every two levels meet that may meet."""

    def is_in(levels: Levels) -> dict[str, Any]:
        ((name, values),) = levels.items()
        return {"operator": "in", "left": name, "values": values}

    never = [
        {
            "operator": "not",
            "condition": {"operator": "and", "conditions": [is_in(one), is_in(other)]},
        }
        for one, other in NEVER
    ]
    crossed = cast(list[dict[str, Any]], make(FACTORS, constraints=never))
    met = [pairs_of(Row(**row)) for row in crossed]
    for name, (costly, cheap) in CHEAPER.items():
        for level, place in itertools.product(costly, range(len(crossed))):
            other = crossed[place] | {name: cheap}
            if crossed[place][name] != level or not allowed(other):
                continue
            elsewhere = set().union(*met[:place], *met[place + 1 :])
            if met[place] <= elsewhere | pairs_of(Row(**other)):
                crossed[place], met[place] = other, pairs_of(Row(**other))
    return crossed


if __name__ == "__main__":
    lines = [json.dumps(row, ensure_ascii=False) for row in rows()]
    ROWS.write_text("\n".join(lines) + "\n")
