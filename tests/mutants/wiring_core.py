"""Faults in what is wired together in the core: an argument dropped, a check not made, a factor left out."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, of

AGREEMENT = "tests/core/protocol/test_query.py::test_only_what_floats_decide_may_differ_and_by_one_unit_only"
GUESS = (
    "tests/core/reporting/test_one_person.py"
    "::test_it_is_no_more_than_the_promise_over_as_many_records_and_no_less_than_a_known_guess"
)
OUTSIDE = "tests/core/site/test_clipping_limits.py::test_a_question_outside_its_limits_cannot_be_built"
ATTEMPTS = "tests/core/secure_aggregation/test_attempts.py"
SHARES = "tests/core/secure_aggregation/test_shares.py::test_honest_shares_are_the_noise_of_the_table"
TRUST = "tests/core/reporting/test_trust.py"
FORESEEN = (
    "tests/core/algorithms/test_standardised.py"
    "::test_the_error_of_a_variance_is_predicted_from_the_noise_that_will_be_drawn"
)
REGRESSION = "tests/core/derived/test_regression.py"
MATRIX = "tests/core/derived/test_matrix.py"
STATED = "test_the_noise_of_a_release_is_of_the_size_that_it_states[gauss-cov-1e-06]"

OF_WIRING_CORE: tuple[Mutant, ...] = (
    # ---- what a person is told, and what is set aside
    of("P5", "reporting/one_person.py", "odds_of_chain(most_right_zcdp(rho, own), steps)",
       "odds_of_chain(most_right_zcdp(rho, own), 1)", GUESS),
    of("P5", "reporting/one_person.py", "most_right_gaussian(2 * rho * steps**2)",
       "most_right_gaussian(2 * rho * steps)", GUESS),
    of("P33", "reporting/explain.py", "gaussian.micro_mu(plan.cost.micro_rho)",
       "gaussian.micro_mu(plan.micro_rho)",
       f"{TRUST}::test_the_promise_is_of_every_attempt_and_within_the_study"),
    of("P33", "reporting/report.py", ' * int(plan["study"]["privacy"].get("attempts", 1))', "",
       f"{TRUST}::test_a_document_says_who_saw_what_and_how_often_each_round_was_tried"),
    of("P9", "reporting/explain.py", "asked.round if batch is None else batch.first", "asked.round",
       "tests/core/study/test_price.py"
       "::test_a_plan_names_for_every_question_the_round_that_pays_for_it"),
    of("P32", "study/price.py", "return near if Fraction(near) <= left else math.nextafter(near, 0.0)",
       "return near",
       "tests/core/study/test_price.py::test_a_delta_that_is_set_aside_is_taken_off_exactly"),
    # ---- the same question on two machines
    of("P25", "protocol/agreement.py", "asked.price, asked.law)", "asked.price)",
       f"{AGREEMENT}[count-1]"),
    of("P25", "protocol/agreement.py", "_within(left, right, 0) if name == EDGES",
       "_within(left, right, 1) if name == EDGES", f"{AGREEMENT}[row-norms-1]"),
    of("P25", "protocol/agreement.py", "return _within(left, right, 0) if name == EDGES else", "return",
       "tests/core/protocol/test_query.py"
       "::test_an_edge_beyond_the_precision_of_floats_may_differ_by_a_part_of_itself"),
    of("P29", "site/site.py", "        self._check(None if frame is None else frame.columns)\n", "",
       "tests/core/algorithms/test_bounds.py::test_a_frame_beyond_its_limits_shows_nothing"),
    # ---- bounds of floats and integers
    of("P26", "noise/sampler.py", "scale * fast.errors + off + ULP / 2", "scale * fast.errors + ULP / 2",
       "tests/core/noise/test_sampler.py::test_what_the_shift_is_off_by_leaves_as_much_in_doubt"),
    of("P28", "queries/cross_covariance.py", "return row_norm_limit(d) + root_up(d)",
       "return row_norm_limit(d)",
       "tests/core/queries/test_cross_covariance.py"
       "::test_rounding_may_make_the_longest_row_longer_and_that_is_within_the_limit"),
    of("P29", "queries/columns.py", "MOST_RADIUS = 2**20", "MOST_RADIUS = 2**22", OUTSIDE),
    # ---- what noise does to derived answers
    of("P7", "derived/regression.py", "math.sqrt(whole.wandering * ", "math.sqrt(0 * ",
       f"{REGRESSION}::test_an_intercept_knows_that_the_mean_is_noised_too"),
    of("P7", "derived/regression.py", "1 - fit.residual / total - hidden", "1 - fit.residual / total",
       f"{REGRESSION}::test_noise_that_slopes_follow_is_taken_off_r_squared_and_is_in_its_error"),
    of("P7", "derived/regression.py", "errors=np.hypot(fit.matrix.errors(form), hidden),",
       "errors=fit.matrix.errors(form),",
       f"{REGRESSION}::test_noise_that_slopes_follow_is_taken_off_r_squared_and_is_in_its_error"),
    of("P7", "derived/distances.py", "math.sqrt(whole.wandering)", "math.sqrt(0)",
       "tests/core/derived/test_distances.py::test_errors_are_what_noise_does"),
    of("P7", "derived/matrix.py", "noise**2 + self.wandering**2 * (1 + 2 * here) + bent**2",
       "noise**2 + bent**2", f"{MATRIX}::test_the_noise_of_the_mean_is_in_the_matrix_as_its_square"),
    of("P7", "derived/moments.py", "wandering=noise.centre / len(values),", "wandering=0.0,",
       f"{MATRIX}::{STATED}"),
    # ---- columns in parts of their standard deviations
    of("P29", "algorithms/shared/column_scales.py",
       "plan.study.max_sites_per_person * plan.study.neighbours.records", "plan.study.neighbours.records",
       FORESEEN),
    of("P29", "algorithms/shared/column_scales.py", "moved *= 2 * math.sqrt(plan.study.dimension)",
       "moved *= math.sqrt(plan.study.dimension)", FORESEEN),
    # ---- masked rounds
    of("R29", "secure_aggregation/attempt.py", "if written != said:", "if False:",
       f"{ATTEMPTS}::test_a_set_of_sites_is_stated_in_one_form_of_which_its_masks_are_derived"),
    of("R29", "secure_aggregation/attempt.py", "(self.plan, self.round, self.query) == "
       "(asked.plan_digest, asked.round, asked.digest)",
       "(self.plan, self.query) == (asked.plan_digest, asked.digest)", f"{ATTEMPTS}"
       "::test_an_attempt_is_at_one_question_of_one_round_of_one_plan"),
    of("R29", "secure_aggregation/attempt.py", "if len(self.said) > MOST_BYTES:", "if False:",
       f"{ATTEMPTS}::test_what_is_longer_than_all_sites_there_can_be_is_not_even_hashed"),
    of("P2", "noise/shares.py", "study.neighbours, study.max_sites_per_person, asked.law, among",
       "study.neighbours, 1, asked.law, among", SHARES),
    of("P32", "noise/shares.py", ".sigma * math.sqrt(sites)",
       ".sigma * math.sqrt(max(1, sites - study.colluders))", SHARES),
)  # fmt: skip
