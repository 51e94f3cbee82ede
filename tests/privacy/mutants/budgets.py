"""Mistakes in the plan of n-grams: who spends how much, and what floating point costs."""

from tests.privacy.mutants.mutant import Mutant

_PLAN = "tests/ngrams/test_plan.py"
_TOGETHER = f"{_PLAN}::test_the_lengths_together_spend_epsilon_and_delta_and_no_more"
_SLACK = (
    f"{_PLAN}::test_slack_is_subtracted_from_epsilon_and_its_factor_from_delta_before_calibration"
)
_WORDS = "tests/ngrams/test_union_vocabulary.py"
_WORDS_GAUSSIAN = f"{_WORDS}::test_under_gaussian_noise_the_parts_compose_to_one_gaussian_mechanism"

MUTANTS = [
    Mutant(
        name="ngrams_spend_what_their_slack_costs",
        file="beam_dpne/ngrams/plan.py",
        before="return self.epsilon - self.numerical_slack",
        after="return self.epsilon",
        matters="Floating point costs more than what is left of epsilon.",
        tests=(_SLACK,),
    ),
    Mutant(
        name="delta_without_the_factor_of_the_slack",
        file="beam_dpne/ngrams/plan.py",
        before="return rest * math.exp(-self.numerical_slack)",
        after="return rest",
        matters="Delta grows by the factor that floating point costs.",
        tests=(_SLACK,),
    ),
    Mutant(
        name="noise_and_words_spend_one_delta_twice",
        file="beam_dpne/ngrams/plan.py",
        before="return self._usable_delta * (1 - self.delta_share)",
        after="return self._usable_delta",
        matters="The noise and words of one user would together spend more than delta.",
        tests=(_TOGETHER,),
    ),
    Mutant(
        name="ngrams_spend_the_delta_of_the_far_tails",
        file="beam_dpne/ngrams/plan.py",
        before="rest = self.delta - self.far_tails",
        after="rest = self.delta",
        matters="What lies beyond the tails of the noise costs delta.",
        tests=(
            "tests/mechanism/test_finite_noise.py::test_n_grams_pay_their_far_tails_in_both_worlds",
        ),
    ),
    Mutant(
        name="users_spend_the_part_of_the_words_again",
        file="beam_dpne/ngrams/plan.py",
        before="self.ngrams_noise_stddev / math.sqrt(1 - self.union_share)",
        after="self.ngrams_noise_stddev",
        matters="Words by a set union and longer n-grams would together spend more than the budget.",
        tests=(_WORDS_GAUSSIAN,),
    ),
    Mutant(
        name="even_budgets_are_whole",
        file="beam_dpne/ngrams/plan.py",
        before='whole // len(self.strategy_lengths) if self.user_budgets == "even" else whole',
        after="whole",
        matters="With even budgets each length would spend the whole budget.",
        tests=(
            f"{_PLAN}::test_a_user_may_spend_the_whole_budget_or_an_even_part_of_it_on_each_length",
        ),
    ),
    Mutant(
        name="slack_of_one_round",
        file="beam_dpne/ngrams/plan.py",
        before="decisions = self.round_count * self.max_tokens_per_user",
        after="decisions = self.max_tokens_per_user",
        matters="A user changes decisions in every round.",
        tests=(f"{_PLAN}::test_slack_counts_every_round",),
    ),
    Mutant(
        name="slack_without_that_of_the_words",
        file="beam_dpne/ngrams/plan.py",
        before="of_union = UNION_SLACK if self.has_union_vocabulary else 0.0",
        after="of_union = 0.0",
        matters="The set union of the words has floating point of its own.",
        tests=(f"{_WORDS}::test_the_slack_of_the_words_is_in_the_run_s",),
    ),
    Mutant(
        name="noise_as_the_root_finder_leaves_it",
        file="beam_dpne/ngrams/plan.py",
        before="return exact * (1 + gaussian.ROOT_MARGIN)",
        after="return exact",
        matters="The root has an error, and may lie on the side of too little noise.",
        tests=(_SLACK,),
    ),
    Mutant(
        name="lengths_share_what_the_words_have_spent",
        file="beam_dpne/ngrams/strategies.py",
        before="shares = self.shares(len(plan.private_lengths))[-len(plan.strategy_lengths) :]\n",
        after="shares = self.shares(len(plan.private_lengths))[-len(plan.strategy_lengths) :]\n"
        "        shares = tuple(share / (1 - plan.union_share) for share in shares)\n",
        matters="The words' part is one of the run's, and is not free.",
        tests=(_WORDS_GAUSSIAN,),
    ),
    Mutant(
        name="longer_grams_have_the_shares_of_the_words",
        file="beam_dpne/ngrams/strategies.py",
        before="[-len(plan.strategy_lengths) :]",
        after="[: len(plan.strategy_lengths)]",
        matters="Where words have the largest share, it would be spent twice.",
        tests=(f"{_PLAN}::test_words_by_a_set_union_and_uneven_lengths_spend_the_budget_once",),
    ),
    Mutant(
        name="any_slack_is_accepted",
        file="beam_dpne/ngrams/plan.py",
        before="if plan.numerical_slack > _MAX_SLACK_SHARE * plan.epsilon:",
        after="if False:",
        matters="A plan whose arithmetic costs all of epsilon would be accepted.",
        tests=(f"{_PLAN}::test_numerical_slack_beyond_a_thousandth_of_epsilon_is_refused",),
    ),
    Mutant(
        name="any_delta_is_accepted",
        file="beam_dpne/validation.py",
        before="    if delta < _MIN_DELTA:\n",
        after="    if delta < 0:\n",
        matters="The noise ends before a smaller delta, and whoever passes the end is seen.",
        tests=(
            f"{_PLAN}::"
            "test_a_delta_that_no_noise_of_128_bits_has_is_refused_whatever_else_a_plan_says",
        ),
    ),
]
