"""One step of a round, at a site or at the coordinator, measured in a process of its own.

`python -m benchmarks.growth.steps SETTING [FILE]` prints what came out as JSON; SETTING is JSON as well, FILE
holds the records of a site."""

from __future__ import annotations

import json
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.disk import sync_ms
from benchmarks.growth.points import Setting
from benchmarks.regional import RegionalAnswer, joined
from eigenveil.aggregation import Contribution, aggregate, validate
from eigenveil.noise.source import Block, NoiseSpec, OsNoise
from eigenveil.numerics.encoding import IntArray
from eigenveil.numerics.linalg import eigenpairs
from eigenveil.planning.choose import check_all_sizes, make_plan, possible_rehearsals, rehearse_with_releases
from eigenveil.planning.predict import predict
from eigenveil.protocol.query import NoiseDistribution, PricedQuery, RoundQuery
from eigenveil.queries import Gradient, GradientSpec, Gram, Query
from eigenveil.queries.limits import DIRECTION_LIMIT, row_norm_limit
from eigenveil.secure_aggregation.masking import Attempt, masked
from eigenveil.session import Session
from eigenveil.site.site import Site
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.grid import S
from eigenveil.study.study import Column, Federation, Study
from eigenveil_client.records.scratch_files import GridFile, ScratchFile

ENOUGH, MOST_RUNS = 1.5, 7  # seconds of runs after which a median is taken; and runs
SPREAD = S / 6  # standard deviation of a column, in grid steps
BLOCK = 2**24  # entries of the records that are drawn; a file repeats them
PULL = 2**10
Measured = dict[str, float]


