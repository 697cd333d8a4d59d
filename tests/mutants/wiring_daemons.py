"""Faults in how the daemons and their commands are wired: a check that is dropped, a constant argument, a
permission that is not asked for."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, each, of

SITE = "client/eigenveil_client/site"
AT_SITE = "tests/client/site"
SERVER = "server/eigenveil_server"
COMMON = "common/eigenveil_common"
MASKED = f"{AT_SITE}/daemon/test_masked.py"
ATTEMPTS = f"{AT_SITE}/state/test_attempts.py"
ODDS = f"{AT_SITE}/commands/console/test_console.py"
TOLD = "tests/server/studies/test_consent_told.py"
RULE_TOLD = "test_the_rule_of_a_decline_is_for_the_analyst_of_the_study_and_the_operator"
PROOFS = f"{AT_SITE}/state/test_declined_proofs.py"
RULE = f"{SITE}/roster/analysts.py"
DECLINED_PLANS = f"{SITE}/state/declined_plans.py"
TEST_DECLINED_PLANS = f"{AT_SITE}/state/test_declined_plans.py"
TEST_MASKED_ROUNDS = "tests/server/masked/test_masked_rounds.py"
TEST_ANALYSTS = "tests/server/rpc/test_analysts.py"
TEST_STUDY_LIST = "tests/server/rpc/test_study_list.py"
TEST_SUBMISSIONS = "tests/server/storage/test_submissions.py"
LEDGER = f"{ATTEMPTS}::test_ledger_refuses_attempt_of_other_noise_or_query"
LET_GO = f"{MASKED}::test_an_exact_answer_goes_at_once_when_nothing_more_is_made_of_it"
ENDLESS = f"{AT_SITE}/daemon/test_own_session.py::test_refused_statements_fill_no_disk_and_block_nothing"
GUESSES = f"{ODDS}::test_right_guesses_of_a_hundred_are_the_guarantee_rounded_up"
DENIED = f"{TEST_MASKED_ROUNDS}::test_a_site_that_is_denied_is_in_no_later_set_that_is_charged"
EXPLAINED = f"{TEST_ANALYSTS}::test_what_would_not_be_taken_is_not_explained_either"
ENCRYPTED = f"{AT_SITE}/engine/test_dask.py::test_a_connection_is_encrypted_and_its_key_is_private"

OF_WIRING_DAEMONS: tuple[Mutant, ...] = (
    # ---- what a site charges, keeps and lets leave
    of("P4", f"{SITE}/state/outgoing.py", "plan.masked or", "not plan.masked and", f"{LEDGER}[other noise]"),
    of("P4", f"{SITE}/state/outgoing.py",
       "plan.masked or (round_query.plan_digest, round_query.round) not in ledger.charged", "True",
       f"{AT_SITE}/test_prices.py::test_epsilons_add_up_at_the_site_too"),
    of("P33", "accounting/ledger.py", "self.charged.get((study, round), query) != query", "False",
       f"{LEDGER}[another question]"),
    of("P33", f"{SITE}/state/outgoing.py", "self.rounds.cost(plan, round_query) != cost", "False",
       f"{AT_SITE}/test_prices.py::test_cost_outdated_by_another_process_is_not_charged"),
    of("TM23", f"{SITE}/state/outgoing.py",
       "        self.studies.require(round_query.plan_digest, ConsentStatus.ACCEPTED, change)\n", "",
       f"{ATTEMPTS}::test_after_a_withdrawal_by_another_process_nothing_is_written_down_as_leaving"),
    of("TM23", f"{SITE}/state/outgoing.py", "self.studies",
       "if sent.kind == READY:\n            self.studies", f"{AT_SITE}/state/test_store.py"
       "::test_an_answer_that_is_paid_for_leaves_no_more_once_another_process_withdrew"),
    of("TM23", f"{SITE}/daemon/worker.py", "reason is None", "True", f"{AT_SITE}/daemon/test_consent.py"
       "::test_decision_during_an_answer_s_call_is_sent_and_the_answer_needs_consent"),
    of("TM23", f"{SITE}/daemon/decisions.py",
       "_require_policy(plan)\n        self._require_peers", "_require_peers",
       f"{AT_SITE}/daemon/test_consent.py"
       "::test_pending_study_that_breaks_a_new_rule_is_refused_automatically"),
    of("P31", f"{SITE}/daemon/decisions.py", "_require_peers(plan)\n        self.", "",
       f"{AT_SITE}/peers/test_trust.py"
       "::test_pending_study_with_unconfirmed_peers_is_refused_under_auto_approval"),
    of("P25", f"{SITE}/daemon/round_checks.py", "stated.plan != self._plan.digest or ", "",
       f"{ENDLESS}[rounds of other plans]"),
    of("P25", f"{SITE}/daemon/round_checks.py", " or stated.round >= MAX_ROUNDS", "",
       f"{ENDLESS}[rounds that no plan has]"),
    of("P31", f"{SITE}/daemon/worker.py", "            self._masked.retain(agreed)\n", "",
       f"{LET_GO}[withdrawn]"),
    of("P31", f"{SITE}/daemon/answers.py", "attempt.number == plan.most_attempts", "False",
       f"{LET_GO}[last attempt]"),
    of("TM6", f"{SITE}/state/coordinator_statements.py", "< MOST_REFUSED_ATTEMPTS", ">= 0",
       f"{ATTEMPTS}::test_refused_attempts_are_bounded_and_distinct"),
    of("TM13", f"{SITE}/state/egress.py", ", round_query.digest", ', ""',
       f"{AT_SITE}/commands/test_evidence.py::test_a_round_is_shown_and_its_numbers_are_computed_again"),
    of("P8", f"{SITE}/state/rollback.py", "checkpoint.federation != federation", "False",
       f"{AT_SITE}/state/test_store.py::test_what_the_federation_did_not_sign_changes_nothing"),
    of("P8", f"{SITE}/state/rollback.py", "(not parted and _may_follow(checkpoint, stored[1]))",
       "_may_follow(checkpoint, stored[1])",
       f"{AT_SITE}/state/test_store.py::test_a_coordinator_that_reports_lost_rows_is_refused"),
    of("TM33", f"{SITE}/roster/roster.py", "status is PinStatus.CONFIRMED\n", "card\n",
       f"{AT_SITE}/peers/test_keys.py::test_card_is_confirmed_once_a_person_enters_its_fingerprint"),
    of("TM33", f"{SITE}/roster/roster.py", "\n            write(content)", "\n                write(content)",
       f"{AT_SITE}/peers/test_keys.py::test_confirmed_card_is_replaced_only_by_a_person_and_stored"),
    # ---- what a site's page says, and whom a cluster is told
    of("TM24", f"{SITE}/inference_risk.py", "math.ceil", "round", f"{GUESSES}[gaussian]"),
    *each("TM24", f"{SITE}/inference_risk.py", f"{ODDS}::test_the_sentences_name_what_the_number_rests_on",
          ("Sentence(text=question), Sentence(text=ADVERSARY_KNOWLEDGE)", "(Sentence(text=question),)"),
          ("study.colluders if study.masked else None", "None")),
    of("TM24", "reporting/trust.py", 'f"{colluding(study)}', '"others', "tests/core/reporting/test_trust.py"
       "::test_every_view_of_a_masked_study_states_the_number_of_colluding_sites"),
    of("TM24", f"{SITE}/commands/console/consent_summary.py", "state.exact", "True", f"{GUESSES}[any]"),
    of("TM26", "client/eigenveil_client/connection/cluster.py", ", require_encryption=True", "", ENCRYPTED),
    of("TM26", "client/eigenveil_client/connection/cluster.py", "read_secret(key)", "read(key)", ENCRYPTED),
    # ---- whom a coordinator tells what, and what it charges for
    of("P33", f"{SERVER}/rounds/drivers.py",
       "        last.deny(await store.read(denied_sites, store.reader))\n", "", f"{DENIED}[ready]"),
    of("P33", f"{SERVER}/rounds/drivers.py", "keys() | denied", "keys()", f"{DENIED}[answer]"),
    of("R29", f"{SERVER}/rounds/round.py", "self._check_not_declined(site)\n        if site in", "if site in",
       f"{TEST_MASKED_ROUNDS}::test_an_attempt_is_worthless_at_once_without_a_member[declines]"),
    *each("R10", f"{SERVER}/planning/submissions.py", EXPLAINED, ("plan.gaussian", "True"),
          ("            await self._compute.run(check, plan.digest, plan.cost, gaussian=plan.gaussian)\n",
          "")),
    of("R10", f"{SERVER}/studies/operator_approvals.py",
       "change.execute(decided_before, (found.digest, APPROVED, REFUSED))", "False",
       "tests/server/planning/test_quotas.py"
       "::test_a_study_above_the_threshold_waits_for_approval_reserving_nothing"),
    of("R17", f"{SERVER}/rpc/interceptor.py", "        if unused:\n", "        if False:\n",
       "tests/server/rpc/test_identity.py"
       "::test_the_first_call_with_a_renewed_certificate_shuts_out_the_one_before"),
    of("R7", f"{SERVER}/studies/contributions.py",
       "check_invited(await self._runtime.plan(stored), site)\n        ", "",
       "tests/server/studies/test_late_answers.py"
       "::test_after_the_end_a_late_answer_is_audited_and_a_lost_reply_repeated"),
    of("R11", f"{SERVER}/rpc/service.py", "                await check_still_admitted()\n", "",
       f"{TEST_ANALYSTS}::test_a_watch_sends_nothing_after_a_denial"),
    of("R21", f"{SERVER}/rpc/service.py", "await self._readable(digest)\n        return", "return",
       "tests/server/rpc/test_released_rounds.py"
       "::test_each_released_round_is_fetched_as_it_was_sealed"),
    of("R21", f"{SERVER}/rpc/service.py", 'b"" if start else read_query()', "read_query()",
       "tests/server/rpc/test_released_rounds.py"
       "::test_a_round_comes_in_pieces_that_fit_messages_however_long_its_question_is"),
    of("R24", f"{SERVER}/rpc/service.py",
       "                if not is_own:\n                    clear_consent_texts(event)\n", "",
       f"{TOLD}"
       "::test_a_person_s_reason_reaches_the_analyst_and_the_site_gets_no_query"),
    *each("R9", f"{SERVER}/storage/states.py", f"{TOLD}::{RULE_TOLD}", (" and request.rule in RULES", ""),
          ("number == pb.DECLINE_REASON_POLICY and ", "")),
    of("R9", f"{SERVER}/rpc/responses.py", '        consent.ClearField("rule")\n', "",
       f"{TOLD}::{RULE_TOLD}"),
    of("R24", f"{SERVER}/studies/consent.py", "int(min(allowed, 1000 * federation.decision_deadline))",
       "allowed", "tests/server/studies/test_consent.py"
       "::test_nobody_is_waited_for_beyond_the_last_day_of_the_study"),
    of("R24", f"{SERVER}/planning/submissions.py", "        check_decision_time(plan, at / 1000)\n", "",
       f"{TOLD}::test_people_have_an_hour_or_more_by_the_last_day_of_a_study"),
    of("R24", f"{SITE}/commands/consent.py", "store.now() >= plan.study.federation.decision_deadline",
       "False", f"{AT_SITE}/daemon/test_consent.py"
       "::test_a_person_agrees_until_the_end_of_the_last_day_of_the_study"),
    of("R33", "planning/choose.py", ", least=least_plan_version(study)", "",
       "tests/core/protocol/test_capabilities.py"
       "::test_a_study_with_a_later_key_waits_for_the_sites_that_cannot_read_it"),
    of("TM13", f"{COMMON}/notify/outbox.py", "analysts.get(notice.analyst)",
       "next(iter(analysts.values()), None)",
       "tests/common/notify/test_outbox.py::test_an_analyst_hears_of_their_own_studies_alone"),
    of("TM20", f"{COMMON}/web/sessions.py", 'headers.get("sec-fetch-site", "same-origin") != "same-origin"',
       "False", "tests/common/web/test_application.py::test_a_form_of_another_origin_or_too_long_is_refused"),
    of("TM37", f"{SERVER}/storage/study_writes.py",
       "quota.check(recent_submissions(change.execute, stored.analyst, stored.submitted_at), stored.size)",
       "pass", f"{TEST_SUBMISSIONS}::test_a_day_is_counted_back_from_each_submission"),
    of("TM37", f"{SERVER}/storage/study_reads.py", ", self.site_rules_json, self.authorization_json", "",
       f"{TEST_SUBMISSIONS}::test_all_that_is_stored_of_a_study_counts"),
    of("TM37", f"{SERVER}/storage/submissions.py", "stored + size > self.bytes", "False",
       f"{TEST_SUBMISSIONS}::test_bytes_count_as_studies_do"),
    of("TM37", f"{SERVER}/storage/submissions.py", "= ? AND at >", ">= ? AND at >",
       f"{TEST_SUBMISSIONS}::test_each_analyst_has_a_quota_of_their_own"),
    of("TM37", f"{SERVER}/rpc/responses.py", "not allowance.spend(1.0)", "False",
       f"{TEST_STUDY_LIST}::test_after_a_burst_a_caller_has_so_many_looks_a_second_and_others_theirs"),
    of("TM37", f"{SERVER}/rpc/responses.py", "pending_part is None", "True",
       f"{TEST_STUDY_LIST}::test_calls_at_once_share_a_look_that_begins_after_they_came"),
    of("TM37", f"{SERVER}/rpc/responses.py", "                pending_part.answer.cancel()\n", "",
       f"{TEST_STUDY_LIST}::test_calls_that_are_taken_back_leave_nothing_and_the_next_has_its_turn"),
    of("TM37", f"{SITE}/daemon/decisions.py", "self._store.declined.get(plan.digest) is not None", "False",
       f"{TEST_DECLINED_PLANS}::test_a_decline_is_repeated_alike_after_a_restart_also_under_other_rules"),
    of("TM37", f"{SITE}/daemon/decisions.py", "len(self._declined) > MOST_OPEN", "False",
       f"{TEST_DECLINED_PLANS}::test_a_question_for_work_names_the_latest_declined_plans_alone"),
    of("TM37", DECLINED_PLANS, "MAX(number) FROM", "MIN(number) FROM",
       f"{TEST_DECLINED_PLANS}::test_digests_and_counts_are_bounded_and_the_latest_stay"),
    of("TM37", f"{SITE}/daemon/worker.py",
       "self.store.transcript.count_releases_of(unloaded) if unloaded else {}",
       "dict(pair for one in unloaded for pair in self.store.transcript.count_releases_of([one]).items())",
       f"{AT_SITE}/daemon/test_sender.py::test_request_for_work_takes_constant_database_queries"),
    of("TM37", DECLINED_PLANS, "OTHERS if full else analyst", "analyst",
       f"{PROOFS}::test_invented_names_are_counted_as_one_by_day"),
    of("TM38", f"{SITE}/daemon/decisions.py", "proof, named=named", "None",
       f"{PROOFS}::test_plan_in_a_pinned_name_without_its_key_is_stored"),
    of("TM38", f"{SITE}/daemon/decisions.py", "            proof = None\n", "",
       f"{PROOFS}::test_decline_without_proof_leaves_a_digest_alone"),
    of("TM38", f"{SITE}/daemon/decisions.py", ":  # before it is stored: a crash repeats both",
       " and not self._store.decline_by_rule(plan, problem.code, problem.code.value):",
       f"{PROOFS}::test_alarm_is_raised_before_the_decline_is_stored"),
    of("TM38", RULE, "ever_confirmed(folder, plan.analyst) and not", "not",
       f"{PROOFS}::test_decline_without_proof_leaves_a_digest_alone"),
    of("TM38", RULE, "(folder, plan.analyst) and not signed_before", "(folder, plan.analyst)",
       f"{PROOFS}::test_a_signature_from_before_a_rotation_is_no_proof"),
    *each("TM38", RULE, f"{PROOFS}::test_late_signature_of_a_removed_key_is_proof",
          ("        and now < one.until + MAX_AUTHORIZATION_SECONDS\n", ""),
          ("confirmed is not None\n        and one.", "")),
    of("TM38", f"{SITE}/daemon/decisions.py", "{Code.UNSIGNED, Code.UNCONFIRMED}", "{Code.UNCONFIRMED}",
       f"{PROOFS}::test_unsigned_study_is_alarmed_once_after_a_confirmed_key"),
    of("TM38", f"{SITE}/daemon/decisions.py", "{Code.UNSIGNED, Code.UNCONFIRMED}", "{Code.UNSIGNED}",
       f"{PROOFS}::test_removed_key_that_signs_past_the_longest_term_is_alarmed"),
    of("TM38", f"{SITE}/daemon/decisions.py", "<= MOST_SENT else", "else",
       f"{PROOFS}::test_oversized_signature_hides_no_plan_and_is_not_stored"),
    *each("TM38", DECLINED_PLANS, f"{PROOFS}::test_invented_names_give_way_to_confirmed_ones",
          ("len(same) >= MOST_OF_NAME or ", ""), ("named and change.execute(DISPLACED, ())", "False"),
          ("named and change", "change")),
    of("TM38", f"{SITE}/state/store.py", "        self.proofs.check_whole()\n", "",
       f"{PROOFS}::test_a_proof_that_was_changed_here_is_none"),
    of("TM38", DECLINED_PLANS, "WHERE named = 0 ORDER", "ORDER",
       f"{PROOFS}::test_invented_names_give_way_to_confirmed_ones"),
    *each("TM38", DECLINED_PLANS, f"{PROOFS}::test_first_proofs_stay_in_bounded_room",
          ('stored["plans"] < MOST_PROOFS and ', ""),
          (' and stored["bytes"] + size <= MOST_PROOF_BYTES', "")),
    of("TM37", f"{SITE}/state/store.py", "status is ConsentStatus.ENDED", "False",
       f"{TEST_DECLINED_PLANS}::test_unanswered_study_that_ends_leaves_no_plan"),
    of("R23", "dictionary/site_rules.py", "(analyst,) if analyst in self.analysts else ()", "self.analysts",
       "tests/core/dictionary/test_rules.py::test_rules_visible_to_an_analyst_name_no_other_analyst"),
)  # fmt: skip
