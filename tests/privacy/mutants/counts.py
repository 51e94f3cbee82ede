"""Mistakes in numbers of users: what one user adds to the sums, their noise, and its budget."""

from tests.privacy.mutants.mutant import Mutant

_MEASURING = "tests/counts/test_measuring.py"
_ONE_USER = f"{_MEASURING}::test_one_user_adds_vectors_of_length_one_at_most_in_exact_integers"
_FACTORS = f"{_MEASURING}::test_factors_are_the_largest_that_keep_a_user_within_length_one"
_LAST_CLASS = (
    f"{_MEASURING}::test_the_last_class_holds_a_user_who_holds_everything_and_no_class_is_too_many"
)
_SPREAD = f"{_MEASURING}::test_noise_has_the_planned_spread_and_is_independent_of_the_sums"
_CELLS = f"{_MEASURING}::test_measured_numbers_are_cells_of_the_noise_and_equal_under_one_key"
_COST = f"{_MEASURING}::test_the_noise_costs_no_more_than_the_budget"
_COUNTS = "tests/ngrams/test_user_counts.py"
_HELD = f"{_COUNTS}::test_held_ngrams_are_those_that_a_plain_search_finds"
_WHOLE = f"{_COUNTS}::test_what_is_spent_on_lengths_and_counts_is_the_budget_of_the_plan"
_KEPT = (
    f"{_COUNTS}::test_a_share_of_the_budget_is_kept_for_counts_and_without_it_nothing_is_measured"
)
_SLACK = f"{_COUNTS}::test_each_number_that_a_user_changes_pays_for_floating_point_and_far_tails"
_UNION = (
    "tests/ngrams/test_plan.py"
    "::test_words_by_a_set_union_and_longer_grams_spend_the_budget_together"
)

_BLOCKS = (
    "tests/counts/test_estimates.py::"
    "test_estimates_do_not_depend_on_the_blocks_in_which_rows_are_taken"
)

