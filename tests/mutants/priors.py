"""Faults in what a study takes from a prior, in what is refused, and in what a release states of it [P7]."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, each, of

GUARD, GUARDED = "algorithms/recommended/prior.py", "tests/core/algorithms/test_prior.py"
REFINED = "algorithms/recommended/refined.py"
STUDY, CARRIED = "study/prior.py", "tests/core/study/test_prior.py"
FILES, READ = "priors.py", "tests/core/test_priors.py"
NOISE = f"{GUARDED}::test_a_prior_that_noise_hides_is_not_confirmed"
SHARED = f"{GUARDED}::test_a_release_of_the_same_sites_adds_nothing_to_what_is_stated"
LACKS = f"{GUARDED}::test_a_prior_that_lacks_the_component_is_not_used"
CONFIRMED = f"{GUARDED}::test_a_prior_counts_in_the_stated_error_only_if_the_releases_confirm_it"
RANDOM = f"{GUARDED}::test_random_axes_change_no_query_and_no_number"

OF_PRIORS: tuple[Mutant, ...] = (
    of("P7", "algorithms/shared/refinement.py", "max(least, choose_radius", "max(0.0, choose_radius",
       "tests/core/algorithms/test_prior.py"
       "::test_a_false_bin_of_short_parts_is_no_evidence_for_the_releases"),
    # ---- the guard, and what is stated
    of("P7", GUARD, "evidence > max(FITS, LEAST_SHARE * predicted_evidence)", "True",
       f"{GUARDED}::test_a_prior_of_even_variances_foretells_nothing_and_is_not_used"),
    of("P7", GUARD, "LEAST_SHARE * predicted_evidence", "0.0",
       f"{GUARDED}::test_a_prior_of_which_little_fits_is_not_used"),
    of("P7", GUARD, " and rotated.lost(first) < limit", "", LACKS),
    of("P7", GUARD, "    return None\n\n\ndef largest_loss",
       "    return rotated.estimate(first, confirmed=confirmed)\n\n\ndef largest_loss", RANDOM),
    *each("P7", GUARD, NOISE,
          ("estimate(first, confirmed=confirmed)", "estimate(first, confirmed=True)"), ("unknown or (", "("),
          ("math.log(max(a / USUAL, 1.0))", "0.0"), ("sum() < EVIDENT", "sum() < 0 * EVIDENT"),
          ("return min(max(total, LEAST_TOTAL * most), most)", "return total + 1e-9")),
    of("P7", GUARD, "np.minimum(found.sd, self.estimate.sd)", "found.sd",
       f"{GUARDED}::test_a_result_states_the_part_of_the_prior_and_keeps_it"),
    of("R32", FILES, "share * (covariance - even)", "covariance - even",
       f"{READ}::test_rows_give_their_covariance_in_the_units_of_the_study"),
    of("P7", "algorithms/shared/standardised.py", "replace(prior, scaling=Scaling.BOUNDS)", "prior",
       f"{GUARDED}::test_a_prior_of_standardised_columns_brings_their_component_nearer"),
    of("P7", REFINED, "shared or not informed.confirmed", "shared", CONFIRMED),
    of("P7", REFINED, "shared or not informed.confirmed", "not informed.confirmed", SHARED),
    of("P7", REFINED, "else informed.shares(found)", "else (1.0,) * len(found.sd)",
       f"{GUARDED}::test_a_result_states_the_part_of_the_prior_and_keeps_it"),
    # ---- the plan
    of("R4", "protocol/plan.py", "[] if plan.study.prior is None else [REQUIRED_PRIOR]", "[]",
       f"{CARRIED}::test_a_reader_must_know_a_prior"),
    of("R4", "study/toml.py", "PRIOR_SINCE if study.prior is not None else 0", "0",
       f"{CARRIED}::test_a_reader_must_know_a_prior"),
    *each("R4", STUDY, f"{CARRIED}::test_a_prior_of_another_study_is_refused_before_a_plan",
          ("need(off <= most", "need(True"), ("data = b\"\"", "data = bytes(2 * m * d)")),
    *each("R4", STUDY, f"{CARRIED}::test_an_invalid_value_is_refused",
          ("DIGEST.fullmatch(self.sha256) is not None", "True"),
          ("bool(self.signer) is released and", "True or"),
          ("math.isfinite(one) and one >= 0", "one >= 0 or one != one")),
    # ---- its file
    of("R32", FILES, "hashlib.sha256(data).hexdigest()", "hashlib.sha256(data[:-1]).hexdigest()",
       f"{READ}::test_the_digest_is_that_of_the_file"),
    *each("R32", FILES, f"{READ}::test_files_that_are_no_prior_are_refused",
          ("len(data) <= MOST_BYTES", "True"), ("len(rows) >= LEAST_ROWS", "True")),
    *each("R32", FILES, f"{READ}::test_wrong_rows_are_refused_with_their_line",
          ("~((values >= lower) & (values <= upper))", "(values < lower)"),
          ("math.isfinite(value), f", "True, f")),
    *each("R32", FILES, f"{READ}::test_wrong_loadings_are_refused_with_their_line",
          ("off <= ORTHONORMAL", "True"), ("scaling == stated", "True"), ("rest >= -ORTHONORMAL", "True")),
    *each("R32", FILES, f"{READ}::test_a_release_of_another_study_is_refused",
          ("earlier.scaling is study.scaling", "True"), ("not other, ", "True, "),
          ("unit == column.unit", "True")),
    *each("R32", FILES, f"{READ}::test_an_earlier_release_gives_its_components_in_other_bounds",
          ("matrix = matrix * np.outer(factor, factor)", "pass"),
          ("shared_sites=tuple(shared)", "shared_sites=()")),
)  # fmt: skip
