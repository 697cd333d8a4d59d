"""Faults in what happens after an error of the disk, and after a death: nothing goes on, all is taken up."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, each, of

SQLITE = "common/eigenveil_common/storage/sqlite.py"
FAILING = "tests/common/storage/test_failing_disk.py"
LEDGER_STORE = "tests/common/storage/test_ledgers.py"
COPYING = f"{FAILING}::test_an_error_of_the_checkpoint_is_one_of_the_commit"
ENDS = "tests/torture/crashes/test_kills.py::test_a_failing_disk_ends_the_process"
PIECES = "server/eigenveil_server/storage/release_pieces.py"
LONG = "server/eigenveil_server/storage/pieces.py"
PIECED = "tests/server/storage/test_release_pieces.py"
AHEAD = "server/eigenveil_server/storage/sealed_pieces.py"
SEALED = "tests/server/storage/test_sealed_pieces.py"
LEFT = f"{SEALED}::test_a_process_that_ends_between_two_pieces_leaves_random_bytes_and_no_charge"
UPLOADS = "server/eigenveil_server/studies/uploads.py"
QUEUE = "tests/server/studies/test_upload_queue.py"
CONTRIBUTED = "tests/server/studies/test_contributions.py"
CUT = f"{PIECED}::test_a_crash_between_two_pieces_changes_nothing"

OF_CRASHES: tuple[Mutant, ...] = (
    of("P6", "common/eigenveil_common/storage/database.py", "            self._in_doubt = problem\n", "",
       f"{FAILING}::test_nothing_is_written_after_a_sync_that_failed"),
    of("P6", SQLITE, "self._connection.set_wal_hook(_copy_log)", "pass", COPYING),
    of("P6", SQLITE, "suppress(apsw.BusyError)", "suppress(apsw.Error)", COPYING),
    of("P6", SQLITE, "FULL = 2\n", "FULL = 1\n", f"{LEDGER_STORE}::test_the_database_syncs_each_commit"),
    of("P6", "server/eigenveil_server/process.py", "os._exit(problem.exit_code)", "raise problem", ENDS),
    of("P6", "server/eigenveil_server/process.py", "problem.exit_code", "0", ENDS),
    of("R12", PIECES, " AND piece >= ?", " AND piece < 0 AND piece >= ?", CUT),
    of("R12", PIECES, "DO UPDATE SET data = excluded.data", "DO NOTHING", CUT),
    of("R12", PIECES, "    if not change.execute(unpublished, (study, StudyState.RUNNING.value)):\n",
       "    if False:\n", f"{PIECED}::test_a_study_that_has_ended_takes_no_piece"),
    of("R12", PIECES, " AND release IS NULL", "", f"{PIECED}::test_a_study_that_has_ended_takes_no_piece"),
    of("R12", "server/eigenveil_server/studies/study_run.py",
       '                failpoint("release-piece-stored")\n        except InternalError as problem:\n'
       "            self._repository.fatal(problem)\n",
       '                failpoint("release-piece-stored")\n        except InternalError as problem:\n'
       "            raise problem\n",
       f"{PIECED}::test_a_change_that_fails_beside_a_piece_ends_the_process_and_fails_no_charged_study"),
    of("R12", LONG, "(begun, key)\n        if not rows or rows[0][0] is None:\n            return None\n",
       '(begun, key)\n        if not rows or rows[0][0] is None:\n            return b"", 0\n', CUT),
    of("R12", LONG, "        if first_bytes < PIECE_BYTES:\n            return []\n", "",
       f"{PIECED}::test_nothing_follows_a_short_first_piece"),
    *each("R12", LONG, f"{PIECED}::test_any_part_of_a_release_is_read_as_it_was_stored",
          ("min(length, start + most - at)", "length"),
          ("(start + 1, wanted, *key)", "(start, wanted, *key)")),
    of("R12", LONG, "skipped = max(0, start - at)", "skipped = 0",
       f"{PIECED}::test_a_part_of_a_release_stored_whole_reads_no_more_bytes_than_it_has"),
    of("R32", "reporting/release_file.py",
       "    array = np.empty(shape, dtype=kind)\n"
       "    array.reshape(-1).view(np.uint8)[:] = np.frombuffer(data, dtype=np.uint8)[HEADER_BYTES:]\n",
       "    array = np.frombuffer(data[HEADER_BYTES:], dtype=kind).reshape(shape)\n",
       "tests/core/reporting/test_release_file.py"
       "::test_sums_over_an_array_do_not_depend_on_the_length_of_the_document_before_it"),
    *each("P27", AHEAD, f"{SEALED}::test_what_is_stored_before_the_charge_is_independent_of_the_draw",
          ("encrypted = crypt(key, number, 0, data)", "encrypted = bytes(data)"),
          ("secrets.token_bytes(KEY_BYTES)", "bytes(KEY_BYTES)")),
    of("P27", AHEAD, "(number << 64)", "(1 << 64)",
       f"{SEALED}::test_no_two_blocks_of_a_release_have_one_mask"),
    *each("P27", AHEAD, f"{SEALED}::test_a_piece_is_decoded_from_any_byte_on",
          (" + start // BLOCK_BYTES", ""), ("    stream.update(bytes(skipped))\n", "")),
    of("P27", AHEAD, "DO UPDATE SET data = excluded.data", "DO NOTHING", LEFT),
    of("P27", "server/eigenveil_server/storage/sealed.py", "(VALUES_OF_OLD, as_stored)",
       "(VALUES, as_stored)",
       f"{SEALED}::test_releases_of_earlier_versions_are_read_as_they_were_sealed"),
    of("R12", "server/eigenveil_server/console/study_pages.py", "        await asyncio.sleep(0)\n", "",
       "tests/server/console/test_pages.py::test_other_calls_come_between_the_pieces_of_a_download"),
    of("R8", UPLOADS, "        if self._reserved:\n            return\n", "",
       f"{QUEUE}::test_the_memory_of_an_answer_is_taken_once_in_a_thread"),
    of("R8", UPLOADS, "        if not self.received:\n            self._numbers = memory\n",
       "        self._numbers = memory\n", f"{QUEUE}::test_a_chunk_that_comes_before_the_memory_is_not_lost"),
    of("R8", "server/eigenveil_server/rpc/service.py",
       "        await upload.reserve(self._runtime.compute.run)\n", "",
       f"{CONTRIBUTED}::test_an_upload_resumes_with_the_chunks_that_are_there"),
    of("R8", "server/eigenveil_server/studies/contributions.py",
       "compute.check if size > INLINE_BYTES else compute.run", "compute.run",
       f"{CONTRIBUTED}::test_a_bad_contribution_is_refused_and_the_right_one_still_taken"),
    of("R8", "server/eigenveil_server/process.py", "ThreadPoolExecutor(CHECKS,",
       "ThreadPoolExecutor(CHECKS + 1,",
       "tests/server/test_compute.py::test_uploads_are_checked_in_turn_and_other_work_goes_on"),
    of("R32", "reporting/release_file.py", "return at == len(data)", "return True",
       "tests/core/reporting/test_release_file.py"),
    of("P27", "common/eigenveil_common/storage/ledger_store.py",
       '(not rows or rows.pop(0)["digest"] != self.ledger.head)', "not rows.pop(0)",
       f"{LEDGER_STORE}::test_a_ledger_put_back_under_a_running_process_stops_it"),
    of("P27", "server/eigenveil_server/studies/engine.py", "self._repository.fatal(InternalError",
       "str(InternalError", "tests/server/recovery/test_not_resumed.py"),
)  # fmt: skip
