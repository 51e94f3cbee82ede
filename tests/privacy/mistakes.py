"""Planted mistakes, each named by what it breaks, with the tests that must fail.

`python -m tests.privacy.mistakes [NAME …]` plants them one at a time in a copy of the repository. Other
mistakes are made by a mutation tool before a release. Code that changes takes its snippets along.
"""

import pathlib
import shutil
import subprocess
import sys
import tempfile
from typing import NamedTuple

ROOT = pathlib.Path(__file__).parents[2]
_COPIED = ("beam_dpne", "pipelines", "tests", "pyproject.toml")


class Mistake(NamedTuple):
    """A snippet that occurs once in a file of the package, what it becomes, and who must notice."""

    breaks: str
    file: str
    before: str
    after: str
    tests: tuple[str, ...]


def noticed(mistake: Mistake, root: pathlib.Path) -> bool:
    """Plants a mistake in a copy of the repository, and returns whether its tests fail there."""
    path = root / "beam_dpne" / mistake.file
    source = path.read_text()
    path.write_text(source.replace(mistake.before, mistake.after))
    options = ("-x", "-q", "-p", "no:cacheprovider")
    command = [
        sys.executable,
        "-m",
        "pytest",
        *options,
        *(f"tests/{each}" for each in mistake.tests),
    ]
    try:
        return subprocess.run(command, cwd=root, capture_output=True, check=False).returncode == 1
    finally:
        path.write_text(source)


def main(names: list[str]) -> int:
    """Plants the named mistakes, or all; returns how many went unnoticed."""
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name in _COPIED:
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, root / name)
        for mistake in MISTAKES:
            if not names or mistake.breaks in names:
                fails = noticed(mistake, root)
                missed += not fails
                print("noticed" if fails else "MISSED ", mistake.breaks, flush=True)
    return missed


