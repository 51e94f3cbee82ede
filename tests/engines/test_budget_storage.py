"""A budget on object storage: launchers at once, each write naming the generation that it replaces."""

import concurrent.futures
import datetime
import json

import pytest

from beam_dpne import PrivacyPlan
from beam_dpne.accounting.budget import Budget
from beam_dpne.accounting.budget_file import (
    create_budget,
    expenses,
    give_back,
    read_budget,
    reserve,
    settle,
)
from beam_dpne.accounting.composition import compose
from beam_dpne.accounting.spending import spending_of_plan
from beam_dpne.errors import BudgetError
from beam_dpne.release.ledger import ledger_bytes
from tests.support.ledgers import ledger_of

pytestmark = [pytest.mark.engines, pytest.mark.storage]
pytest_plugins = ["tests.engines.storage"]

PLAN = PrivacyPlan(epsilon=1, delta=1e-7)
TODAY = datetime.date(2026, 3, 31)


def reserved(path, output):
    return reserve(
        path, program="ngrams", plan=json.loads(PLAN.to_json()), output=output, today=TODAY
    )


def test_launchers_at_once_never_pass_the_cap_and_lose_no_reservation(strict_bucket):
    path = strict_bucket.path("budgets/budget.json")
    cap = compose([spending_of_plan(PLAN)] * 3, delta=1e-6).epsilon
    create_budget(path, Budget(population="customers", epsilon=cap, delta=1e-6), today=TODAY)

    refused = []

    def launch(number):
        try:
            return reserved(path, strict_bucket.path(f"releases/{number}"))
        except BudgetError as error:
            refused.append(str(error))
            return None

    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        outcomes = list(pool.map(launch, range(6)))
    allowed = {identifier for identifier in outcomes if identifier}
    assert len(allowed) == 3
    assert all("does not allow this run" in message for message in refused)
    assert {entry.id for entry in read_budget(path).entries} == allowed


def test_a_release_in_a_bucket_is_settled_and_its_ledger_guarded(strict_bucket):
    path = strict_bucket.path("guarded/budget.json")
    create_budget(path, Budget(population="customers", epsilon=4, delta=1e-6), today=TODAY)
    with pytest.raises(BudgetError, match="must be a new file"):
        create_budget(path, Budget(population="customers", epsilon=9, delta=1e-6), today=TODAY)
    first = reserved(path, strict_bucket.path("guarded/one"))
    with pytest.raises(BudgetError, match="does not exist"):
        settle(path, first)
    ledger = ledger_of(PLAN)
    strict_bucket.put("guarded/one/ledger.json", ledger_bytes(ledger))
    with pytest.raises(BudgetError, match=r"ledger\.json, which the run may have published"):
        give_back(path, first)
    settle(path, first)
    assert len(expenses(read_budget(path))) == 1
    strict_bucket.put("guarded/one/ledger.json", ledger_bytes(ledger_of(PLAN, rows=3)))
    with pytest.raises(BudgetError, match="was changed or replaced"):
        reserved(path, strict_bucket.path("guarded/two"))
    second = read_budget(path).entries
    assert [entry.state for entry in second] == ["released"]
