"""Faults in who a study's analyst is: the authorization, the pins, and the rules that follow from them."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, each, of

SITE = "client/eigenveil_client/site"
AT_SITE = "tests/client/site"
SERVER = "server/eigenveil_server"
SIGNED = "study_authorization.py"
CARDS = "tests/core/analyst_signature/test_authorization.py"
RULE = f"{SITE}/roster/analysts.py"
RULES = f"{AT_SITE}/analysts/test_rule.py"
TEST_CONFIRMED = f"{AT_SITE}/state/test_confirmed_kinds.py"
AGREEMENTS = f"{SITE}/daemon/decisions.py"
PLANS = f"{SITE}/state/received_plans.py"
TRUSTED = f"{AT_SITE}/peers/test_trust.py"
CLOCKS = f"{AT_SITE}/daemon/test_changed_meanwhile.py"
TEST_SIGNED_STUDIES = "tests/server/rpc/test_signed_studies.py"
OTHER = f"{CARDS}::test_an_authorization_of_anything_else_is_refused"
UNFOLLOWED = f"{CARDS}::test_a_plan_of_another_study_is_refused"
UNCONFIRMED = f"{AT_SITE}/analysts/test_rule.py::test_an_unconfirmed_fingerprint_is_in_no_output"
FATES = f"{RULES}::test_unsigned_study_is_refused_after_any_pin"
ONCE = f"{RULES}::test_an_id_runs_once_also_after_a_restart_and_what_was_declined_does_not_use_it"

OF_SIGNATURES: tuple[Mutant, ...] = (
    # ---- one authorization, for one plan
    of("R31", SIGNED, "AUTHORIZATION_SIGNED + signed.signed_json", "signed.authorization_json",
       f"{CARDS}::test_an_authorization_holds_for_its_plan_until_it_expires"),
    of("R31", SIGNED, '("key", stated.key, card.digest),', "", OTHER),
    of("R31", SIGNED, '("federation", stated.federation, plan.federation),', "", OTHER),
    of("R31", SIGNED, '("federation", card.federation, plan.federation),', "",
       f"{CARDS}::test_a_card_of_another_federation_authorizes_nothing_here"),
    of("R31", SIGNED, '("analyst", stated.analyst, plan.analyst),', "", OTHER),
    of("R31", SIGNED, '("analyst", card.analyst, plan.analyst),', "",
       f"{CARDS}::test_a_card_of_another_analyst_authorizes_nothing_in_this_name"),
    of("R31", SIGNED, '("submission", stated.submission, plan.submission),', "", OTHER),
    of("R31", SIGNED, "stated.plan != plan.digest", "False", OTHER),
    of("R31", SIGNED, "= stated.", " stated.",
       f"{CARDS}::test_an_authorization_holds_for_its_plan_until_it_expires"),
    of("R31", SIGNED, "stated.expires > now + MAX_AUTHORIZATION_SECONDS", "False",
       f"{CARDS}::test_an_authorization_lasts_no_longer_than_the_most_from_now"),
    of("R31", "signatures.py", "written != data", "False", OTHER),
    of("R31", "signatures.py", "    if stated != kind:\n", "    if False:\n", OTHER),
    of("R31", "signatures.py", "    if required != []:\n", "    if False:\n", OTHER),
    *each("R31", SIGNED, OTHER,
          ("len(self.signed_json) > MOST_BYTES", "False")),
    of("R31", SIGNED, "sent.ByteSize() > MOST_SENT", "False",
       f"{CARDS}::test_an_authorization_travels_and_is_stored_as_it_was_signed"),
    of("R31", SIGNED, "(plan.federation, plan.analyst) != (verified_card.federation, verified_card.analyst)",
       "False", f"{CARDS}::test_only_a_plan_in_the_key_s_own_name_is_authorized"),
    *each("R31", SIGNED, UNFOLLOWED, ("plan.study == study and ", ""), ("if not (names and ", "if not ("),
          (" and plan.algorithm in _allowed(study)", ""), (" and _whole(plan)", "")),
    of("R31", SIGNED, "if study.choose is Choose.DURING and study.delta > 0", "if True",
       f"{CARDS}::test_a_plan_matches_the_study_it_was_made_of"),
    of("R30", "signatures.py", "written != data", "False",
       f"{CARDS}::test_a_card_that_was_changed_is_refused"),
    of("R30", "key_cards.py", "len(key) == KEY_BYTES", "True",
       f"{CARDS}::test_a_card_that_was_changed_is_refused"),
    # ---- digits are heard
    *each("R30", RULE, UNCONFIRMED,
          ("eigenveil-site analysts confirm {key_card.analyst}", "{key_card.fingerprint} {key_card.analyst}"),
          ("Have {key_card.analyst} send the key card, and confirm it", "Compare {key_card.fingerprint}"),
          ("plan.analyst,", 'plan.analyst, "fingerprint": signed and signed.card.check().fingerprint,')),
    of("R30", f"{SITE}/roster/roster.py", "if pin.status is PinStatus.CONFIRMED else None", "", UNCONFIRMED),
    # ---- cards that are gone
    of("R31", AGREEMENTS, "            self._store.confirmed.note_and_require(self._member.folder)\n", "",
       f"{TEST_CONFIRMED}::test_unsigned_studies_stay_refused_without_cards"),
    of("R31", AGREEMENTS, ".\n        self._store.confirmed.require(self._member.folder)", ".",
       f"{TEST_CONFIRMED}::test_answers_end_when_the_cards_of_peers_are_gone"),
    of("R31", f"{SITE}/state/confirmed_kinds.py", "if noted and not", "if False and not",
       f"{TEST_CONFIRMED}::test_central_studies_stay_refused_when_the_peers_are_gone"),
    of("R31", f"{SITE}/commands/consent.py", "store.confirmed.require(config.identity)\n    analysts",
       "analysts", f"{TEST_CONFIRMED}::test_a_person_agrees_to_nothing_when_the_cards_are_gone"),
    of("R31", f"{SITE}/daemon/service.py",
       "            self._store.confirmed.note_and_require(identity.folder)\n", "",
       f"{TEST_CONFIRMED}::test_a_daemon_does_not_start_without_them"),
    of("R31", f"{SITE}/commands/key_card_commands.py", "store.confirmed.note(kind)", "pass",
       f"{TEST_CONFIRMED}::test_a_lost_confirmation_fails_the_check"),
    of("R30", f"{SITE}/roster/roster.py", "self._path.is_symlink()", "False",
       f"{TEST_CONFIRMED}::test_roster_link_is_neither_followed_nor_replaced"),
    of("R31", f"{SITE}/daemon/worker.py", "PeerChanged | RosterUnusable", "PeerChanged",
       f"{TEST_CONFIRMED}::test_a_daemon_ends_when_a_roster_is_damaged_while_it_is_connected"),
    of("R31", AGREEMENTS, "STORAGE or isinstance(problem, RosterUnusable)", "STORAGE",
       f"{TEST_CONFIRMED}::test_answers_end_when_the_cards_of_peers_are_gone"),
    *each("R31", f"{SITE}/state/confirmed_kinds.py",
          f"{TEST_CONFIRMED}::test_backup_of_cards_does_not_confirm_a_removed_one",
          ("pin.confirmed.at <= until.get(pin.card.digest, -1)", "False"), ("self._note_removed", "len")),
    *each("R31", f"{SITE}/commands/key_card_commands.py",
          f"{TEST_CONFIRMED}::test_backup_of_cards_does_not_confirm_a_removed_one",
          ("\n        _note_cards(config)", ""), ("_note_cards(config)\n    view", "view")),
    of("R31", f"{SITE}/roster/roster.py", "+ 1 for until", "for until",
       f"{TEST_CONFIRMED}::test_backup_of_cards_does_not_confirm_a_removed_one"),
    of("R31", f"{SITE}/roster/roster.py",
       " RosterUnusable(str(problem)) from problem\n        except (V", "\n        except (V",
       f"{AT_SITE}/peers/test_keys.py::test_a_file_that_others_can_read_is_not_used"),
    # ---- what a site asks of who asks
    of("R31", RULE, "ever_confirmed:", "pins:", FATES),
    of("R31", f"{SITE}/roster/pins.py", "(*self.pins.values(), *self.earlier", "self.pins.values(", FATES),
    of("R31", RULE, "key_card is None:\n        raise", "False:\n        raise", FATES),
    of("R31", RULE, "pin.card != key_card or ", "",
       f"{RULES}::test_another_key_in_a_confirmed_name_is_refused"),
    of("R31", RULE, "pin.status is not PinStatus.CONFIRMED or ", "",
       f"{RULES}::test_key_of_a_changed_pin_signs_nothing"),
    of("R31", RULE, "not _signed_before(roster.content(), key_card, now)", "True",
       f"{RULES}::test_study_of_a_rotated_key_locks_no_analyst_out"),
    of("R31", RULE, "pin is not None and pin.confirmed is not None", "False",
       f"{RULES}::test_changed_key_is_reported_as_changed"),
    of("R31", RULE, "any(one.card == key_card for one in content.earlier)", "False",
       f"{RULES}::test_study_of_a_rotated_key_locks_no_analyst_out"),
    of("R31", RULE, "roster.mark_changed(key_card.analyst, key_card.digest)", "pass",
       f"{RULES}::test_another_key_in_a_confirmed_name_is_refused"),
    of("R31", RULE, "if one.card.analyst == analyst", "",
       f"{RULES}::test_a_new_analyst_s_study_waits_for_a_person_who_may_confirm_the_key"),
    of("R31", AGREEMENTS, "            self._require_signed(plan, signed)\n", "", FATES),
    of("R31", AGREEMENTS, ".\n        self._store.confirmed.require(self._member.folder)"
       "\n        analysts.require(self._member.folder, plan, received.signed, self._store.clock_time())",
       ".\n        self._store.confirmed.require(self._member.folder)",
       f"{RULES}::test_nothing_leaves_after_the_signature_has_ended"),
    of("R31", AGREEMENTS,
       "analysts.require(self._member.folder, plan, received.signed, self._store.clock_time())"
       "\n        self._require_policy(plan)\n        self._require",
       "self._require_policy(plan)\n        self._require",
       f"{RULES}::test_pending_unsigned_study_is_refused_under_auto_approval"),
    of("R31", AGREEMENTS, "self._policy.approval is Approval.MANUAL and problem", "problem",
       f"{RULES}::test_where_the_rules_decide_a_new_analyst_is_declined"),
    of("R31", f"{SITE}/commands/consent.py",
       "    analysts.require(config.identity, plan, received.signed, store.clock_time())\n", "",
       f"{RULES}::test_late_or_unsigned_approval_is_refused"),
    of("R31", PLANS, "change.execute(used, received.submission_key)", "False", ONCE),
    of("R31", f"{SITE}/roster/peers.py", "content().ever_confirmed", "confirmed()",
       f"{TRUSTED}::test_central_study_is_declined_after_a_confirmed_peer"),
    of("R31", f"{SITE}/roster/peers.py", "    if secrecy.trust:\n        return ()\n", "",
       f"{TRUSTED}::test_site_toml_may_allow_both_trusts"),
    of("R31", AGREEMENTS, "        peers.require_trust(self._member.folder, plan, self._policy.secrecy)\n",
       "", f"{TRUSTED}::test_central_study_ends_once_a_peer_is_confirmed"),
    of("R31", f"{SITE}/commands/consent.py",
       "    peers.require_trust(config.identity, plan, config.policy.secrecy)\n", "",
       f"{TRUSTED}::test_a_person_cannot_agree_to_it_and_masked_studies_wait_as_ever"),
    of("R31", AGREEMENTS, " or isinstance(problem, AuthorizationTooLong)", "",
       f"{CLOCKS}::test_signature_too_long_by_a_slow_clock_is_checked_again"),
    of("R31", AGREEMENTS, "problem.code is Code.AUTHORIZATION_EXPIRED or ", "",
       f"{CLOCKS}::test_signature_expired_by_a_fast_clock_is_checked_again"),
    of("R31", f"{SITE}/daemon/worker.py", "Postponed(plan_digest=plan, round=response.query.round)",
       "None  # type: ignore[return-value]",
       f"{CLOCKS}::test_postponed_study_is_not_declined_and_blocks_no_other"),
    of("R31", f"{SITE}/state/store.py", "._clock()\n", ".now()\n",
       f"{CLOCKS}::test_signatures_hold_again_once_a_fast_clock_is_right"),
    of("R31", PLANS, "0 if received.signed is None else received.signed.read().expires", "0",
       f"{AT_SITE}/state/test_declined_plans.py::test_unanswered_id_lasts_as_its_signature"),
    of("R31", PLANS, '            change.execute("DELETE FROM submissions WHERE until <= ?", (clock,))\n', "",
       f"{AT_SITE}/state/test_declined_plans.py::test_ids_of_unsigned_unanswered_studies_are_deleted"),
    of("R31", PLANS, "(analyst, submission, plan) = (?, ?, ?)", "(analyst, submission) = (?, ?) OR plan = ?",
       f"{AT_SITE}/state/test_declined_plans.py::test_deleted_plan_frees_no_id_of_an_answered_one"),
    # ---- what changes while an answer is computed
    of("R29", f"{SITE}/state/outgoing.py", "            known()\n", "",
       f"{CLOCKS}::test_no_answer_is_masked_for_a_removed_peer"),
    of("R31", f"{SITE}/daemon/worker.py", ", code=reason", "",
       f"{CLOCKS}::test_committed_answer_is_not_sent_once_void"),
    of("R31", f"{SITE}/state/outgoing.py", "        self.require(round_query.plan_digest)\n", "",
       f"{CLOCKS}::test_exact_answer_is_not_committed_once_its_signature_is_void"),
    of("R31", f"{SITE}/daemon/worker.py", "replace(store.outgoing, require=self._decisions.agreed)",
       "store.outgoing", f"{CLOCKS}::test_a_masked_answer_is_not_committed_once_void"),
    of("R31", AGREEMENTS, "agreed(digest)", "accepted(digest)",
       f"{CLOCKS}::test_committed_answer_is_not_sent_once_void"),
    # ---- what the coordinator takes
    of("R31", f"{SERVER}/planning/submissions.py", "        check_authorization(signed, plan, at / 1000)\n",
       "", f"{TEST_SIGNED_STUDIES}::test_a_study_that_its_analyst_did_not_sign_is_not_taken"),
    of("R31", f"{SERVER}/planning/submissions.py", "*_later_expiry_warnings(submission, known)", "",
       f"{TEST_SIGNED_STUDIES}::test_sites_get_and_the_study_stores_the_signature_of_the_analyst"),
    of("R31", f"{SERVER}/storage/study_reads.py", "signed.authorization.CopyFrom(by_analyst.to_proto())",
       "pass", f"{TEST_SIGNED_STUDIES}::test_sites_get_and_the_study_stores_the_signature_of_the_analyst"),
    of("R31", f"{SERVER}/planning/submissions.py", "known is not None and known.digest != plan.digest",
       "False", f"{TEST_SIGNED_STUDIES}"
       "::test_sites_get_and_the_study_stores_the_signature_of_the_analyst"),
)  # fmt: skip