MISTAKES = (
    Mistake(
        "budgets: what a user has spent is not subtracted",
        "ngrams/spending.py",
        "dataclasses.replace(batch, left=left - cost)",
        "dataclasses.replace(batch, left=left)",
        ("privacy/test_adaptive_sensitivity.py", "ngrams/test_budgets.py"),
    ),
    Mistake(
        "C3: the count of held candidates is not charged",
        "ngrams/spending.py",
        "left = left - cost",
        "left = left + 0 * cost",
        ("privacy/test_adaptive_sensitivity.py", "privacy/test_held_conditions.py"),
    ),
    Mistake(
        "R1: costs are rounded down",
        "ngrams/adaptive.py",
        "- (-rests // SQUARES_PER_BUDGET_UNIT)",
        "+ (rests // SQUARES_PER_BUDGET_UNIT)",
        ("ngrams/test_adaptive.py", "privacy/test_adaptive_sensitivity.py"),
    ),
    Mistake(
        "section 4, words: the norm of a round has no cap",
        "ngrams/spending.py",
        "return np.minimum(spent, adaptive.round_cap(this.plan.allotment, this_round))",
        "return spent",
        ("ngrams/test_budgets.py", "ngrams/test_oracle.py", "privacy/test_null_law.py"),
    ),
    Mistake(
        "section 4, words: weights are unequal",
        "ngrams/spending.py",
        "return np.ones(grams.keys.size)\n",
        "return 1.0 + np.arange(grams.keys.size) % 2\n",
        ("ngrams/test_oracle.py", "ngrams/test_budgets.py"),
    ),
    Mistake(
        "section 4: n-grams beyond the limit keep their weight",
        "ngrams/spending.py",
        "shares[outside_subset(grams, limit, sub_key)] = 0.0",
        "outside_subset(grams, limit, sub_key)",
        ("privacy/test_adaptive_sensitivity.py",),
    ),
    Mistake(
        "budgets: n-grams have the share of the counts",
        "ngrams/plan.py",
        "return self.noise_stddev / math.sqrt(1 - self.count_share)",
        "return self.noise_stddev",
        ("ngrams/test_plan.py", "privacy/test_attacks.py"),
    ),
    Mistake(
        "counts: a user is sent whole to both classes",
        "counts/measuring.py",
        "np.stack((1 - upper, upper), axis=1)",
        "np.stack((np.ones_like(upper), upper), axis=1)",
        ("counts/test_measuring.py",),
    ),
    Mistake(
        "counts: large users belong to the class below theirs",
        "counts/measuring.py",
        'side="right") - 1',
        'side="right") - 2',
        ("counts/test_measuring.py",),
    ),
    Mistake(
        "counts: masses have no part of a user's length",
        "counts/measuring.py",
        "math.sqrt((1 - SIZES_PART) / 2)",
        "math.sqrt(1 - SIZES_PART)",
        ("counts/test_measuring.py",),
    ),
    Mistake(
        "counts: all classes of a row have one noise",
        "counts/measuring.py",
        "first = rows.start * rule.bounds.size",
        "first = rows.start",
        ("counts/test_measuring.py",),
    ),
    Mistake(
        "R1: equal weights are rounded up",
        "mechanism/thresholds.py",
        "math.isqrt(UNITS * UNITS // count)",
        "1 + math.isqrt(UNITS * UNITS // count)",
        ("privacy/test_sensitivity.py",),
    ),
    Mistake(
        "DPNE: one n-gram more than the limit",
        "elements/arrays.py",
        "np.flatnonzero(sizes > limit)",
        "np.flatnonzero(sizes > limit + 1)",
        ("privacy/test_sensitivity.py",),
    ),
    Mistake(
        "DPNE: n-grams cross the borders of documents",
        "ngrams/candidates.py",
        "(batch.ids[: following.size] | following) >= 0",
        "(batch.ids[: following.size] & following) >= 0",
        ("privacy/test_sensitivity.py", "ngrams/test_oracle.py"),
    ),
    Mistake(
        "section 4: every round has the same noise",
        "ngrams/decisions.py",
        'run_key.sub_key("noise", shard.length, round_number)',
        'run_key.sub_key("noise", shard.length, 1)',
        ("ngrams/test_oracle.py",),
    ),
    Mistake(
        "R3: all lengths have the same noise",
        "ngrams/decisions.py",
        'run_key.sub_key("noise", shard.length, round_number)',
        'run_key.sub_key("noise", 2, round_number)',
        ("ngrams/test_oracle.py", "privacy/test_statistics.py"),
    ),
    Mistake(
        "C8: counts of all lengths have the same noise",
        "ngrams/length_rules.py",
        'run_key.sub_key("held noise", length)',
        'run_key.sub_key("held noise", 2)',
        ("ngrams/test_oracle.py", "ngrams/test_held_counts.py"),
    ),
    Mistake(
        "C8: all groups share one draw of noise",
        "ngrams/length_rules.py",
        "numbers = np.arange(len(counted.groups), dtype=np.uint64)",
        "numbers = np.zeros(len(counted.groups), dtype=np.uint64)",
        ("ngrams/test_oracle.py", "ngrams/test_held_counts.py"),
    ),
    Mistake(
        "R3: noise has half its deviation",
        "mechanism/thresholds.py",
        "(randomness.normals(round_bits) * noise_stddev)",
        "(randomness.normals(round_bits) * noise_stddev / 2)",
        ("privacy/test_statistics.py",),
    ),
    Mistake(
        "R4: words without weight are released",
        "ngrams/decisions.py",
        "over &= shard.weights[judged] > 0",
        "over &= shard.weights[judged] >= 0",
        ("privacy/test_statistics.py",),
    ),
    Mistake(
        "section 4: closed n-grams are looked at again",
        "ngrams/decisions.py",
        "(cells >= rule.cut_cells(shard.round)[places])",
        "(cells >= rule.cut_cells(shard.round)[places] - 10**6)",
        (
            "privacy/test_adaptive_spurious.py",
            "privacy/test_held_conditions.py",
            "ngrams/test_oracle.py",
        ),
    ),
    Mistake(
        "R4: drawn n-grams that somebody has stay",
        "ngrams/decisions.py",
        "shard.ngrams.places_of(inside.ngrams)",
        "shard.ngrams.select(slice(0, 0)).places_of(inside.ngrams)",
        ("privacy/test_adaptive_spurious.py", "privacy/test_statistics.py"),
    ),
    Mistake(
        "C4: drawn n-grams are dropped only at positive weight",
        "ngrams/decisions.py",
        "shard.ngrams.places_of(inside.ngrams)",
        "shard.ngrams.select(np.flatnonzero(shard.weights > 0)).places_of(inside.ngrams)",
        (
            "privacy/test_adaptive_spurious.py",
            "privacy/test_statistics.py",
            "ngrams/test_oracle.py",
        ),
    ),
    Mistake(
        "section 1: the threshold of words ignores their number",
        "mechanism/thresholds.py",
        "-np.expm1(math.log1p(-delta) / counts)",
        "-np.expm1(math.log1p(-delta) + 0 * counts)",
        ("mechanism/test_thresholds.py", "privacy/test_null_law.py"),
    ),
    Mistake(
        "section 4, words: each round has the whole of delta",
        "ngrams/adaptive.py",
        "delta=this_round.error_share * delta",
        "delta=delta",
        ("privacy/test_null_law.py", "ngrams/test_adaptive.py"),
    ),
    Mistake(
        "section 4: later rounds are drawn from a Gaussian tail",
        "mechanism/thresholds.py",
        "law = null_law(rules[: round_number - 1], noise_stddev)",
        "law = NOTHING_YET",
        ("privacy/test_null_law.py", "privacy/test_held_conditions.py"),
    ),
    Mistake(
        "section 4: the null law is not cut",
        "mechanism/rules.py",
        "_quadrature(low, high, stddev)",
        "_quadrature(low - 5.0, high, stddev)",
        ("privacy/test_null_law.py",),
    ),
    Mistake(
        "4b: all classes are drawn by one law",
        "ngrams/spurious.py",
        "_sampled_class(previous, drawn[own.number], own, rule, run_key)",
        "_sampled_class(previous, drawn[own.number], rule.classes[-1], rule, run_key)",
        ("privacy/test_held_conditions.py", "ngrams/test_oracle.py"),
    ),
    Mistake(
        "C2: draws have other probabilities than thresholds",
        "ngrams/spurious.py",
        "-size * math.log1p(-own.null_probability)",
        "-size * math.log1p(-0.9 * own.null_probability)",
        (
            "privacy/test_adaptive_spurious.py",
            "privacy/test_statistics.py",
            "privacy/test_held_conditions.py",
        ),
    ),
    Mistake(
        "4b: counts of held candidates have no noise",
        "ngrams/length_rules.py",
        "noise = randomness.normals(bits) * stddev",
        "noise = 0 * randomness.normals(bits) * stddev",
        ("ngrams/test_held_counts.py", "ngrams/test_oracle.py"),
    ),
    Mistake(
        "C5: an estimate is limited to what there is",
        "ngrams/length_rules.py",
        "left = estimate(noisy, stddev)",
        "left = min(number, estimate(noisy, stddev))",
        ("privacy/test_held_conditions.py", "ngrams/test_held_counts.py", "ngrams/test_oracle.py"),
    ),
    Mistake(
        "C3: an n-gram counts more than once",
        "ngrams/length_rules.py",
        "np.minimum(shard.tallies[inside], 1 << TALLY_BITS)",
        "shard.tallies[inside]",
        (
            "ngrams/test_held_counts.py",
            "ngrams/test_oracle.py",
            "privacy/test_adaptive_sensitivity.py",
        ),
    ),
    Mistake(
        "4b: a group hands on what it has used",
        "ngrams/tolerances.py",
        "rest *= later / left",
        "rest *= 1",
        ("ngrams/test_classes.py", "privacy/test_held_conditions.py"),
    ),
    Mistake(
        "C2: probabilities are rounded up",
        "ngrams/tolerances.py",
        "math.floor(mantissa * steps) / steps",
        "math.ceil(mantissa * steps) / steps",
        ("privacy/test_held_conditions.py", "ngrams/test_held_counts.py"),
    ),
    Mistake(
        "4c: the counts of known words have no noise",
        "ngrams/length_rules.py",
        "estimates(twice, sums, 1, stddev, run_key)",
        "estimates(twice, sums, 1, 0 * stddev, run_key)",
        ("privacy/test_known_words.py", "ngrams/test_oracle.py"),
    ),
    Mistake(
        "4c: the counts of known words are not charged",
        "ngrams/contributions.py",
        "return np.where(fits, own, 0), np.where(fits, cost, 0)",
        "return np.where(fits, own, 0), np.where(fits, cost * (sums.shape[1] > 1), 0)",
        ("privacy/test_adaptive_sensitivity.py", "ngrams/test_oracle.py"),
    ),
    Mistake(
        "4c: what is tolerated follows from the count of unheld words",
        "ngrams/length_rules.py",
        "noisy_held = -(of_held + 1) * cell_units(stddev) / 2**SUM_BITS",
        "noisy_held = known - described.noisy_unheld",
        ("privacy/test_known_words.py",),
    ),
    Mistake(
        "4c: drawn known words are dropped only at positive weight",
        "ngrams/decisions.py",
        "shard.ngrams.places_of(inside.ngrams)",
        "shard.ngrams.select(np.flatnonzero(shard.weights > 0)).places_of(inside.ngrams)",
        ("privacy/test_known_words.py",),
    ),
    Mistake(
        "4c: a known pair is drawn by its place in the list",
        "ngrams/spurious.py",
        "bits = _bits(known, rule.length, run_key)",
        "bits = _bits(Pairs(np.arange(len(known))), rule.length, run_key)",
        ("privacy/test_known_words.py", "ngrams/test_oracle.py"),
    ),
    Mistake(
        "4c: known words need weight, so that delta would be spent on them",
        "ngrams/decisions.py",
        "if shard.length == 1 and not best.is_known:",
        "if shard.length == 1:",
        ("privacy/test_known_words.py",),
    ),
    Mistake(
        "4c: spurious known words are not drawn",
        "ngrams/spurious.py",
        "drawn = np.flatnonzero(chosen & (places <= own.null_probability))",
        "drawn = np.flatnonzero(chosen & (places < 0))",
        ("privacy/test_known_words.py", "ngrams/test_oracle.py"),
    ),
    Mistake(
        "4c: a known n-gram is drawn in both families",
        "ngrams/spurious.py",
        "keys = keys[class_numbers(previous, keys) == own.number]",
        "keys = keys[class_numbers(previous, keys) != -1]",
        ("ngrams/test_oracle.py",),
    ),
    Mistake(
        "4c: a known candidate counts in both families",
        "ngrams/valid.py",
        "total[number - KNOWN_CLASS] -= size",
        "total[number - KNOWN_CLASS] -= 0",
        ("ngrams/test_known.py",),
    ),
    Mistake(
        "4c: new words of one user have unequal weights beside known ones",
        "ngrams/spending.py",
        "return np.ones(grams.keys.size)\n",
        "return 1.0 + (grams.classes is not None) * (np.arange(grams.keys.size) % 2)\n",
        ("ngrams/test_oracle.py",),
    ),
    Mistake(
        "section 5: items beyond the limit are kept",
        "set_union/weights.py",
        "kept[outside] = False",
        "kept[outside] = True",
        ("set_union/test_sensitivity.py",),
    ),
    Mistake(
        "section 5: rounds of a set union share their noise",
        "set_union/decisions.py",
        'run_key.sub_key("item noise", 0, number)',
        'run_key.sub_key("item noise", 0, 1)',
        ("set_union/test_sensitivity.py", "set_union/test_weights.py"),
    ),
    Mistake(
        "R4: items without weight are released",
        "set_union/decisions.py",
        "((weights > 0) | (fractions > 0) | is_known)",
        "((weights >= 0) | (fractions > 0) | is_known)",
        ("set_union/test_sensitivity.py",),
    ),
    Mistake(
        "known items: those that nobody has are not drawn",
        "set_union/decisions.py",
        "((weights > 0) | (fractions > 0) | is_known)",
        "((weights > 0) | (fractions > 0))",
        ("set_union/test_known_items.py",),
    ),
    Mistake(
        "known items: other items have their threshold",
        "set_union/decisions.py",
        "np.where(is_known, of_known.evidence.threshold_units, evidence.threshold_units)",
        "np.where(is_known.any(), of_known.evidence.threshold_units, evidence.threshold_units)",
        ("set_union/test_known_items.py",),
    ),
    Mistake(
        "known items: too few of those that nobody has are expected to be open",
        "set_union/plan.py",
        "unheld = (past[-1] + 1) * left / (1 - null)",
        "unheld = (past[-1] + 1) * left",
        ("set_union/test_known_items.py",),
    ),
    Mistake(
        "known items: a large list looks held by chance",
        "set_union/plan.py",
        "held = size - (past[0] + math.sqrt(size)) / (1 - null)",
        "held = size - past[0] / (1 - null)",
        ("set_union/test_known_items.py",),
    ),
    Mistake(
        "section 6: users add any number of n-grams",
        "bayesian/grams.py",
        "kept[outside] = False",
        "kept[outside] = True",
        ("bayesian/test_counting.py",),
    ),
    Mistake(
        "R3: the reserve is not kept back",
        "mechanism/gaussian.py",
        "return epsilon * (1 - RESERVED)",
        "return epsilon",
        ("mechanism/test_finite_noise.py", "ngrams/test_plan.py"),
    ),
    Mistake(
        "local driver: each block is a partition, so that a user is several",
        "documents/cutting.py",
        "partitions.setdefault(number, []).append(block)",
        "partitions.setdefault(len(partitions), []).append(block)",
        ("documents/test_cutting.py",),
    ),
    Mistake(
        "local driver: users of set unions and probabilities have no limit of tokens",
        "documents/cutting.py",
        "limit = cutting.max_tokens_per_user",
        "limit = 10**9",
        ("documents/test_cutting.py",),
    ),
    Mistake(
        "local driver: two forks have the same users",
        "ngrams/in_memory.py",
        "range(first, len(partitions), most) for first",
        "range(first, len(partitions), most - 1) for first",
        ("documents/test_cutting.py",),
    ),
    Mistake(
        "series: whether a user takes part follows from records of others",
        "documents/cutting.py",
        "may = participation.may_take_part(digests)",
        "may = participation.may_take_part(digests) | (len(digests) % 2 == 0)",
        ("accounting/test_series.py",),
    ),
    Mistake(
        "series: participants are recorded after the release is published",
        "documents/participants.py",
        "self.folder.write(number, self.name, users, digest)",
        '__import__("atexit").register(self.folder.write, number, self.name, users, digest)',
        ("cli/test_series.py",),
    ),
    Mistake(
        "series: a try that published nothing is repeated with other texts",
        "documents/participants.py",
        "elif self.folder.texts(number) != digest:",
        "elif False:",
        ("cli/test_series.py",),
    ),
    Mistake(
        "known: the lead of known candidates follows from those that are held",
        "ngrams/length_rules.py",
        "        known_lead=previous.candidates.known_lead,\n",
        "        known_lead=tolerances.known_lead(sizes, {max(group.factors): sum(own) >> SUM_BITS "
        "for group, own in zip(counted_classes(previous, plan.held_stddev).groups, zip(*held))}),\n",
        ("ngrams/test_known.py",),
    ),
    Mistake(
        "series: a try that published nothing is repeated with other groups",
        "documents/participants.py",
        'hash_words(key.sub_key("texts: words"), block.words)',
        'hash_words(key.sub_key("texts: words"), pa.array([word.rpartition("\x1f")[2] '
        "for word in block.words.to_pylist()]))",
        ("accounting/test_series.py",),
    ),
    Mistake(
        "series: two runs at once take one number",
        "documents/participants.py",
        "elif self.folder.name(number) != self.name:",
        "elif False:",
        ("accounting/test_series.py",),
    ),
    Mistake(
        "series: a list or a mark of another run is replaced",
        "documents/participants.py",
        "directory.replace(file, data, seen=None)",
        "directory.put(file, data)",
        ("accounting/test_series.py",),
    ),
    Mistake(
        "series: digests have no key",
        "documents/participants.py",
        'self.folder.key.sub_key("participant")',
        'b"participant"',
        ("accounting/test_series.py",),
    ),
    Mistake(
        "series: users take part once more than they may",
        "documents/participants.py",
        "users[times >= most]",
        "users[times > most]",
        ("accounting/test_series.py",),
    ),
    Mistake(
        "series: a release that failed when its participants were recorded does not count",
        "accounting/series.py",
        "if number in recorded}",
        "if number in recorded and not isinstance(found[1], Note)}",
        ("accounting/test_series.py",),
    ),
    Mistake(
        "series: a run with a copy of the private folder runs beside another one",
        "accounting/series.py",
        '(("series", path), ("participants", participants)):\n            if',
        '(("participants", participants),):\n            if',
        ("accounting/test_series.py",),
    ),
    Mistake(
        "series: digests of another key are compared",
        "documents/participants.py",
        "listed.commitment != self.key.commitment()",
        "False",
        ("accounting/test_series.py",),
    ),
    Mistake(
        "publishing: releases of two inputs have the same noise",
        "release/publishing.py",
        "if any(released_in(json.loads(each)) != own for each in earlier):",
        "if False:",
        ("accounting/test_population.py",),
    ),
    Mistake(
        "series: a total has the smallest of a series",
        "accounting/composition.py",
        "heapq.nlargest(part.most, map(value_of, part.expenses))",
        "heapq.nsmallest(part.most, map(value_of, part.expenses))",
        ("accounting/test_series.py",),
    ),
    Mistake(
        "series: noise of two releases of one key is the same",
        "documents/run_keys.py",
        'context["series"] = {"id": series.id, "number": series.number}',
        'context["series"] = {"id": series.id}',
        ("accounting/test_series.py",),
    ),
    Mistake(
        "a count of a list: the bound follows from exact sizes",
        "phrase_counts/sums.py",
        'return noisy_sums(table, plan.size_noise, run_key, "phrase sizes", 0) / UNITS',
        "return table / UNITS",
        ("phrase_counts/test_estimates.py",),
    ),
    Mistake(
        "a count of a list: the sizes are not charged",
        "phrase_counts/sums.py",
        "return 1 - SIZE_SHARE - self.excess_share",
        "return 1 - self.excess_share",
        ("phrase_counts/test_sums.py",),
    ),
    Mistake(
        "a count of a list: what users above the bound send too little is not told",
        "phrase_counts/estimates.py",
        "shortfall=max(0.0, excess),",
        "shortfall=0.0,",
        ("phrase_counts/test_estimates.py",),
    ),
    Mistake(
        "a count of a list: users above the bound send as much as others",
        "phrase_counts/sums.py",
        "np.unique(np.maximum(sizes, bound.most), return_inverse=True)",
        "np.unique(np.minimum(sizes, bound.most), return_inverse=True)",
        ("phrase_counts/test_sums.py",),
    ),
    Mistake(
        "a count of a list: the excess is not charged",
        "phrase_counts/sums.py",
        "return 1 - SIZE_SHARE - self.excess_share",
        "return 1 - SIZE_SHARE",
        ("phrase_counts/test_sums.py",),
    ),
    Mistake(
        "a count of a list: two rounds have the same noise",
        "phrase_counts/sums.py",
        '"phrase numbers"',
        '"phrase excess"',
        ("phrase_counts/test_sums.py",),
    ),
    Mistake(
        "a count of a list: the numbers have the noise of the whole budget",
        "phrase_counts/sums.py",
        "noise = plan.noise_of(bound.row_share)",
        "noise = plan.noise_of(1.0)",
        ("phrase_counts/test_sums.py",),
    ),
    Mistake(
        "a count of a list: the excess has the noise of the whole budget",
        "phrase_counts/sums.py",
        "noise = plan.noise_of(bound.excess_share)",
        "noise = plan.noise_of(1.0)",
        ("phrase_counts/test_sums.py",),
    ),
    Mistake(
        "a count of a list: a phrase counts as often as a user wrote it",
        "counts/measuring.py",
        "(user, row), _ = distinct((users, rows), (max(1, user_count), max(1, row_count)))",
        "user, row = users[np.argsort(users)], rows[np.argsort(users)]",
        ("phrase_counts/test_sums.py",),
    ),
    Mistake(
        "a count of a list: weights are rounded up",
        "phrase_counts/sums.py",
        "math.isqrt(UNITS * UNITS // size)",
        "1 + math.isqrt(UNITS * UNITS // size)",
        ("phrase_counts/test_sums.py",),
    ),
    Mistake(
        "a count of a list: the key is not bound to the list",
        "phrase_counts/run.py",
        "return self.phrases.sha256",
        'return ""',
        ("documents/test_key_context.py",),
    ),
    Mistake(
        "a count of a list: the key is not bound to the groups of the list",
        "lists/phrases.py",
        "for column in (self.texts, self.groups):",
        "for column in (self.texts,):",
        ("documents/test_key_context.py",),
    ),
)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]) > 0)
