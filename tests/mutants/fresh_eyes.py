"""Faults that somebody chose who had not written the code, and that no test noticed at first."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, of

SERVER = "server/eigenveil_server"
SITE = "client/eigenveil_client/site"
FRONT = f"{SERVER}/front"
IN_FRONT = "tests/server/front"
STREAMS = f"{IN_FRONT}/test_streams.py"
ROOM = f"{IN_FRONT}/test_request_room.py"
STRANGERS = f"{IN_FRONT}/test_handshakes.py"
TAKEN_BACK = f"{ROOM}::test_a_request_that_is_taken_back_leaves_its_room_and_its_stream_to_others"

OF_FRESH_EYES: tuple[Mutant, ...] = (
    of("TM18", f"{FRONT}/http2.py", "DATA:\n            self",
       "DATA and found is not None:\n            self",
       f"{STREAMS}::test_what_leaves_for_a_stream_that_was_taken_back_uses_up_the_connections_window"),
    of("TM18", f"{FRONT}/http2.py", ", found.since, found.moved = True, now, 0", " = True",
       f"{STREAMS}::test_a_reply_has_its_own_time_however_long_its_request_took"),
    of("TM18", f"{FRONT}/connection.py", "\n            observer.quota.closed(client, 1)", "", TAKEN_BACK),
    of("TM18", f"{FRONT}/connection.py", "self._release_bytes(frame.stream)\n            ", "", TAKEN_BACK),
    of("TM18", f"{FRONT}/connection.py", "observer.quota.may_open(client)",
       "self.streams < observer.quota._limits.streams_per_client",
       f"{STREAMS}::test_streams_are_counted_for_a_certificate_and_not_for_each_of_its_connections"),
    of("TM18", f"{FRONT}/quota.py", "> self._limits", ">= self._limits",
       f"{STREAMS}::test_of_all_who_are_no_sites_the_one_with_the_most_streams_makes_room"),
    of("TM18", f"{FRONT}/quota.py", "-one.streams", "one.streams", f"{STREAMS}"
       "::test_of_a_clients_connections_the_oldest_of_those_with_the_most_streams_makes_room"),
    of("TM18", f"{FRONT}/message_quota.py", "_use(caller)\n            ", "_use(method)\n            ",
       f"{IN_FRONT}/test_replies.py::test_of_one_caller_few_read_at_a_time_until_their_replies_are_taken"),
    of("TM18", f"{FRONT}/message_quota.py", "if not caller_replies.users:\n            del self._of[caller]",
       "self._of.pop(caller, None)", f"{IN_FRONT}/test_replies.py"
       "::test_a_call_that_ends_takes_nothing_from_the_limits_of_other_calls_of_its_caller"),
    of("TM18", f"{SERVER}/rpc/interceptor.py",
       "                self._replies.add_unread(caller, reply.ByteSize())\n", "",
       f"{IN_FRONT}/test_replies.py::test_what_a_caller_does_not_take_counts_against_its_next_reply"),
    of("TM11", f"{SERVER}/console/listener.py", "near > MOST_OF_ADDRESS or ", "",
       "tests/server/console/test_listener.py::test_one_certificate_or_address_has_no_more_than_its_share"),
    of("TM11", f"{SERVER}/console/listener.py", "one is not newest and (", "(",
       "tests/server/console/test_listener.py::test_a_newcomer_makes_no_room_for_itself"),
    of("TM18", f"{SERVER}/rpc/responses.py", "len(rows) >", "len(rows) >=",
       "tests/server/rpc/test_analysts.py::test_a_list_in_parts_is_the_whole_list"),
    of("TM18", f"{SERVER}/planning/pool.py", "None and busy[0] is task", "None",
       "tests/server/planning/test_pool.py::test_who_goes_away_ends_no_work_but_their_own"),
    of("TM18", f"{SERVER}/planning/planner.py", "ITIMER_PROF, task", "ITIMER_VIRTUAL, task",
       "tests/server/planning/test_pool.py::test_the_time_of_a_request_is_counted_from_its_own_beginning"),
    of("TM18", "study/checks.py",
       "around, self._in_key = self._open[-1]\n                self.depth = around + 1",
       "_, self._in_key = self._open[-1]",
       "tests/core/study/test_toml_bounds.py::test_depth_is_counted_from_each_comma_of_an_inline_table_anew"),
    of("R31", f"{SERVER}/planning/submissions.py",
       "(signed, plan, at / 1000)\n        check_cost_limits(plan, self._config)",
       "(signed, plan, at / 1000)", "tests/server/rpc/test_signed_studies.py"
       "::test_a_plan_that_was_signed_unexplained_costs_no_more_than_one_study_may"),
    of("R31", f"{SITE}/daemon/decisions.py", "not in (Code.STORAGE, Code.BAD_CONFIG)", "is not Code.STORAGE",
       "tests/client/site/analysts/test_rule.py::test_a_damaged_roster_is_no_word_on_a_study"),
    of("R31", f"{SITE}/roster/analysts.py", ".card == key_card and pin", "",
       "tests/client/site/analysts/test_rule.py::test_signature_status_follows_the_roster"),
    of("R31", f"{SITE}/roster/analysts.py", "not _signed_before(roster.content(), key_card, now)", "True",
       "tests/client/site/analysts/test_rule.py::test_study_of_a_rotated_key_locks_no_analyst_out"),
    of("R30", f"{SITE}/roster/roster.py", "pin.conflict or ConflictingCard", "ConflictingCard",
       "tests/client/site/peers/test_keys.py"
       "::test_the_first_card_that_contradicted_a_confirmed_one_stays_as_evidence"),
    of("TM39", "client/eigenveil_client/records/isolated/process.py", "                item_bytes += size\n",
       "", "tests/client/records/isolated/test_words.py::test_all_messages_of_a_reader_are_bounded_in_sum"),
    of("P31", "secure_aggregation/masking.py", "(0, values.size, AT_ONCE):",
       "(0, values.size, AT_ONCE):\n        stream = Cipher(ChaCha20(key, NONCE), mode=None).encryptor()",
       "tests/core/secure_aggregation/test_masks_cancel.py"
       "::test_the_mask_of_a_long_answer_is_one_key_stream"),
    of("R29", "secure_aggregation/masking.py", "number <=", "number <",
       "tests/core/secure_aggregation/test_attempts.py"
       "::test_attempts_are_numbered_from_one_to_the_most_that_a_study_may_have"),
    of("R29", f"{SERVER}/rounds/round.py", "_attempts,", "_attempts[-1:],",
       "tests/server/masked/test_masked_rounds.py"
       "::test_every_attempt_before_is_known_as_one_that_has_passed"),
    of("P25", f"{SITE}/daemon/round_checks.py",
       "(stated.query, stated.release) != (known.query, known.digest)", "stated.release != known.digest",
       "tests/client/site/daemon/test_own_session.py::test_two_statements_of_a_release_name_one_query"),
    of("R23", "dictionary/directory.py",
       "self if rules is None else replace(self, study_rules=rules.visible_to(analyst))", "self",
       "tests/core/dictionary/test_rules.py::test_a_site_statement_shown_to_an_analyst_omits_other_analysts"),
    of("R10", f"{SERVER}/rounds/round.py",
       "                self._partly_added = True  # stays set, whatever is added later\n", "",
       "tests/server/studies/test_study_run.py"
       "::test_nothing_is_released_of_a_sum_to_which_one_answer_was_not_added_to_its_end"),
    of("P27", "common/eigenveil_common/storage/database.py", "\n            self._roll_back()", "",
       "tests/common/storage/test_failing_disk.py::test_a_failed_commit_is_rolled_back_and_no_write_follows"),
    of("P15", "aggregation.py", "sorted(self._votes)", "self._votes",
       "tests/core/test_aggregation.py::test_concatenated_answers_are_in_the_order_of_site_names"),
    of("P30", "client/eigenveil_client/records/scratch_files.py", "size and not window.in_use", "size",
       "tests/client/records/overflow/test_grid_file.py::test_slices_in_order_are_the_rows"),
    of("TM37", f"{SITE}/state/store.py",
       "        if self.egress.has_rows(digest, change):\n            return\n", "",
       "tests/client/site/state/test_declined_plans.py"
       "::test_a_plan_for_which_anything_left_stays_whole_when_its_study_ends"),
    of("TM39", "client/eigenveil_client/records/sources/columnar.py", "rows != file.metadata.num_rows",
       "False", "tests/client/records/sources/test_delimited.py::test_a_misstated_row_count_is_refused"),
    of("R10", f"{SERVER}/rounds/round.py", "(sites)\n        self._update_ready()", "(sites)",
       "tests/server/studies/test_study_run.py::test_a_round_is_ready_when_no_site_is_awaited"),
    of("TM18", f"{FRONT}/quota.py", "idle and not self.open", "idle",
       f"{STREAMS}::test_a_client_is_remembered_while_an_idle_connection_is_open"),
    of("TM11", f"{FRONT}/handshake_limiter.py", "begun or not queue.allowance.full", "begun",
       f"{STRANGERS}::test_an_address_is_not_forgotten_before_its_allowance_is_full_again"),
    of("TM11", f"{FRONT}/pending_connections.py", "oldest_of_busiest_address()", "all()[0]",
       f"{IN_FRONT}/test_pending_connections.py::test_of_all_strangers_the_oldest_of_the_address_with_the_most_makes_room"),
)  # fmt: skip
