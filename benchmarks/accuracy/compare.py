"""Today's runs beside the stored ones cell by cell, and the goal of each corner."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.accuracy.groups import CORNERS, TableRuns, table_runs
from benchmarks.accuracy.measure import IN_FLOATS
from benchmarks.accuracy.runs import AccuracyCell
from benchmarks.accuracy.statistics import (
    CONFIDENT,
    NEAR,
    UNUSABLE,
    WORSE,
    Pairs,
    RatioInterval,
    median_sine,
    ratio_interval,
    regret,
    statement_counts,
)
from benchmarks.accuracy.stored import StoredRuns, read
from eigenveil.study.algorithm import Algorithm

STORED = Path(__file__).with_name("7fca1e19.csv.gz")
READABLE = 0.5  # where the best algorithm's sine is above, there is nothing to choose
WELL, OFTEN, NEVER = 1.15, 0.9, 1.3  # `auto` by the best algorithm: within WELL so often, never beyond NEVER
MOST_FALSE, LEAST_NEAR = 0.02, 0.95  # of a group: false confidence, and cells with a median near the truth
LOOSE = 1.1  # of the same in floats
AUTO = Algorithm.AUTO.value

Cells = Mapping[AccuracyCell, Pairs]


@dataclass(frozen=True, slots=True, kw_only=True)
class GoalLine:
    """Line of output, and whether it is a goal that is missed."""

    text: str
    missed: bool = False


def report(chosen: Sequence[int], corners: Iterable[str], today: StoredRuns) -> int:
    """Print today's runs of these tables beside the stored ones; return 1 if something is missed."""
    tables = [table_runs()[number] for number in chosen]
    stored, missed = read(STORED), 0
    same = {cell: pairs[: len(today.cells.get(cell, ()))] for cell, pairs in stored.cells.items()}
    before = StoredRuns(cells={cell: pairs for cell, pairs in same.items() if pairs})
    print(f"before: {'; '.join(stored.header)}\ntoday:  {'; '.join(today.header)}")
    for line in ratio_lines(stored.cells, cells_of(today, tables)):
        print(line.text)
        missed += line.missed
    for name in corners:
        for version, runs in (("before", before), ("today", today)):
            print(f"\n{name}, {version}")
            for line in corner_lines(name, runs, tables):
                print(f"  {line.text}")
                missed += line.missed and version == "today"
    print(f"\n{missed} missed")
    return int(missed > 0)


def cells_of(runs: StoredRuns, tables: Iterable[TableRuns]) -> Cells:
    """Return the cells of these tables, each at its own settings."""
    wanted = {(one.family.name, *setting) for one in tables for setting in one.settings}
    return {
        cell: pairs
        for cell, pairs in runs.cells.items()
        if (cell.table, cell.components, cell.epsilon) in wanted
    }


def ratio_lines(stored: Cells, today: Cells) -> Iterator[GoalLine]:
    """Yield a line for each cell that both have: medians, their ratio and its interval; then the counts."""
    words: dict[str, int] = defaultdict(int)
    for cell, pairs in today.items():
        found = compared(stored.get(cell, ()), pairs)
        if found is None:
            continue
        before, after = median_sine(stored[cell][: found.seeds]), median_sine(pairs[: found.seeds])
        words[found.word] += 1
        yield GoalLine(
            text=f"{cell} {before:8.4g} {after:8.4g}  {found.ratio:5.2f} "
            f"[{found.low:.2f}, {found.high:.2f}] {found.seeds:3} seeds {found.word}",
            missed=found.word == "MISSED",
        )
    total = sum(words.values())
    yield GoalLine(
        text=f"{total} cells: {words['better']} better, {words['MISSED']} with an interval above {WORSE}"
    )


