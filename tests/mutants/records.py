"""Faults in how rows of files and databases become records."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, each, of

RECORDS = "client/eigenveil_client/records"
PERSON_DECLINES = "tests/client/records/recoding/test_blocks.py"
BITES = "tests/client/records/isolated/test_reader.py"
WORDS = "tests/client/records/isolated/test_words.py"
SQLITE = "tests/client/records/sources/test_postgres.py"
CONFINED = "common/eigenveil_common/process_limits.py"
PROCESS = f"{RECORDS}/isolated/process.py"
GATHER = f"{RECORDS}/recoding/gather.py"
DASK = "client/eigenveil_client/site/engine/dask.py"
LOSSES = "tests/client/site/engine/test_dask_losses.py"
DATABASES = f"{RECORDS}/sources/databases.py"

OF_RECORDS: tuple[Mutant, ...] = (
    of("P30", f"{RECORDS}/tables/cells.py", "concat_arrays([readable(words[:half]), readable(words[half:])])",
       "nulls(len(words), pa.float64())", "tests/client/records/test_records.py"
       "::test_every_other_cell_is_read_as_if_the_bad_ones_were_not_there"),
    of("P30", f"{RECORDS}/recoding/persons.py", "NO_PERSON]", "0]",
       f"{PERSON_DECLINES}::test_records_follow_each_persons_rows"),
    *each("P30", GATHER, f"{PERSON_DECLINES}::test_records_follow_each_persons_rows",
          (" | ((moment == stored) & (value < self._values[person_numbers]))", ""), ("named & ~np.", "~np.")),
    *each("P30", GATHER, f"{PERSON_DECLINES}::test_a_mean_is_the_exact_one_rounded_once",
          ("(low >> WIDE) + (high & MASK)", "high & MASK"), ("self._first - first :", ":")),
    of("P30", f"{RECORDS}/recoding/parsing.py", "np.where(position < 0, np.nan, position == level)",
       "position == level", "tests/client/records/recoding/test_measure.py"
       "::test_an_undeclared_level_is_missing_in_every_indicator"),
    of("P30", "client/eigenveil_client/site/daemon/answers.py",
       "            self._policy.quality.require(records.quality)\n", "",
       "tests/client/site/test_quality.py::test_broken_column_is_named_to_the_site_alone"),
    of("P30", f"{RECORDS}/grid_encoding.py", "plausible_bounds(column, self._plausible)",
       "(column.lower, column.upper)",
       "tests/client/site/test_quality.py::test_study_bounds_do_not_change_quality_rules"),
    of("TM39", f"{RECORDS}/isolated/fork_server.py",
       '    "MALLOC_MMAP_THRESHOLD_": str(2**21),\n    "MALLOC_TRIM_THRESHOLD_": str(2**25),\n', "",
       f"{BITES}::test_a_file_of_many_columns_is_read_in_little_memory"),
    of("TM39", f"{RECORDS}/sources/delimited.py", "        except MemoryError:\n            raise\n", "",
       f"{BITES}::test_a_lack_of_memory_is_no_unreadable_file"),
    of("TM39", f"{RECORDS}/tables/cells.py", "    except MemoryError:\n        raise\n", "",
       f"{BITES}::test_a_lack_of_memory_is_no_unreadable_file"),
    *each("TM39", f"{RECORDS}/isolated/frames.py",
          f"{WORDS}::test_what_is_no_frame_is_refused_before_anything_is_allocated",
          ("if block.size", "if not block.size"), (" or size > MAX_JSON_BYTES", "")),
    of("TM39", f"{RECORDS}/isolated/reader.py",
       "        if self._records > persons:\n            raise ReaderFailure\n", "",
       f"{WORDS}::test_a_reader_that_lies_is_not_believed"),
    of("TM39", f"{RECORDS}/isolated/checked.py", "(count(one, every) for one in some)", "some",
       f"{WORDS}::test_a_reader_that_lies_is_not_believed"),
    of("TM39", PROCESS, "Code.BAD_CONFIG", "not Code.BAD_DATA",
       f"{WORDS}::test_no_reader_chooses_the_word_that_leaves_nor_ends_a_daemon"),
    of("TM39", f"{RECORDS}/isolated/program.py",
       "        limit_resources(memory=request.memory, seconds=request.seconds)\n", "",
       f"{BITES}::test_a_reader_over_its_memory_limit_is_reported"),
    of("TM39", f"{RECORDS}/isolated/program.py", "        _change_folder(request.begins)\n", "",
       f"{BITES}::test_a_relative_path_follows_the_working_folder"),
    of("TM39", f"{RECORDS}/isolated/fork_server.py", "min(pause, remaining)", "pause",
       f"{WORDS}::test_waiting_for_a_reader_ends_at_its_limit"),
    of("TM39", f"{RECORDS}/isolated/fork_server.py", "                    self._send(_bytes(-pid), [])\n", "",
       f"{BITES}::test_a_stuck_reader_delays_no_other"),
    of("TM39", PROCESS, "and how != RUNNING else", "else", f"{BITES}::test_a_stuck_reader_delays_no_other"),
    of("TM39", f"{RECORDS}/sources/view.py", "BED, *ZARR", "BED, *ZARR, '.dta'",
       f"{BITES}::test_a_good_file_of_every_ending_is_there_to_be_damaged"),
    of("TM39", f"{RECORDS}/sources/columnar.py", "_without_text(column).validate(full=True)", "pass",
       f"{BITES}::test_offsets_beyond_a_columns_bytes_are_refused_and_not_read"),
    of("TM39", f"{RECORDS}/sources/text_bytes.py", "longest > MOST_LINE", "False",
       f"{BITES}::test_a_small_file_that_unpacks_without_end_is_a_refusal"),
    of("TM39", f"{RECORDS}/genotype_files.py", "        _check_sizes(path, arrays)\n", "",
       f"{BITES}::test_a_group_of_genotypes_that_states_any_size_is_refused_before_it_is_allocated"),
    *each("TM39", CONFINED, f"{BITES}::test_a_reader_may_not_reach_out",
          ("    _refuse_calls(libc, network=network)\n", ""), ("    _restrict_writes(libc, folders)\n", "")),
    *each("TM39", CONFINED, "tests/common/test_confined.py::test_no_other_process_is_made_or_touched",
          ("instructions += _own_process_filter(every[name])", "pass"), ("0, 1, THREAD", "0, 0, THREAD")),
    of("TM39", DATABASES, '(*DISTRUST, f"PRAGMA temp_store_directory = \'{folder}\'")', "DISTRUST[:3]",
       f"{BITES}::test_sqlite_sorts_more_rows_than_its_memory_holds"),
    of("TM39", DATABASES, "not found.startswith(NO_COLLATION)", "found",
       f"{SQLITE}::test_what_only_another_program_can_sort_or_compute_is_no_damage"),
    of("TM39", DATABASES, "found is None", "True", f"{SQLITE}::test_damage_is_found_and_refused"),
    of("TM39", "client/eigenveil_client/site/daemon/decisions.py", ', "type": problem.kind', "",
       f"{WORDS}::test_an_unexpected_error_is_logged_by_class_alone"),
    of("TM39", PROCESS, "not CLASS_NAME.fullmatch(kind)", "False",
       f"{WORDS}::test_a_reader_that_lies_is_not_believed"),
    of("TM39", PROCESS, "resolve()", "absolute()",
       f"{BITES}::test_a_linked_database_in_wal_mode_is_read_where_it_is"),
    of("TM39", f"{RECORDS}/isolated/reader.py", "self._records > self._most", "False",
       f"{WORDS}::test_records_beyond_the_limit_are_refused"),
    of("TM39", "client/eigenveil_client/site/config.py", "config.policy.maximum_records, ", "None, ",
       "tests/client/site/engine/test_local.py::test_records_beyond_the_sites_maximum_are_refused"),
    of("TM39", "client/eigenveil_client/connection/cluster.py", '.scheme == "tls",',
       '.scheme in ("tls", "tcp"),', "tests/client/site/engine/test_dask.py"
       "::test_plain_tcp_is_refused_with_the_page_that_makes_certificates"),
    of("TM39", DASK, "        connected.check_versions()\n", "",
       f"{LOSSES}::test_versions_of_workers_are_checked_before_each_study"),
)  # fmt: skip
