"""Faults in what strangers may hold and cost before anybody knows who calls."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, each, of

STRANGERS = "server/eigenveil_server/front/pending_connections.py"
TURNS = "server/eigenveil_server/front/handshake_limiter.py"
REQUESTS = "server/eigenveil_server/front/message_quota.py"
POOL = "server/eigenveil_server/planning/pool.py"
STREAMS = "server/eigenveil_server/front/http2.py"
PLACES = "server/eigenveil_server/front/quota.py"
CONNECTION = "server/eigenveil_server/front/connection.py"
CALLS = "server/eigenveil_server/rpc/callers.py"
LISTENER = "server/eigenveil_server/console/listener.py"
TRUSTED = "common/eigenveil_common/trusted_files.py"
FILES = "common/eigenveil_common/files.py"
TEST_POOL = "tests/server/planning/test_pool.py"
TEST_HANDSHAKES = "tests/server/front/test_handshakes.py"
TEST_PENDING = "tests/server/front/test_pending_connections.py"
TEST_STREAMS = "tests/server/front/test_streams.py"
TEST_REPLIES = "tests/server/front/test_replies.py"
TEST_TRUSTED_FILES = "tests/common/test_trusted_files.py"
RECORDS = f"{TEST_PENDING}::test_of_a_first_record_its_kind_and_length_count"
CLOSED = f"{TEST_PENDING}::test_a_stranger_that_is_no_client_of_tls_or_has_closed_is_let_go_at_once"
AT_ONCE = "tests/server/front/test_requests.py::"
CROWDS = f"{TEST_HANDSHAKES}::test_no_crowd_of_addresses_delays_the_turn_of_another"
KNOWN = f"{TEST_HANDSHAKES}::test_a_known_address_does_not_wait_for_failing_handshakes"
FEWEST = f"{TEST_HANDSHAKES}::test_the_address_with_the_fewest_in_progress_is_next"
HALVES = f"{TEST_PENDING}::test_strangers_and_known_networks_have_half_of_the_places_each"
MEMBERS = f"{TEST_HANDSHAKES}::test_a_known_network_waits_for_one_stranger_and_for_one_turn_of_each_other"
IDLE = f"{TEST_PENDING}::test_a_handshake_that_idles_too_long_is_ended_and_none_earlier"
SLOW = f"{TEST_HANDSHAKES}::test_slow_handshakes_make_room_first_those_of_the_address_with_the_most"
BOUNDS = "tests/core/study/test_toml_bounds.py::test_a_costly_text_is_refused_in_little_memory"
PLANNED = f"{TEST_POOL}::"
OF_FILES = f"{TEST_TRUSTED_FILES}::"
UNREAD = f"{TEST_STREAMS}::test_a_reply_that_is_not_read_is_overdue"
MISFRAMED = f"{TEST_STREAMS}::test_what_no_client_may_send_does_not_pass"
LEFT = f"{TEST_STREAMS}::test_a_stream_is_open_until_its_last_frame_has_left"
MOST = f"{TEST_STREAMS}::test_of_all_who_are_no_sites_the_one_with_the_most_streams_makes_room"
STUCK = f"{TEST_STREAMS}::test_a_client_that_does_not_read_gets_goaway_and_has_no_more_than_its_streams"
CHANGED = f"{TEST_TRUSTED_FILES}::test_a_file_that_others_can_change_is_named_with_the_command"
TEST_LISTENER = "tests/server/console/test_listener.py"
TEST_REQUEST_ROOM = "tests/server/front/test_request_room.py"


OF_FRONT: tuple[Mutant, ...] = (
    of("TM11", STRANGERS, "        if len(self) > self._most:\n            self._make_room()\n", "",
       "tests/server/front/test_gateway.py::test_open_handshakes_give_way_to_newcomers"),
    of("TM11", STRANGERS,
       "        if self._most not in self._addresses_by_count:\n            self._most -= 1\n", "",
       "tests/server/front/test_by_address.py"
       "::test_the_oldest_of_the_address_with_the_most_is_known_at_every_moment"),
    *each("TM11", STRANGERS, HALVES,
          ("self._known if known_have_more else self._strangers", "self._strangers"),
          ("self._known if known_have_more else self._strangers", "self._known"),
          ("self._known if pending.network in self._networks else self._strangers", "self._strangers"),
          ("self._most // 2", "self._most")),
    *each("TM11", TURNS, MEMBERS,
          ("        if address in self._known:\n            return 0, 0, queue.last\n", ""),
          ("return 0, 0, queue.last", "return queue.failed, queue.begun, queue.last"),
          ("(known, strangers) if self._start_number % STRANGERS_EVERY else (strangers, known)",
           "(strangers, known)")),
    of("TM11", TURNS, "(known, strangers) if self._start_number % STRANGERS_EVERY else (strangers, known)",
       "(known, strangers)",
       f"{TEST_HANDSHAKES}::test_one_of_four_handshakes_is_a_strangers_however_many_known_networks_wait"),
    *each("TM11", TURNS,
          f"{TEST_HANDSHAKES}::test_known_networks_and_strangers_have_handshakes_of_their_own",
          ("if one.known == known", ""), ("if one.known == known", "if one.known != known"),
          ("time.monotonic(), known)", "time.monotonic(), False)")),
    of("TM11", "server/eigenveil_server/studies/runtime.py", "if subscribers is None else subscribers", "",
       "tests/server/studies/test_study_run.py::test_a_change_wakes_all_or_those_whom_it_names"),
    *each("TM11", "server/eigenveil_server/front/known_networks.py",
          f"{TEST_PENDING}::test_a_network_is_known_for_an_hour_after_the_last_look_at_its_member",
          ("if until > now", "if until >= now"), ("+ KNOWN_SECONDS", "")),
    *each("TM11", "server/eigenveil_server/front/gateway.py", f"{TEST_PENDING}"
          "::test_a_member_makes_its_network_known_while_it_is_connected_and_a_stranger_does_not",
          ("            self._record_network(connection)\n            info = ", "            info = "),
          ("            self._record_network(connection)\n            connection", "            connection"),
          (" and connection.info.admitted", ""),
          ("        self._known.forget()\n", "")),
    of("TM11", STRANGERS, "wanted > HEADER.size", "wanted", f"{TEST_PENDING}"
       "::test_a_stranger_has_no_tls_before_its_first_record_is_whole_and_none_that_outlives_it"),
    of("TM11", STRANGERS, "length <= MOST_RECORD_BYTES", "length", RECORDS),
    of("TM11", STRANGERS, "kind == HANDSHAKE and ", "", RECORDS),
    of("TM11", STRANGERS, "wanted:\n            self.end(pending)", "wanted:\n            return", CLOSED),
    of("TM11", "server/eigenveil_server/front/gateway.py",
       "traceback.clear_frames(problem.__traceback__)\n            ", "", f"{TEST_PENDING}"
       "::test_a_stranger_has_no_tls_before_its_first_record_is_whole_and_none_that_outlives_it"),
    of("TM11", STRANGERS, "            if pending.until > now:\n                break\n", "", IDLE),
    of("TM11", STRANGERS, "until > now", "until < now", IDLE),
    of("TM11", TURNS, "        queue.newest = not queue.newest\n", "", f"{TEST_HANDSHAKES}"
       "::test_of_one_address_the_newest_and_the_oldest_begin_by_turns_and_none_waits_for_those_who_left"),
    of("TM11", TURNS, "        queue.allowance.spend(1)\n", "", f"{TEST_HANDSHAKES}"
       "::test_of_one_address_the_newest_and_the_oldest_begin_by_turns_and_none_waits_for_those_who_left"),
    of("TM11", TURNS, "len(group) < MOST_HANDSHAKES", "group", SLOW),
    of("TM11", TURNS, "self._end(caller)\n        ", "", SLOW),
    of("TM11", TURNS, "max(group, key=lambda caller: self._in_progress[caller].queue.begun)", "group[0]",
       SLOW),
    of("TM11", TURNS, "queue.failed, queue.begun, queue.last\n", "queue.failed, queue.last\n", FEWEST),
    of("TM11", TURNS, "queue.begun, queue.last\n", "queue.begun\n", CROWDS),
    *each("TM11", TURNS, KNOWN, ("failed, queue.", ""), (".failed =", ".failed +=")),
    of("TM18", REQUESTS, "entry.sent + count > MAX_BYTES_PER_CLIENT", "False",
       f"{AT_ONCE}test_a_client_with_more_than_four_messages_is_cut_and_all_of_it_given_back"),
    of("TM18", REQUESTS, "_reserved + more > MOST_REQUEST_BYTES or self.", "",
       f"{AT_ONCE}test_while_all_room_is_taken_others_wait_but_for_small_requests"),
    of("TM18", REQUESTS, "self._make_room()", "pass",
       f"{AT_ONCE}test_who_holds_several_messages_or_one_for_long_makes_room_for_others"),
    of("TM18", CONNECTION,
       "_observer.requests.give_back(self.info.client, self._sent.pop(stream), whole=whole)",
       "_sent.pop(stream)", f"{AT_ONCE}test_a_request_is_counted_until_its_answer_and_no_longer"),
    of("TM18", REQUESTS, "now - self._looked < LOOK_SECONDS", "False",
       f"{AT_ONCE}test_however_many_wait_for_room_clients_are_visited_ten_times_a_second"),
    of("TM18", REQUESTS, "reserved and one.sent > one.whole", "reserved",
       f"{AT_ONCE}test_who_waits_for_the_coordinator_with_a_complete_request_is_not_cut_as_slow"),
    of("TM18", REQUESTS, "entry.sent == entry.whole", "False",
       f"{AT_ONCE}test_a_request_that_is_begun_behind_a_complete_one_has_its_own_time"),
    of("TM18", REQUESTS, "entry.client = client  #", "#",
       f"{AT_ONCE}test_the_client_that_is_cut_is_the_one_that_the_gateway_knows_now"),
    of("TM18", CONNECTION, "self._inward.at_boundary", "True",
       f"{TEST_REQUEST_ROOM}::test_a_request_is_complete_when_its_last_byte_has_passed"),
    of("TM18", CONNECTION, "            self._streams.restart_timers(now)\n", "", f"{TEST_REQUEST_ROOM}"
       "::test_a_wait_for_room_ends_no_connection_and_is_not_counted"),
    of("TM18", CONNECTION, "stopped and self._wait == QUOTA_WAIT", "stopped",
       f"{TEST_REQUEST_ROOM}::test_who_stands_at_the_limit_of_streams_is_not_excused"),
    # ---- what is read of others, and in how much memory it is planned
    *each("TM18", "study/checks.py", BOUNDS, ("    check_toml_size(text)\n", ""),
          ("depth > DEEPEST or path.", ""), (" or path.keys > MOST_KEYS:", ":"), ("= self._table", "= 1")),
    of("TM18", POOL, "> IDLE_BYTES", "< 0", f"{PLANNED}test_a_process_with_much_memory_is_ended"),
    of("TM18", POOL, "self._wide_until[analyst] = time.monotonic() + WIDE_AGAIN_SECONDS", "pass",
       f"{TEST_POOL}"
       "::test_what_is_too_much_for_the_small_lane_goes_on_in_the_wide_one_and_ends_with_advice_there"),
    *each("TM18", POOL,
          f"{PLANNED}test_what_ends_the_process_of_a_small_study_costs_the_next_small_one_no_start",
          ("        elif self._warm:\n            self.warm()\n", ""), ("if one.lane == lane", "")),
    of("TM18", POOL, "worker.exceeded", "True",
       f"{PLANNED}test_only_what_took_too_much_is_planned_with_the_wide_ones_from_then_on"),
    of("TM18", POOL, "                self._exceeded(analyst)\n", "",
       f"{PLANNED}test_who_goes_away_ends_no_work_but_their_own"),
    of("TM18", "server/eigenveil_server/planning/planner.py", "signal.setitimer(signal.ITIMER_PROF, 0.0)",
       "pass", f"{PLANNED}test_the_time_of_a_request_is_counted_from_its_own_beginning"),
    of("TM18", POOL, "memory=SMALL_MEMORY", "memory=wide_memory(most_columns)", f"{TEST_POOL}"
       "::test_what_is_too_much_for_the_small_lane_goes_on_in_the_wide_one_and_ends_with_advice_there"),
    of("TM18", "server/eigenveil_server/planning/planner.py", "(memory if most < 0", "(most if most < 0",
       f"{PLANNED}test_what_takes_too_much_memory_takes_no_more_than_it_may_and_the_next_is_planned"),
    of("TM18", "common/eigenveil_common/process_limits.py", "        libc.mallopt(M_ARENA_MAX, ARENAS)\n", "",
       "tests/common/test_confined.py::test_freed_memory_is_retained_for_few_threads"),
    of("TM18", STREAMS, "bool(frame.flags & END_STREAM):", "frame.kind == HEADERS:", LEFT),
    *each("TM18", STREAMS, MISFRAMED, ("frame.stream % 2 == 0 or not", "not"),
          ("opens or frame.stream in self._open", "True"), ("more or widest > MOST_WINDOW", "more"),
          ("not more or widest", "widest")),
    of("TM18", STREAMS, "self._initial = value  # also applies to open streams", "pass", STUCK),
    *each("TM18", STREAMS, UNREAD,
          ("min(self._window, self._initial + found.window)", "self._initial + found.window"),
          ("min(self._window, self._initial + found.window)", "self._window"), (">= LEAST_BYTES or", "or")),
    of("TM18", STREAMS, "not found.requested", "False",
       f"{TEST_STREAMS}::test_a_request_that_never_ends_is_overdue"),
    of("TM18", STREAMS, "not found.requested", "True",
       f"{TEST_STREAMS}::test_who_waits_for_the_coordinator_is_let_alone"),
    of("TM18", CONNECTION, "self._streams.new(frame) and not observer.quota.may_open(client)", "False",
       STUCK),
    of("TM18", CONNECTION, "        if self.name:\n            self._observer.quota.closed(self.info.client,"
       " len(self._streams))\n", "", STUCK),
    of("TM18", "server/eigenveil_server/front/gateway.py", "why := connection.overdue()",
       "(why := connection.overdue()) and False", STUCK),
    of("TM18", PLACES, "max(others, key=lambda one: one.streams)", "client", MOST),
    of("TM18", PLACES, "client.role is not Role.SITE:\n            self", "True:\n            self", MOST),
    of("TM18", REQUESTS, "await caller_replies.read_slots.acquire()", "caller_replies.read_slots._value -= 1",
       f"{TEST_REPLIES}::test_of_one_caller_few_read_at_a_time_until_their_replies_are_taken"),
    of("TM18", REQUESTS, "caller_replies.size + size", "size",
       f"{TEST_REPLIES}::test_bytes_that_were_not_taken_are_bounded"),
    of("TM18", CALLS, "answered = True", "answered = True\n            self._of[caller].pop(call.number)",
       f"{TEST_REPLIES}::test_a_call_counts_until_its_reply_is_taken_and_is_ended_from_outside_only_before"),
    of("TM18", CALLS, "call.answered = True", "pass",
       f"{TEST_REPLIES}::test_a_call_counts_until_its_reply_is_taken_and_is_ended_from_outside_only_before"),
    of("TM11", LISTENER, "=MAX_PENDING_CONNECTIONS", "=10**9",
       f"{TEST_LISTENER}::test_half_open_sockets_take_no_place_and_hold_no_tls"),
    of("TM11", LISTENER, "len(here) <= MOST_CONNECTIONS or self._make_room(here, newest)", "True",
       f"{TEST_LISTENER}::test_of_all_connections_those_of_the_certificate_with_the_most_make_room"),
    of("TM11", LISTENER, "        if not pending.handed_over:\n            pending.sock.close()\n", "",
       f"{TEST_LISTENER}::test_a_caller_that_is_no_proxy_takes_no_connection"),
    *each("TM13", TRUSTED, CHANGED, ("st_mode & 0o022", "st_mode & 0o002"),
          ("st_mode & 0o022", "st_mode & 0o020"), (', "-wal", "-shm", "-journal"', ",")),
    of("TM13", TRUSTED, "above and found", "found",
       f"{OF_FILES}test_folders_above_count_but_for_sticky_ones"),
    of("TM13", TRUSTED, "_path_components(path)", "path.parents",
       f"{OF_FILES}test_folders_behind_a_linked_folder_must_be_trusted"),
    of("TM13", TRUSTED, "_path_components(path)", "(*path.parents, *path.resolve().parents)",
       f"{OF_FILES}test_each_link_of_a_chain_counts_with_the_folders_on_its_own_way"),
    of("TM13", TRUSTED, "yield from _owner_problems(one, one.lstat())", "pass",
       f"{OF_FILES}test_a_link_of_another_user_in_a_folder_for_all_is_not_trusted"),
    of("TM13", TRUSTED, "path.absolute()", "Path(os.path.abspath(path))",
       f"{OF_FILES}test_a_step_back_starts_at_the_target_of_a_link"),
    of("TM13", TRUSTED, "set(group.gr_mem) <= {user.pw_name}", "bool(user)",
       f"{OF_FILES}test_files_may_belong_to_their_owners_own_group"),
    of("TM13", TRUSTED, "found.st_uid not in (current_uid, 0)", "False",
       f"{OF_FILES}test_another_users_file_is_not_trusted"),
    of("TM13", FILES, "os.O_NOFOLLOW | ", "", f"{OF_FILES}test_a_link_is_no_file_of_ours"),
    of("TM13", FILES, "os.geteuid() and found.st_uid not in (os.geteuid(), 0)", "False",
       f"{OF_FILES}test_a_secret_of_another_user_is_not_read"),
    of("TM13", FILES, "not stat.S_ISREG(found.st_mode)", "False",
       f"{OF_FILES}test_a_secret_is_judged_as_it_was_opened"),
    *each("TM20", "common/eigenveil_common/web/application.py",
          "tests/common/web/test_application.py::test_a_link_that_was_only_looked_at_still_opens",
          ('request.method == "GET" and not', "not"), ('"GET" and not', '"GET" or')),
    of("TM11", "server/eigenveil_server/rpc/listeners.py",
       '    ("grpc.max_allowed_incoming_connections", CONNECTIONS),\n', "",
       "tests/server/rpc/test_health.py::test_sockets_beyond_the_share_are_closed_at_once"),
)  # fmt: skip
