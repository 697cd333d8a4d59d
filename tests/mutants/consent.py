"""Faults in what people at a site are told before they decide, and in what a site requires about who asks."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, each, of

SITE = "client/eigenveil_client/site"
AT_SITE = "tests/client/site"
REMINDERS = f"{AT_SITE}/daemon/test_reminders.py"
CONSENT = f"{AT_SITE}/daemon/test_consent.py"
DECISION = f"{AT_SITE}/commands/console/test_decision.py"
APPLICANT = "tests/client/analyst/test_applicant.py"
BLANKS = f"{APPLICANT}::test_a_text_that_could_mislead_is_refused_and_nothing_is_stored"
STATED = "tests/core/study/test_applicant.py"
QUICK = f"{AT_SITE}/daemon/test_quick_work.py"
CHANGES = "tests/common/storage/test_changes.py"
IMITATES = f"{DECISION}::test_what_an_analyst_states_comes_below_what_this_site_knows_and_cannot_pass_for_it"

OF_CONSENT: tuple[Mutant, ...] = (
    of("TM23", f"{SITE}/policy.py", "            self._applicant_verdict(plan.study.applicant),\n", "",
       f"{CONSENT}::test_a_decline_for_what_is_not_stated_about_who_asks_names_its_rule"),
    of("TM23", f"{SITE}/policy.py", "passed=not missing", "passed=len(missing) < 2",
       f"{AT_SITE}/test_config.py::test_rule_refuses"),
    of("TM23", "study/applicant.py", " and one not in FILLERS", "",
       f"{STATED}::test_a_text_without_a_letter_or_a_digit_states_nothing"),
    of("TM23", "study/applicant.py", "BLANKS.search(text) is None", "True",
       f"{STATED}::test_a_run_of_blanks_is_refused_in_a_new_text_and_read_in_a_stored_one"),
    of("TM23", "client/eigenveil_client/analyst/applicant.py", "    applicant.check_blanks()\n", "", BLANKS),
    of("TM23", "client/eigenveil_client/analyst/python/connect.py",
       "        self.applicant.check_blanks()\n", "", BLANKS),
    of("TM23", "server/eigenveil_server/planning/planner.py", "    study.applicant.check_blanks()\n", "",
       "tests/server/rpc/test_directory.py::test_the_coordinator_refuses_what_the_federation_does_not_have"),
    of("TM23", f"{SITE}/commands/consent.py", "\\n{quote_block(text)}", " {text}", IMITATES),
    of("R31", "client/eigenveil_client/analyst/applicant.py",
       ' and not str(stated.get(name, "")).strip()', "",
       f"{APPLICANT}::test_what_a_study_states_itself_wins_text_by_text"),
    # ---- reminders
    *each("TM23", f"{SITE}/daemon/reminders.py",
          f"{REMINDERS}::test_a_reminder_is_never_early_late_or_repeated",
          ("max(received.at, received.reminded)", "received.at"), (" <= now < deadline", " <= now"),
          ("(received.at + deadline) // 2", "received.at + 60")),
    of("TM23", f"{SITE}/daemon/reminders.py", " and store.studies.note_reminder(digest, moment)", "",
       f"{REMINDERS}::test_each_reminder_is_given_once_and_a_restart_repeats_none"),
    of("TM23", f"{SITE}/state/received_plans.py", "plan = ? AND status = ? AND reminded",
       "plan = ? AND ? = 'pending' AND reminded",
       f"{REMINDERS}::test_nobody_is_reminded_of_a_study_that_was_decided_in_between"),
    of("TM23", f"{SITE}/daemon/service.py", "            remind_periodically(self._worker),\n", "",
       f"{REMINDERS}::test_a_running_daemon_reminds"),
    of("TM13", "common/eigenveil_common/notify/delivery.py", 'f".{self.at}" if', '"" if',
       "tests/common/notify/test_outbox.py"
       "::test_a_reminder_holds_no_more_than_the_first_notice_and_is_a_mail_of_its_own"),
    # ---- until when, and who declined
    of("R24", "server/eigenveil_server/studies/consent.py", "consent_ends_unix_ms=self._approval_deadline",
       "consent_ends_unix_ms=self._deadline",
       "tests/server/studies/test_consent.py::test_a_site_is_told_until_when_a_person_may_decide"),
    of("R24", f"{SITE}/daemon/worker.py", "not 0 <= until <= MOST_UNIX_MS", "until < 0",
       f"{CONSENT}::test_a_time_that_no_calendar_has_is_a_breach"),
    of("R24", f"{SITE}/state/received_plans.py", "(self.decide_until or math.inf, ", "(math.inf, ",
       f"{CONSENT}::test_time_to_decide_is_stored_with_the_plan_and_is_the_earlier_of_two"),
    of("TM23", f"{SITE}/state/store.py", ', "sent": UNANSWERED', "",
       f"{DECISION}::test_a_study_that_another_site_declined_is_not_told_as_declined_here"),
    of("TM23", f"{SITE}/next_steps.py", "return self.over and bool(self.day)", "return False",
       f"{DECISION}::test_nobody_can_agree_after_the_last_day_of_the_study"),
    # ---- a decision that is remembered
    of("TM23", f"{SITE}/daemon/decisions.py", "self._decided.get(digest) == (basis, None)",
       "self._decided.get(digest, (basis, ''))[1] is None",
       f"{QUICK}::test_consent_is_decided_again_after"),
    of("TM23", f"{SITE}/daemon/decisions.py", "decided is not None and decided[0] == basis",
       "decided is not None", f"{QUICK}::test_a_refusal_is_not_decided_again_while_nothing_changes"),
    of("TM23", f"{SITE}/daemon/decisions.py",
       "known is None or known[0] != now", "known is None",
       f"{CONSENT}::test_decision_during_an_answer_s_call_is_sent_and_the_answer_needs_consent"),
    *each("TM23", f"{SITE}/state/store.py", f"{QUICK}::test_consent_is_decided_again_after",
          ("tuple(map(file_version, rosters))", "()"),
          ("ConsentBasis(self.database.changes(), ", "ConsentBasis((0, 0), ")),
    *each("TM23", f"{SITE}/state/store.py", f"{QUICK}::test_consent_is_decided_again_in_another_second",
          ("versions, self.now(), self.clock_time())", "versions, 0, 0)")),
    *each("TM23", "common/eigenveil_common/storage/sqlite.py", CHANGES,
          ("self._own_changes += table in self._watched", "pass"),
          ("self._own_changes += 1  # what", "pass  # what"),
          ('self.rows("PRAGMA data_version")[0][0]', "0")),
    of("TM23", "common/eigenveil_common/files.py", "(found.st_mtime_ns, found.st_ctime_ns)", "()",
       f"{CHANGES}::test_version_of_a_file_differs_after"),
    *each("TM23", f"{SITE}/daemon/worker.py",
          f"{QUICK}::test_work_that_needs_more_than_one_answer_is_not_quick",
          ("further or response.HasField(\"attempt\") or plan", "plan"),
          ("return known == round and self", "return self")),
)  # fmt: skip
