"""How far a comparison is, on standard error: a bar on a terminal, a line an algorithm elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from eigenveil_client.local.compare.rows import Row
from eigenveil_common.command import errors


def run_all(steps: Sequence[tuple[str, Callable[[], Row]]]) -> tuple[list[Row], bool]:
    """The rows of all steps in order; on Ctrl-C those so far, and False."""
    rows: list[Row] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as progress:
        task = progress.add_task("", total=len(steps))
        try:
            for number, (name, step) in enumerate(steps, 1):
                progress.update(task, description=name)
                if not errors.is_terminal:
                    errors.print(f"{number} of {len(steps)}: {name}", markup=False)
                rows.append(step())
                progress.advance(task)
        except KeyboardInterrupt:
            return rows, False
    return rows, True
