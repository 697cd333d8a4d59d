"""The points of each picture, and how one of them is measured."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from benchmarks import loading, sealing
from benchmarks.growth.points import Setting
from benchmarks.growth.steps import ALONE, Measured, write_records
from benchmarks.many_sites import Asked, measured
from benchmarks.many_sites import Measured as RoundCounter
from benchmarks.past_studies import run
from benchmarks.secure.rounds import SMALL, summed
from benchmarks.wide import Case
from eigenveil.queries.limits import triangle
from eigenveil.study.study import Trust

LIMIT = 900  # seconds of one step, which then ends the run
PAST_ROUNDS = 10  # of a study that has ended
NARROW, FEW = 20, 4  # columns of the first picture; components where they are not varied
ENTRIES = 20_000_000  # of the records where columns are varied: 40 MB
SITES = 3
REGIONS = 20
MASKED = (1000, 50_000, triangle(1000), triangle(5000), triangle(10_000))  # numbers of an answer
STUDIES = 3  # of each trust, in turns
TURNS = 3  # of whole runs
MOST_SEALED = 10**6  # numbers; each transaction is repeated many times
FEWEST = 1000  # records
OF_COLUMNS = ("gradient-check", "replay")
WIDEST_GRAM = 5000  # beyond 8,191 columns a matrix is more than a study may ask for
LOADED = ((10**6, 5), (10**6, 100), (10**5, 1000))  # records and columns, beside those of `n`
WIDEST_EIGEN = 2000  # some seconds; 10,000 columns take a hundred times as long
WIDTHS = (10, 30, 100, 300, 1000, 2000, 5000, 10_000, 20_000)  # of a site's pass
COARSE = (10, 100, 1000, 5000, 20_000)  # of what the coordinator does
PLANNED = (10, 100, 300, 1000, 2000, 5000)  # columns that `auto` is planned for
SEALED = (600, 1000, 1400, 2000)  # columns of a matrix that a site sends in chunks
ROUNDS = (10, 100, 1000, 2000)  # columns of whole federations; more are not allowed unless configured


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One picture: the settings that it shows, and those of a minute's run."""

    name: str
    settings: tuple[Setting, ...]
    quick: tuple[Setting, ...]


def parts() -> tuple[Part, ...]:
    """All pictures, by what is varied."""
    return (
        _part("n", by_records(10**i for i in range(3, 9)), by_records((10**3, 10**5))),
        _part("d", by_columns(WIDTHS, COARSE, ROUNDS), by_columns((10, 300), (10, 300), (10,))),
        _part("loading", by_loads((10**4, 10**5, 10**6, 10**7, 10**8), LOADED), by_loads((10**4, 10**5), ())),
        _part("planning", planned(PLANNED), planned((10, 300))),
        _part("sealing", sealed(SEALED), sealed((600,))),
        _part("k", by_components((1, 2, 4, 8, 16)), by_components((1, 4))),
        _part("regions", by_regions(1000), by_regions(100)),
        _part("studies", by_studies((1, 100, 1000, 10_000)), by_studies((1, 10))),
        _part("masked", masked(), masked(quick=True)),
        _part("sites", by_sites((3, 10, 50, 100, 200, 500)), by_sites((3, 10))),
    )


def _part(name: str, settings: Iterator[Setting], quick: Iterator[Setting]) -> Part:
    return Part(name=name, settings=tuple(settings), quick=tuple(quick))


def by_records(sizes: Iterator[int] | tuple[int, ...]) -> Iterator[Setting]:
    """A site's passes over ever more records."""
    for n in sizes:
        yield Setting(what="gradient", records=n, columns=NARROW, components=FEW)
        yield Setting(what="gram", records=n, columns=NARROW)


def by_loads(sizes: tuple[int, ...], others: tuple[tuple[int, int], ...]) -> Iterator[Setting]:
    """Loads of a site's records from a Parquet file."""
    for n, d in (*((n, NARROW) for n in sizes), *others):
        yield Setting(what="loading", records=n, columns=d)


