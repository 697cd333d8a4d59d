"""Measure what the tables do not hold yet, and draw every figure.

What was measured before is kept (`--anew` forgets it): after a change to an algorithm, name its figures with
`--only` and `--anew`. A run that was stopped goes on where it was."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path

from threadpoolctl import threadpool_limits

from benchmarks.paper_figures import covariance, dp_pca, pages, refined, smooth, subspaces
from benchmarks.paper_figures.cells import Cell, Point, Table, read_table, work
from benchmarks.paper_figures.figure import Figure
from eigenveil.errors import EigenveilError

ROOT = Path(__file__).resolve().parents[2]
FULL, QUICK = ROOT / "docs" / "figures", ROOT / "build" / "paper-figures"

Places = list[tuple[Table, Point]]
Waiting = dict[Future[tuple[list[Cell], float]], Places]


def figures(quick: bool) -> Iterator[Figure]:
    """All figures, paper by paper."""
    for module in (covariance, dp_pca, subspaces, smooth, refined, pages):
        yield from module.figures(quick)


def timed(point: Point, names: tuple[str, ...]) -> tuple[list[Cell], float]:
    """The cells of a point, and the seconds they took."""
    begin = time.perf_counter()
    try:
        return work(point, names), time.perf_counter() - begin
    except EigenveilError as problem:
        # As it is it would not survive the way back from the process.
        raise RuntimeError(f"{point.panel} at {point.x:g}, one of {', '.join(names)}: {problem}") from None


def submit(pool: ProcessPoolExecutor, chosen: list[Figure], tables: dict[str, Table]) -> Waiting:
    """Every point with something missing, on its way. Panels that share a setting share its measurement."""
    slots: dict[tuple[object, ...], Places] = {}
    for figure in chosen:
        table = tables[figure.name]
        for point in figure.points:
            if names := table.missing(point):
                key = (point.measure, point.code, point.repeats, point.slow, names)
                slots.setdefault(key, []).append((table, point))
    return {pool.submit(timed, where[0][1], key[-1]): where for key, where in slots.items()}  # type: ignore[arg-type]


def measure(chosen: list[Figure], tables: dict[str, Table], jobs: int) -> None:
    """Fill the tables, with one line a point."""
    begin = time.perf_counter()
    with ProcessPoolExecutor(jobs, initializer=threadpool_limits, initargs=(1,)) as pool:
        waiting = submit(pool, chosen, tables)
        for done, future in enumerate(as_completed(waiting), start=1):
            cells, seconds = future.result()
            for table, point in waiting[future]:
                table.add([replace(cell, panel=point.panel, x=point.x) for cell in cells])
            table, point = waiting[future][0]
            passed = (time.perf_counter() - begin) / 60
            print(
                f"[{done}/{len(waiting)}, {passed:.1f} min] {table.path.stem}: {point.panel} at "
                f"{point.x:g}, {len(cells)} methods, {seconds:.1f} s",
                flush=True,
            )


def main() -> int:
    """Return 0; a method that fails ends the run with its error."""
    parser = argparse.ArgumentParser(
        prog="paper-figures", description=__doc__.splitlines()[0] if __doc__ else ""
    )
    parser.add_argument("--quick", action="store_true", help="few repeats and points, into build/")
    parser.add_argument("--only", default="", help="figures whose name contains this")
    parser.add_argument("--anew", action="store_true", help="forget what was measured before")
    parser.add_argument("--jobs", type=int, default=2, help="processes side by side")
    parser.add_argument("--out", type=Path, help="folder of pictures and tables")
    arguments = parser.parse_args()
    out = arguments.out or (QUICK if arguments.quick else FULL)
    chosen = [figure for figure in figures(arguments.quick) if arguments.only in figure.name]
    tables = {figure.name: read_table(out / f"{figure.name}.csv") for figure in chosen}
    for figure in chosen:
        tables[figure.name].retain([] if arguments.anew else list(figure.points))
    measure(chosen, tables, arguments.jobs)
    for figure in chosen:
        if figure.points:
            figure.draw(tables[figure.name], out / f"{figure.name}.png")
            print(f"drawn: {out / figure.name}.png")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
