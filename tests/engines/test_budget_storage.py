"""A budget on object storage, where launchers start at once."""

import concurrent.futures
import hashlib

import pytest

from beam_dpne import NgramsPlan
from beam_dpne.accounting.budget import create_budget, open_budget
from beam_dpne.accounting.composition import compose
from beam_dpne.accounting.expense import expense_of_plan
from beam_dpne.accounting.population import read_counted
from beam_dpne.errors import BudgetError
from beam_dpne.release.ledger import ledger_bytes
from tests.support.releases import ledger_of

pytestmark = [pytest.mark.engines, pytest.mark.storage]
pytest_plugins = ["tests.engines.storage"]

PLAN = NgramsPlan(epsilon=1, delta=1e-7)
SPENT = expense_of_plan(PLAN)


def noted(budget, output, **known):
    return budget.check_and_note(SPENT, program="ngrams", output=output, **known)


def test_launchers_at_once_never_pass_the_cap_together(bucket):
    cap = compose([SPENT] * 3, delta=1e-6).epsilon
    path = bucket.path("budgets/customers")
    budget = create_budget(path, population="customers", epsilon=cap, delta=1e-6)

    def launch(number):
        try:
            return noted(budget, bucket.path(f"releases/{number}"))
        except BudgetError:
            return None

    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        started = set(filter(None, pool.map(launch, range(6))))
    assert set(budget.runs()) == started
    assert len(started) <= 3


def test_a_release_in_a_bucket_is_settled_and_a_note_removed(bucket):
    path = bucket.path("settled/budget")
    budget = create_budget(path, population="customers", epsilon=4, delta=1e-6)
    with pytest.raises(BudgetError, match="must be a new folder"):
        create_budget(path, population="customers", epsilon=9, delta=1e-6)
    first = noted(budget, bucket.path("settled/one"))
    bucket.put("settled/one/ledger.json", ledger_bytes(ledger_of(PLAN)))
    with pytest.raises(BudgetError, match="has files"):
        budget.remove(first)
    budget.settle(bucket.path("settled/one"))
    budget.remove(noted(budget, bucket.path("settled/two")))
    (run,) = open_budget(path).runs().values()
    assert run.expense.mu == pytest.approx(SPENT.mu)


def test_a_run_starts_when_the_release_that_it_knows_of_the_same_people_counts(bucket):
    budget = create_budget(
        bucket.path("known/budget"), population="customers", epsilon=4, delta=1e-6
    )
    data = ledger_bytes(ledger_of(PLAN))
    bucket.put("known/first/ledger.json", data)
    known = {"same_people": [hashlib.sha256(data).hexdigest()]}
    with pytest.raises(BudgetError, match="knows a release about the same people"):
        noted(budget, bucket.path("known/second"), **known)
    assert budget.runs() == {}
    budget.add([read_counted(bucket.path("known/first"))])
    noted(budget, bucket.path("known/second"), **known)
    assert budget.total(budget.runs()) == compose([SPENT] * 2, delta=1e-6)
