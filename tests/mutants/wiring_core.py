"""Faults in what is wired together in the core: an argument dropped, a check not made, a factor left out."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, each, of

ANALYST = "client/eigenveil_client/analyst"
STATED = "test_noise_of_a_release_matches_its_stated_scale[gauss-cov-1e-06]"
ATTEMPTS = "tests/core/secure_aggregation/test_attempts.py"
TRUST = "tests/core/reporting/test_trust.py"
MATRIX = "tests/core/derived/test_matrix.py"
CLIPPING = "tests/core/derived/test_clipping.py"
RARE_COLUMN = "test_a_rare_column_is_unknown_and_the_others_are_trusted"
LOSS_GROWS = "test_errors_grow_with_the_possible_loss_of_a_column_and_only_there"
QUERY = "tests/core/protocol/test_query.py"
STATEMENTS = "tests/core/protocol/test_round.py"
RESULT = "tests/core/reporting/test_result.py"
CHECKPOINT = "tests/core/accounting/test_checkpoint.py"
SHOWN = "tests/client/analyst/test_catalogue.py"
CLIENT = f"{ANALYST}/client.py"
TEST_COSTS = "tests/core/study/test_price.py"
TEST_STANDARDISED = "tests/core/algorithms/test_standardised.py"
TEST_CLIENT = "tests/client/analyst/test_client.py"
AGREEMENT = f"{QUERY}::test_only_fields_computed_in_floats_may_differ_and_by_one_unit"
GUESS = f"{TRUST}::test_inference_odds_lie_between_a_known_attack_and_the_guarantee"
OUTSIDE = "tests/core/site/test_clipping_limits.py::test_a_query_outside_its_limits_cannot_be_built"
SHARES = "tests/core/secure_aggregation/test_shares.py::test_honest_shares_are_the_noise_of_the_table"
FORESEEN = f"{TEST_STANDARDISED}::test_the_error_of_a_variance_is_predicted_from_the_noise_that_will_be_drawn"
FORM = f"{STATEMENTS}::test_a_statement_of_another_form_is_refused"
SIGNED = f"{STATEMENTS}::test_a_signature_of_another_kind_or_over_too_many_bytes_is_refused"
UNITS = f"{RESULT}::test_a_result_is_in_the_units_of_its_study"
PARTS = f"{TEST_STANDARDISED}::test_noise_is_stated_in_parts_of_standard_deviations"
ADDED_UP = f"{TEST_COSTS}::test_a_guarantee_states_its_composition"
FIGURES = f"{SHOWN}::test_figures_of_a_study_are_those_that_were_sent"
OTHER_PLAN = f"{TEST_CLIENT}::test_another_plan_than_the_signed_one_is_reported"
OTHER_RELEASE = f"{TEST_CLIENT}::test_only_the_whole_signed_release_of_the_study_is_accepted"

OF_WIRING_CORE: tuple[Mutant, ...] = (
    # ---- what a person is told, and what is set aside
    *each("P5", "reporting/explain.py", GUESS, ("+ steps *", "+ 1 *"), ("rho * steps**2", "rho * steps")),
    of("P35", "reporting/explain.py", ": gaussian.micro_mu(cost.micro_rho)",
       ": gaussian.micro_mu(plan.micro_rho)",
       f"{TRUST}::test_the_promise_is_of_the_whole_pool_and_within_the_study"),
    of("P35", "reporting/report.py", '["micro_rho"]) + pool', '["micro_rho"])',
       f"{TRUST}::test_a_document_lists_attempts_of_each_round_and_visibility"),
    of("P9", "reporting/explain.py", "round if batch is None else batch.first", "round",
       f"{TEST_COSTS}::test_a_plan_names_for_every_query_the_round_that_pays_for_it"),
    of("P32", "study/composition.py",
       "rounded if Fraction(rounded) <= remaining else math.nextafter(rounded, 0.0)", "rounded",
       f"{TEST_COSTS}::test_a_reserved_delta_is_subtracted_exactly"),
    # ---- the same question on two machines
    of("P25", "protocol/query.py", ",\n        round_query.priced.distribution,\n    ", "",
       f"{AGREEMENT}[count-1]"),
    of("P25", "protocol/query.py", "left, right, 0", "left, right, 1", f"{AGREEMENT}[row-norms-1]"),
    of("P25", "protocol/query.py", "return _within(left, right, 0) if name == EDGE_FIELD else", "return",
       f"{QUERY}::test_an_edge_beyond_the_precision_of_floats_may_differ_by_a_part_of_itself"),
    of("P29", "site/site.py", "        self._check_columns(None if frame is None else frame.columns)\n", "",
       "tests/core/algorithms/test_bounds.py::test_a_frame_beyond_its_limits_shows_nothing"),
    # ---- bounds of floats and integers
    of("P26", "noise/sampler.py", "off + ULP / 2", "ULP / 2",
       "tests/core/noise/test_sampler.py::test_what_the_shift_is_off_by_leaves_as_much_in_doubt"),
    of("P28", "queries/cross_covariance.py", "fraction_bits) + ceil_sqrt(d)", "fraction_bits)",
       "tests/core/queries/test_cross_covariance.py"
       "::test_rounding_may_make_the_longest_row_longer_and_that_is_within_the_limit"),
    of("P29", "queries/columns.py", "MAX_MOMENTS_RADIUS = 2**20", "MAX_MOMENTS_RADIUS = 2**22", OUTSIDE),
    # ---- what noise does to derived answers
    of("P7", "derived/regression.py", "repaired.mean_errors", "0",
       "tests/core/derived/test_regression.py::test_an_intercept_knows_that_the_mean_is_noised_too"),
    *each("P7", "derived/regression.py", "tests/core/derived/test_regression.py"
          "::test_noise_that_slopes_follow_is_taken_off_r_squared_and_is_in_its_error",
          ("total - fitted_noise", "total"),
          ("np.hypot(fit.matrix.errors(form), fitted_noise)", "fit.matrix.errors(form)")),
    of("P7", "derived/correlations.py", "repaired.mean_errors", "0",
       "tests/core/derived/test_correlation.py::test_stated_errors_of_distances_match_the_spread_over_noise"),
    of("P7", "derived/covariance.py", "self.mean_noise_variance**2 * (1 + 2 * here) + clipping_bias",
       "clipping_bias", f"{MATRIX}::test_the_noise_of_the_mean_is_in_the_matrix_as_its_square"),
    of("P7", "derived/moments.py", "noise.centre / len(values)", "0.0", f"{MATRIX}::{STATED}"),
    # ---- what clipping may have removed from derived answers
    of("P7", "algorithms/shared/clip_radius.py", "UNSEEN * self.sigma", "0 * self.sigma",
       f"{CLIPPING}::test_noise_hides_records_up_to_the_top_of_the_grid"),
    of("P7", "algorithms/shared/clip_radius.py", "losses @ counted", "losses @ self.counts",
       f"{CLIPPING}::test_no_column_loses_more_than_the_limit"),
    of("P7", "algorithms/recommended/gauss_cov.py", "norms.largest_loss(at, largest_values(start))",
       "0 * norms.largest_loss(at, largest_values(start))", f"{CLIPPING}::{RARE_COLUMN}"),
    *each("P7", "derived/clipping.py", f"{CLIPPING}::{LOSS_GROWS}",
          ("lost | outside | self.contradicted", "outside | self.contradicted"),
          ("lost | outside | self.contradicted", "lost | self.contradicted"),
          (" + outside)", ")")),
    of("P7", "derived/clipping.py", "difference > CONTRADICTED * math.hypot(error, bias)", "difference < 0",
       f"{CLIPPING}::test_a_two_valued_column_is_held_against_its_mean"),
    of("P7", "derived/covariance.py", " * self.loss.noise_growth", "",
       f"{CLIPPING}::test_no_clipping_is_offered_only_where_its_noise_leaves_the_column"),
    of("P7", "derived/covariance.py", "self.loss is None or self.loss.exposed",
       "self.loss and self.loss.exposed",
       f"{CLIPPING}::test_an_earlier_revision_states_no_loss_and_its_intervals_are_unknown"),
    of("P7", "algorithms/shared/standardised.py", "outside=tuple(scales.outside.tolist())",
       "outside=clipping.outside", f"{CLIPPING}::test_the_ends_of_a_frame_are_counted_as_clipping"),
    of("P7", "reporting/result.py", "if data[name] is None:", "if False:",
       f"{CLIPPING}::test_an_earlier_revision_states_no_loss_and_its_intervals_are_unknown"),
    # ---- columns in parts of their standard deviations
    of("P29", "algorithms/shared/standardised.py", "float((errors >= UNKNOWN).mean())", "0.0",
       "tests/core/algorithms/test_standardised.py::test_without_one_known_spread_the_stated_error_is_one"),
    of("P29", "algorithms/shared/column_scales.py", "study.changed_records", "study.neighbours.records",
       FORESEEN),
    of("P29", "algorithms/shared/column_scales.py", "*= 2 * math.", "*= math.", FORESEEN),
    # ---- masked rounds
    of("R29", "signatures.py", "written != data", "False",
       f"{ATTEMPTS}::test_an_attempt_has_one_canonical_form"),
    of("R29", "secure_aggregation/masking.py", ", round_query.round", ", self.round",
       f"{ATTEMPTS}::test_an_attempt_matches_only_its_own_query_round_and_plan"),
    of("R29", "signatures.py", "len(self.signed_json) > self.most_bytes", "False",
       f"{ATTEMPTS}::test_an_attempt_longer_than_the_most_sites_is_refused_unhashed"),
    of("P2", "noise/source.py",
       "\n        study.max_sites_per_person,\n        priced.distribution,\n        ",
       " 1, priced.distribution, ", SHARES),
    of("P32", "noise/source.py", "sqrt(sites)", "sqrt(max(1, sites - study.colluders))", SHARES),
    # ---- budgets, statements and checkpoints
    of("P4", "accounting/budget.py", "exact, atto_delta=mechanism_delta", "exact",
       "tests/core/accounting/test_ledger.py::test_the_delta_of_mechanisms_is_part_of_either_limit"),
    of("P4", "accounting/budget.py", ", min(counts)", ", max(counts)",
       "tests/client/analyst/python/test_python.py::test_studies_left_follow_the_scarcer_part_of_the_cost"),
    of("R20", "accounting/checkpoint.py", "atto_delta=atto_delta)", "atto_delta=0)",
       f"{CHECKPOINT}::test_a_head_is_read_back_as_it_was_signed[1]"),
    of("R20", "accounting/checkpoint.py", "(earlier.size, earlier.digest) == (self.size, self.digest)",
       "True", f"{CHECKPOINT}::test_later_heads_follow_and_those_of_another_ledger_contradict"),
    of("R21", "protocol/rounds.py", " and bool(self.after) == (self.round > 0)", "", FORM),
    of("R21", "protocol/rounds.py", "self.size >= 1 and ", "", FORM),
    of("R21", "signatures.py", "prefix + self.", "",
       f"{STATEMENTS}::test_a_statement_is_read_back_as_it_was_signed"),
    of("R21", "signatures.py", "len(self.signed_json) > self.most_bytes", "False", SIGNED),
    of("R21", "protocol/wire.py", "not _is_stated(release, statement)", "False",
       f"{STATEMENTS}::test_a_release_that_differs_from_its_signed_statement_is_refused"),
    # ---- a question on the wire and at its place
    of("P25", "protocol/wire.py", "atto_delta=message.atto_delta,\n        distribution", "distribution",
       "tests/core/queries/test_conformance.py"
       "::test_a_query_is_read_back_from_the_wire_with_its_digest[count]"),
    of("P9", "protocol/query.py", " and bool((batch.key == expected_key).all())", "",
       f"{QUERY}::test_a_batch_belongs_to_its_round_and_to_a_pass_of_its_plan"),
    of("P29", "protocol/query.py", "self.priced.frame is None or not isinstance(self.query, SubspaceQuery)",
       "True", f"{QUERY}::test_subsamples_are_seen_through_no_frame"),
    of("R5", "protocol/wire.py", "required:\n", "False:\n",
       "tests/core/protocol/test_wire.py::test_a_query_without_a_required_field_is_refused"),
    of("P24", "site/site.py", "-batch.batches", "batch.batches",
       "tests/core/queries/test_shuffled.py::test_a_secret_order_and_a_dealing_of_one_pass_are_two"),
    of("P25", "protocol/query.py", "    if left.shape != right.shape:\n        return False\n", "",
       f"{QUERY}::test_a_query_about_more_columns_differs"),
    # ---- the units and the words of a result
    of("P7", "derived/covariance.py", "math.hypot(self.noise.count, 1 - self.noise.retained_share, unseen)",
       "self.noise.count", f"{MATRIX}::test_clipping_bias_is_noted_only_where_records_are_clipped"),
    *each("R10", "reporting/explain.py", f"{TEST_COSTS}::test_an_explanation_shows_the_longest_rehearsal",
          ('"bytes_per_site": max', '"bytes_per_site": min'),
          (", max(map(len, query_sequences))", ", min(map(len, query_sequences))")),
    of("R10", "reporting/explain.py", "radius == 1", "radius is None",
       f"{TEST_COSTS}::test_an_explanation_states_how_records_are_clipped"),
    of("P7", "reporting/result.py", "offsets(plan.study) + estimate", "estimate", UNITS),
    of("P7", "reporting/result.py", "estimate.noise.in_units(square)", "estimate.noise", UNITS),
    of("P7", "reporting/result.py", ", estimate.scale", "",
       f"{RESULT}::test_divided_columns_vary_by_no_more_than_their_bounds_in_these_units"),
    of("P7", "algorithms/shared/standardised.py", "noise_scale * unit**2", "noise_scale * unit", PARTS),
    of("P7", "algorithms/shared/standardised.py", "noise.in_units(unit**2)", "noise", PARTS),
    of("P5", "reporting/explain.py", "cost.micro_rho / MICRO, 6", "plan.micro_rho / 2 / MICRO, 6",
       f"{TEST_COSTS}::test_a_guarantee_claims_what_its_costs_add_up_to"),
    of("P20", "reporting/explain.py", "    Algorithm.PROPOSE_TEST_RELEASE,\n", "", ADDED_UP),
    of("P5", "reporting/explain.py", "sites == 1", "sites >= 1", ADDED_UP),
    of("R10", f"{ANALYST}/display.py", "spent_micro_rho, max(row.micro_rho, 1)",
       "micro_rho, max(row.spent_micro_rho, 1)", FIGURES),
    of("R10", f"{ANALYST}/display.py", 'spent_micro_rho,\n        "micro_rho": event.micro_rho',
       'micro_rho,\n        "micro_rho": event.spent_micro_rho', FIGURES),
    of("R10", f"{ANALYST}/display.py", 'consent_ends_unix_ms, "starts": message.starts_unix_ms',
       'starts_unix_ms, "starts": message.consent_ends_unix_ms', FIGURES),
    of("R10", f"{ANALYST}/display.py", "['start_seconds'] / 60", "['start_seconds']",
       f"{SHOWN}::test_approval_text_names_the_operator_first"),
    # ---- what an analyst's client believes
    of("R4", CLIENT, "() == proposal.plan.digest", "()", OTHER_PLAN),
    of("R4", CLIENT, "answer.plan_digest.hex() == proposal", "proposal", OTHER_PLAN),
    of("R12", CLIENT, "        verify_release(release, self._identity.release_keys.known)\n", "",
       OTHER_RELEASE),
    of("R12", CLIENT, 'release.document["plan_digest"] != plan_digest.hex()', "False", OTHER_RELEASE),
    of("R12", CLIENT, "if len(data) < total", "if False", OTHER_RELEASE),
)  # fmt: skip
