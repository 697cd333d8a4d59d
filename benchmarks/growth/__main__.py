"""Measure what the files do not hold yet, draw every picture, and write the tables of docs/scale.md.

`python -m benchmarks.growth --only n,d --out docs/figures/growth`. What was measured before is kept
(`--anew` forgets it), and an interrupt loses the point under way alone."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.growth.page import write
from benchmarks.growth.parts import Part, measure, parts
from benchmarks.growth.pictures import PLOTS, draw
from benchmarks.growth.points import Point, Points

ROOT = Path(__file__).resolve().parents[2]
FULL, QUICK = ROOT / "docs" / "figures" / "growth", ROOT / "build" / "growth"


def fill(part: Part, quick: bool, points: Points, scratch: Path) -> None:
    """Measure what is missing, with one line a point."""
    wanted = part.quick if quick else part.settings
    points.retain(set(wanted))
    missing = [setting for setting in wanted if setting not in points]
    begin = time.perf_counter()
    for done, setting in enumerate(missing, start=1):
        found = measure(setting, scratch)
        points.add(Point(setting=setting, measured=found))
        passed = time.perf_counter() - begin
        print(f"[{part.name} {done}/{len(missing)}, {passed:.0f} s] {setting}: {said(found)}", flush=True)


def said(found: dict[str, float]) -> str:
    """Measured values, in a line."""
    return ", ".join(f"{name.replace('_', ' ')} {value:.3g}" for name, value in found.items())


def main(words: Sequence[str] | None = None) -> int:
    """0; 130 after an interrupt. A step that fails ends the run with its error."""
    chosen = arguments(words)
    out: Path = chosen.out or (QUICK if chosen.quick else FULL)
    wanted = [part for part in parts() if not chosen.only or part.name in chosen.only.split(",")]
    stored = {part.name: Points(out / f"{part.name}.json") for part in parts()}
    ended = 0
    try:
        with tempfile.TemporaryDirectory(dir=chosen.scratch) as scratch:
            for part in wanted:
                if chosen.anew:
                    stored[part.name].retain(set())
                fill(part, chosen.quick, stored[part.name], Path(scratch))
    except KeyboardInterrupt:
        print("interrupted; what was measured is kept, and drawn", file=sys.stderr)
        ended = 130
    every = [point for points in stored.values() for point in points.all()]
    for part in wanted:
        if part.name in PLOTS and stored[part.name].all():
            draw(part.name, stored[part.name].all(), every, out)
            print(f"drawn: {out / part.name}.png")
    if out == FULL:
        write()
        print("written: docs/scale.md, docs/regional.md")
    return ended


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    """As they were typed."""
    parser = argparse.ArgumentParser(prog="growth", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="of " + ", ".join(part.name for part in parts()))
    parser.add_argument("--quick", action="store_true", help="a minute's run with few points, into build/")
    parser.add_argument("--anew", action="store_true", help="forget what was measured before")
    parser.add_argument("--out", type=Path, help="folder of pictures and points")
    parser.add_argument("--scratch", type=Path, help="where 4 GB of records have room for a while")
    return parser.parse_args(words)


if __name__ == "__main__":
    raise SystemExit(main())