def planned(columns: tuple[int, ...]) -> Iterator[Setting]:
    """Plans of ever more columns."""
    yield from (Setting(what="planning", columns=d, components=FEW) for d in columns)


def sealed(columns: tuple[int, ...]) -> Iterator[Setting]:
    """Matrices at the coordinator, from the last answer to the release."""
    yield from (Setting(what="sealing", columns=d, numbers=triangle(d), sites=1) for d in columns)


def by_columns(
    widths: tuple[int, ...], coarse: tuple[int, ...], rounds: tuple[int, ...]
) -> Iterator[Setting]:
    """Every step of a round over ever more columns, at a site and at the coordinator; whole rounds."""
    for d in widths:
        records = max(FEWEST, ENTRIES // d)
        yield Setting(what="gradient", records=records, columns=d, components=FEW)
        if d <= WIDEST_GRAM:
            yield Setting(what="gram", records=records, columns=d)
        if d <= WIDEST_EIGEN:
            yield Setting(what="eigen", columns=d)
    for d in coarse:
        yield from (Setting(what=what, columns=d, components=FEW) for what in OF_COLUMNS)
        yield from _by_numbers(FEW * d)
        if d <= WIDEST_GRAM:
            yield Setting(what="gram-check", columns=d)
            yield from _by_numbers(triangle(d))
    for d in rounds:
        yield Setting(what="round", columns=d, components=1, numbers=d, sites=SITES)


def _by_numbers(numbers: int) -> Iterator[Setting]:
    yield Setting(what="noise", numbers=numbers)
    yield Setting(what="sum", numbers=numbers, sites=SITES)
    if numbers <= MOST_SEALED:
        yield Setting(what="seal", numbers=numbers)


def by_components(many: tuple[int, ...]) -> Iterator[Setting]:
    """A site's pass for ever more directions at once."""
    for d in (NARROW, 200):
        for k in many:
            yield Setting(what="gradient", records=ENTRIES // d, columns=d, components=k)


def by_sites(many: tuple[int, ...]) -> Iterator[Setting]:
    """Whole rounds of a federation of ever more sites."""
    for sites in many:
        yield Setting(what="round", columns=NARROW, components=1, numbers=NARROW, sites=sites)


def by_studies(many: tuple[int, ...]) -> Iterator[Setting]:
    """Rounds beside ever more studies that have ended, in turns with rounds beside none."""
    for studies in many:
        yield Setting(what="past", columns=NARROW, sites=SITES, studies=studies)


def by_regions(sites: int) -> Iterator[Setting]:
    """Settings of a coordinator's round: all sites, 20 regions, and the sites of one region."""
    for what, columns in (("gradient-top", 1000), ("gram-top", 100)):
        for query, regions in ((sites, 0), (sites, REGIONS), (sites // REGIONS, 0)):
            yield Setting(
                what=what, columns=columns, components=FEW, sites=query, regions=regions,
            )  # fmt: skip


def masked(*, quick: bool = False) -> Iterator[Setting]:
    """Costs of secure aggregation: a site's masking, and whole rounds beside central ones. The sites of
    `federated` have a process each, those of `masked-round` are light."""
    matrix = {"columns": 1000, "numbers": triangle(1000)}
    directions = {"columns": 10_000, "components": 5, "numbers": 50_000}
    for numbers in (1000,) if quick else MASKED:
        yield from (Setting(what="masking", numbers=numbers, sites=sites) for sites in (3, 10, 50))
    for sites in (3,) if quick else (3, 10, 50):
        yield Setting(what="masked-round", columns=NARROW, components=1, numbers=NARROW, sites=sites)
    if not quick:
        yield from (Setting(what="federated", records=n, sites=SITES, **matrix) for n in (2000, 20_000))
        yield Setting(what="federated", records=1000, sites=SITES, **directions)
        yield from (Setting(what="masked-round", sites=50, **sizes) for sizes in (matrix, directions))


def measure(setting: Setting, scratch: Path) -> Measured:
    """One point. `scratch` has room for the largest file of records (4 GB)."""
    if setting.what == "round":
        return _round(setting)
    if setting.what == "loading":
        return _loading(setting, scratch)
    if setting.what == "sealing":
        return _sealing(setting)
    if setting.what == "past":
        return _past(setting)
    if setting.what == "masked-round":
        return _masked(setting)
    if setting.what == "federated":
        return _federated(setting)
    if setting.what in ALONE:
        return alone(setting)
    file = scratch / f"{setting.records}-{setting.columns}"
    if not file.exists():
        for old in scratch.iterdir():
            old.unlink()
        write_records(file, setting.records, setting.columns)
    return alone(setting, file)


def alone(setting: Setting, *file: Path) -> Measured:
    """One step, in a process of its own."""
    words = [sys.executable, "-m", "benchmarks.growth.steps", json.dumps(asdict(setting)), *map(str, file)]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, timeout=LIMIT, check=True)
    found: Measured = json.loads(done.stdout)
    return found


def _round(setting: Setting) -> Measured:
    found = measured(setting.sites, Asked(columns=setting.columns))
    return {
        "seconds": found.median / 1e3,
        "p90_seconds": found.p90 / 1e3,
        **_processor(found),
        "peak_bytes": found.peak_mib * 2**20,
        "rounds": len(found.rounds),
    }


def _loading(setting: Setting, scratch: Path) -> Measured:
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        file = Path(folder) / "records.parquet"
        loading.write_parquet(file, setting.records, setting.columns)
        found = loading.measured("site", "parquet", file, setting.columns, setting.records)
        first, second = found.seconds
        return {
            "seconds": first,
            "again_seconds": second,
            "processor_seconds": found.processor,
            "peak_bytes": found.mib * 2**20,
            "file_bytes": file.stat().st_size,
        }


def _sealing(setting: Setting) -> Measured:
    found = sealing.measured(setting.columns, STUDIES)
    return {
        "processor_seconds": found.cpu,
        "seconds": found.seconds,
        "sending_seconds": found.sending / 1e3,
        "commit_seconds": found.commit / 1e3,
    }


def _processor(found: RoundCounter) -> Measured:
    return {"coordinator_seconds": found.coordinator_cpu / 1e3, "sites_seconds": found.sites_cpu / 1e3}


def _masked(setting: Setting) -> Measured:
    """Of a matrix its one round, of directions all rounds, central and masked in turns; medians of the turns,
    of which long answers have one."""
    matrix, attempts = not setting.components, TURNS if setting.numbers <= NARROW else 1
    query = Asked(
        columns=setting.columns,
        algorithm="gauss-cov" if matrix else "dp-pca",
        components=max(1, setting.components),
    )
    sides: dict[Trust, list[Measured]] = {trust: [] for trust in Trust}
    for trust in attempts * [*Trust]:
        found = measured(setting.sites, replace(query, trust=trust))
        took = {"seconds": (found.last if matrix else found.median) / 1e3}
        more = {} if matrix else _processor(found)
        sides[trust].append({**took, **more, "peak_bytes": found.peak_mib * 2**20})
    central, masked = (
        {name: statistics.median(one[name] for one in side) for name in side[0]} for side in sides.values()
    )
    return masked | {f"central_{name}": value for name, value in central.items()}


def _federated(setting: Setting) -> Measured:
    """The rounds of long answers; of the others in the same studies the time."""
    matrix = not setting.components
    case = Case(
        algorithm="gauss-cov" if matrix else "dp-pca",
        columns=setting.columns,
        components=max(1, setting.components),
        records=setting.records,
        epsilon=5.0,
    )
    kinds = summed(case, STUDIES if matrix else 1)
    small = kinds.pop(SMALL)
    (long,) = kinds.values()
    return long | {f"small_{name}": small[name] for name in ("seconds", "central_seconds", "rounds")}


def _past(setting: Setting) -> Measured:
    with_them, alone = run(setting.studies, PAST_ROUNDS)
    return {
        "seconds": statistics.median(with_them.rounds) / 1e3,
        "alone_seconds": statistics.median(alone.rounds) / 1e3,
        "start_seconds": with_them.start,
        "list_seconds": with_them.listed / 1e3,
        "peak_bytes": with_them.peak * 2**20,
    }
