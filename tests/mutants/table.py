"""Faults that the tests must catch: each a small change of the product's text that breaks one claim.

`old` occurs exactly once in its file (`test_table` checks it). `test` is what must fail; named as for pytest,
or `lint-imports` for what the import contracts forbid. Planted, run and counted by `make mutants`."""

from __future__ import annotations

from tests.mutants.analysts import OF_ANALYSTS
from tests.mutants.consent import OF_CONSENT
from tests.mutants.crashes import OF_CRASHES
from tests.mutants.first_day import OF_FIRST_DAY
from tests.mutants.fresh_eyes import OF_FRESH_EYES
from tests.mutants.front import OF_FRONT
from tests.mutants.ledgers import OF_LEDGERS
from tests.mutants.lines import OF_LINES
from tests.mutants.loading import OF_LOADING
from tests.mutants.masked import OF_MASKED
from tests.mutants.masked_sites import OF_MASKED_SITES
from tests.mutants.mutant import Mutant, each, of
from tests.mutants.priors import OF_PRIORS
from tests.mutants.records import OF_RECORDS
from tests.mutants.signatures import OF_SIGNATURES
from tests.mutants.stated import OF_STATED
from tests.mutants.stated_gaps import OF_STATED_GAPS
from tests.mutants.versions import OF_VERSIONS
from tests.mutants.wiring_core import OF_WIRING_CORE
from tests.mutants.wiring_daemons import OF_WIRING_DAEMONS

DRAWN = "tests/core/mechanisms/test_drawn.py"
BOUNDS = "tests/core/algorithms/test_bounds.py"
CROSS = "tests/core/queries/test_cross_covariance.py"
FEW_STEPS = (
    "tests/core/algorithms/test_fractions.py"
    "::test_a_result_names_columns_with_few_steps_a_spread_and_right_bounds"
)
MEAN = "tests/core/algorithms/test_fractions.py::test_a_mean_between_two_steps_turns_no_component"
REFINEMENT = "tests/core/algorithms/test_refinement.py"
REFINED_PY = "algorithms/recommended/refined.py"
REVISIONS = "tests/core/algorithms/test_revisions.py"
REFINEMENT_PY = "algorithms/shared/refinement.py"
COVARIANCE = "mechanisms/papers/covariance.py"
SINGLE_PASS = "mechanisms/papers/single_pass.py"
SMOOTH_SENSITIVITY = "mechanisms/papers/smooth_sensitivity.py"
SUBSPACES = "mechanisms/papers/subspaces.py"
TEST_CLIPPING_LIMITS = "tests/core/site/test_clipping_limits.py"
TEST_NOISE = "tests/statistical/test_noise.py"
TEST_SAMPLER = "tests/core/noise/test_sampler.py"
SUMS = f"{DRAWN}::test_a_sum_gets_the_noise_of_its_table_in_every_distribution"
EIGENVALUES = f"{DRAWN}::test_eigenvalues_get_the_noise_of_all_sites_a_person_may_be_at"
HISTOGRAM = f"{DRAWN}::test_a_stability_histogram_releases_counts_from_its_threshold_on"
SEARCH = f"{DRAWN}::test_a_radius_search_gets_the_noise_of_its_limit_and_of_each_count"
DIRECTIONS = f"{DRAWN}::test_directions_are_drawn_with_the_exponent_that_privacy_allows"
VOTES = f"{DRAWN}::test_a_fingerprint_is_released_from_its_threshold_of_votes_on"
LEAD = f"{DRAWN}::test_a_lead_needs_to_exceed_all_truncated_noise"
TRIAL = f"{DRAWN}::test_a_trial_gets_a_third_of_epsilon_and_its_part_of_delta"
SMOOTH = f"{DRAWN}::test_a_smooth_gaussian_has_its_secret_scale"
CAUCHY = f"{DRAWN}::test_smooth_cauchy_noise_has_its_secret_scale"
TESTED = f"{DRAWN}::test_a_tested_gap_pays_for_its_test_with_a_fifth_and_for_its_noise_with_the_rest"
REFERENCE = f"{TEST_SAMPLER}::test_fixed_bytes_give_the_bytes_of_the_reference"
BOUND = f"{TEST_SAMPLER}::test_no_float_is_further_off_than_its_bound_and_some_nearly_as_far"
STEEPNESS = "tests/statistical/test_steepness.py::test_released_directions_are_exactly_as_steep_as_claimed"
OUTSIDE = f"{TEST_CLIPPING_LIMITS}::test_a_query_outside_its_limits_cannot_be_built"
WHOLE = "tests/core/site/test_site.py::test_the_reference_in_python_integers_agrees"
SENSITIVITY = (
    "tests/core/queries/test_conformance.py"
    "::test_no_neighbour_pair_exceeds_the_declared_sensitivity_and_one_reaches_it"
)
STEERED = "tests/torture/peers/test_malicious.py::test_it_is_refused_and_logged_and_nothing_is_sent"

