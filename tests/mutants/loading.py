"""Faults in when records are loaded, who learns of it, and which kept grids may be used."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, each, of

SITE, AT_SITE = "client/eigenveil_client/site", "tests/client/site"
RECORDS = "client/eigenveil_client/records"
CONSENT_PY = "server/eigenveil_server/studies/consent.py"
AWAITED = "tests/server/studies/test_loading.py"
AHEAD, KEPT = f"{AT_SITE}/daemon/test_loading.py", f"{AT_SITE}/engine/test_kept_grids.py"
CHUNKS = "tests/client/records/sources/test_delimited_chunks.py"
SHOWN = f"{AWAITED}::test_the_first_query_waits_for_records_and_nobody_learns_when_a_site_had_loaded_them"
STATED = f"{AHEAD}::test_a_daemon_states_that_it_loads_and_at_once_that_it_has_loaded"
WITHDRAWN = f"{KEPT}::test_a_withdrawal_deletes_what_its_study_used_and_no_later_study_uses_it"

OF_LOADING: tuple[Mutant, ...] = (
    of("R24", CONSENT_PY, "self._loading.note(site, study in poll.loading)",
       "self._loading.note(site, False)", SHOWN),
    of("R24", CONSENT_PY, "self._ends = now + self._limit", "self._ends = now + 10**9",
       f"{AWAITED}::test_records_are_awaited_no_longer_than_the_study_states"),
    of("R24", CONSENT_PY, "if agreed - self._sites.keys() else []", "if False else []",
       f"{AWAITED}::test_a_restarted_coordinator_hears_the_sites_before_it_takes_them_for_loaded"),
    of("R24", CONSENT_PY, "self._sites.items() if site in agreed]", "self._sites.items()]",
       f"{AWAITED}::test_a_site_that_declines_while_it_loads_is_not_awaited"),
    of("R24", "server/eigenveil_server/studies/runtime.py", "not self.loading <= self.agreed.keys()", "False",
       f"{AWAITED}::test_only_a_site_that_agrees_may_load"),
    of("TM41", CONSENT_PY, "site in self._loading.awaited", "self._loading._sites.get(site)", SHOWN),
    of("TM41", f"{SITE}/engine/engine.py", "engine.keep_hours == 0 or not", "not",
       f"{KEPT}::test_nothing_is_kept_without_a_setting_unencrypted_or_of_a_select"),
    of("R24", f"{SITE}/daemon/connection.py",
       "            loading=[bytes.fromhex(plan) for plan in sorted(loading)],\n", "", STATED),
    of("R24", f"{SITE}/daemon/connection.py", "partial(_notify, loop, self._load_ended)",
       "lambda: None", STATED),
    # ---- consent comes before a record is read
    of("TM23", f"{SITE}/daemon/worker.py",
       "plan in agreed and self._decisions.refusal_code(plan) is None", "plan in agreed",
       f"{AHEAD}::test_no_record_is_read_before_a_person_agrees_nor_after_a_withdrawal"),
    of("TM23", f"{SITE}/daemon/answers.py", "        self.ahead.retain(plans)\n", "",
       f"{AHEAD}::test_no_record_is_read_before_a_person_agrees_nor_after_a_withdrawal"),
    of("TM25", f"{SITE}/daemon/loading.py", "self.records.add_done_callback(_close)", "pass",
       f"{AHEAD}::test_records_of_a_study_that_went_are_released_also_after_their_load"),
    of("TM19", f"{SITE}/daemon/loading.py", "if not load.is_fresh:", "if False:",
       f"{AHEAD}::test_a_failed_load_and_old_records_are_loaded_again"),
    # ---- which kept grid may be used
    *each("TM23", f"{SITE}/daemon/answers.py", WITHDRAWN, ("        self.tidy()\n", "")),
    *each("TM23", f"{SITE}/engine/engine.py", WITHDRAWN,
          ("self._kept.forget(withdrawn(plans))", "withdrawn(plans)")),
    *each("TM23", f"{SITE}/state/received_plans.py", WITHDRAWN, ("IN (status, person)", "IN (status)")),
    of("TM23", f"{SITE}/daemon/service.py", "            tidy_periodically(self._worker),\n", "",
       f"{KEPT}::test_a_daemon_deletes_what_a_withdrawn_study_used_also_without_its_coordinator"),
    of("TM19", f"{SITE}/engine/kept_grids.py", "kept.summary.file != present", "False",
       f"{KEPT}::test_a_changed_file_of_the_same_size_and_time_is_read_again"),
    of("TM19", f"{SITE}/engine/kept_grids.py", "read != self.stamp()", "False",
       f"{KEPT}::test_a_file_that_changes_while_it_is_read_is_not_kept"),
    of("P1", f"{SITE}/engine/kept_grids.py", "        grid_steps=study.grid_steps, ",
       "        ", f"{KEPT}::test_a_grid_has_all_of_a_study_that_changes_its_rows_and_no_more"),
    of("P1", f"{RECORDS}/scratch_files.py", "        copy.size = self.size", "        copy.size += 0",
       f"{KEPT}::test_a_damaged_grid_is_read_again_from_the_source"),
    of("TM25", f"{SITE}/engine/kept_grids.py", "one.began <= oldest", "False",
       f"{KEPT}::test_grids_end_by_age_and_the_oldest_by_size"),
    of("TM25", f"{SITE}/config.py", "self.encrypt or not self.keep_hours", "True",
       f"{KEPT}::test_nothing_is_kept_without_a_setting_unencrypted_or_of_a_select"),
    of("TM23", f"{SITE}/engine/kept_grids.py", "            require()\n", "",
       f"{KEPT}::test_rows_of_a_study_that_is_withdrawn_before_they_are_kept_are_not"),
    of("TM23", f"{SITE}/engine/engine.py", "        require()\n        sink(rows)", "        sink(rows)",
       f"{AHEAD}::test_a_load_ends_once_its_study_is_withdrawn"),
    *each("R24", f"{SITE}/daemon/answers.py", f"{AHEAD}::test_the_end_of_a_daemon_refuses_nothing",
          ("        except Exception:\n            self.ahead.require_open()\n            raise",
           "        finally:\n            pass")),
    of("R24", f"{SITE}/daemon/service.py", "        worker.ahead.close()  # the end",
       "        pass  # the end",
       f"{AHEAD}::test_a_signal_ends_the_load_for_which_a_thread_waits"),
    # ---- chunks of text
    of("P30", f"{RECORDS}/sources/delimited_chunks.py", "b'\"' in chunk or not is_utf8(chunk)",
       "b'\"' in chunk", f"{CHUNKS}::test_lost_lines_are_counted_and_open_quotes_refused"),
    of("P30", f"{RECORDS}/sources/delimited_chunks.py", "            chunk = BOM_UTF8 + chunk\n",
       "            pass\n", f"{CHUNKS}::test_a_byte_order_mark_in_a_line_stays_wherever_its_chunk_begins"),
    of("P30", f"{RECORDS}/sources/delimited_chunks.py", "            refused += 1\n", "",
       f"{CHUNKS}::test_lost_lines_are_counted_and_open_quotes_refused"),
)  # fmt: skip
