"""`make bench` of accuracy: median sines beside published targets (targets.py).

    python -m benchmarks.accuracy                    targets
    python -m benchmarks.accuracy --compare          today beside the stored runs of commit 7fca1e19
    python -m benchmarks.accuracy --compare --corner wide
    python -m benchmarks.accuracy --store FILE       measure whichever product is imported (measure.py)

`--compare` runs every table of groups.py with the seeds of the stored runs, records and noise by the same
seed. A cell is missed if the bootstrap interval of its ratio of medians lies wholly above 1.05. Then every
corner has its goal, before and today. With `--store` runs are kept in a file, and an interrupted measurement
goes on."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from benchmarks.accuracy.compare import STORED, report
from benchmarks.accuracy.groups import CORNERS, table_runs
from benchmarks.accuracy.measure import measure
from benchmarks.accuracy.stored import read


def main(given: Sequence[str] | None = None) -> int:
    """Return 1 if something is missed."""
    options = parsed(given)
    if not options.compare and options.store is None:
        from benchmarks.accuracy.targets import check_all  # needs today's product, unlike a measurement

        return int(check_all(options.repeats or 20, options.only) > 0)
    corners = options.corner or tuple(CORNERS)
    groups = {group for name in corners for group in CORNERS[name]}
    chosen = [
        number
        for number, one in enumerate(table_runs())
        if options.only in one.family.name and (not options.corner or one.group in groups)
    ]
    stored = read(STORED).seeds if options.compare else max(one.seeds for one in table_runs())
    seeds = options.repeats or stored
    today = measure(chosen, seeds=seeds, floats=options.compare, jobs=options.jobs, path=options.store)
    return report(chosen, corners, today) if options.compare else 0


def parsed(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--compare", action="store_true", help="today beside the stored runs")
    parser.add_argument("--corner", choices=CORNERS, action="append", help="this corner's tables alone")
    parser.add_argument("--store", type=Path, help="keep runs in this file, and continue it")
    parser.add_argument("--only", default="", help="tables whose name contains this")
    parser.add_argument("--repeats", type=int, help="at most so many seeds (default: all stored)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    return parser.parse_args(given)


if __name__ == "__main__":
    raise SystemExit(main())
