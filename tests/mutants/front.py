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
SLOW = f"{BEFORE}test_slow_handshakes_make_room_first_those_of_the_address_with_the_most"

OF_FRONT: tuple[Mutant, ...] = (
    of("TM11", STRANGERS, "        if len(self._all) >= self._most:\n            self._make_room()\n", "",
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
)  # fmt: skip
