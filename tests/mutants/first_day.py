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
FOUND = "tests/client/records/discovery/test_discovery.py"
LIVES = "tests/core/test_barrier.py::test_a_noised_number_of_persons_is_one_number_in_all_lives"
TWICE = f"{COUNTS}::test_a_second_call_draws_counts_and_charges_nothing"
CRASHED = f"{COUNTS}::test_after_a_crash_the_charge_and_the_number_are_both_there_or_neither"
WITHOUT_TERMINAL = f"{FILE}::test_without_a_terminal_the_uncertain_is_a_comment_and_nothing_is_charged"

OF_FIRST_DAY: tuple[Mutant, ...] = (
    *each(
        "P34",
        "barrier.py",
        LIVES,
        (
            "    stored = journal.sealed()\n    if stored is None:",
            "    stored = None\n    if stored is None:",
        ),
        ("stored = persons + int(noise.draw(spec)[0])", "stored = persons"),
        ("spec = noise_spec(Count(), micro_rho, ", "spec = noise_spec(Count(), 4 * micro_rho, "),
    ),
    of(
        "P34",
        COUNTS_PY,
        "Cost(micro_rho=micro_rho), also=also)",
        "Cost(micro_rho=0), also=also)",
        f"{COUNTS}::test_the_noise_is_the_gaussian_of_one_person_and_is_charged",
    ),
    of("P34", COUNTS_PY, "count() if stored is None else 0", "count()", TWICE),
    of("P34", COUNTS_PY, "micro_rho = stored[1]", "pass", TWICE),
    of("P34", COUNTS_PY, "elif STUDY not in self._ledger.ledger.reserved:", "else:", CRASHED),
    of(
        "P34",
        f"{SITE}/commands/first_day/first_day.py",
        "(not self.accept and not (self.asks and ",
        "(not self.accept and (self.asks and not ",
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
        f"{MAPPING}/site_file.py",
        "{mapping.reason}.",
        "{mapping.reason} {mapping.seen}.",
        f"{FILE}::test_no_value_of_the_records_is_in_the_file",
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
        "    _check_rest(text, changed)\n",
        "",
        "tests/client/site/mapping/test_toml_tables.py::test_a_change_of_other_settings_is_refused",
    ),
)
