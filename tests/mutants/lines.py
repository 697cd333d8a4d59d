"""Faults in how lines of records are counted, lost, and shown to the site alone."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, each, of

CLIENT = "client/eigenveil_client"
RECORDS = f"{CLIENT}/records"
COUNTS = "tests/client/records/test_line_counts.py"
GENERATED = f"{COUNTS}::test_lines_of_damaged_tables_are_used_or_lost_as_the_generator_knows"
OTHER_SOURCES = f"{COUNTS}::test_rows_of_other_sources_are_used_or_lost"
SITE = "tests/client/site/commands/test_lines.py"
DECLINES = f"{SITE}::test_too_many_lost_lines_decline_every_study_with_the_word_of_any_bad_file"
ONCE = f"{SITE}::test_a_version_is_decided_once"
WORDS = "tests/client/records/isolated/test_words.py"
LIES = f"{WORDS}::test_counts_of_lines_that_contradict_themselves_are_not_believed"
KEYS = "tests/client/records/sources/test_keys.py"

OF_LINES: tuple[Mutant, ...] = (
    *each(
        "P30",
        f"{RECORDS}/sources/delimited_lines.py",
        GENERATED,
        ("None if is_utf8(line) else LostReason.BYTES", "None"),
        ("MANY_CELLS if self._whole.match(line)", "MANY_CELLS if line"),
    ),
    of(
        "P30",
        f"{RECORDS}/sources/text_bytes.py",
        'part.encode(errors="surrogatepass")',
        'part.encode(errors="replace")',
        GENERATED,
    ),
    *each(
        "P30",
        f"{RECORDS}/line_counting.py",
        GENERATED,
        ("np.flatnonzero(used & np.logical_or", "np.flatnonzero(np.logical_or"),
        ("lines=rows + sum(one.lines for one in below)", "lines=rows"),
    ),
    *each(
        "P30",
        f"{RECORDS}/line_counting.py",
        OTHER_SOURCES,
        ("np.asarray(named & ~other)", "np.asarray(named)"),
        ("np.where(np.isnan(one), np.nan, one + 0.0)", "one * 0.0"),
    ),
    of(
        "P30",
        f"{RECORDS}/recoding/gather.py",
        "reading.tally.unnamed += int(unnamed.sum())",
        "pass",
        GENERATED,
    ),
    of(
        "P30",
        f"{RECORDS}/tables/source.py",
        "    if not is_row_of_units(cells):",
        "    if False:",
        f"{KEYS}::test_a_record_is_never_taken_for_units",
    ),
    of(
        "P30",
        f"{RECORDS}/sources/delimited.py",
        "if self.units and filled == 2:",
        "if self.units and filled > 1:",
        f"{KEYS}::test_units_below_the_header_are_no_record",
    ),
    of("P30", f"{RECORDS}/tables/cells.py", "self.tally.lost_below += lines", "pass", GENERATED),
    *each(
        "P30",
        f"{RECORDS}/summary.py",
        f"{KEYS}::test_the_keys_change_the_version_of_the_records",
        (", config.reading_digest):", "):"),
    ),
    of(
        "P30",
        f"{RECORDS}/recoding/gather.py",
        "named(words, reading.missing), bad",
        "named(words), bad",
        f"{KEYS}::test_a_word_of_the_whole_file_names_no_person",
    ),
    *each(
        "P30",
        f"{CLIENT}/site/daemon/answers.py",
        DECLINES,
        ("            self._store.line_decisions.require(self._policy.lines, records)\n", ""),
    ),
    of(
        "P30",
        f"{CLIENT}/site/commands/consent.py",
        "    store.line_decisions.require(config.policy.lines, found)\n",
        "",
        f"{SITE}::test_a_study_of_records_with_lost_lines_cannot_be_approved",
    ),
    *each(
        "P30",
        f"{CLIENT}/site/commands/record_checks.py",
        "tests/client/site/commands/console/test_decision.py::"
        "test_records_that_cannot_answer_are_stated_before_anybody_agrees",
        ("few = not policy.lines.exceeded(lines=found.lines, lost=found.lost)", "few = True"),
        ("partial(policy.quality.require, found.quality)", "partial(policy.quality.require, ())"),
    ),
    of(
        "P30",
        f"{CLIENT}/site/state/line_decisions.py",
        '            return bool(change.execute(stored, (version,))[0]["declined"])',
        "            return declined",
        ONCE,
    ),
    of(
        "P30",
        f"{CLIENT}/site/policy_sections.py",
        "max(self.max_lost_lines, self.max_lost_share * lines)",
        "self.max_lost_lines",
        ONCE,
    ),
    of(
        "P30",
        f"{CLIENT}/site/state/line_decisions.py",
        'limits = f"{rules.max_lost_lines}/{rules.max_lost_share!r}"',
        'limits = ""',
        ONCE,
    ),
    *each(
        "TM39",
        f"{RECORDS}/isolated/checked.py",
        LIES,
        ("    if lines != used + sum(one.lines for one in lost):\n        raise ReaderFailure\n", ""),
        (" or any(len(one) > LONGEST_CELL for one in shown)", ""),
    ),
    of(
        "TM39",
        f"{RECORDS}/line_counting.py",
        'one if one.isprintable() else "\\N{REPLACEMENT CHARACTER}"',
        "one",
        f"{SITE}::test_unreadable_cells_are_shown_at_the_site_alone",
    ),
)