def compared(before: Pairs, after: Pairs) -> RatioInterval | None:
    """Return the ratio over the seeds that both have; None if there are none, or the study was refused."""
    both = min(len(before), len(after))
    sines = np.array([[old[0], new[0]] for old, new in zip(before[:both], after[:both], strict=True)])
    return None if both == 0 or np.isnan(sines).any() else ratio_interval(sines[:, 0], sines[:, 1])


def choice_lines(cells: Cells) -> Iterator[GoalLine]:
    """Yield a line for each setting: `auto` beside the best algorithm; then how often it is near."""
    settings: dict[tuple[str, int, float], dict[str, float]] = defaultdict(dict)
    for cell, pairs in cells.items():
        settings[cell.table, cell.components, cell.epsilon][cell.algorithm] = median_sine(pairs)
    seen = []
    for (table, k, epsilon), sines in settings.items():
        if AUTO not in sines:
            continue
        best, value = min(sines, key=lambda name: sines[name]), regret(sines, AUTO)
        readable = sines[best] < READABLE
        seen += [value] if readable else []
        figures = ", ".join(f"{name} {sine:.3g}" for name, sine in sines.items())
        yield GoalLine(
            text=f"{table:36} k={k} eps={epsilon:<4g} auto {value:5.2f} of the best ({best})"
            + ("" if readable else ", all mostly noise")
            + f": {figures}"
        )
    well, most = sum(one <= WELL for one in seen), max(seen, default=1.0)
    yield judged(
        f"auto within {WELL} of the best in {well} of {len(seen)} (goal {OFTEN:.0%}), at most {most:.2f} "
        f"(goal {NEVER})",
        well >= OFTEN * len(seen) and most <= NEVER,
    )


def statement_lines(group: str, cells: Cells) -> Iterator[GoalLine]:
    """Yield a line for each algorithm: false confidence, and the medians of stated by true."""
    by_algorithm: dict[str, list[Pairs]] = defaultdict(list)
    for cell, pairs in cells.items():
        by_algorithm[cell.algorithm].append(pairs)
    for algorithm, many in by_algorithm.items():
        found = statement_counts(many)
        yield judged(
            f"{group:10} {algorithm:12} true > {UNUSABLE:g} stated < {CONFIDENT:g}: {found.false:3} of "
            f"{found.runs:4} runs ({found.false_share:.1%}, goal {MOST_FALSE:.0%}); median stated / true in "
            f"[{NEAR[0]:g}, {NEAR[1]:g}]: {found.near} of {found.cells} cells (goal {LEAST_NEAR:.0%})",
            found.false_share <= MOST_FALSE and found.near_share >= LEAST_NEAR,
        )


def loose_lines(cells: Cells) -> Iterator[GoalLine]:
    """Yield a line for each cell with loose bounds, beside the same in floats."""
    for cell, pairs in cells.items():
        floats = cells.get(replace(cell, algorithm=cell.algorithm + IN_FLOATS), ())
        if (found := compared(floats, pairs)) is None:
            continue
        said = float(np.median([stated / true for true, stated in pairs]))
        yield judged(
            f"{cell} {median_sine(pairs):.4g}, in floats {median_sine(floats):.4g}: {found.ratio:.2f} "
            f"[{found.low:.2f}, {found.high:.2f}] (goal {LOOSE}), stated / true {said:.2f}",
            found.low <= LOOSE or NEAR[0] <= said <= NEAR[1],
        )


def judged(text: str, good: bool) -> GoalLine:
    return GoalLine(text=f"{text}: {'ok' if good else 'MISSED'}", missed=not good)


def corner_lines(name: str, runs: StoredRuns, tables: Sequence[TableRuns]) -> Iterator[GoalLine]:
    """Yield the lines of one corner for one version's runs."""
    for group in CORNERS[name]:
        cells = cells_of(runs, (one for one in tables if one.group == group))
        if name == "loose":
            yield from loose_lines(cells)
        elif name == "statements":
            yield from statement_lines(group, cells)
        else:
            yield from choice_lines(cells)
