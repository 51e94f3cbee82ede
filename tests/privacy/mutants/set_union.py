"""Mistakes in set union: its policies, decisions, plan, and its use for the words of n-grams."""

from tests.privacy.mutants.mutant import Mutant

_POLICIES = "tests/privacy/test_policies.py"
_MOVES = f"{_POLICIES}::test_one_user_moves_a_histogram_by_the_sensitivity_at_most"
_ALONE = f"{_POLICIES}::test_items_of_one_user_alone_are_released_with_probability_delta_at_most"
_PLAN = "tests/set_union/test_plan.py"
_COMPOSED = f"{_PLAN}::test_everything_that_is_drawn_is_private_by_privacy_loss_distributions"
_COUNTS = "tests/set_union/test_user_counts.py"
_NOISE = f"{_PLAN}::test_noise_is_private_for_what_is_left_of_the_budget"
_THRESHOLDS = f"{_PLAN}::test_each_threshold_is_the_largest_over_t_by_an_independent_search"
_MEMORY = "tests/set_union/test_transform.py::test_memory_releases_what_the_pseudocode_releases"
_WORDS = "tests/ngrams/test_union_vocabulary.py"
_WORDS_GAUSSIAN = f"{_WORDS}::test_under_gaussian_noise_the_parts_compose_to_one_gaussian_mechanism"

