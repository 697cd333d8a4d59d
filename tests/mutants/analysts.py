"""Faults on the analyst's side: a key that is shared, a plan signed unseen, a name that is claimed."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, each, of

ANALYST = "client/eigenveil_client/analyst"
TESTS = "tests/client/analyst"
STORED = "test_the_id_is_shown_before_a_signature_and_stored_before_it_is_sent"
CHANGED = "test_a_changed_authorization_is_no_good_release_though_the_federation_signed_it"
KEYS = "client/eigenveil_client/connection/key_files.py"
KEY = f"{TESTS}/test_signing_key.py"
PROPOSAL = f"{ANALYST}/proposal.py"
CLIENT = f"{ANALYST}/client.py"
SIGNED = f"{TESTS}/test_client.py"
SIGNATURE = "study_authorization.py"
RELEASE = "tests/core/reporting/test_asked_by.py"
ASKER = "client/eigenveil_client/site/roster/analysts.py"
IDS = f"{TESTS}/test_signed_submissions.py"
CACHE = "server/eigenveil_server/planning/pool.py"
PLANNED = "tests/server/planning/test_plan_cache.py"
FORM = "tests/server/console/test_pages.py::test_the_form_makes_a_draft_and_no_study"
TEST_RULE = "tests/client/site/analysts/test_rule.py"

OF_ANALYSTS: tuple[Mutant, ...] = (
    # ---- the key
    of("R30", KEYS, "self.path.is_symlink():", "False:",
       f"{KEY}::test_a_linked_key_is_neither_followed_nor_replaced"),
    of("R30", KEYS, "self.path.is_symlink() or path_exists", "path_exists",
       f"{KEY}::test_a_linked_key_is_neither_followed_nor_replaced[a link to nothing]"),
    of("R30", KEYS, "holder != (self.owner.federation, self.owner.name)", "False",
       f"{KEY}::test_a_key_that_was_copied_to_another_analyst_is_not_used"),
    of("R30", KEYS, "read_secret(self.path)", "self.path.read_bytes()",
       f"{KEY}::test_a_key_that_others_can_read_is_not_used"),
    *each("R30", KEYS, f"{KEY}::test_a_key_is_made_at_first_need_and_stays",
          ("if not self.made:", "if True:"), ("write_secret(self.path, json", "self.path.write_bytes(json")),
    of("R30", f"{ANALYST}/profile.py", "None or owner.role is not Role.ANALYST", "None",
       f"{KEY}::test_only_an_analyst_has_a_signing_key"),
    of("R30", CLIENT, "read(self", "make(self",
       f"{SIGNED}::test_nothing_is_signed_without_a_key_and_none_is_made"),
    # ---- what is signed
    of("R31", CLIENT,
       "        check_plan_matches_study(\n            plan, study, federation=mine.federation,"
       " analyst=mine.name, submission=submission\n        )\n", "",
       f"{SIGNED}::test_a_plan_of_another_study_is_not_signed"),
    *each("R31", CLIENT, f"{SIGNED}::test_a_plan_in_another_name_is_not_signed",
          ("submission\n        ", "plan.submission"),
          ("mine.name, submission=submission\n        ", "plan.analyst, submission=submission")),
    *each("R31", PROPOSAL, f"{SIGNED}::test_every_value_of_a_study_is_shown_before_it_is_signed",
          ('"required",', '"required", "max_sites_per_person",'),
          ("{_one_line(study.purpose) or 'none stated'}", "see the file")),
    of("R31", PROPOSAL, "_one_line(study.purpose)", "study.purpose",
       f"{SIGNED}::test_a_purpose_cannot_pass_for_another_line"),
    of("R31", PROPOSAL, "for one in columns)", "for one in columns[:12])",
       f"{SIGNED}::test_what_is_shown_of_a_wide_study_is_every_column_before_the_rest"),
    of("R31", CLIENT, "        notify(proposal.summary)\n", "",
       f"{SIGNED}::test_what_is_signed_is_the_plan_of_the_study_after_it_was_shown"),
    of("R31", f"{ANALYST}/studies.py", "if not yes", "if False",
       f"{IDS}::test_a_signature_needs_a_confirmation"),
    of("R31", f"{ANALYST}/studies.py", "not (yes or is_interactive(as_json))", "False",
       f"{IDS}::test_without_a_terminal_a_signature_needs_yes"),
    of("R31", f"{ANALYST}/python/study.py", "        notify(", "        repr(",
       f"{TESTS}/python/test_python.py"
       "::test_a_study_is_shown_with_its_warnings_before_it_is_signed_and_a_refusal_leaves_it_unsigned"),
    of("R31", f"{ANALYST}/federation.py", "named == FEDERATION else", "False else",
       f"{IDS}::test_bounds_of_the_federation_s_dictionary_are_the_coordinator_s"),
    of("R31", f"{ANALYST}/python/study.py", "self.resolved.source", '""', f"{TESTS}/python/test_python.py"
       "::test_a_study_is_shown_with_its_warnings_before_it_is_signed_and_a_refusal_leaves_it_unsigned"),
    of("R31", CLIENT, ". {proposal.resubmission_message}", "",
       f"{SIGNED}::test_refusal_after_a_signature_names_the_submission_id"),
    of("R31", CLIENT, "EigenveilError as problem:  # whatever", "RequestError as problem:  #",
       f"{SIGNED}::test_another_plan_than_the_signed_one_is_reported"),
    of("R31", CLIENT, "store_submission(self._identity.folder, proposal.signed_submission, time.time())",
       "pass", f"{SIGNED}::{STORED}"),
    of("R31", PROPOSAL, "submission: {plan.submission}, good", "good", f"{SIGNED}::{STORED}"),
    of("R31", f"{ANALYST}/python/study.py", "again:\n            return", "False:\n            return",
       f"{IDS}::test_a_study_that_is_listed_or_meant_anew_gets_a_new_id"),
    *each("R31", PROPOSAL, f"{IDS}::test_an_id_is_stored_until_its_latest_signature_ends_and_no_longer",
          ("if one.expires > now", ""), ("max(before, signed, key=lambda one: one.expires)", "signed")),
    of("R31", PROPOSAL, "with locked(folder)", "if True",
       f"{IDS}::test_ids_that_are_stored_at_once_are_all_stored"),
    *each("R31", CLIENT,
          f"{IDS}::test_a_study_that_was_signed_and_is_not_listed_is_submitted_under_the_same_id",
          ("signed if one.study == digest", "signed"), ("open_ids if one not in listed", "()")),
    of("R31", CLIENT, "open_ids if one not in listed", "open_ids",
       f"{IDS}::test_a_study_that_is_listed_or_meant_anew_gets_a_new_id"),
    of("R31", PROPOSAL, "SECONDS - SKEW_SECONDS", "SECONDS",
       f"{SIGNED}::test_a_signature_expires_within_the_sites_limit"),
    # ---- what a release and a draft claim
    of("R31", f"{ANALYST}/release_files.py", "fingerprint == asker.fingerprint", "analyst == asker.analyst",
       f"{TESTS}/releases/test_verify.py::test_a_release_in_ones_own_name_needs_ones_own_key"),
    of("R31", f"{ANALYST}/release_files.py", " or not asker.checked:", ":",
       f"{TESTS}/releases/test_verify.py::test_unchecked_or_nameless_release_accuses_no_analyst"),
    of("R31", SIGNATURE, ", checked=False", "",
       f"{RELEASE}::test_a_signature_of_a_later_format_is_marked_unchecked"),
    of("R31", "reporting/verify.py", "    release_analyst(release.document)\n", "", f"{RELEASE}::{CHANGED}"),
    of("R31", SIGNATURE, "check_authorization(signed, plan, signed.read().expires - 1)",
       "signed.card.check()", f"{RELEASE}::{CHANGED}"),
    of("R31", SIGNATURE, "written is None", "not written", f"{RELEASE}::{CHANGED}[nothing of it]"),
    of("R31", SIGNATURE, ' == document["plan"]["federation"]\n', "\n",
       f"{RELEASE}::test_a_simulation_is_marked_as_not_signed"),
    of("R31", "server/eigenveil_server/console/federation_pages.py", "        check_submission(id)\n", "",
       "tests/server/console/test_pages.py"
       "::test_a_form_shows_what_is_wrong_and_loses_nothing_typed"),
    # ---- whose word a name is at a site
    of("R31", ASKER, "any(one.card == key_card and one.confirmed is not None for one in content.earlier)",
       "False", f"{TEST_RULE}::test_signature_status_follows_the_roster"),
    of("R31", ASKER, "key_card and one.confirmed is not None", "key_card",
       f"{TEST_RULE}::test_a_card_that_was_never_confirmed_is_not_compared_also_once_it_is_gone"),
    of("R31", ASKER, "NOT_COMPARED if pin is None or pin.confirmed is None else SignatureStatus.CHANGED",
       "NOT_COMPARED", f"{TEST_RULE}::test_signature_status_follows_the_roster"),
    of("R31", "server/eigenveil_server/console/submission.py", ', "--submission", submission', "", FORM),
    of("R31", "server/eigenveil_server/planning/submissions.py", "self._cache.take(inputs)", "None",
       f"{PLANNED}::test_a_submission_runs_the_plan_that_was_explained_and_plans_once"),
    *each("R31", CACHE, f"{PLANNED}::test_a_plan_is_found_once_under_the_very_words_that_it_was_made_of",
          ('- {"directory"}', '- {"directory", "analyst"}'),
          (' if inputs["directory"] == self._directory else None', "")),
    of("R31", CACHE, "self._plans.clear()", "pass",
       f"{PLANNED}::test_a_plan_of_another_directory_is_not_found_and_not_stored"),
)  # fmt: skip
