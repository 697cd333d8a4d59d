"""Faults in a site's first day: its noised number of persons, its promises, and its proposed columns."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, each, of

SITE = "client/eigenveil_client/site"
MAPPING = f"{SITE}/mapping"
DISCOVERY = "client/eigenveil_client/records/discovery"
COUNTS = "tests/client/site/state/test_person_counts.py"
COUNTS_PY = f"{SITE}/state/person_counts.py"
PROMISES = "tests/client/site/mapping/test_promises.py"
MATCHING = "tests/client/site/mapping/test_matching.py"
FILE = "tests/client/site/mapping/test_first_file.py"
FINDINGS = "tests/client/site/mapping/test_findings.py"
FOUND = "tests/client/records/discovery/test_discovery.py"
LIVES = "tests/core/test_barrier.py::test_a_noised_number_of_persons_is_one_number_in_all_lives"
TWICE = f"{COUNTS}::test_a_second_call_draws_counts_and_charges_nothing"
CRASHED = f"{COUNTS}::test_after_a_crash_the_charge_and_the_number_are_both_there_or_neither"
WITHOUT_TERMINAL = f"{FILE}::test_without_a_terminal_the_uncertain_is_a_comment_and_nothing_is_charged"

HOSTILE_RANGES = f"{MATCHING}::test_ranges_of_a_federation_do_not_tell_where_values_lie"
HOSTILE_LEVELS = f"{MATCHING}::test_levels_of_a_federation_do_not_tell_which_words_are_there"
HOSTILE_CODES = f"{MATCHING}::test_a_code_that_is_not_the_names_is_a_question"
BY_CODE = f"{MATCHING}::test_columns_that_omop_selects_by_code_name_the_code"
OWN_COLUMNS = f"{FILE}::test_own_columns_are_allowed_only_without_a_federations_dictionary"
SEEN_FIRST = f"{FILE}::test_columns_are_stated_once_a_person_has_seen_them"
ENROLLED = "tests/integration/test_first_day.py"
FIRST_DAY = f"{SITE}/commands/first_day/first_day.py"

OF_FIRST_DAY: tuple[Mutant, ...] = (
    *each(
        "P34",
        "barrier.py",
        LIVES,
        (
            "    stored = journal.sealed()\n    if stored is None:",
            "    stored = None\n    if stored is None:",
        ),
        ("journal.seal(persons + int(noise.draw(spec)[0]))", "journal.seal(persons)"),
        ("spec = noise_spec(Count(), micro_rho, ", "spec = noise_spec(Count(), 4 * micro_rho, "),
    ),
    of(
        "P34",
        COUNTS_PY,
        "Cost(micro_rho=micro_rho), also=also)",
        "Cost(micro_rho=0), also=also)",
        f"{COUNTS}::test_the_noise_is_the_gaussian_of_one_person_and_is_charged",
    ),
    of("P34", COUNTS_PY, "stored, persons = self.stored(), 0", "stored, persons = None, 0", TWICE),
    of("P34", COUNTS_PY, "micro_rho = stored[1]", "pass", TWICE),
    of(
        "P34",
        COUNTS_PY,
        "self._ledger.charge(STUDY, ROUND, STUDY, Cost(micro_rho=micro_rho), also=also)",
        "self._ledger.charge(STUDY, ROUND, STUDY, Cost(micro_rho=micro_rho))\n"
        "        self._ledger.settle(STUDY, also=also)",
        CRASHED,
    ),
    of(
        "P34",
        FIRST_DAY,
        "not self.accept and not (self.asks and ",
        "not self.accept and (self.asks and not ",
        WITHOUT_TERMINAL,
    ),
    of(
        "P34",
        f"{MAPPING}/promises.py",
        "EPSILON = 0.1",
        "EPSILON = 0.2",
        f"{PROMISES}::test_the_number_costs_at_most_the_epsilon_that_is_stated",
    ),
    of(
        "P34",
        f"{MAPPING}/promises.py",
        "noised + FAR * sigma) * 2",
        "noised) * 2",
        f"{PROMISES}::test_promises_hold_for_the_true_number_and_for_twice_of_it",
    ),
    of(
        "P34",
        f"{MAPPING}/rules.py",
        "{mapping.reason}.",
        "{mapping.reason} {mapping.seen}.",
        f"{FILE}::test_no_value_of_the_records_is_in_the_file",
    ),
    of(
        "P30",
        "client/eigenveil_client/records/discovery/words.py",
        "return _folded(word) in _AWAITED",
        "return True",
        f"{FINDINGS}::test_words_are_known_in_any_case_and_spelling_of_umlauts",
    ),
    of(
        "P30",
        "client/eigenveil_client/records/discovery/columns.py",
        "if _cells(counted, word) >= LEAST_TIMES",
        "if True",
        f"{FINDINGS}::test_a_word_that_may_be_a_value_or_of_one_person_is_not_taken",
    ),
    of(
        "P30",
        f"{MAPPING}/first_look.py",
        "for one in self.proposals if one.certain)",
        "for one in self.proposals)",
        WITHOUT_TERMINAL,
    ),
    *each(
        "P30",
        f"{MAPPING}/matching.py",
        f"{MATCHING}::test_a_doubt_is_a_question",
        (
            'if not named.exact:\n        return f"Is {header} the',
            'if False:\n        return f"Is {header} the',
        ),
        ("low - slack <= min(ends) and max(ends) <= high + slack", "True"),
    ),
    of("P30", f"{MAPPING}/matching.py", "names = same if len(", "names = certain if len(", HOSTILE_RANGES),
    of(
        "P30",
        f"{MAPPING}/targets.py",
        "if way is None else _converted((one.plausible_lower, one.plausible_upper), way)",
        "if way is None else (self.column.lower, self.column.upper)",
        HOSTILE_RANGES,
    ),
    of("P30", f"{MAPPING}/targets.py", "set(one.levels) == set(self.column.levels)", "True", HOSTILE_LEVELS),
    of(
        "P30",
        f"{MAPPING}/targets.py",
        "if self.by_code is None or self.by_name",
        "if self.by_name",
        HOSTILE_CODES,
    ),
    *each(
        "P30",
        f"{MAPPING}/matching.py",
        HOSTILE_CODES,
        ("    if target.doubt:", "    if False:"),
        ("if named.by_code and target.unknown_code:", "if False:"),
    ),
    of("P30", f"{MAPPING}/matching.py", "exact if selected is None else list(known)", "exact", BY_CODE),
    of(
        "P30",
        f"{MAPPING}/targets.py",
        "            return (self.unknown_code,)\n",
        "            pass\n",
        BY_CODE,
    ),
    *each(
        "P30",
        f"{MAPPING}/site_file.py",
        OWN_COLUMNS,
        ("        if not self.others:\n            return\n", ""),
        ("| {ANY}", ""),
        ("return many if many > MOST_OTHERS else 0", "return 0"),
    ),
    *each(
        "R23",
        FIRST_DAY,
        SEEN_FIRST,
        ("not mapped or not questions.may_state(mapped)", "not mapped"),
    ),
    of(
        "R23",
        FIRST_DAY,
        "if not self.asks or config.offers or not mapped or not questions.may_state(mapped):",
        "if False:",
        f"{FILE}::test_a_statement_is_equal_for_neighbouring_files_and_other_headers",
    ),
    of("R23", f"{MAPPING}/changes.py", "if name in known and (ANY", "if (ANY", SEEN_FIRST),
    of("R23", f"{MAPPING}/changes.py", "if dropped & set(config.offers):", "if False:", SEEN_FIRST),
    of(
        "P30",
        FIRST_DAY,
        "proposals=proposals), False",
        "proposals=proposals), True",
        f"{ENROLLED}::test_a_published_dictionary_allows_and_states_no_other_column",
    ),
    *each(
        "P30",
        "study/study.py",
        "tests/core/study/test_study.py::test_a_bad_value_is_refused_by_name",
        ('not in ("", "*")', "!= ''"),
    ),
    of(
        "P30",
        f"{MAPPING}/matching.py",
        "if certain[one.column] > one.certain:",
        "if False:",
        f"{MATCHING}::test_columns_that_compete_are_questions_each",
    ),
    of(
        "P30",
        f"{DISCOVERY}/columns.py",
        "found[place] = far or (often and ",
        "found[place] = far or (",
        f"{FOUND}::test_codes_for_missing_need_evidence",
    ),
    of(
        "P30",
        f"{MAPPING}/toml_tables.py",
        '    check_meaning(changed, wanted | {"column": columns})\n',
        "",
        "tests/client/site/mapping/test_toml_tables.py::test_a_change_of_other_settings_is_refused",
    ),
    *each(
        "P30",
        f"{DISCOVERY}/persons.py",
        f"{FOUND}::test_a_person_column_is_certain_by_the_name_of_a_patients_number_alone",
        ("& OF_PERSONS and _identifies", "& (OF_PERSONS | UNCLEAR) and _identifies"),
        ("if len(found) == 1 else None", "if found else None"),
    ),
    of(
        "P30",
        f"{SITE}/commands/first_day/first_day.py",
        "if not stated and look.is_person_open:",
        "if False:",
        f"{FILE}::test_an_unclear_unit_of_privacy_is_an_error_before_anything",
    ),
    of(
        "P30",
        FIRST_DAY,
        "        if first:\n",
        "        if True:\n",
        f"{FILE}::test_init_goes_on_where_it_was_interrupted",
    ),
    of(
        "P30",
        f"{SITE}/commands/first_day/begun.py",
        "if not _are_same(loaded.records, records):",
        "if False:",
        f"{FILE}::test_init_does_not_go_on_for_another_site",
    ),
    of(
        "P30",
        f"{SITE}/commands/first_day/sizes_command.py",
        "if not loaded.person_header and person is None and",
        "if False and",
        f"{FILE}::test_sizes_count_no_rows_that_nobody_called_persons",
    ),
    of(
        "P30",
        f"{SITE}/commands/checks.py",
        "    if not likely:\n",
        "    if True:\n",
        f"{FILE}::test_a_person_says_whose_a_row_is",
    ),
    *each(
        "P34",
        COUNTS_PY,
        f"{COUNTS}::test_of_two_processes_both_have_the_number_of_the_first",
        ('if change.execute("SELECT 1 FROM person_counts WHERE study = ?", (STUDY,)):', "if False:"),
        ("if problem.code is not Code.CONFLICT:", "if True:"),
    ),
    of(
        "P34",
        COUNTS_PY,
        "            persons = count()\n            self._reserve(micro_rho, also)\n",
        "            self._reserve(micro_rho, also)\n            persons = count()\n",
        f"{COUNTS}::test_a_count_that_fails_leaves_nothing_reserved",
    ),
    of(
        "P34",
        COUNTS_PY,
        "micro_rho, persons = left.micro_rho, count()",
        "persons = count()",
        f"{COUNTS}::test_what_a_crash_left_reserved_is_the_cost",
    ),
    of(
        "P34",
        f"{SITE}/state/store.py",
        "self._check_year(cost, yearly, gaussian=True)",
        "None",
        f"{COUNTS}::test_the_limit_of_a_year_holds",
    ),
    *each(
        "P30",
        f"{MAPPING}/toml_tables.py",
        "tests/client/site/mapping/test_toml_tables.py::test_a_header_writes_no_setting_and_ends_no_text",
        ('"?" if unicodedata.category(one)[0] == "C" or one in LINE_ENDS else one', "one"),
        ('if found[0] == "#":', "if False:"),
    ),
    of(
        "P30",
        f"{SITE}/commands/first_day/map_command.py",
        'one_line(f"not mapped',
        'str(f"not mapped',
        f"{FILE}::test_lost_lines_and_odd_headers_are_shown",
    ),
)