MUTANTS: tuple[Mutant, ...] = (
    # ---- one record's contribution, and the noise on sums
    of("P1", "site/kernels/clipping.py", "safe & (square <= radius * radius)", "safe",
       "tests/core/site/test_clipping_decides.py::test_a_gradient_is_accepted_exactly_if_its_integers_fit"),
    of("P1", "site/kernels/clipping.py", "norm2 > radius", "norm2 > 2 * radius", SENSITIVITY),
    of("P1", "site/kernels/clipping.py", "radius * (1 - SLACK)", "2 * radius * (1 - SLACK)", SENSITIVITY),
    of("P1", "site/sums.py", "np.minimum(squared_norms(z), most)", "squared_norms(z)", SENSITIVITY),
    of("P2", "noise/source.py", "multiplicity**2", "multiplicity", SUMS),
    of("P2", "accounting/zcdp.py", "Fraction(root) ** 2 < square", "False", SUMS),
    of("P2", "noise/source.py", "block.scale, block", "0.98 * block.scale, block",
       f"{TEST_NOISE}::test_variance_and_mean"),
    of("P2", "noise/source.py", "block.distribution is NoiseDistribution.GAUSSIAN", "True",
       f"{TEST_NOISE}::test_shape"),
    of("P2", "mechanisms/__init__.py", "study.max_sites_per_person, priced.distribution\n    ",
       "1, priced.distribution", SUMS),
    *each("P2", "queries/contract.py", SUMS,
          ("(self.bound * neighbours.records) ** 2", "self.bound**2 * neighbours.records"),
          ("(self.bound * neighbours.records)", "self.weight * (self.radius * neighbours.records)")),
    of("P2", "queries/rows.py", "(self.radius**4)", "(self.radius**4) // 2", SUMS),
    of("P2", "numerics/encoding.py", "drawn.shape != total.shape or ", "",
       "tests/core/numerics/test_encoding.py::test_noise_of_another_shape_or_type_is_refused"),
    of("P3", "noise/source.py", "square / 2", "square / 4", SUMS),
    of("P3", "noise/source.py", "=root_of(square)", "=root_of(square / 2)", SUMS),
    # ---- the sampler
    of("P26", "noise/sampler.py", "abs(value, out=value)", "negative(value, out=value)", REFERENCE),
    of("P26", "noise/quantiles.py", "return arb(0.5)", "return arb(0)", REFERENCE),
    *each("P26", "noise/sampler.py", REFERENCE, ("-(words & ONE)", "-(words >> ONE & ONE)"),
          ("int(words(1)[0])", "word | 2"), ("1, TAIL_BITS + 1", "11, TAIL_BITS - 9")),
    of("P26", "noise/sampler.py", "(piece.size)", "(piece.size) if start == 0 else first[: piece.size]",
       f"{TEST_NOISE}::test_entries_and_draws_are_independent"),
    of("P26", "noise/sampler.py", "(words >> ONE).view", "(words >> ONE & ~np.uint64(1023)).view", BOUND),
    *each("P26", "noise/quantiles.py", BOUND, ("(ULP + 2.0**-first_bits)", "2.0**-first_bits"),
          ("2 * ULP *", "ULP *"), ("* (1 + 2.0**-20)", "/ 2")),
    of("P26", "noise/quantiles.py", "expm1() / 2", "expm1() / 2.1", f"{TEST_NOISE}::test_shape"),
    # ---- what the exact matrix gives away
    *each("P10", COVARIANCE, EIGENVALUES, ("multiplicity * moved + int(np.ceil(np", "moved + int(np.ceil(np"),
          ("multiplicity * moved + int(np.ceil(query", "moved + int(np.ceil(query"),
          ("4 * neighbours.records", "4")),
    of("P11", SINGLE_PASS, "math.log(l1)", "math.log(1)", HISTOGRAM),
    of("P11", SINGLE_PASS, "max(many, l1 + suppression_margin)", "many", HISTOGRAM),
    of("P11", SINGLE_PASS, "(study.neighbours) * study.max_sites_per_person", "(study.neighbours)", SUMS),
    of("P11", SINGLE_PASS, "(total > 0) & (counts >= threshold)", "counts >= threshold",
       "tests/core/mechanisms/test_stability_histogram.py::test_empty_and_small_bins_are_suppressed"),
    *each("P12", COVARIANCE, SEARCH, ("2 * times", "times"), ("study.neighbours.records", "1")),
    of("P13", COVARIANCE, "= epsilon", "= 1.07 * epsilon", DIRECTIONS),
    of("P13", COVARIANCE, "= epsilon", "= 1.07 * epsilon", STEEPNESS),
    of("P13", COVARIANCE, "multiplicity * square", "square", DIRECTIONS),
    of("P13", COVARIANCE, " / max(1, min(query.count, d - 1))", "", DIRECTIONS),
    of("P14", "noise/distributions.py", "exponents.max() - exponents", "1.07 * (exponents.max() - exponents)",
       STEEPNESS),
    of("P14", "noise/distributions.py", "x + m / 2", "x - m / 2",
       "tests/core/noise/test_bingham.py::test_the_envelope_lies_above_the_density"),
    # ---- votes
    of("P15", SUBSPACES, "study.changed_records,", "1,", VOTES),
    of("P15", SUBSPACES, "l1(study.neighbours) * study.max_sites_per_person", "l1(study.neighbours)", VOTES),
    of("P15", "queries/papers/subspaces.py", "2 * neighbours", "neighbours", VOTES),
    *each("P16", SUBSPACES, LEAD, ("- changed if", "if"), ("+ int(within[0]) >", "+ int(within[0]) >=")),
    of("P16", "queries/papers/subspaces.py", "2 if self.pool.truncated else neighbours", "neighbours", LEAD),
    of("P17", "queries/papers/subspaces.py", "TRIAL_COST = 3", "TRIAL_COST = 2", TRIAL),
    of("P17", SUBSPACES, '") * stop', '")', TRIAL),
    of("P18", SUBSPACES, "holders <= set(present)", "True", "tests/core/mechanisms/test_fingerprint_votes.py"
       "::test_a_preimage_is_released_only_if_every_holder_answered"),
    # ---- turned subspaces
    of("P19", "queries/papers/trusted.py", "(gap - 1 - i)", "(gap - i)", SMOOTH),
    of("P19", "queries/papers/trusted.py", "multiplicity * float", "float", SMOOTH),
    of("P20", SMOOTH_SENSITIVITY, "return 5 * smooth", "return 4.65 * smooth", SMOOTH),
    of("P20", SMOOTH_SENSITIVITY, "smooth(gap, used / (4 * (size + tail)))", "local(gap)", SMOOTH),
    of("P20", SMOOTH_SENSITIVITY, "math.sqrt(size) * smooth", "smooth", CAUCHY),
    of("P20", "noise/distributions.py", "_one(scale,", "_one(93 * scale // 100,",
       "tests/core/mechanisms/test_leading_subspace.py::test_cauchy_noise_has_its_scale"),
    of("P20", SMOOTH_SENSITIVITY, "vectors @ haar(k, noise)", "vectors",
       f"{DRAWN}::test_what_is_released_of_a_subspace_is_turned_at_random_within_it"),
    of("P21", SMOOTH_SENSITIVITY, "(1 - TEST_SHARE) * epsilon, delta / 2",
       "(1 - TEST_SHARE) * epsilon, delta", TESTED),
    of("P21", SMOOTH_SENSITIVITY, "TEST_SHARE * epsilon, delta / 2", "TEST_SHARE * epsilon, delta", TESTED),
    of("P21", SMOOTH_SENSITIVITY, "(bounds.step * GAP_STEPS + 1)", "bounds.step * GAP_STEPS", TESTED),
    # ---- single passes and secret orders
    of("P22", "queries/papers/single_pass.py", "2 * neighbours.records**2", "2 * neighbours.records", SUMS),
    of("P22", "queries/papers/single_pass.py", "2 * neighbours.records\n", "neighbours.records\n", SUMS),
    of("P23", SINGLE_PASS, "* histograms", "* histograms**2", SUMS),
    of("P23", "queries/papers/single_pass.py", "square * neighbours.records**2", "square", SUMS),
    of("P23", "site/batches.py", "halves, query", "halves, 2 * query", SENSITIVITY),
    of("P24", "queries/gradients.py", "4 * self.", "self.",
       f"{DRAWN}::test_a_slot_gets_the_noise_of_one_local_randomiser"),
    of("P24", "accounting/amplification.py", "(delta - order_delta)", "delta",
       f"{DRAWN}::test_a_slot_gets_the_noise_of_one_local_randomiser"),
    of("P24", "site/batches.py", ", key=secret", "",
       "tests/core/queries/test_shuffled.py::test_the_order_is_a_permutation_by_the_secret"),
    # ---- rows through a frame, and the questions about columns
    of("P29", "queries/columns.py", "columns * neighbours.records", "columns", SUMS),
    of("P29", "queries/contract.py", "self.bound *", "self.radius *", SUMS),
    of("P29", "queries/contract.py", "length * self", "length // 2 * self", SUMS),
    *each("P29", "site/record_view.py", "tests/core/site/test_columns.py::test_python_integers_see_the_same",
          (", S, out=", ", 2 * S, out="), ("    np.rint(part, out=part)\n", "")),
    of("P29", "site/sums.py", "int64), query", "int64), 2 * query", SENSITIVITY),
    of("P9", "site/site.py", "view = view.select(order)", "pass",
       "tests/core/site/test_columns.py::test_a_frame_moves_no_record_to_another_batch"),
    of("P25", "protocol/query.py", "same and same_frame(ours.priced.frame, theirs.priced.frame)", "same",
       "tests/core/protocol/test_query.py::test_another_frame_changes_the_digest"),
    of("P25", "queries/columns.py", "= LEAST_FACTOR", "= 1",
       f"{BOUNDS}::test_a_frame_beyond_its_limits_shows_nothing"),
    # ---- the cross covariance of leading directions and the rest
    of("P28", "queries/contract.py", "(self.bound * neighbours.records) ** 2",
       "self.bound**2 * neighbours.records", SUMS),
    of("P28", "queries/contract.py", "return ceil_sqrt(self.length * ", "return ceil_sqrt(", SUMS),
    of("P28", "queries/cross_covariance.py", "= MAX_SQUARED_SINGULAR_VALUE",
       "= 4 * MAX_SQUARED_SINGULAR_VALUE", OUTSIDE),
    of("P28", "queries/cross_covariance.py", ".sum(axis=0).max())", ".max())", OUTSIDE),
    of("P28", "queries/cross_covariance.py", "* WEIGHT <", "<",
       f"{TEST_CLIPPING_LIMITS}::test_a_cross_covariance_of_more_columns_than_any_study_has_is_exact"),
    of("P28", "site/sums.py", "        np.rint(z, out=z)\n", "", WHOLE),
    of("P28", "site/sums.py", "        np.rint(y, out=y)\n", "",
       f"{CROSS}::test_what_is_taken_off_a_row_is_rounded_before"),
    of("P28", "site/sums.py", "0.0, query.radius)", "0.0, 2 * query.radius)", SENSITIVITY),
    of("P28", "site/sums.py", "None, norm2, 0.", "None, 0 * norm2, 0.",
       "tests/core/site/test_clipping_decides.py"
       "::test_a_norm_proposed_too_small_costs_records_but_no_privacy[cross-covariance]"),
    of("P28", "queries/cross_covariance.py", "** 2 < EXACT", "** 2 < 4 * EXACT",
       f"{TEST_CLIPPING_LIMITS}::test_a_rest_whose_squared_norm_floats_cannot_hold_is_refused"),
    of("P28", "queries/cross_covariance.py", "0, MOST_FRACTION_BITS)", "0, 60)", OUTSIDE),
    of("P28", "site/sums.py", "        z *= fine\n", "",
       f"{CROSS}::test_fraction_bits_remove_what_is_below_half_a_step"),
    of("P25", "queries/cross_covariance.py", "spec.k, spec.fraction_bits))", "spec.k))",
       f"{CROSS}::test_what_leaves_too_little_of_records_is_not_honest"),
    of("R35", "protocol/query.py", 'ADDED_FIELDS = {"fraction_bits": 0}', "ADDED_FIELDS: dict[str, int] = {}",
       "tests/vectors/test_vectors.py"),
    of("P7", "algorithms/shared/preparation.py", "offset=offset / S", "offset=0 * offset", MEAN),
    of("P7", "reporting/loadings.py", "result), *coarse)", "result))",
       FEW_STEPS),
    of("P7", "numerics/arrow.py", "left * cosines @ left.T", "np.diag(cosines)",
       "tests/core/numerics/test_arrow.py"
       "::test_the_rotation_is_orthogonal_and_leads_to_the_leading_eigenvectors"),
    of("P28", "site/sums.py", "(1 - kept**2)", "(1 - kept)",
       "tests/core/queries/test_conformance.py"
       "::test_an_answer_about_hostile_records_is_that_of_the_reference[cross-norms]"),
    of("P7", REFINEMENT_PY, " + self.rounding[:, None] / gaps**2", "",
       "tests/core/algorithms/test_fractions.py::test_rounding_of_rests_is_stated"),
    of("P25", "queries/cross_covariance.py", "2 * ceil_sqrt", "ceil_sqrt",
       f"{CROSS}::test_at_the_floor_a_clipped_record_still_has_a_coefficient"),
    of("P25", "queries/cross_covariance.py", "LEAST_UNSHIFTED_NORM << spec.shift", "0",
       f"{CROSS}::test_what_leaves_too_little_of_records_is_not_honest"),
    # ---- what refinement makes of it
    of("P7", "algorithms/shared/query_builders.py", "self.leading / WEIGHT", "np.ones(self.k)",
       f"{REFINEMENT}::test_an_answer_without_the_weights_is_the_cross_covariance"),
    of("P7", "algorithms/shared/query_builders.py", "append(spare, 1.0)", "ones(spare.size + 1)",
       f"{REFINEMENT}::test_the_noise_of_an_answer_has_its_stated_size"),
    of("P7", REFINEMENT_PY, "prior / (prior + new)", "np.ones_like(prior)",
       f"{REFINEMENT}::test_the_rest_after_a_turn_has_its_stated_size"),
    of("P7", REFINEMENT_PY, "self.basis, outside", "0 * self.basis, outside",
       f"{REFINEMENT}::test_without_noise_turns_end_at_the_components"),
    of("P7", REFINEMENT_PY, "next(steps for most, steps in STEPS if sine < most)", "STEPS[0][1]",
       f"{REFINEMENT}::test_a_weak_first_stage_is_turned_in_more_steps"),
    of("P7", REFINEMENT_PY, "(further.T @ rest).", "0 * (further.T @ rest).",
       f"{REFINEMENT}::test_what_lies_beyond_the_spare_directions_is_found"),
    of("P7", REFINEMENT_PY, "centre_sine(start, gaps), rounding))", "0.0, rounding))",
       "tests/compat/test_golden.py::test_an_earlier_revision_gives_the_results_of_its_releases[1.0]"),
    of("P7", REFINED_PY, "if start.plan.revision >= 2", "if start.plan.revision >= 1",
       f"{REVISIONS}::test_revision_1_states_the_error_of_the_refinement_alone"),
    of("P7", REFINED_PY, "neglected * before**2", "neglected * before",
       f"{REVISIONS}::test_revision_2_states_what_revision_1_does_at_a_strong_signal"),
    of("P25", REFINEMENT_PY, "_nearest(axes[:, :k])", "axes",
       "tests/client/site/daemon/test_own_session.py::test_two_builds_of_blas_make_the_same_queries"),
    of("P7", REFINEMENT_PY, "left / steps", "left",
       f"{REFINEMENT}::test_whatever_is_released_the_budget_holds_and_the_result_is_defined"),
    # ---- a site asks itself
    of("P25", "client/eigenveil_client/site/daemon/worker.py", "session.expect(round_query, signed)", "pass",
       f"{STEERED}[presence of one exact record]"),
    of("P25", "client/eigenveil_client/site/daemon/round_checks.py", "adopt(round_query)",
       "pending = round_query", f"{STEERED}[one micro-rho less]"),
    of("P25", "client/eigenveil_client/site/daemon/round_checks.py", "stated.size < size or", "False and",
       f"{STEERED}[a ledger that shrank]"),
    *each("P25", "protocol/query.py", "tests/client/site/daemon/test_own_session.py"
          "::test_one_unit_is_the_same_question_and_two_are_another",
          (("\n        type(round_query.query),\n        round_query.plan_digest,"
          "\n        round_query.round,\n        round_query.priced.cost,"
          "\n        round_query.priced.distribution,\n    "),
           ("type(round_query.query), round_query.plan_digest, round_query.round,"
            " round_query.priced.distribution")), (", right, 1", ", right, 2")),
    of("P25", "algorithms/shared/preparation.py", "least_row_radius(d)", "1",
       f"{BOUNDS}::test_no_lie_leads_beyond_them[Algorithm.GAUSS_COV-Scaling.NONE-all at the centre]"),
    of("P25", "algorithms/shared/preparation.py", "most, most", "S, S",
       f"{BOUNDS}::test_no_lie_leads_beyond_them[Algorithm.GAUSS_COV-Scaling.NONE-towards a corner]"),
    of("P25", "queries/gradients.py", "2 * truncated", "truncated",
       f"{BOUNDS}::test_at_the_floor_a_clipped_record_still_has_a_gradient"),
    of("P25", "session.py", "_check_reach(round_query)\n        self.", "",
       f"{BOUNDS}::test_a_coordinator_cannot_change_a_query_to_beyond_the_bounds"),
    *OF_ANALYSTS,
    *OF_CONSENT,
    *OF_FRESH_EYES,
    *OF_FIRST_DAY,
    *OF_FRONT,
    *OF_LEDGERS,
    *OF_LINES, *OF_LOADING,
    *OF_CRASHES,
    *OF_MASKED,
    *OF_MASKED_SITES,
    *OF_PRIORS, *OF_RECORDS,
    *OF_SIGNATURES, *OF_STATED, *OF_STATED_GAPS,
    *OF_VERSIONS,
    *OF_WIRING_CORE,
    *OF_WIRING_DAEMONS,
)  # fmt: skip