MUTANTS = [
    Mutant(
        name="items_and_numbers_of_users_both_get_the_whole_budget",
        file="beam_dpne/set_union/plan.py",
        before="scale = self.composed_noise_scale / math.sqrt((1 - self.count_part) * share.budget)",
        after="scale = self.composed_noise_scale / math.sqrt(share.budget)",
        matters="Items would have the whole budget, and numbers of users a part of it beside that.",
        tests=(_NOISE, _COMPOSED),
    ),
    Mutant(
        name="laplace_items_leave_no_epsilon_for_numbers_of_users",
        file="beam_dpne/set_union/plan.py",
        before="items = epsilon * (1 - self.count_part)",
        after="items = epsilon",
        matters="The epsilon of numbers of users would come on top of the whole epsilon.",
        tests=(_NOISE, _COMPOSED),
    ),
    Mutant(
        name="numbers_of_users_cost_no_floating_point",
        file="beam_dpne/set_union/plan.py",
        before="return self.max_items_per_user + MOST_TOTALS if self.count_part else 0",
        after="return 0",
        matters="The errors of the probabilities of numbers of users would be nobody's expense.",
        tests=(f"{_PLAN}::test_a_share_of_the_budget_is_kept_for_numbers_of_users",),
    ),
    Mutant(
        name="an_item_that_is_repeated_counts_twice",
        file="beam_dpne/set_union/user_counts.py",
        before="(user, row), _ = distinct(pairs, sizes)",
        after="user, row = pairs",
        matters="A user whose items come twice would add more than a vector of length 1.",
        tests=(f"{_COUNTS}::test_items_that_an_element_repeats_count_once",),
    ),
    Mutant(
        name="ledgers_forget_numbers_of_users_beside_laplace_noise",
        file="beam_dpne/accounting/spending.py",
        before="        mu=mu,",
        after="        mu=0.0 if has_laplace else mu,",
        matters="The total of several releases would lack a part of each.",
        tests=(
            "tests/accounting/test_composition.py::"
            "test_numbers_of_users_beside_laplace_noise_are_gaussian_noise_and_not_forgotten",
        ),
    ),
    Mutant(
        name="charged_releases_cost_what_their_plan_would_cost_today",
        file="beam_dpne/accounting/budget_file.py",
        before="sha256=found.sha256, spending=found.spending",
        after="sha256=found.sha256",
        matters="Deleting an old ledger would make its release cheaper than it was.",
        tests=(
            "tests/accounting/test_budget_file.py::"
            "test_the_expense_of_a_charged_release_is_that_of_its_ledger",
        ),
    ),
    Mutant(
        name="charged_releases_are_settled_with_the_ledger_of_another_run",
        file="beam_dpne/accounting/budget_file.py",
        before="if entry.sha256 not in (None, found.sha256):",
        after="if False:",
        matters="A release could take over the smaller expense of the run that replaced it.",
        tests=(
            "tests/accounting/test_budget_file.py::"
            "test_a_charged_release_is_not_settled_with_the_ledger_of_the_run_that_replaced_it",
        ),
    ),
    Mutant(
        name="items_are_not_distinct",
        file="beam_dpne/set_union/weights.py",
        before="(user, items), starts = arrays.distinct(pairs, (len(batch.users), batch.size))",
        after="(user, items), starts = pairs, np.arange(inside.size)",
        matters="A user who repeats an item would give it weight several times.",
        tests=(
            "tests/set_union/test_weights.py::test_items_of_users_are_distinct_with_their_counts",
        ),
    ),
    Mutant(
        name="one_item_more_than_the_limit",
        file="beam_dpne/set_union/weights.py",
        before="limit = plan.contribution_limit",
        after="limit = plan.contribution_limit + 1",
        matters="The threshold covers no more items of one user than the limit.",
        tests=("tests/set_union/test_weights.py::test_each_user_keeps_at_most_max_contributions",),
    ),
    Mutant(
        name="found_items_keep_their_part_of_the_weight",
        file="beam_dpne/set_union/weights.py",
        before="return _keep_words(items, places_in(items.words, found) < 0)",
        after="return _keep_words(items, places_in(items.words, found) < 2)",
        matters="An item could be released in several rounds, with a noisy weight of each.",
        tests=(
            "tests/set_union/test_weights.py::"
            "test_found_items_are_dropped_with_users_who_have_no_others",
        ),
    ),
    Mutant(
        name="the_rounds_of_sips_spend_more_than_the_budget",
        file="beam_dpne/set_union/policies.py",
        before="SIPS_SHARES = (1 / 13, 3 / 13, 9 / 13)",
        after="SIPS_SHARES = (1 / 9, 1 / 3, 1.0)",
        matters="The three rounds together would have less noise than one Gaussian mechanism may have.",
        tests=(f"{_PLAN}::test_the_rounds_of_sips_divide_everything_and_close_nothing", _COMPOSED),
    ),
    Mutant(
        name="slack_of_one_round_of_sips",
        file="beam_dpne/set_union/policies.py",
        before="return len(self.rounds) * max_contributions\n",
        after="return max_contributions\n",
        matters="Floating point would cost more than what is left of epsilon.",
        tests=(f"{_PLAN}::test_numerical_slack_is_that_of_the_decisions_which_may_change",),
    ),
    Mutant(
        name="laplace_weights_are_rounded_up",
        file="beam_dpne/set_union/weights.py",
        before="shares = UNITS // np.maximum(sizes, 1)",
        after="shares = -(-UNITS // np.maximum(sizes, 1))",
        matters="A user's weights would add up to more than 1.",
        tests=(_MOVES,),
    ),
    Mutant(
        name="users_come_as_they_arrive",
        file="beam_dpne/set_union/weights.py",
        before="users = np.lexsort((order[:, 1], order[:, 0]))",
        after="users = np.arange(len(items.users))",
        matters="A new user would change the order of the others, and with it all of their weights.",
        tests=(
            "tests/set_union/test_weights.py::"
            "test_a_shard_is_a_function_of_its_users_in_whatever_order_batches_are_joined",
        ),
    ),
    Mutant(
        name="items_rank_by_who_has_them_first",
        file="beam_dpne/set_union/weights.py",
        before="by_hash = hash_order(items.word_hashes)",
        after="by_hash = np.arange(len(items.words))",
        matters="A new user's items would change where the others' spare units go.",
        tests=(
            "tests/set_union/test_weights.py::"
            "test_a_shard_is_a_function_of_its_users_in_whatever_order_batches_are_joined",
        ),
    ),
    Mutant(
        name="present_items_without_weight_are_not_decided",
        file="beam_dpne/set_union/weights.py",
        before="if plan.union_rounds[number - 1].cut is not None:",
        after="if False:",
        matters="Which items are open would tell whose subsets were drawn how.",
        tests=(
            f"{_POLICIES}::test_the_first_round_decides_every_held_item_also_those_outside_all_subsets",
        ),
    ),
    Mutant(
        name="present_items_without_weight_do_not_reach_the_decision",
        file="beam_dpne/set_union/transform.py",
        before="if self.plan.union_rounds[number - 1].cut is None:",
        after="if True:",
        matters="Which items are open would tell whose subsets were drawn how.",
        tests=(
            "tests/set_union/test_transform.py::"
            "test_items_that_all_subsets_missed_are_decided_on_beam_as_in_memory",
        ),
    ),
    Mutant(
        name="single_units_are_not_paid",
        file="beam_dpne/set_union/cutoff_policies.py",
        before="                left -= 1\n",
        after="",
        matters="A greedy user would pour more than the budget of 1.",
        tests=(_MOVES,),
    ),
    Mutant(
        name="greedy_without_single_units",
        file="beam_dpne/set_union/cutoff_policies.py",
        before="                histogram[items[entry]] += 1\n                left -= 1\n",
        after="                pass\n",
        matters="A user would make others' budgets overflow to items that else had no weight.",
        tests=(f"{_POLICIES}::test_greedy_as_published_releases_others_items_and_ours_does_not",),
    ),
    Mutant(
        name="filled_items_are_not_paid",
        file="beam_dpne/set_union/cutoff_policies.py",
        before="                    left -= gap\n",
        after="",
        matters="A user would pour more than the budget of 1.",
        tests=(_MOVES,),
    ),
    Mutant(
        name="descent_by_two",
        file="beam_dpne/set_union/cutoff_policies.py",
        before="if distance > 1.0:",
        after="if distance > 2.0:",
        matters="A user would move the histogram by up to 2.",
        tests=(_MOVES,),
    ),
    Mutant(
        name="descent_by_a_whole_distance",
        file="beam_dpne/set_union/cutoff_policies.py",
        before="distance = math.sqrt(square)",
        after="distance = float(int(math.sqrt(square)))",
        matters="A user would move the histogram by up to 2.",
        tests=(_MOVES,),
    ),
    Mutant(
        name="rerouting_without_a_discount",
        file="beam_dpne/set_union/rerouting.py",
        before="kappa = min(1.0, math.sqrt(degree) * discount)",
        after="kappa = 1.0",
        matters="Rerouted weight would move the histogram by more than 1.",
        tests=(f"{_POLICIES}::test_a_search_breaks_the_tempting_discount_of_mad_and_not_ours",),
    ),
    Mutant(
        name="everybody_reroutes",
        file="beam_dpne/set_union/rerouting.py",
        before="adaptive = (sizes > 1) & (sizes <= plan.max_adaptive_degree)",
        after="adaptive = sizes > 1",
        matters="The bound holds for users with few items only.",
        tests=(
            "tests/set_union/test_weights.py::test_only_users_with_few_items_give_to_the_first_pass",
        ),
    ),
    Mutant(
        name="weight_of_rerouters_twice",
        file="beam_dpne/set_union/rerouting.py",
        before="rest = biased_weights(items) - initial",
        after="rest = biased_weights(items)",
        matters="A user would give the first pass's weight a second time.",
        tests=(_MOVES,),
    ),
    Mutant(
        name="biased_items_reroute_too",
        file="beam_dpne/set_union/rerouting.py",
        before="return np.where(items.biases[items.items] == BIAS_UNITS, shares, 0)",
        after="return shares",
        matters="An item would give back more than the bound on rerouted weight allows.",
        tests=(
            f"{_POLICIES}::"
            "test_a_search_finds_no_biases_under_which_a_user_moves_the_weights_by_more_than_one",
        ),
    ),
    Mutant(
        name="biased_weights_are_rounded_up",
        file="beam_dpne/set_union/rerouting.py",
        before="np.floor(weights * (1 - _BIASED_MARGIN))",
        after="np.ceil(weights)",
        matters="A user's weights under biases would have squares of more than 1.",
        tests=(
            f"{_POLICIES}::"
            "test_the_weights_of_a_user_under_biases_are_at_most_one_in_exact_integers",
        ),
    ),
    Mutant(
        name="biases_without_the_users_other_items",
        file="beam_dpne/set_union/rerouting.py",
        before="np.cumsum(biases * biases)",
        after="np.cumsum(biases)",
        matters="Weights would not be divided by their length.",
        tests=(
            f"{_POLICIES}::"
            "test_the_weights_of_a_user_under_biases_are_at_most_one_in_exact_integers",
        ),
    ),
    Mutant(
        name="biases_have_the_threshold_of_even_weights",
        file="beam_dpne/set_union/rounds.py",
        before="if policy.has_biases and number > 1:",
        after="if False:",
        matters="Uneven weights of one user alone would pass more often than delta allows.",
        tests=(f"{_PLAN}::test_the_rounds_of_mad2r_divide_everything",),
    ),
    Mutant(
        name="the_uneven_threshold_looks_at_even_weights_only",
        file="beam_dpne/mechanism/thresholds.py",
        before="least, most = grid[max(place - 1, 0)], grid[min(place + 1, _GRID - 1)]",
        after="return float(values[0])",
        matters="Uneven weights of one user alone would pass more often than delta allows.",
        tests=(
            f"{_PLAN}::test_the_uneven_threshold_covers_every_division_of_a_sum_of_squares",
            f"{_PLAN}::test_the_uneven_threshold_is_not_higher_than_it_must_be",
        ),
    ),
    Mutant(
        name="excess_is_kept_and_rerouted",
        file="beam_dpne/set_union/threshold.py",
        before="weights = weights + np.minimum(table[:, 2], rerouting.mad_cutoff_units(plan, number))",
        after="weights = weights + table[:, 2]",
        matters="Weight beyond the cutoff would count twice.",
        tests=(f"{_POLICIES}::test_a_search_breaks_the_tempting_discount_of_mad_and_not_ours",),
    ),
    Mutant(
        name="weightless_items_are_closed_in_round_1",
        file="beam_dpne/set_union/threshold.py",
        before="np.flatnonzero((cells >= rule.cut_cell) & ~is_found)",
        after="np.flatnonzero(\n"
        "        (cells >= rule.cut_cell) & ~is_found & ((weights > 0) | (fractions > 0))\n    )",
        matters="The open set would be more than a function of noisy weights: the proof rests on that.",
        tests=(
            f"{_POLICIES}::test_items_without_weight_stay_open_or_are_closed_by_their_noise_alone",
        ),
    ),
    Mutant(
        name="weightless_items_are_found",
        file="beam_dpne/set_union/threshold.py",
        before="is_found = (cells >= 0) & ((weights > 0) | (fractions > 0))",
        after="is_found = cells >= 0",
        matters="An item that one user holds beyond the limit would be released by noise alone.",
        tests=(f"{_POLICIES}::test_items_without_weight_are_never_released_whatever_their_noise",),
    ),
    Mutant(
        name="found_items_stay_open",
        file="beam_dpne/set_union/threshold.py",
        before="np.flatnonzero((cells >= rule.cut_cell) & ~is_found)",
        after="np.flatnonzero(cells >= rule.cut_cell)",
        matters="An item could be released twice, with two noisy weights.",
        tests=(
            "tests/set_union/test_transform.py::"
            "test_beam_memory_and_pseudocode_release_the_same[screened_gaussian]",
        ),
    ),
    Mutant(
        name="both_rounds_have_one_noise",
        file="beam_dpne/set_union/threshold.py",
        before='run_key.sub_key("item noise", 0, number)',
        after='run_key.sub_key("item noise")',
        matters="The noise of the two rounds would cancel.",
        tests=(_MEMORY,),
    ),
    Mutant(
        name="exact_weights_are_released",
        file="beam_dpne/set_union/threshold.py",
        before="scores=scores(cells[chosen], rule))",
        after="scores=weights[chosen] / UNITS)",
        matters="The release would hold sums over users without any noise.",
        tests=(_MEMORY,),
    ),
    Mutant(
        name="laplace_plans_get_normal_noise",
        file="beam_dpne/set_union/threshold.py",
        before='randomness.laplaces if rule.kind == "laplace" else randomness.normals',
        after="randomness.normals",
        matters="Normal noise of a Laplace scale is not private at that epsilon.",
        tests=(
            "tests/set_union/test_weights.py::test_cells_are_the_places_of_noisy_weights_above_the_threshold",
        ),
    ),
    Mutant(
        name="noise_of_items_without_its_scale",
        file="beam_dpne/set_union/threshold.py",
        before="noise = draw(bits) * (rule.scale * UNITS)",
        after="noise = draw(bits) * UNITS",
        matters="The noise would not follow epsilon.",
        tests=(
            "tests/set_union/test_weights.py::test_cells_are_the_places_of_noisy_weights_above_the_threshold",
        ),
    ),
    Mutant(
        name="thresholds_without_spare_units",
        file="beam_dpne/set_union/policies.py",
        before="SPARE_UNITS = 2",
        after="SPARE_UNITS = 0",
        matters="A weight rounded up by descent would pass a little more often than delta allows.",
        tests=(
            "tests/set_union/test_weights.py::test_a_threshold_covers_a_weight_that_descent_has_rounded_up",
        ),
    ),
    Mutant(
        name="union_spends_what_its_slack_costs",
        file="beam_dpne/set_union/plan.py",
        before="epsilon = self.epsilon - self.numerical_slack",
        after="epsilon = self.epsilon",
        matters="Floating point costs more than what is left of epsilon.",
        tests=(_NOISE,),
    ),
    Mutant(
        name="union_delta_without_the_factor_of_the_slack",
        file="beam_dpne/set_union/plan.py",
        before="return rest * math.exp(-self.numerical_slack)",
        after="return rest",
        matters="Delta grows by the factor that floating point costs.",
        tests=(_NOISE,),
    ),
    Mutant(
        name="union_delta_without_the_far_tails",
        file="beam_dpne/set_union/plan.py",
        before=" - self.far_tails",
        after="",
        matters="What lies beyond the tails of the noise costs delta.",
        tests=(
            "tests/mechanism/test_finite_noise.py::test_a_set_union_pays_its_far_tails_in_both_worlds",
        ),
    ),
    Mutant(
        name="union_delta_is_spent_twice",
        file="beam_dpne/set_union/plan.py",
        before="return self.usable_delta * self.delta_share",
        after="return self.usable_delta",
        matters="Noise and items of one user would together spend more than delta.",
        tests=(_NOISE,),
    ),
    Mutant(
        name="sensitivity_without_rounding",
        file="beam_dpne/set_union/plan.py",
        before="return 1.0 + self.rounding_bound",
        after="return 1.0",
        matters="Rounding of many users in sequence moves the histogram further than 1.",
        tests=(f"{_PLAN}::test_rounding_is_in_the_sensitivity_and_grows_with_the_promise",),
    ),
    Mutant(
        name="counting_has_sensitivity_one",
        file="beam_dpne/set_union/plan.py",
        before="return math.nextafter(math.sqrt(self.contribution_limit), math.inf)",
        after="return 1.0",
        matters="A user adds 1 to each of many items.",
        tests=(f"{_PLAN}::test_counting_has_a_sensitivity_that_grows_with_the_limit",),
    ),
    Mutant(
        name="both_rounds_have_the_noise_of_one",
        file="beam_dpne/set_union/plan.py",
        before="math.sqrt((1 - self.count_part) * share.budget)",
        after="math.sqrt(1 - self.count_part)",
        matters="Two rounds would spend twice the budget.",
        tests=(f"{_PLAN}::test_the_rounds_of_screening_divide_everything",),
    ),
    Mutant(
        name="both_rounds_have_the_whole_delta",
        file="beam_dpne/set_union/plan.py",
        before="self._threshold(number, scale, self.vocabulary_delta * share.delta)",
        after="self._threshold(number, scale, self.vocabulary_delta)",
        matters="Items of one user would have their part of delta in each of two rounds.",
        tests=(f"{_PLAN}::test_the_rounds_of_screening_divide_everything",),
    ),
    Mutant(
        name="slack_of_own_items_only",
        file="beam_dpne/set_union/policies.py",
        before="return len(self.rounds) * max_users * max_contributions",
        after="return len(self.rounds) * max_contributions",
        matters="In sequential policies one user changes the decisions on all items.",
        tests=(f"{_PLAN}::test_numerical_slack_is_that_of_the_decisions_which_may_change",),
    ),
    Mutant(
        name="laplace_threshold_of_one_item",
        file="beam_dpne/mechanism/thresholds.py",
        before="return float(np.max(thresholds))",
        after="return float(thresholds[0])",
        matters="A user alone with several items would pass more often than delta allows.",
        tests=(_THRESHOLDS,),
    ),
    Mutant(
        name="laplace_threshold_ends_at_a_million",
        file="beam_dpne/mechanism/thresholds.py",
        before="if max_contributions > EXACT_HELD:",
        after="if max_contributions > EXACT_HELD**2:",
        matters="A user alone with more than a million items would pass more often than delta allows.",
        tests=(
            f"{_PLAN}::test_beyond_a_million_items_thresholds_are_not_below_those_of_a_million",
        ),
    ),
    Mutant(
        name="greedy_threshold_as_published",
        file="beam_dpne/mechanism/thresholds.py",
        before="(max_contributions - 1) * math.log1p(-other)",
        after="0.0 * math.log1p(-other)",
        matters="The published threshold forgets the items that get hardly any weight.",
        tests=(f"{_PLAN}::test_the_greedy_threshold_covers_every_division_of_a_budget",),
    ),
    Mutant(
        name="count_threshold_without_the_count",
        file="beam_dpne/mechanism/thresholds.py",
        before="return 1 + scale * float(quantile[0])",
        after="return scale * float(quantile[0])",
        matters="An item of one user has weight 1 before any noise.",
        tests=(_THRESHOLDS,),
    ),
    Mutant(
        name="tail_of_one_item",
        file="beam_dpne/mechanism/thresholds.py",
        before="return -np.expm1(math.log1p(-delta) / counts)",
        after="return np.full_like(counts, delta)",
        matters="A user alone with several items has as many chances to be seen.",
        tests=(_THRESHOLDS,),
    ),
    Mutant(
        name="rounding_of_one_user",
        file="beam_dpne/mechanism/thresholds.py",
        before="return (max_users + 1) * units",
        after="return units",
        matters="Rounding adds up over all users who follow.",
        tests=(f"{_PLAN}::test_rounding_is_in_the_sensitivity_and_grows_with_the_promise",),
    ),
    Mutant(
        name="rerouted_rounding_of_one_user",
        file="beam_dpne/mechanism/thresholds.py",
        before="return (max_users + 1) * 4 * math.sqrt(max_degree)",
        after="return 4 * math.sqrt(max_degree)",
        matters="Rounding adds up over all users.",
        tests=(f"{_PLAN}::test_rounding_is_in_the_sensitivity_and_grows_with_the_promise",),
    ),
    Mutant(
        name="kept_delta_is_spent_twice",
        file="beam_dpne/ngrams/vocabulary.py",
        before="delta=2 * (delta - kept) * (1 - 1e-9)",
        after="delta=2 * delta",
        matters="What floating point costs would come on top of the run's delta.",
        tests=(
            f"{_WORDS}::test_what_the_words_keep_for_floating_point_comes_out_of_their_own_delta",
        ),
    ),
    Mutant(
        name="words_have_the_noise_of_the_whole_run",
        file="beam_dpne/ngrams/vocabulary.py",
        before="plan.ngrams_noise_stddev / math.sqrt(plan.union_share)",
        after="plan.ngrams_noise_stddev",
        matters="The words alone would spend the whole budget, and longer n-grams theirs again.",
        tests=(_WORDS_GAUSSIAN,),
    ),
    Mutant(
        name="any_slack_of_the_words",
        file="beam_dpne/ngrams/vocabulary.py",
        before="if union.numerical_slack > UNION_SLACK:",
        after="if False:",
        matters="The run keeps no more of epsilon for the words than it says.",
        tests=(f"{_WORDS}::test_a_union_with_more_slack_than_the_run_keeps_for_it_is_refused",),
    ),
]
