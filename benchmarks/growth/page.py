"""docs/scale.md and docs/regional.md show what the points say: tables are written anew between marks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks.cost_model import (
    Wanted,
    bills_table,
    kept,
    laws_table,
    limits_table,
)
from benchmarks.growth.laws import fitted
from benchmarks.growth.points import Point
from eigenveil.study.algorithm import Algorithm

ROOT = Path(__file__).resolve().parents[2]
PAGES = (ROOT / "docs" / "scale.md", ROOT / "docs" / "regional.md")
POINTS = ROOT / "docs" / "figures" / "growth"
MARKS = re.compile(r"(<!-- growth: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
MANY = Wanted(records=10**9, columns=20, components=4, sites=1000)
LIMITED = (
    MANY,
    Wanted(records=10**9, columns=64, components=4, sites=1000, algorithm=Algorithm.GAUSS_COV),
    Wanted(records=10**9, columns=65, components=4, sites=1000, algorithm=Algorithm.GAUSS_COV),
    Wanted(records=3 * 10**6, columns=20_000, components=4, sites=3),
)
LARGE = tuple(Wanted(records=10**9, columns=20, components=4, sites=sites) for sites in (1, 10, 1000))
BY_RECORDS = (
    ("loading", "seconds"),
    ("loading", "processor_seconds"),
    ("loading", "peak_bytes"),
    ("gradient", "processor_seconds"),
    ("gradient", "peak_bytes"),
    ("gram", "processor_seconds"),
    ("gram", "peak_bytes"),
)


def written(text: str, folder: Path = POINTS) -> str:
    """The page with every table as the points of a folder have it."""
    points = kept(folder)
    laws = fitted(points)
    tables = {
        "machine": machines(folder),
        "loads": loads(points),
        "laws": laws_table(laws),
        "extrapolated": extrapolated(points),
        "large": bills_table(LARGE, laws),
        "limits": limits_table(LIMITED),
        "regions": regions(points),
        "masked": masked(points),
    }
    blocks = {name: "\n".join(lines) + "\n" for name, lines in tables.items()}
    return MARKS.sub(lambda found: found[1] + blocks[found[2]] + found[3], text)


def machines(folder: Path) -> Iterator[str]:
    """Dates, versions and machines."""
    lines = (json.loads(line) for path in folder.glob("*.json") for line in path.read_text().splitlines())
    for date, version, cores, memory in sorted(
        {(line["date"], line["version"], line["cores"], line["memory_gib"]) for line in lines}
    ):
        yield f"Measured on {date} with version {version}, on a machine of {cores} cores and {memory} GiB."


def extrapolated(points: list[Point]) -> Iterator[str]:
    """Predictions of models that are fitted to fewer records, for the most records that were measured."""
    yield "| step | | model of fewer records | measured | ratio |"
    yield "|---|---|---|---|---|"
    for step_name, quantity in BY_RECORDS:
        here = [one for one in points if one.setting.what == step_name]
        last = max(here, key=lambda one: one.setting.records)
        model = fitted([one for one in here if one.setting.records < last.setting.records])
        says, measured = model[step_name, quantity](last.setting), last.measured[quantity]
        name = f"{step_name}, {last.setting.records:.0e} × {last.setting.columns}"
        what = quantity.replace("_", " ")
        yield f"| {name} | {what} | {says:.3g} | {measured:.3g} | {measured / says:.2f} |"


def loads(points: list[Point]) -> Iterator[str]:
    """Loads of a site's records."""
    yield "| records × columns | first study | later, if kept | processor seconds | peak memory |"
    yield "|---|---|---|---|---|"
    for point in points:
        at, found = point.setting, point.measured
        if at.what == "loading":
            seconds = (f"{found[name]:.3g}" for name in ("seconds", "again_seconds"))
            yield (
                f"| {at.records:,} × {at.columns:,} | {' s | '.join(seconds)} s | "
                f"{found['processor_seconds']:.3g} | {found['peak_bytes'] / 2**20:.0f} MiB |"
            )


WORDS = {"gradient-top": "gradient, 1,000 columns, 4 directions", "gram-top": "matrix, 100 columns"}


def regions(points: list[Point]) -> Iterator[str]:
    """Processor time and bytes of a coordinator a round, with regions before and without."""
    yield "| question | coordinator of | processor seconds a round | bytes received |"
    yield "|---|---|---|---|"
    for point in points:
        at, found = point.setting, point.measured
        if at.what in WORDS:
            subscriber = f"{at.regions} regions, {at.sites:,} sites" if at.regions else f"{at.sites:,} sites"
            seconds, received = found["processor_seconds"], found["received_bytes"]
            yield f"| {WORDS[at.what]} | {subscriber} | {seconds:.2g} | {received:,.0f} |"


def masked(points: list[Point]) -> Iterator[str]:
    """Whole rounds of many light sites, central and masked."""
    yield "| sites | columns | numbers | central round | masked round | coordinator's CPU | a site's CPU |"
    yield "|---|---|---|---|---|---|---|"
    for point in points:
        at, found = point.setting, point.measured
        if at.what == "masked-round":
            yield (
                f"| {at.sites} | {at.columns:,} | {at.numbers:,} | {ms(found['central_seconds'])} | "
                f"{ms(found['seconds'])} | {both(found, 'coordinator_seconds')} | "
                f"{both(found, 'sites_seconds', at.sites)} |"
            )


def both(found: Mapping[str, float], name: str, many: int = 1) -> str:
    """A quantity of central and of masked rounds, of each of so many; a dash where it was not measured."""
    if name not in found:
        return "-"
    return " and ".join(ms(found[one] / many) for one in (f"central_{name}", name))


def ms(seconds: float) -> str:
    """Milliseconds in three digits."""
    return f"{1e3 * seconds:,.0f} ms" if seconds >= 1 else f"{1e3 * seconds:.3g} ms"


def write() -> None:
    """Bring both pages up to date."""
    for page in PAGES:
        page.write_text(written(page.read_text()))
