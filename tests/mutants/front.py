"""Faults in what strangers may hold and cost before anybody knows who calls."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, of

DOOR = "tests/server/front/test_door.py::"
BEFORE = "tests/server/front/test_strangers.py::"
STRANGERS = "server/eigenveil_server/front/strangers.py"
TURNS = "server/eigenveil_server/front/turns.py"
WHOLE = f"{BEFORE}test_a_stranger_has_no_tls_before_its_first_record_is_whole_and_none_that_outlives_it"
RECORDS = f"{BEFORE}test_of_a_first_record_its_kind_and_length_count"
CLOSED = f"{BEFORE}test_a_stranger_that_is_no_client_of_tls_or_has_closed_is_let_go_at_once"
BY_TURNS = (
    f"{BEFORE}test_of_one_address_the_newest_and_the_oldest_begin_by_turns"
    "_and_nobody_waits_for_those_who_left"
)
REQUESTS, AT_ONCE = "server/eigenveil_server/front/requests.py", "tests/server/front/test_requests.py::"
SLOW = f"{BEFORE}test_slow_handshakes_make_room_first_those_of_the_address_with_the_most"

BOUNDS, KEPT = (
    "tests/core/study/test_toml_bounds.py::test_what_costs_more_than_its_length_",
    "_and_next_to_nothing_is_kept",
)
POOL, PLANNED = "server/eigenveil_server/planning/pool.py", "tests/server/planning/test_pool.py::"

OF_FRONT: tuple[Mutant, ...] = (
    of("TM11", STRANGERS, "        if len(self._all) >= MOST_STRANGERS:\n            self._make_room()\n", "",
       f"{DOOR}test_whoever_holds_handshakes_open_gives_way_to_newcomers"),
    of("TM11", STRANGERS, "elif stranger.wanted > HEADER.size:", "elif stranger.wanted:", WHOLE),
    of("TM11", STRANGERS, "0 < length <= MOST_RECORD_BYTES", "0 < length", RECORDS),
    of("TM11", STRANGERS, "kind == HANDSHAKE and ", "", RECORDS),
    of("TM11", STRANGERS, "        if len(seen) < stranger.wanted:\n            self.end(stranger)\n",
       "        if len(seen) < stranger.wanted:\n            return\n", CLOSED),
    of("TM11", "server/eigenveil_server/front/door.py",
       "            traceback.clear_frames(problem.__traceback__)\n            raise\n",
       "            raise\n", WHOLE),
    of("TM11", TURNS, "        there.newest = not there.newest\n", "", BY_TURNS),
    of("TM11", TURNS, "        there.allowance.spend(1)\n", "", BY_TURNS),
    of("TM11", TURNS, "if len(self._begun) < MOST_HANDSHAKES:", "if self._begun:", SLOW),
    of("TM11", TURNS, "        self._end(who)\n        return 0.0", "        return 0.0", SLOW),
    of("TM11", TURNS, "who = max(self._begun, key=lambda who: self._begun[who][0].begun)",
       "who = next(iter(self._begun))", SLOW),
    of("TM11", TURNS, "min(ready, key=lambda there: there.begun)", "ready[0]", SLOW),
    of("TM18", REQUESTS, "        if held.sent + count > MOST_OF_ONE_BYTES:", "        if False:",
       f"{AT_ONCE}test_a_guest_with_more_than_four_messages_is_cut_and_all_of_it_given_back"),
    of("TM18", REQUESTS, "        if self._reserved + more > MOST_BYTES or self._of",
       "        if self._of", f"{AT_ONCE}test_while_all_room_is_taken_others_wait_but_for_small_requests"),
    of("TM18", REQUESTS, "            self._make_room()\n", "            pass\n",
       f"{AT_ONCE}test_who_holds_several_messages_or_one_for_long_makes_room_for_others"),
    of("TM18", "server/eigenveil_server/front/connection.py",
       "self._host.requests.give(self.arrival.guest, self._sent.pop(stream, 0))", "self._sent.pop(stream, 0)",
       f"{AT_ONCE}test_a_request_is_counted_until_its_answer_and_no_longer"),
    # ---- what is read of others, and in how much memory it is planned
    of("TM18", "study/plain_values.py", "    check_bounds(text)\n", "", f"{BOUNDS}is_refused{KEPT}"),
    of("TM18", "study/toml_bounds.py", "path.depth > DEEPEST or path.keys", "path.keys",
       f"{BOUNDS}is_refused{KEPT}"),
    of("TM18", "study/toml_bounds.py", " or path.keys > MOST_KEYS:", ":", f"{BOUNDS}is_refused{KEPT}"),
    of("TM18", "study/toml_bounds.py", "self.depth, self._in_key = self._table, True",
       "self.depth, self._in_key = 1, True", f"{BOUNDS}is_refused{KEPT}"),
    of("TM18", POOL, "found.pop(\"resident\") > IDLE_BYTES", "found.pop(\"resident\") < 0",
       f"{PLANNED}test_a_process_that_keeps_much_memory_is_not_kept"),
    of("TM18", POOL, "SMALL_SECONDS, SMALL_MEMORY)", "SMALL_SECONDS, wide_memory(most_columns))",
       f"{PLANNED}test_what_is_too_much_for_the_small_lane_goes_on_in_the_wide_one_and_ends_with_advice_there"),
    of("TM18", "server/eigenveil_server/planning/planner.py", "(memory if most < 0", "(most if most < 0",
       f"{PLANNED}test_what_takes_too_much_memory_takes_no_more_than_it_may_and_the_next_is_planned"),
    of("TM18", "common/eigenveil_common/process.py", "        libc.mallopt(M_ARENA_MAX, ARENAS)\n", "",
       "tests/common/test_process.py"
       "::test_what_threads_have_used_once_and_nobody_needs_is_kept_for_few_of_them"),
)  # fmt: skip