MUTANTS = [
    Mutant(
        name="sums_of_rows_have_no_noise",
        file="beam_dpne/counts/measuring.py",
        before="noise.row_stddev * UNITS, draws)",
        after="noise.row_stddev * UNITS, draws * 0)",
        matters="The sums of rows would be released as they are.",
        tests=(_SPREAD,),
    ),
    Mutant(
        name="sums_of_groups_have_no_noise",
        file="beam_dpne/counts/measuring.py",
        before="totals=_noisy(values, stddevs, draws)",
        after="totals=_noisy(values, stddevs, draws * 0)",
        matters="The sums of groups would be released as they are.",
        tests=(_SPREAD,),
    ),
    Mutant(
        name="all_rows_have_the_noise_of_the_first",
        file="beam_dpne/counts/measuring.py",
        before='_normals(run_key, "count masses", items)',
        after='_normals(run_key, "count masses", items * 0)',
        matters="The difference of two rows would be free of noise.",
        tests=(_SPREAD,),
    ),
    Mutant(
        name="blocks_of_rows_share_their_noise",
        file="beam_dpne/counts/measuring.py",
        before="items = np.arange(rows.start, rows.stop)",
        after="items = np.arange(rows.stop - rows.start)",
        matters="The difference of two rows in two blocks would be free of noise.",
        tests=(_BLOCKS,),
    ),
    Mutant(
        name="rows_and_groups_share_their_noise",
        file="beam_dpne/counts/measuring.py",
        before='_normals(run_key, "count totals",',
        after='_normals(run_key, "count masses",',
        matters="A sum of a group less that of a row would be free of noise.",
        tests=(_SPREAD,),
    ),
    Mutant(
        name="noisy_sums_beyond_cells",
        file="beam_dpne/counts/measuring.py",
        before="return (cells + 0.5) * widths",
        after="return whole * widths + rest + normals * stddevs + 0 * cells",
        matters="The last digits of a noisy sum would tell the sum.",
        tests=(_CELLS,),
    ),
    Mutant(
        name="every_class_has_the_noise_of_the_least",
        file="beam_dpne/counts/measuring.py",
        before="np.broadcast_to(rule.bounds, values.shape)",
        after="np.broadcast_to(rule.bounds[:1], values.shape)",
        matters="Users who hold much would move the sums of groups by many standard deviations.",
        tests=(_SPREAD,),
    ),
    Mutant(
        name="users_are_not_normalised",
        file="beam_dpne/counts/measuring.py",
        before="return np.where(squares > 0, factors, 0)",
        after="return np.where(squares > 0, int(UNITS), 0)",
        matters="A user would move each row by its weight, however many rows the user holds.",
        tests=(_ONE_USER, _FACTORS),
    ),
    Mutant(
        name="factors_of_users_are_rounded_up",
        file="beam_dpne/counts/measuring.py",
        before="np.floor(UNITS / roots * _SMALL)",
        after="np.ceil(UNITS / roots)",
        matters="A user's vector would be longer than 1.",
        tests=(_FACTORS,),
    ),
    Mutant(
        name="users_are_normalised_by_weights_instead_of_their_squares",
        file="beam_dpne/counts/measuring.py",
        before="_sums_of_users(weights * weights, held.offsets)",
        after="_sums_of_users(weights, held.offsets)",
        matters="A user's vector would be longer than 1.",
        tests=(_ONE_USER,),
    ),
    Mutant(
        name="users_are_in_the_class_below_theirs",
        file="beam_dpne/counts/measuring.py",
        before="classes = np.searchsorted(rule.bounds.astype(np.float64) ** 2, norms)",
        after="classes = np.searchsorted(rule.bounds.astype(np.float64) ** 2, norms / 4)",
        matters="A user would move the sums of groups by more than the bound of the class.",
        tests=(_ONE_USER,),
    ),
    Mutant(
        name="classes_by_the_numbers_of_rows_alone",
        file="beam_dpne/counts/measuring.py",
        before="lengths = (numbers * rule.group_weights[group]).astype(np.float64) ** 2",
        after="lengths = numbers.astype(np.float64) ** 2",
        matters="A user would move the sums of groups by more than the bound of the class.",
        tests=(_ONE_USER,),
    ),
    Mutant(
        name="the_last_class_does_not_bound_everybody",
        file="beam_dpne/counts/rule.py",
        before="while bounds[-1] ** 2 < most:",
        after="while bounds[-1] ** 2 < most / 100:",
        matters="A user who holds everything would be in no class, and the run would tell by failing.",
        tests=(_LAST_CLASS,),
    ),
    Mutant(
        name="rows_have_the_whole_budget_of_counts",
        file="beam_dpne/counts/rule.py",
        before="row_stddev=margin / (mu * math.sqrt(1 - GROUP_SHARE)),",
        after="row_stddev=margin / mu,",
        matters="Rows and groups together would cost more than the budget of counts.",
        tests=(_COST, _WHOLE),
    ),
    Mutant(
        name="counts_cost_the_budget_of_ngrams_again",
        file="beam_dpne/ngrams/plan.py",
        before="CountNoise.of_budget(math.sqrt(self.count_share) / self.noise_stddev)",
        after="CountNoise.of_budget(1 / self.noise_stddev)",
        matters="Counts would spend the whole budget of the run, which n-grams have spent already.",
        tests=(_WHOLE,),
    ),
    Mutant(
        name="ngrams_keep_the_whole_budget_beside_counts",
        file="beam_dpne/ngrams/plan.py",
        before="return self.noise_stddev / math.sqrt(1 - self.count_share)",
        after="return self.noise_stddev",
        matters="N-grams and counts together would cost more than the budget.",
        tests=(_WHOLE, _KEPT),
    ),
    Mutant(
        name="users_keep_the_whole_budget_beside_counts",
        file="beam_dpne/ngrams/plan.py",
        before="adaptive.user_budget(self.ngrams_noise_stddev / math.sqrt(1 - self.union_share))",
        after="adaptive.user_budget(self.noise_stddev / math.sqrt(1 - self.union_share))",
        matters="Users would spend the whole budget on n-grams, and be counted without any.",
        tests=(_KEPT,),
    ),
    Mutant(
        name="words_by_a_set_union_keep_their_part_beside_counts",
        file="beam_dpne/ngrams/vocabulary.py",
        before="plan.ngrams_noise_stddev / math.sqrt(plan.union_share)",
        after="plan.noise_stddev / math.sqrt(plan.union_share)",
        matters="Words, longer n-grams and counts together would cost more than the budget.",
        tests=(_UNION,),
    ),
    Mutant(
        name="counts_pay_nothing_for_floating_point",
        file="beam_dpne/ngrams/plan.py",
        before="decisions = self.round_count * self.max_tokens_per_user + self.count_decisions",
        after="decisions = self.round_count * self.max_tokens_per_user",
        matters="Floating point in the noise of counts costs epsilon too.",
        tests=(_SLACK,),
    ),
    Mutant(
        name="counts_pay_nothing_for_far_tails",
        file="beam_dpne/ngrams/plan.py",
        before="        + plan.count_decisions\n        + plan.held_decisions,\n        moved",
        after="        + plan.held_decisions,\n        moved",
        matters="The tails of the noise of counts cost delta too.",
        tests=(_SLACK,),
    ),
    Mutant(
        name="a_user_is_counted_again_for_each_place",
        file="beam_dpne/ngrams/user_counts.py",
        before="(user, row), _ = distinct((np.concatenate(users), np.concatenate(rows)), sizes)",
        after="user, row = np.concatenate(users), np.concatenate(rows) % sizes[1]\n"
        '    order = np.argsort(user, kind="stable")\n'
        "    user, row = user[order], row[order]",
        matters="A user who repeats an n-gram would add a vector longer than 1.",
        tests=(_HELD,),
    ),
    Mutant(
        name="users_without_positions_shift_the_others",
        file="beam_dpne/ngrams/user_counts.py",
        before="users.append(batch.users[user, 0].astype(np.int64))",
        after="users.append(user)",
        matters="Rows of one user would be added to another's, whose vector gets longer than 1.",
        tests=(_HELD,),
    ),
    Mutant(
        name="key_without_the_constants_of_counts",
        file="beam_dpne/ngrams/plan.py",
        before='deciding["counts"] = rule.constants() | {',
        after='deciding["counts"] = {',
        matters="One key under two rules would draw one noise for other sums.",
        tests=(
            "tests/ngrams/test_mechanism_parameters.py::"
            "test_each_constant_is_in_the_parameters_of_each_plan_that_it_decides",
        ),
    ),
]
