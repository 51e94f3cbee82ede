"""Mistakes in private n-gram probabilities. What `posterior` does is post-processing."""

from tests.privacy.mutants.mutant import Mutant

_BAYESIAN = "tests/bayesian/test_transform.py"
_ORACLE = f"{_BAYESIAN}::test_beam_and_pseudocode_have_the_same_noisy_values"
_COUNTING = "tests/bayesian/test_counting.py"
_MOVES = f"{_COUNTING}::test_one_user_moves_the_sums_by_no_more_than_the_sensitivity"
_PLAN = "tests/bayesian/test_plan.py"
_LOG_GLOBAL = "tests/bayesian/test_log_global.py"
_LEDGER = "tests/bayesian/test_ledger.py"

MUTANTS = [
    Mutant(
        name="all_counts_have_one_noise",
        file="beam_dpne/bayesian/counting.py",
        before='keyed_bits(run_key.sub_key("gram noise", plan.length), rows, 0)',
        after='keyed_bits(run_key.sub_key("gram noise", plan.length), rows * 0, 0)',
        matters="The difference of two counts would be free of noise.",
        tests=(f"{_BAYESIAN}::test_every_gram_has_noise_of_its_own_though_nobody_has_it",),
    ),
    Mutant(
        name="every_range_has_the_noise_of_the_first",
        file="beam_dpne/bayesian/counting.py",
        before="rows = np.arange(start, start + len(table))",
        after="rows = np.arange(len(table))",
        matters="Counts of two ranges would share their noise.",
        tests=(f"{_COUNTING}::test_a_range_of_rows_has_the_noise_of_its_rows",),
    ),
    Mutant(
        name="grams_of_nobody_have_no_noise",
        file="beam_dpne/bayesian/counting.py",
        before="return values + integer_noise.integer_normals(draws, plan.noise_steps)",
        after="return values + (values > 0) * integer_noise.integer_normals(draws, plan.noise_steps)",
        matters="A noisy value would tell that somebody has the n-gram.",
        tests=(f"{_BAYESIAN}::test_every_gram_has_noise_of_its_own_though_nobody_has_it",),
    ),
    Mutant(
        name="noise_of_logarithms_in_counts",
        file="beam_dpne/bayesian/plan.py",
        before="return self.noise_stddev / self.grid",
        after="return self.noise_stddev",
        matters="Under log_global the noise would be some hundred times too small.",
        tests=(f"{_BAYESIAN}::test_every_gram_has_noise_of_its_own_though_nobody_has_it",),
    ),
    Mutant(
        name="counts_are_not_clamped",
        file="beam_dpne/bayesian/counting.py",
        before="counts=np.minimum(grams.counts[kept], max_count)",
        after="counts=grams.counts[kept]",
        matters="A user who repeats an n-gram would move its count without limit.",
        tests=(_MOVES,),
    ),
    Mutant(
        name="one_gram_more_than_the_limit_of_counts",
        file="beam_dpne/bayesian/counting.py",
        before="outside_limit(grams.offsets, max_contributions, draw)",
        after="outside_limit(grams.offsets, max_contributions + 1, draw)",
        matters="A user with one n-gram more than the limit would pass the sensitivity.",
        tests=(_MOVES,),
    ),
    Mutant(
        name="bound_of_logarithms_by_one_corner",
        file="beam_dpne/bayesian/log_global.py",
        before="return max(fewest, most)",
        after="return most",
        matters="Users with many counts of few others move a logarithm further.",
        tests=(f"{_LOG_GLOBAL}::test_no_neighbour_passes_the_bound_and_some_attain_it",),
    ),
    Mutant(
        name="bound_of_logarithms_before_the_turn",
        file="beam_dpne/bayesian/log_global.py",
        before="for step in range(-1, 4)",
        after="for step in range(-1, 0)",
        matters="The largest change lies just behind the turn of the weight.",
        tests=(f"{_LOG_GLOBAL}::test_no_neighbour_passes_the_bound_and_some_attain_it",),
    ),
    Mutant(
        name="bound_of_logarithms_without_the_grid",
        file="beam_dpne/bayesian/log_global.py",
        before="steps = math.ldexp(bound, grid_bits(bound)) + 1.001",
        after="steps = math.ldexp(bound, grid_bits(bound))",
        matters="Rounding to the grid moves a value by one step more.",
        tests=(
            f"{_LOG_GLOBAL}::"
            "test_rounding_to_the_grid_moves_a_value_further_than_the_bound_and_is_in_the_sensitivity",
        ),
    ),
    Mutant(
        name="bound_of_logarithms_for_one_gram",
        file="beam_dpne/bayesian/log_global.py",
        before="math.sqrt(max_contributions) * steps",
        after="steps",
        matters="A user moves many n-grams.",
        tests=(
            f"{_LOG_GLOBAL}::test_whole_databases_move_by_no_more_than_the_sensitivity_on_the_grid",
        ),
    ),
    Mutant(
        name="sensitivity_of_counts_without_the_clamp",
        file="beam_dpne/bayesian/plan.py",
        before="self.max_count * math.sqrt(self.contribution_limit)",
        after="math.sqrt(self.contribution_limit)",
        matters="A user adds up to C to each n-gram.",
        tests=(f"{_PLAN}::test_the_sensitivity_of_counts_is_c_root_w_rounded_up",),
    ),
    Mutant(
        name="probabilities_spend_what_their_slack_costs",
        file="beam_dpne/bayesian/plan.py",
        before="epsilon = self.epsilon - self.numerical_slack",
        after="epsilon = self.epsilon",
        matters="Floating point costs more than what is left of epsilon.",
        tests=(f"{_PLAN}::test_what_floating_point_may_cost_is_off_epsilon_before_the_noise",),
    ),
    Mutant(
        name="probabilities_spend_the_delta_of_the_far_tails",
        file="beam_dpne/bayesian/plan.py",
        before="return (self.delta - self.far_tails) * math.exp(-self.numerical_slack)",
        after="return self.delta * math.exp(-self.numerical_slack)",
        matters="The far tails of whole noise cost delta.",
        tests=(
            "tests/mechanism/test_finite_noise.py::test_probabilities_pay_their_far_tails_in_both_worlds",
        ),
    ),
    Mutant(
        name="probabilities_of_another_plan_are_published",
        file="beam_dpne/bayesian/ledger.py",
        before="if any(found.report.get(name) != value for name, value in wanted.items()):",
        after="if False:",
        matters="The ledger would claim another run's guarantee.",
        tests=(f"{_LEDGER}::test_probabilities_of_another_plan_are_refused",),
    ),
    Mutant(
        name="the_papers_probabilities_are_published_as_private",
        file="beam_dpne/bayesian/ledger.py",
        before="if found.guarantee != plan.guarantee:",
        after="if False:",
        matters="Probabilities without a guarantee would be published under one.",
        tests=(f"{_LEDGER}::test_probabilities_without_the_plans_guarantee_are_refused",),
    ),
    Mutant(
        name="any_plan_is_published_as_private",
        file="beam_dpne/bayesian/ledger.py",
        before="if not isinstance(plan, BayesianPlan):",
        after="if False:",
        matters="A plan of the paper's mechanism would have a ledger.",
        tests=(f"{_LEDGER}::test_only_private_plans_have_a_ledger",),
    ),
    Mutant(
        name="private_data_pass_as_public_counts",
        file="beam_dpne/bayesian/public_counts_files.py",
        before="return not (one + other).strip(_BLANKS)",
        after="return False",
        matters="Counts of the private texts would be published as the prior.",
        tests=("tests/cli/test_bayesian.py::test_private_data_are_no_public_counts",),
    ),
]
