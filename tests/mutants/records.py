"""Faults in how rows of files and databases become records."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, of

RECORDS = "client/eigenveil_client/records"
PERSONS = "tests/client/records/recoding/test_blocks.py"

OF_RECORDS: tuple[Mutant, ...] = (
    of("P30", f"{RECORDS}/tables/cells.py",
       "pa.concat_arrays([readable(words[:half]), readable(words[half:])])",
       "pa.nulls(len(words), pa.float64())", "tests/client/records/test_records.py"
       "::test_every_other_cell_is_read_as_if_the_bad_ones_were_not_there"),
    of("P30", f"{RECORDS}/recoding/persons.py", "np.array([*found, NOBODY]", "np.array([*found, 0]",
       f"{PERSONS}::test_records_are_what_each_persons_rows_say"),
    of("P30", f"{RECORDS}/recoding/gather.py", " | ((moment == held) & (value < self._values[who]))", "",
       f"{PERSONS}::test_records_are_what_each_persons_rows_say"),
    of("P30", f"{RECORDS}/recoding/gather.py", "usable = named & ~np.isnan(values)",
       "usable = ~np.isnan(values)", f"{PERSONS}::test_records_are_what_each_persons_rows_say"),
    of("P30", f"{RECORDS}/recoding/exact_sums.py", "(low >> WIDE) + (high & MASK)", "high & MASK",
       "tests/client/records/recoding/test_exact_sums.py::test_a_mean_is_the_exact_one_rounded_once"),
    of("P30", f"{RECORDS}/recoding/exact_sums.py", "grown[self._first - first :]", "grown[:]",
       "tests/client/records/recoding/test_exact_sums.py::test_a_mean_is_the_exact_one_rounded_once"),
    of("P30", f"{RECORDS}/recoding/measure.py", "np.where(place < 0, np.nan, place == level)",
       "place == level", "tests/client/records/recoding/test_measure.py"
       "::test_an_undeclared_level_is_missing_in_every_indicator"),
    of("P30", "client/eigenveil_client/site/daemon/answers.py",
       "            self._policy.quality.require(held.quality)\n", "",
       "tests/client/site/test_quality.py::test_a_broken_column_is_named_to_the_site_alone_and_costs_nothing"),
    of("P30", f"{RECORDS}/placing.py", "                    plausible_bounds(column, self._plausible),\n",
       "                    (column.lower, column.upper),\n",
       "tests/client/site/test_quality.py"
       "::test_no_bounds_of_a_study_change_what_the_rules_are_compared_with"),
)  # fmt: skip
