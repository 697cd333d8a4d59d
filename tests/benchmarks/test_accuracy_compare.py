"""Statistics by which today's accuracy is held against the stored one, and the file that holds it.

A miss is an interval of 99 % wholly above 1.05. Of 40 cells that are 1.6 times as far off most are found,
and of 40 that are not worse none."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from benchmarks.accuracy.compare import GoalLine, choice_lines, loose_lines, ratio_lines, statement_lines
from benchmarks.accuracy.measure import IN_FLOATS
from benchmarks.accuracy.runs import AccuracyCell
from benchmarks.accuracy.statistics import Pairs, ratio_interval, statement_counts
from benchmarks.accuracy.stored import StoredRuns, read
from eigenveil.numerics.encoding import FloatArray

SEEDS = 40


def sines(seed: int, times: float = 1.0) -> FloatArray:
    """Return sines of as many runs, spread as those of real cells: by a third, with some failures."""
    generator = np.random.default_rng(seed)
    found = 0.1 * times * np.exp(generator.normal(0, 0.35, SEEDS))
    found[generator.random(SEEDS) < 0.05] = 0.9
    return np.asarray(found)


def cell(algorithm: str = "auto", table: str = "one") -> AccuracyCell:
    return AccuracyCell(table=table, components=1, epsilon=1.0, algorithm=algorithm)


def pairs(true: float, stated: float = 0.1) -> Pairs:
    return [(true, stated)] * SEEDS


def missed(lines: list[GoalLine]) -> list[bool]:
    return [line.missed for line in lines]


def test_a_version_that_is_worse_is_found_and_an_equal_one_is_not() -> None:
    equal = [ratio_interval(sines(2 * one), sines(2 * one + 1)).word for one in range(40)]
    worse = [ratio_interval(sines(2 * one), sines(2 * one + 1, 1.6)).word for one in range(40)]
    better = [ratio_interval(sines(2 * one), sines(2 * one + 1, 0.6)).word for one in range(40)]
    assert equal.count("MISSED") == 0  # by chance 1 in 200 would lie above 1, and fewer above 1.05
    assert worse.count("MISSED") > 30
    assert better.count("better") > 30


def test_the_same_runs_have_the_ratio_one_exactly() -> None:
    found = ratio_interval(sines(1), sines(1))
    assert (found.ratio, found.low, found.high, found.word) == (1, 1, 1, "")


def test_a_planted_worse_cell_is_the_only_one_missed() -> None:
    before = {cell(): pairs(0.1), cell("dp-pca"): pairs(0.1), cell(table="gone"): pairs(0.1)}
    after = {cell(): pairs(0.1), cell("dp-pca"): pairs(0.11), cell(table="new"): pairs(0.5)}
    *lines, total = ratio_lines(before, after)
    assert missed(lines) == [False, True]
    assert "2 cells" in total.text


def test_false_confidence_is_a_wrong_result_that_is_stated_as_right() -> None:
    found = statement_counts(
        [[(0.95, 0.3), (0.95, 0.6), (0.8, 0.3), (0.95, math.nan)], pairs(math.nan, math.nan)]
    )
    assert (found.runs, found.false, found.cells) == (3, 1, 1)


@pytest.mark.parametrize(("stated", "near"), [(0.06, 0), (0.07, 1), (0.15, 1), (0.16, 0)])
def test_the_median_statement_is_near_the_truth_or_not(stated: float, near: int) -> None:
    assert statement_counts([pairs(0.1, stated)]).near == near
    assert missed(list(statement_lines("group", {cell(): pairs(0.1, stated)}))) == [not near]


def test_false_confidence_in_three_runs_of_a_hundred_misses_the_goal() -> None:
    for false, bad in ((2, False), (3, True)):
        runs = [(1.0, 0.4)] * false + [(1.0, 1.0)] * (100 - false)
        assert missed(list(statement_lines("group", {cell(): runs}))) == [bad]


def test_auto_is_held_against_the_best_where_the_best_is_readable() -> None:
    good = {cell(table=f"{one}"): pairs(0.1) for one in range(9)}
    good |= {cell("gauss-cov", table=f"{one}"): pairs(0.2) for one in range(9)}
    for auto, bad in ((0.12, False), (0.14, True)):  # 1.2 and 1.4 times the best of the tenth
        cells = good | {cell(table="9"): pairs(auto), cell("gauss-cov", table="9"): pairs(0.1)}
        assert missed(list(choice_lines(cells)))[-1] is bad
    noise = {cell(table="9"): pairs(0.9), cell("gauss-cov", table="9"): pairs(0.6)}
    assert not missed(list(choice_lines(good | noise)))[-1]


def test_loose_bounds_miss_unless_the_statement_says_so() -> None:
    floats = {cell("refined-cov" + IN_FLOATS): pairs(0.1)}
    for stated, bad in ((0.1, True), (0.19, False)):
        assert missed(list(loose_lines({cell("refined-cov"): pairs(0.2, stated)} | floats))) == [bad]


def test_a_file_gives_back_the_runs_to_four_digits_and_continues_them(tmp_path: Path) -> None:
    runs = StoredRuns(header=["of a commit"])
    runs.add(cell(), 0, (0.123456, math.nan))
    runs.add(cell(), 0, (0.5, 0.5))  # again
    runs.write(tmp_path / "runs.csv.gz")
    found = read(tmp_path / "runs.csv.gz")
    found.add(cell(), 1, (1.0, 0.25))
    assert found.header == ["of a commit"]
    assert str(found.cells[cell()]) == "[(0.1235, nan), (1.0, 0.25)]"
    found.write(tmp_path / "again.csv.gz")
    assert read(tmp_path / "again.csv.gz").cells.keys() == found.cells.keys()
