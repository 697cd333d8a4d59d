"""Faults in what algorithms state of their error where a gap is not known, and in first stages [P7]."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, each, of

ALGORITHMS = "algorithms/recommended"
GAPS = "tests/core/algorithms/test_stated_gaps.py"
AUTO = "tests/core/algorithms/test_auto.py"
CLIPPING = "tests/core/algorithms/test_stated_clipping.py"

OF_STATED_GAPS: tuple[Mutant, ...] = (
    *each("P7", "algorithms/shared/refinement.py",
          f"{GAPS}::test_equal_variances_are_no_gap_although_noise_moves_them_apart",
          ("(apart * sd) ** 2", "sd**2"),
          ("np.maximum(found**2 - (apart", "np.maximum(found**2 + (apart")),
    *each("P7", f"{ALGORITHMS}/refined.py",
          f"{GAPS}::test_a_refinement_states_no_less_than_its_own_and_the_more_the_worse_its_first_stage",
          ("max(after, before**2, min(", "max(before**2, min("),
          ("max(after, before**2, min(", "max(after, min(")),
    *each("P7", f"{ALGORITHMS}/refined.py",
          f"{CLIPPING}::test_what_clipping_rows_did_is_partly_in_the_refinement_too",
          ("max(found.clipping_bias, least)", "found.clipping_bias")),
    *each("P7", "algorithms/shared/clip_radius.py",
          f"{CLIPPING}::test_records_beyond_the_grid_may_be_much_longer_than_its_top",
          ("self.grid.top * 2.0 ** (TAIL_BINS / PER_OCTAVE)", "self.grid.top"),
          ("counts[: TAIL_BINS + 1] = self.counts[0]", "counts[: TAIL_BINS] = self.counts[0]")),
    *each("P7", "algorithms/shared/refinement.py", f"{CLIPPING}::test_long_rows_are_stated",
          ("norms.with_tail() if long else norms", "norms")),
    *each("P7", f"{ALGORITHMS}/dp_pca.py",
          f"{CLIPPING}::test_rows_far_beyond_all_counted_ones_are_stated_by_dp_pca",
          ("histogram.with_tail(), radius", "histogram, radius")),
    *each("P7", f"{ALGORITHMS}/dp_pca.py", f"{CLIPPING}::test_long_rows_are_stated",
          ("following + noise), clipped)", "following + noise), 0.0)")),
    *each("P7", f"{ALGORITHMS}/refined.py",
          f"{GAPS}::test_a_plan_of_today_states_what_its_gaps_show_and_an_older_one_as_before",
          ("(3 if plan.algorithm is Algorithm.REFINED_COV else 2)", "2")),
    *each("P7", "algorithms/shared/stated_error.py",
          f"{GAPS}::test_a_gap_within_the_noise_is_warned_of_with_what_is_separated",
          ("if apart.size and apart[-1] == k:", "if apart.size:"), ("> 2 * noise) + 1", "> 0) + 1")),
    *each("P7", f"{ALGORITHMS}/dp_pca.py", f"{GAPS}::test_a_tail_states_more_the_nearer_the_next_variance_is",
          ("math.hypot(HALVES * tail.error(k), math.sin(math.atan(shared)))", "HALVES * tail.error(k)")),
    *each("P7", f"{ALGORITHMS}/dp_pca.py",
          f"{GAPS}::test_the_next_variance_is_found_through_a_drift_that_is_half_noise",
          ("max((square - (d - k) * scale**2) / by, own)", "own")),
    *each("P7", f"{ALGORITHMS}/dp_pca.py",
          f"{GAPS}::test_the_drift_is_the_direction_in_which_the_halves_differ_most",
          ("left[:, :1]]))", "left[:, -1:]]))")),
    *each("P7", f"{ALGORITHMS}/refined.py",
          f"{GAPS}::test_leading_axes_are_those_of_the_whole_matrix_and_the_rest_is_level",
          ("level=max(found.level, float(variances[p:].mean()))", "level=found.level")),
    *each("P7", f"{ALGORITHMS}/auto.py",
          f"{AUTO}::test_the_first_revision_has_its_own_limit_of_columns",
          ("plan.revision >= 2", "plan.revision >= 1")),
    *each("P7", f"{ALGORITHMS}/refined_cov.py",
          f"{AUTO}::test_a_wide_matrix_that_shows_nothing_in_its_first_part_gives_way_to_gradients",
          ("if height >= WIDE_SEEN", "if True"), ("if height >= WIDE_SEEN", "if False")),
    *each("P7", f"{ALGORITHMS}/refined_cov.py",
          f"{AUTO}::test_only_todays_refined_cov_of_many_columns_chooses",
          ("and keeps_fractions(plan)", ""), (" and plan.study.prior is None", "")),
    of("P4", f"{ALGORITHMS}/refined_cov.py", "clip.left * share * PROBE,", "clip.left * (share * PROBE),",
       f"{AUTO}::test_the_first_revision_charges_its_own_last_micro_rho"),
    *each("P4", f"{ALGORITHMS}/refined_cov.py",
          f"{AUTO}::test_no_releases_exceed_the_predicted_cost_and_rounds",
          ("clip.left * (1 - part), steps)", "clip.left, steps)"),
          ("clip.left * (share - part)", "clip.left * share")),
)  # fmt: skip
