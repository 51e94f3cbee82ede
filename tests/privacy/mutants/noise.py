"""Mistakes in keyed randomness, noise, thresholds and the exact arithmetic of decisions."""

from tests.privacy.mutants.mutant import Mutant

_RANDOMNESS = "tests/mechanism/test_randomness.py"
_CALIBRATION = "tests/mechanism/test_gaussian.py"
_THRESHOLDS = "tests/mechanism/test_thresholds.py"

MUTANTS = [
    Mutant(
        name="sub_key_without_purpose",
        file="beam_dpne/mechanism/randomness.py",
        before='f"{purpose}/{length}/{round_number}"',
        after='f"{length}/{round_number}"',
        matters="Noise, subsets and spurious draws would come from the same bits.",
        tests=(
            f"{_RANDOMNESS}::test_sub_keys_are_keyed_hashes_and_differ_by_purpose_length_and_round",
        ),
    ),
    Mutant(
        name="sub_key_without_length",
        file="beam_dpne/mechanism/randomness.py",
        before='f"{purpose}/{length}/{round_number}"',
        after='f"{purpose}/{round_number}"',
        matters="Equal keys of two lengths would share one noise, which then cancels.",
        tests=(
            f"{_RANDOMNESS}::test_sub_keys_are_keyed_hashes_and_differ_by_purpose_length_and_round",
        ),
    ),
    Mutant(
        name="sub_key_without_round",
        file="beam_dpne/mechanism/randomness.py",
        before='f"{purpose}/{length}/{round_number}"',
        after='f"{purpose}/{length}"',
        matters="All rounds would see one noise, and the budget of several rounds buys nothing.",
        tests=(
            f"{_RANDOMNESS}::test_sub_keys_are_keyed_hashes_and_differ_by_purpose_length_and_round",
        ),
    ),
    Mutant(
        name="run_key_not_bound_to_its_context",
        file="beam_dpne/mechanism/randomness.py",
        before="context.encode(), key=self._key(), digest_size=32",
        after='b"", key=self._key(), digest_size=32',
        matters="One key under two budgets would draw one noise at two scales.",
        tests=(
            "tests/ngrams/test_run_keys.py::test_one_key_under_another_epsilon_draws_other_noise",
        ),
    ),
    Mutant(
        name="bound_key_without_the_secret",
        file="beam_dpne/mechanism/randomness.py",
        before="context.encode(), key=self._key(), digest_size=32",
        after='context.encode(), key=b"", digest_size=32',
        matters="The noise would follow from public parameters, and everybody could subtract it.",
        tests=("tests/ngrams/test_run_keys.py", "tests/storage/test_run_files.py"),
    ),
    Mutant(
        name="sign_from_the_magnitude",
        file="beam_dpne/mechanism/randomness.py",
        before="return 1.0 - 2.0 * (bits[:, 1] & np.uint64(1)).astype(np.float64)",
        after="return 1.0 - 2.0 * (bits[:, 0] >> np.uint64(63)).astype(np.float64)",
        matters="Large noise would always have one sign: the noise is not normal.",
        tests=(f"{_RANDOMNESS}::test_normals_have_the_normal_law",),
    ),
    Mutant(
        name="uniforms_of_64_bits",
        file="beam_dpne/mechanism/randomness.py",
        before="return first * 2.0**-64 + last * LEAST_UNIFORM",
        after="return (first + 0.5) * 2.0**-64",
        matters="Noise would end at 9 deviations, within the reach of a small delta.",
        tests=(
            f"{_RANDOMNESS}::test_uniforms_are_never_zero_and_keep_their_digits_to_the_last_bit",
        ),
    ),
    Mutant(
        name="uniforms_of_half_the_scale",
        file="beam_dpne/mechanism/randomness.py",
        before="return first * 2.0**-64 + last * LEAST_UNIFORM",
        after="return 0.5 * (first * 2.0**-64 + last * LEAST_UNIFORM)",
        matters="Noise would never be small, and its law is not the one that is claimed.",
        tests=(f"{_RANDOMNESS}::test_normals_have_the_normal_law",),
    ),
    Mutant(
        name="uniforms_reach_zero",
        file="beam_dpne/mechanism/randomness.py",
        before="last = (bits[:, 1] | np.uint64(1)).astype(np.float64)",
        after="last = bits[:, 1].astype(np.float64)",
        matters="A uniform of 0 gives infinite noise.",
        tests=(
            f"{_RANDOMNESS}::test_uniforms_are_never_zero_and_keep_their_digits_to_the_last_bit",
        ),
    ),
    Mutant(
        name="normals_lose_the_tail",
        file="beam_dpne/mechanism/randomness.py",
        before="np.abs(special.ndtri(0.5 * uniforms(bits)))",
        after="np.abs(special.ndtri(1.0 - 0.5 * uniforms(bits)))",
        matters="Near 1 a float has no digits left, so that the tail that decides is coarse.",
        tests=(f"{_RANDOMNESS}::test_tail_probabilities_of_normals_are_right_to_a_relative_1e_12",),
    ),
    Mutant(
        name="laplaces_of_half_the_scale",
        file="beam_dpne/mechanism/randomness.py",
        before="-special.xlogy(1.0, uniforms(bits))",
        after="-special.xlogy(0.5, uniforms(bits))",
        matters="Laplace noise would have half of its scale, and cost twice the epsilon.",
        tests=("tests/set_union/test_weights.py::test_laplaces_follow_the_laplace_law",),
    ),
    Mutant(
        name="short_strings_without_their_size",
        file="beam_dpne/mechanism/randomness.py",
        before="    blocks[:, -1] = sizes\n",
        after="",
        matters="Two users whose names differ by zeros at the end would become one.",
        tests=(
            f"{_RANDOMNESS}::test_strings_that_differ_in_padding_length_or_kind_differ_in_their_hash",
        ),
    ),
    Mutant(
        name="long_strings_by_their_beginning",
        file="beam_dpne/mechanism/randomness.py",
        before="state.update(item)",
        after="state.update(item[:32])",
        matters="Users with long names of one beginning would become one.",
        tests=(
            f"{_RANDOMNESS}::test_short_strings_are_hashed_by_one_cipher_block_and_long_ones_by_blake2b",
        ),
    ),
    Mutant(
        name="subsets_with_ties_are_too_large",
        file="beam_dpne/mechanism/randomness.py",
        before="    if excess.any():\n",
        after="    if excess.any() and False:\n",
        matters="A user whose draws tie would contribute more than the limit.",
        tests=(f"{_RANDOMNESS}::test_ties_go_to_the_earlier_entry",),
    ),
    Mutant(
        name="poisson_in_one_half_only",
        file="beam_dpne/mechanism/randomness.py",
        before="_poisson_quantile(half, sign > 0, part)",
        after="_poisson_quantile(half, True, part)",
        matters="Too few spurious n-grams would be drawn, so that a released one is likely held.",
        tests=(f"{_RANDOMNESS}::test_poisson_draws_have_the_poisson_law",),
    ),
    Mutant(
        name="scaled_integers_by_remainder_of_64_bits",
        file="beam_dpne/mechanism/randomness.py",
        before="(((first << 64) | last) * bound) >> 128",
        after="first % bound",
        matters="Beyond 2^64 candidates most would never be spurious: a release of one tells.",
        tests=(f"{_RANDOMNESS}::test_scaled_integers_are_the_exact_floor",),
    ),
    Mutant(
        name="run_key_shows_itself",
        file="beam_dpne/mechanism/randomness.py",
        before='return "RunKey(secret)"',
        after='return f"RunKey({self._secret.hex()})"',
        matters="Logs and errors would hold the key, with which the noise is subtracted.",
        tests=(f"{_RANDOMNESS}::test_a_run_key_never_prints_its_secret",),
    ),
    Mutant(
        name="far_tails_in_one_world",
        file="beam_dpne/mechanism/finite_noise.py",
        before="far * (1 + math.exp(epsilon))",
        after="far",
        matters="The far tails of the other world cost exp(epsilon) times as much of delta.",
        tests=(
            "tests/mechanism/test_finite_noise.py::test_far_outcomes_are_charged_in_both_worlds",
        ),
    ),
    Mutant(
        name="plans_beyond_the_noise_are_accepted",
        file="beam_dpne/mechanism/finite_noise.py",
        before="return self.far_tails <= allowed and self.beyond_support <= allowed",
        after="return self.far_tails <= allowed",
        matters="A score could be one that without a user is impossible.",
        tests=(
            "tests/mechanism/test_finite_noise.py::"
            "test_what_only_one_world_can_show_is_refused_where_the_far_tails_are_not",
        ),
    ),
    Mutant(
        name="nobody_moves_what_ends",
        file="beam_dpne/mechanism/finite_noise.py",
        before="moved = self.moved * beyond_end(self.kind, self.shift)",
        after="moved = self.moved * beyond_end(self.kind, 0.0)",
        matters="The end of the noise would be looked for where no user moves it.",
        tests=(
            "tests/mechanism/test_finite_noise.py::"
            "test_what_only_one_world_can_show_is_refused_where_the_far_tails_are_not",
        ),
    ),
    Mutant(
        name="whole_noise_errs_in_one_world",
        file="beam_dpne/mechanism/integer_noise.py",
        before="return 2 * draws * relative_error(stddev)",
        after="return draws * relative_error(stddev)",
        matters="Both worlds' probabilities are off, so that half of the slack is not enough.",
        tests=("tests/mechanism/test_integer_noise.py",),
    ),
    Mutant(
        name="composition_adds_signals_instead_of_squares",
        file="beam_dpne/mechanism/gaussian.py",
        before="math.fsum(stddev**-2 for stddev in noise_stddevs) ** -0.5",
        after="math.fsum(stddev**-2 for stddev in noise_stddevs) ** -0.5 * len(noise_stddevs) ** 0.5",
        matters="Several lengths together would look more private than they are.",
        tests=(f"{_CALIBRATION}::test_composition_adds_squares_of_signal_to_noise",),
    ),
    Mutant(
        name="every_length_has_the_whole_budget",
        file="beam_dpne/mechanism/gaussian.py",
        before="tuple(noise_stddev / math.sqrt(share) for share in shares)",
        after="tuple(noise_stddev for share in shares)",
        matters="Each length would spend all of epsilon.",
        tests=(f"{_CALIBRATION}::test_the_table_of_constants",),
    ),
    Mutant(
        name="word_threshold_of_a_full_user_only",
        file="beam_dpne/mechanism/thresholds.py",
        before="return float(np.max(thresholds))",
        after="return float(thresholds[-1])",
        matters="A user with one rare word weighs it most, and the threshold would not cover it.",
        tests=(f"{_THRESHOLDS}::test_vocabulary_threshold_is_the_maximum_over_a_users_words",),
    ),
    Mutant(
        name="word_threshold_of_one_word",
        file="beam_dpne/mechanism/thresholds.py",
        before="noise_stddev * -special.ndtri(alone_tail(delta, counts))",
        after="noise_stddev * -special.ndtri(np.full_like(counts, delta))",
        matters="A user alone with many words has as many chances to be seen.",
        tests=(f"{_THRESHOLDS}::test_vocabulary_threshold_is_the_maximum_over_a_users_words",),
    ),
    Mutant(
        name="word_threshold_ends_at_a_million",
        file="beam_dpne/mechanism/thresholds.py",
        before="if max_contributions > EXACT_HELD:",
        after="if False:",
        matters="A user alone with more than a million words would pass too often.",
        tests=(
            f"{_THRESHOLDS}::"
            "test_beyond_a_million_words_the_vocabulary_threshold_is_that_of_the_last_number",
        ),
    ),
    Mutant(
        name="gaussian_delta_without_the_second_term",
        file="beam_dpne/mechanism/gaussian.py",
        before="upper = 0.5 / noise_stddev - epsilon * noise_stddev",
        after="upper = 0.25 / noise_stddev - epsilon * noise_stddev",
        matters="The noise would be calibrated to half of the sensitivity.",
        tests=(f"{_CALIBRATION}::test_the_table_of_constants",),
    ),
    Mutant(
        name="null_law_is_not_normalised",
        file="beam_dpne/mechanism/rules.py",
        before="(stddev * math.sqrt(2 * math.pi))",
        after="(math.sqrt(2 * math.pi))",
        matters="Spurious n-grams would be drawn with another probability than unweighted held ones.",
        tests=(
            "tests/privacy/test_null_law.py::test_thresholds_leave_each_round_its_part_of_the"
            "_tolerated_fraction",
            "tests/privacy/test_null_law.py::test_the_probability_of_being_open_is_that_of_an"
            "_adaptive_quadrature",
        ),
    ),
    Mutant(
        name="null_law_forgets_what_was_closed",
        file="beam_dpne/mechanism/cells.py",
        before="law = law.cut(stddev, rule.cut, rule.threshold)",
        after="law = law.cut(stddev, rule.cut - 20.0, rule.threshold)",
        matters="Scores of spurious n-grams of later rounds would have another law than held ones.",
        tests=(
            "tests/privacy/test_null_law.py::test_drawn_spurious_cells_have_the_law_of_the_quadrature",
        ),
    ),
    Mutant(
        name="gaussian_tail_in_later_rounds",
        file="beam_dpne/mechanism/cells.py",
        before="law = null_law(rules[: round_number - 1], noise_stddev)",
        after="law = NOTHING_YET",
        matters="A score of a later round would tell a held n-gram from a spurious one.",
        tests=(
            "tests/privacy/test_null_law.py::test_each_border_of_spurious_cells_is_at_its_quantile",
        ),
    ),
    Mutant(
        name="spurious_scores_end_early",
        file="beam_dpne/mechanism/cells.py",
        before="_LAST_CELL = 14 * CELLS_PER_STDDEV",
        after="_LAST_CELL = 1 * CELLS_PER_STDDEV",
        matters="A score above the last border would belong to a held n-gram for certain.",
        tests=(
            "tests/privacy/test_null_law.py::test_each_border_of_spurious_cells_is_at_its_quantile",
        ),
    ),
    Mutant(
        name="weights_are_rounded_up",
        file="beam_dpne/mechanism/cells.py",
        before="math.isqrt(UNITS * UNITS // count)",
        after="math.isqrt(UNITS * UNITS // count) + 1",
        matters="A user's squares would add up to more than 1.",
        tests=(
            "tests/privacy/test_sensitivity.py::test_equal_weights_fill_the_bound_and_never_pass_it",
        ),
    ),
    Mutant(
        name="evidence_with_one_noise",
        file="beam_dpne/mechanism/cells.py",
        before="randomness.normals(round_bits)",
        after="randomness.normals(bits[-1])",
        matters="The evidence would have other noise than the rounds that it adds up.",
        tests=(
            "tests/ngrams/test_rounds.py::test_the_noise_of_a_round_adds_the_loaded_noise_of_the_rounds_before",
        ),
    ),
    Mutant(
        name="evidence_with_unloaded_noise",
        file="beam_dpne/mechanism/cells.py",
        before="noise += (loading / rule.loading_unit) * (",
        after="noise += 1.0 * (",
        matters="Weights would be loaded and their noise not.",
        tests=(
            "tests/ngrams/test_rounds.py::test_the_noise_of_a_round_adds_the_loaded_noise_of_the_rounds_before",
        ),
    ),
    Mutant(
        name="threshold_is_reached_instead_of_passed",
        file="beam_dpne/mechanism/cells.py",
        before="np.ceil((rest + noise) / width).astype(np.int64) - 1",
        after="np.floor((rest + noise) / width).astype(np.int64)",
        matters="What is exactly at the threshold would be released, which the calibration excludes.",
        tests=(
            "tests/privacy/test_statistics.py::"
            "test_a_noisy_weight_must_pass_the_threshold_and_not_only_reach_it",
        ),
    ),
    Mutant(
        name="null_probability_of_the_last_round",
        file="beam_dpne/mechanism/rules.py",
        before="math.fsum(rule.null_probability for rule in self.rounds)",
        after="self.rounds[-1].null_probability if self.rounds else 0.0",
        matters="Spurious n-grams would be rarer than held ones without weight.",
        tests=(
            "tests/privacy/test_adaptive_spurious.py::"
            "test_unheld_bigrams_are_released_as_often_as_the_bound_says",
            "tests/privacy/test_adaptive_spurious.py::"
            "test_rounds_of_spurious_grams_follow_their_null_probabilities",
        ),
    ),
    Mutant(
        name="thresholds_are_rounded_down",
        file="beam_dpne/mechanism/rules.py",
        before="units = math.ceil(threshold * UNITS)",
        after="units = math.floor(threshold * UNITS)",
        matters="Words of one user alone would pass with more than their part of delta.",
        tests=(
            "tests/ngrams/test_rounds.py::test_a_threshold_in_units_is_not_below_that_of_the_formula",
        ),
    ),
]
