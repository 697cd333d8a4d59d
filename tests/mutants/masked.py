"""Faults in masks, in shares of the noise and in what attempts cost."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, each, of

TESTS = "tests/core/secure_aggregation"
SERVER = "server/eigenveil_server"
MASKS = "secure_aggregation/masking.py"
DRIVER = f"{SERVER}/rounds/drivers.py"
TEST_ATTEMPTS = f"{TESTS}/test_attempts.py"
TEST_MASKS_CANCEL = f"{TESTS}/test_masks_cancel.py"
HASHED = 'digest_of("attempt", self.signed_json)'
SHOWN = f"{TEST_MASKS_CANCEL}::test_masks_cancel_only_in_sums_over_all_honest_members"
SHARES = f"{TESTS}/test_shares.py::test_honest_shares_are_the_noise_of_the_table"
SPENT = f"{TEST_ATTEMPTS}::test_all_attempts_in_sum_satisfy_the_privacy_of_the_study"
POOL = "tests/core/planning/test_pool.py"
LEDGER = "tests/core/accounting/test_ledger.py"
TEST_MASKED_RESTARTS = "tests/server/masked/test_masked_restarts.py"


def without(key: str, value: str) -> str:
    """The digest of an attempt over all but one key."""
    pattern = f'"{key}":{value}'
    return f'digest_of("attempt", __import__("re").sub(rb\'{pattern}\', b"", self.signed_json))'


OF_MASKED: tuple[Mutant, ...] = (
    of("P31", MASKS, HASHED, without("members", r"\{[^}]*\}"), SHOWN),
    of("P31", MASKS, HASHED, without("round", r"\d+"),
       f"{TEST_MASKS_CANCEL}::test_attempts_and_rounds_have_masks_of_their_own[another round]"),
    of("P31", MASKS, "in others", "in others[:-1]", SHOWN),
    of("P31", MASKS, "(attempt.digest) + pair", "(attempt.digest)",
       f"{TEST_MASKS_CANCEL}::test_a_copied_key_does_not_take_a_mask_away"),
    of("P31", MASKS, ".derive(secret)", ".derive(secret[:4])",
       "tests/vectors/test_vectors.py::test_the_code_still_writes_the_stored_vector[masked]"),
    of("P31", MASKS, "other > name", "False",
       f"{TEST_MASKS_CANCEL}::test_masked_answers_add_up_to_answers_and_shares"),
    of("P32", "noise/source.py", "= sites - study.colluders", "= sites", SHARES),
    of("P32", "noise/source.py", "max(block.scale, MIN_SHARE_SCALE)", "block.scale", SHARES),
    of("P32", "noise/source.py", "micro_rho) / shares", "micro_rho) / shares**2", SHARES),
    of("P32", "protocol/query_limits.py", "MIN_SHARE_SCALE = 4", "MIN_SHARE_SCALE = 2",
       f"{TESTS}/test_laws.py"
       "::test_at_the_least_share_scale_rounding_costs_less_than_the_delta_of_an_attempt"),
    of("P33", MASKS, HASHED, without("number", r"\d+"),
       f"{TEST_MASKS_CANCEL}::test_attempts_and_rounds_have_masks_of_their_own[another attempt]"),
    of("P33", "protocol/query_limits.py", "attempt_number <= paid", "paid",
       f"{TEST_ATTEMPTS}::test_a_pass_is_charged_as_often_as_its_most_attempted_batch"),
    of("P31", "client/eigenveil_client/site/daemon/round_checks.py",
       "if unknown := sorted(others.keys() - confirmed.keys())", "if unknown := []",
       "tests/client/site/daemon/test_masked.py::test_no_answer_is_masked_for_an_unconfirmed_card"),
    of("P33", "client/eigenveil_client/site/state/outgoing.py", "round_query, cost, plan",
       "round_query, type(cost)(micro_rho=0), plan", "tests/client/site/daemon/test_masked.py"
       "::test_repeated_attempt_reuses_the_answer_with_new_noise_and_cost"),
    *each("P33", DRIVER,
          f"{TEST_MASKED_RESTARTS}::test_an_attempt_is_gone_on_with_as_it_was_charged[round-opening-1]",
          ("attempt(last.round_query, due, self.plan.spare_cost, write)", "write_alongside(write)"),
          ("attempt(session.pending, due, self.plan.spare_cost, write)", "write_alongside(write)"),
          ("            study_writes.store_attempt(change, attempt, at)\n", "")),
    *each("R7", f"{SERVER}/studies/contributions.py",
          "tests/server/studies/test_contributions.py"
          "::test_a_bad_contribution_is_refused_and_the_right_one_still_taken",
          ("        validate(round_query,", "        threads or validate(round_query,"),
          ("else digesting.result()", "else claimed")),
    of("P31", f"{SERVER}/studies/contributions.py", "records, attempt", "records, contribution.attempt",
       "tests/server/masked/test_masked_answers.py"
       "::test_an_answer_for_another_set_or_for_none_is_refused_and_audited"),
    of("P35", "study/composition.py", "(deltas or 1 + study.spare_attempts)", "1", SPENT),
    of("P35", "protocol/plan.py", "self.single_attempt_cost + self.spare_cost", "self.single_attempt_cost",
       SPENT),
    of("P35", "protocol/plan.py", "self.cost.fits(most)", "self.single_attempt_cost.fits(most)",
       f"{POOL}::test_rounds_and_pool_together_may_not_exceed_the_budget"),
    of("P35", "protocol/plan.py", "least <= self.spare_micro_rho <= pool", "True",
       f"{POOL}::test_a_pool_beyond_the_budget_or_without_spare_attempts_is_refused"),
    of("P35", "planning/choose.py", "spares * dearest(divided)", "dearest(divided)",
       f"{POOL}::test_a_pool_is_for_the_dearest_query_and_the_study_spends_its_budget"),
    *each("P35", "planning/choose.py", f"{POOL}::test_a_division_stays_as_it_is",
          ("expected_records, plan.most_records, 1, *SIZES", "expected_records, 1, *SIZES"),
          ("plan.most_records, 1, *SIZES", "plan.most_records, *SIZES")),
    of("P35", "planning/choose.py", "1, *SIZES", "1",
       f"{POOL}::test_a_count_may_be_noised_beyond_the_size_at_which_shares_change"),
    of("P35", "planning/choose.py", "min(total - micro_rho, spares * micro_rho)", "total - micro_rho",
       f"{POOL}::test_a_query_that_costs_all_rounds_has_a_pool_of_as_many"),
    of("P35", "planning/choose.py", "        if study.spare_attempts:\n", "        if False:\n",
       f"{POOL}::test_a_search_predicts_the_error_of_the_plan_that_is_made"),
    of("P35", "study_authorization.py", "return plan == with_pool(", "return plan.study and with_pool(",
       f"{POOL}::test_an_analyst_signs_no_plan_with_another_pool"),
    *each("P35", "accounting/ledger.py",
          f"{LEDGER}::test_repeated_attempts_of_all_rounds_cost_no_more_than_their_pool",
          ("not self.covers(study, round, cost, pool)", "False"),
          ("return first or ", "return "),
          ("(self.repeated.get(study, NO_COST) + cost).fits(pool)", "cost.fits(pool)"),
          ("self.repeated.get(study, NO_COST) + entry.cost", "entry.cost")),
    of("P35", DRIVER, "return due if covered and", "return due if",
       "tests/server/masked/test_masked_rounds.py"
       "::test_no_attempt_is_made_that_the_pool_does_not_pay_for"),
    of("P35", "simulation.py", "most_attempts and covered", "most_attempts", f"{TESTS}/test_simulated.py"
       "::test_a_study_without_attempts_or_sites_left_fails_and_attempts_stay_charged"),
    of("P35", "reporting/document.py", " or repeated > pool", "",
       "tests/core/reporting/test_trust.py"
       "::test_a_document_with_attempts_sites_or_cost_beyond_its_plan_is_refused"),
    of("P35", "reporting/document.py", "once > int(plan[\"micro_rho\"])", "False",
       "tests/core/reporting/test_trust.py"
       "::test_a_document_with_attempts_sites_or_cost_beyond_its_plan_is_refused"),
)  # fmt: skip
