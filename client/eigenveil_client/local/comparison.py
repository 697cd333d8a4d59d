"""Comparison of algorithms on a file, its progress and its output. Progress on standard error is a bar on a
terminal, otherwise one line for each algorithm."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from eigenveil.study.algorithm import Algorithm, CustomAlgorithm
from eigenveil.study.study import Study
from eigenveil_client.local import benchmark
from eigenveil_client.local.algorithm_selection import AlgorithmSelection, cost_text, select_algorithms
from eigenveil_client.local.algorithm_selection import load as load_own
from eigenveil_client.local.simulate import divide
from eigenveil_client.local.tables import TRUST, ComparisonRow, comparison_table, ordered, remarks
from eigenveil_client.records.isolated.reader import load
from eigenveil_common.command import console, errors


def run_all(
    of: benchmark.Benchmark, algorithms: Sequence[Algorithm | CustomAlgorithm]
) -> tuple[list[ComparisonRow], bool]:
    """Return the rows of all algorithms in order and True; on Ctrl-C the rows so far and False."""
    rows: list[ComparisonRow] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as progress:
        task = progress.add_task("", total=len(algorithms))
        try:
            for number, one in enumerate(algorithms, 1):
                name = one.value if isinstance(one, Algorithm) else f"{one.name} (your own)"
                progress.update(task, description=name)
                if not errors.is_terminal:
                    errors.print(f"{number} of {len(algorithms)}: {name}", markup=False)
                rows.append(benchmark.measure(of, one))
                progress.advance(task)
        except KeyboardInterrupt:
            return rows, False
    return rows, True


MEANING = (
    "error: sine of the largest angle to the records' exact components, 0 is exact, 1 is noise (median of "
    "repeats). matrix: relative Frobenius error of the covariance matrix. stated: the error that the release "
    "itself states. bytes: from each site. " + TRUST
)


def run_simulated(
    study: Study, data: Path, algorithms: str | None, custom_name: str | None, repeat: int, seed: int | None
) -> tuple[list[ComparisonRow], bool]:
    chosen = select_algorithms(study, algorithms, own=None if custom_name is None else load_own(custom_name))
    rows = load(data, study)
    one = benchmark.make_benchmark(study, rows, divide(rows, study, "even"), repeat, seed)
    _warn_not_private(study, chosen)
    finished_rows, whole = run_all(one, chosen.runnable)
    refused = [
        ComparisonRow(algorithm=each.algorithm.value, trusted=each.trusted, outcome=each.refused or "")
        for each in chosen.refused
    ]
    return [*finished_rows, *refused], whole


def _warn_not_private(study: Study, chosen: AlgorithmSelection) -> None:
    algorithms = [one for one in chosen.runnable if isinstance(one, Algorithm) and one is not Algorithm.OJA]
    custom = [one.name for one in chosen.runnable if isinstance(one, CustomAlgorithm)]
    own = "".join(f" {name} is a custom algorithm, which no federation runs." for name in custom)
    text = "This looks at the records and compares with the exact answer: NOT PRIVATE, for you only. In a"
    cost = f"federation these would be {cost_text(study, algorithms)}.{own}"
    errors.print(f"{text} {cost}", style="yellow", markup=False)


def show(study: Study, rows: Sequence[ComparisonRow], whole: bool, as_json: bool) -> None:
    if as_json:
        value = {"study": study.name, "complete": whole, "rows": [asdict(row) for row in ordered(rows)]}
        click.echo(json.dumps(value, sort_keys=True))
        return
    console.print(comparison_table(rows))
    console.print(MEANING, style="dim", markup=False)
    for sentence in remarks(rows):
        console.print(sentence, style="dim", markup=False)
    if not whole:
        errors.print("Interrupted: only finished runs are shown.", style="yellow")