def write_records(path: Path, records: int, columns: int) -> None:
    """Records on the grid, as a site stores them: as many as asked for, drawn once and repeated."""
    fits = min(records, max(1, BLOCK // columns))
    drawn = np.random.default_rng(0).normal(size=(fits, columns), scale=SPREAD)
    block = np.clip(np.rint(drawn), -S, S).astype(np.int16)
    with path.open("wb") as file:
        for start in range(0, records, fits):
            file.write(block[: records - start].tobytes())


def directions(columns: int, components: int) -> IntArray:
    """Orthonormal directions in steps of 2^-20. Shape: (d, k)."""
    turn = np.linalg.qr(np.random.default_rng(1).normal(size=(columns, components)))[0]
    steps: IntArray = np.rint(DIRECTION_LIMIT * turn).astype(np.int64)
    return steps


def query_of(setting: Setting) -> Query:
    """A gradient with pull, or a matrix, whose radius shortens some of the records."""
    d, k = setting.columns, setting.components
    centre, norm = np.zeros(d, dtype=np.int64), SPREAD * math.sqrt(d)
    if setting.what.startswith("gram"):
        return Gram(centre=centre, radius=min(round(1.1 * norm), row_norm_limit(d)))
    length = norm * SPREAD * math.sqrt(k) * DIRECTION_LIMIT
    shift = max(0, math.ceil(math.log2(length)) - 27)
    turn = directions(d, k)
    spec = GradientSpec(centre=centre, directions=turn, offset=turn * PULL // DIRECTION_LIMIT, shift=shift)
    return Gradient(spec=spec, radius=2**28)


def timed(work: Callable[[], object]) -> Measured:
    """Median seconds, by the clock and of all threads' processor time, after a first run if that was short.

    A machine that others use as well takes longer by the clock, and about as much processor time."""
    first, times = _once(work), list[tuple[float, float]]()
    while first[0] + sum(clock for clock, _ in times) < ENOUGH and len(times) < MOST_RUNS:
        times.append(_once(work))
    clock, processor = (statistics.median(column) for column in zip(*(times or [first]), strict=True))
    return {"seconds": clock, "processor_seconds": processor}


def _once(work: Callable[[], object]) -> tuple[float, float]:
    clock, processor = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - clock, time.process_time() - processor


def with_peak(work: Callable[[], object]) -> Measured:
    """Time of `work`, and growth of the process beyond its size before."""
    before = _resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    found = timed(work)
    return found | {"peak_bytes": _resident("VmHWM") - before}


def _resident(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return 1024 * int(line.split()[1])
    raise LookupError(name)


def site_pass(setting: Setting, file: Path) -> Measured:
    """A site's answer, by as many threads as there are cores, from the records in `file`, which is read anew
    each time."""
    cores, query = os.cpu_count() or 1, query_of(setting)
    with file.open("rb", buffering=0) as stored, ThreadPoolExecutor(cores) as threads:
        rows = GridFile(ScratchFile(stored), setting.columns, np.int16)
        found = with_peak(lambda: Site(rows, workers=cores).answer(query, threads.map))
    return found | {"answer_bytes": 8 * query.length, "stored_bytes": file.stat().st_size}


def check(setting: Setting) -> Measured:
    """Cost of the coordinator's check of one answer."""
    query = query_of(setting)
    rows = np.random.default_rng(0).normal(size=(100, setting.columns), scale=SPREAD)
    values = Site(np.clip(np.rint(rows), -S, S).astype(np.int16)).answer(query)
    round_query = RoundQuery(PricedQuery(query=query, micro_rho=1), "00" * 32, 0)
    sent = Contribution(plan_digest="00" * 32, round=0, query=round_query.digest, site="a", values=values)

    def checked() -> str:
        validate(round_query, sent, range(100, 101))
        return sent.digest

    return with_peak(checked)


def added(setting: Setting) -> Measured:
    """The exact sum of all answers."""
    d = setting.numbers
    spec = GradientSpec(
        centre=np.zeros(d, dtype=np.int64), directions=np.ones((d, 1), dtype=np.int64),
        offset=np.zeros((d, 1), dtype=np.int64), shift=0,
    )  # fmt: skip
    query = Gradient(spec=spec, radius=2**28)
    round_query = RoundQuery(PricedQuery(query=query, micro_rho=1), "00" * 32, 0)
    answers = {f"s{i}": np.full(d, i, dtype=np.int64) for i in range(setting.sites)}
    return with_peak(lambda: aggregate(round_query, answers))


def top(setting: Setting) -> Measured:
    """Cost to a coordinator of all answers of a round, of sites or of the regions before it."""
    query, most = query_of(setting), 100
    rows = np.random.default_rng(0).normal(size=(most, setting.columns), scale=SPREAD)
    one = Site(np.clip(np.rint(rows), -S, S).astype(np.int16)).answer(query)
    round_query = RoundQuery(PricedQuery(query=query, micro_rho=1), "00" * 32, 0)
    groups = setting.regions or setting.sites
    each = setting.sites // groups
    members = {f"r{i}": tuple(f"site-{i}-{j}" for j in range(each)) for i in range(groups)}
    answers = [RegionalAnswer(region=r, present=names, values=each * one) for r, names in members.items()]
    found = with_peak(lambda: joined(round_query, answers, members, most))
    received = sum(one.values.nbytes + sum(map(len, one.present)) for one in answers)  # names as well
    return found | {"answer_bytes": 8 * query.length, "received_bytes": received}


def noise(setting: Setting) -> Measured:
    """One draw for as many numbers."""
    spec = NoiseSpec(
        blocks=(Block(count=setting.numbers, scale=1e6, distribution=NoiseDistribution.GAUSSIAN),)
    )
    return with_peak(lambda: OsNoise().draw(spec))


def masking(setting: Setting) -> Measured:
    """One site's share of the noise, and its masks with all others, over an answer."""
    length, names = setting.numbers, [f"site-{i:04}" for i in range(setting.sites)]
    attempt = Attempt(
        plan="00" * 32, round=0, query="00" * 32, number=1, members=dict.fromkeys(names, "00" * 32)
    )
    secrets = {name: os.urandom(32) for name in names[1:]}
    spec, values = NoiseSpec(blocks=(Block(count=length, scale=1e6),)), np.zeros(length, dtype=np.int64)
    OsNoise().draw(NoiseSpec(blocks=(Block(count=1, scale=1e6),)))  # its tables are made once
    return with_peak(lambda: masked(values, OsNoise().draw(spec), names[0], secrets, attempt))


def eigen(setting: Setting) -> Measured:
    """The eigenvectors of a released matrix."""
    drawn = np.random.default_rng(0).normal(size=(setting.columns, setting.columns))
    matrix = drawn + drawn.T
    return with_peak(lambda: eigenpairs(matrix))


def seal(setting: Setting) -> Measured:
    """A durable transaction with a release and the next question."""
    with tempfile.TemporaryDirectory() as folder:
        return {"seconds": sync_ms(Path(folder), "seal", 16 * setting.numbers, 1) / 1e3}


def replay(setting: Setting) -> Measured:
    """A session that follows a study's releases, for each of its rounds: every site's, at every round."""
    plan = make_plan(study_of(setting))
    releases = [release for _, release in rehearse_with_releases(plan)]
    clock, processor = _once(lambda: Session.replay(plan, releases))
    many = len(releases)
    return {"seconds": clock / many, "processor_seconds": processor / many, "rounds": many}


def planning(setting: Setting) -> Measured:
    """Cost of a submission with `auto` at the coordinator before its price is set aside."""
    study = replace(study_of(setting), algorithm=Algorithm.AUTO)

    def plan() -> None:
        plan = make_plan(study)
        ways = possible_rehearsals(plan)
        check_all_sizes(plan, [round_query for route in ways for round_query in route])
        predict(study, plan.algorithm)  # type: ignore[arg-type]  # none of a user's own

    return with_peak(plan)


def study_of(setting: Setting) -> Study:
    """A dp-pca study on so many columns."""
    names = (f"x{i}" for i in range(setting.columns))
    return Study(
        name="growth",
        columns=tuple(Column(name=name, unit="1", lower=-6, upper=6) for name in names),
        epsilon=4.0,
        delta=1e-7,
        components=setting.components,
        algorithm=Algorithm.DP_PCA,
        federation=Federation(sites=("a", "b", "c")),
        max_records=10**6,
        expected_records=100_000,
    )


ALONE: dict[str, Callable[[Setting], Measured]] = {
    "gradient-check": check,
    "gram-check": check,
    "sum": added,
    "gradient-top": top,
    "gram-top": top,
    "noise": noise,
    "masking": masking,
    "eigen": eigen,
    "seal": seal,
    "replay": replay,
    "planning": planning,
}


def main() -> None:
    """Measure, on one BLAS thread as sites and coordinators compute, and print."""
    setting, file = Setting(**json.loads(sys.argv[1])), sys.argv[2:]
    with threadpool_limits(1):
        print(json.dumps(site_pass(setting, Path(*file)) if file else ALONE[setting.what](setting)))


if __name__ == "__main__":
    main()
