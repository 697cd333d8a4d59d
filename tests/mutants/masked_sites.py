"""Faults in what a site checks, keeps and pays of masked rounds, whatever a coordinator states."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, of

SITE = "client/eigenveil_client/site"
TESTS = "tests/client/site"
MASKED = f"{TESTS}/daemon/test_masked.py"
POOL = f"{TESTS}/daemon/test_pool.py"
SECRETS = f"{SITE}/daemon/round_checks.py"
ROUNDS = f"{SITE}/daemon/answers.py"
STUDY_KEYS = f"{TESTS}/state/test_study_keys.py"
REFUSED = f"{MASKED}::test_dishonest_attempt_is_refused_without_a_charge"

OF_MASKED_SITES: tuple[Mutant, ...] = (
    of("P31", SECRETS, "confirmed[name].digest != key.card", "False",
       f"{MASKED}::test_changed_peer_card_ends_the_process_until_a_person_decides"),
    of("P31", SECRETS, "members.get(self._name) != own.stated.digest", "self._name not in members",
       f"{REFUSED}[another key of this site]"),
    of("R36", SECRETS, "(key.plan, key.site) != (attempt.plan, name)", "key.site != name",
       f"{REFUSED}[a key for another study]"),
    of("R36", SECRETS, "(key.plan, key.site) != (attempt.plan, name)", "key.plan != attempt.plan",
       f"{REFUSED}[the key of another site]"),
    of("R36", SECRETS, "            signed.check(signing)\n", "",
       f"{REFUSED}[a key that the card did not sign]"),
    of("R36", f"{SITE}/state/study_keys.py", "found is not None and found.stated.card == site.card.digest",
       "found is not None", f"{STUDY_KEYS}::test_a_new_card_gets_a_new_key_and_the_old_one_is_deleted"),
    of("R36", f"{SITE}/state/study_keys.py", "DELETE FROM study_keys WHERE plan = ?",
       "UPDATE study_keys SET signature = x'' WHERE plan = ?",
       f"{STUDY_KEYS}::test_a_key_stays_the_same_until_its_study_ends_and_is_then_overwritten"),
    of("P31", SECRETS, "members.keys() - set(federation.sites)", "set()",
       f"{REFUSED}[a site that is not invited]"),
    of("P31", SECRETS, "len(members) < federation.least", "False", f"{REFUSED}[fewer than the quorum]"),
    of("P31", SECRETS, "federation.required) - members.keys(", "", f"{REFUSED}[without a required site]"),
    of("P31", ROUNDS, "answered.get(number, attempt.digest) != attempt.digest", "False",
       f"{REFUSED}[another set]"),
    of("P31", ROUNDS, "not attempt.is_of(round_query)", "False", f"{REFUSED}[another round]"),
    of("P31", f"{SITE}/state/outgoing.py", "if plan.masked:", "if False:",
       f"{TESTS}/state/test_attempts.py::test_exact_answer_of_a_masked_study_cannot_leave"),
    of("P31", f"{SITE}/daemon/decisions.py", "                self._require_peers(plan)\n",
       "                pass\n",
       f"{TESTS}/peers/test_trust.py::test_where_the_rules_decide_a_study_with_a_stranger_is_declined"),
    of("P32", ROUNDS, "attempt.members", "plan.study.federation.sites",
       f"{MASKED}::test_masked_answer_has_a_noise_share_and_masks_of_all_others"),
    of("P33", ROUNDS, "number <= plan.most_attempts", "number",
       f"{POOL}::test_without_spare_attempts_no_second_attempt_is_answered"),
    of("P35", ROUNDS, "                not self._store.rounds.pool_covers(plan, round_query)",
       "                False",
       f"{POOL}::test_a_pool_is_for_the_dearest_query_as_often_as_the_plan_states_and_no_more"),
    of("P35", f"{SITE}/state/outgoing.py", "round_query, cost, plan.spare_cost, also",
       "round_query, cost, plan.cost, also",
       f"{POOL}::test_the_transaction_of_an_answer_checks_the_pool_again"),
    of("P35", ROUNDS, "last or not self._store.rounds.pool_covers(plan, round_query)", "last",
       f"{POOL}::test_an_exact_answer_is_kept_while_another_attempt_can_be_paid"),
    of("P33", ROUNDS, "not latest < number", "not number",
       f"{MASKED}::test_an_earlier_attempt_is_not_answered_any_more"),
    of("P33", f"{SITE}/state/coordinator_statements.py", "        self.forget(attempt.plan, change)\n", "",
       f"{TESTS}/state/test_attempts.py::test_later_answer_deletes_only_bytes"),
    of("P33", f"{SITE}/state/outgoing.py", "self.attempts.save(proved, answer, change)", "pass",
       f"{MASKED}::test_repeated_attempt_gets_the_same_bytes_without_a_charge"),
    of("P33", f"{SITE}/state/outgoing.py", "self._next_attempt(round_query), len", "1, len",
       f"{TESTS}/test_prices.py::test_pass_costs_as_its_most_tried_batch"),
    of("P33", f"{SITE}/state/store.py", "plan.cost, yearly", "plan.single_attempt_cost, yearly",
       f"{TESTS}/state/test_attempts.py"
       "::test_a_year_has_room_for_every_attempt_or_the_study_is_not_agreed_to"),
)  # fmt: skip
