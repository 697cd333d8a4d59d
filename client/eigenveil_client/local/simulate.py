"""`eigenveil simulate`: a study on one file, split over simulated sites, in this process. Simulated sites on
a Dask cluster. Each worker stores the records of a share of the sites and adds up their contributions. The
release equals that of a single process."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from eigenveil.errors import Code, RequestError
from eigenveil.numerics.encoding import FloatArray, IntArray
from eigenveil.numerics.linalg import sin_angle, single_blas_thread
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import RoundQuery
from eigenveil.queries import NAMES
from eigenveil.reporting.document import ReleaseContent, unsigned_release
from eigenveil.simulated_sites import ContributionSum, Mask, SumFactory, aggregate_groups, sum_contributions
from eigenveil.simulation import Simulation, site_places
from eigenveil.site.site import Site
from eigenveil.study.grid import GridRows, offsets, steps, unit
from eigenveil.study.study import MAX_ATTEMPTS, Study, Trust
from eigenveil_client.connection.cluster import Cluster, ClusterAddress
from eigenveil_common.concurrency import CORES
from eigenveil_common.files import write_durably

DROP_OUT_PATTERN = re.compile(r"(?P<round>0*[1-9]\d*)(?P<attempt>):(?P<site>.+)")
LOST_PATTERN = re.compile(rf"(?P<round>[1-9]\d{{0,5}})(\.(?P<attempt>[1-{MAX_ATTEMPTS}]))?:(?P<site>.+)")
SIMULATION_FILE = "simulation.zip"
NOT_PRIVATE = (
    "NOT PRIVATE: this result contains the exact answer computed from the records. "
    "Do not publish it if the records are confidential."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationRuns:
    """Several runs of one study, and the sine of each to the exact components (None if not compared)."""

    simulations: tuple[Simulation, ...]
    sin_angles: tuple[float | None, ...]

    @property
    def last(self) -> ReleaseContent:
        """Content of the last run's release; not private if the exact answer was computed."""
        document, result = self.simulations[-1].document, self.simulations[-1].result
        if self.sin_angles[-1] is not None:
            document = document | {"private": False, "guarantee": {"text": NOT_PRIVATE}}
        return ReleaseContent(document=document, result=result)


def with_sites(study: Study, number: int | None, **privacy: Any) -> Study:
    """Return the study with `number` sites and the changes of `privacy`; equal numbers keep the names."""
    federation = study.federation
    if number is not None and number != len(federation.sites):
        names = tuple(f"site-{i + 1}" for i in range(number))
        quorum = None if federation.quorum is None else min(federation.quorum, number)
        federation = replace(federation, sites=names, required=(), quorum=quorum)
    return replace(study, federation=federation, **privacy)


def privacy_overrides(trust: str | None, colluding: int | None, spares: int | None) -> dict[str, Any]:
    """Return the [privacy] keys that the command line overrides; a central study has no others."""
    if trust == Trust.CENTRAL.value:
        return {"trust": Trust.CENTRAL, "colluding": colluding, "spare_attempts": spares or 0}
    stated = {"trust": trust and Trust(trust), "colluding": colluding, "spare_attempts": spares}
    return {key: value for key, value in stated.items() if value is not None}


def divide(rows: GridRows, study: Study, split: str) -> dict[str, FloatArray]:
    """Return the records of each site in the columns' units, divided by their content."""
    names = study.federation.sites
    places = site_places(rows, dict(zip(names, _weights(split, len(names)), strict=True)), unit(study))
    step = steps(study) * unit(study)
    return {name: offsets(study) + rows[mine] * step for name, mine in places.items()}


def _weights(split: str, number: int) -> list[float]:
    if split == "even":
        return [1.0] * number
    if split == "uneven":
        return [1.0 / (i + 1) for i in range(number)]
    try:
        weights = [float(part) for part in split.split(",")]
    except ValueError:
        weights = []
    if len(weights) != number or not all(0 < weight < float("inf") for weight in weights):
        todo = f"write even, uneven, or {number} weights above 0 such as 5,3,2"
        raise RequestError(Code.BAD_ARGUMENT, f"--split {split!r}: {todo}")
    return weights


def parse_drop_outs(given: Sequence[str], study: Study) -> dict[int, list[str]]:
    """Return the sites that miss each round (from 0), parsed from ROUND:SITE (rounds from 1)."""
    out: dict[int, list[str]] = {}
    form = "--drop-out", "ROUND:SITE, with a round from 1"
    for round, _, site in _failures(given, study, DROP_OUT_PATTERN, *form):
        out.setdefault(round, []).append(site)
    return out


def parse_lost(given: Sequence[str], study: Study) -> dict[int, list[list[str]]]:
    """Return the sites that fail in each attempt at each round (from 0). Parsed from ROUND:SITE (first
    attempt) or ROUND.ATTEMPT:SITE (both from 1)."""
    out: dict[int, list[list[str]]] = {}
    numbers = f"with a round from 1, an attempt from 1 to {MAX_ATTEMPTS}"
    form = "--lost", f"ROUND:SITE or ROUND.ATTEMPT:SITE, {numbers}"
    for round, attempt, site in _failures(given, study, LOST_PATTERN, *form):
        out.setdefault(round, [[] for _ in range(MAX_ATTEMPTS)])[attempt].append(site)
    return out


def _failures(
    given: Sequence[str], study: Study, pattern: re.Pattern[str], option: str, form: str
) -> Iterator[tuple[int, int, str]]:
    """Yield the round and the attempt, both from 0, and the site of each text."""
    for item in given:
        matched = pattern.fullmatch(item)
        if matched is None or matched["site"] not in study.federation.sites:
            todo = f"write {form} and a site of: {', '.join(study.federation.sites)}"
            raise RequestError(Code.BAD_ARGUMENT, f"{option} {item!r}: {todo}")
        yield int(matched["round"]) - 1, int(matched["attempt"] or 1) - 1, matched["site"]


def repeat_study(
    simulate: Callable[..., Simulation], repeat: int, seed: int | None, truth: FloatArray | None
) -> SimulationRuns:
    """Run a study `repeat` times, with seeds seed, seed + 1, ... if any."""
    with ThreadPoolExecutor(CORES) as threads:
        seeds = (None if seed is None else seed + i for i in range(repeat))
        runs = tuple(simulate(seed=one, apply=threads.map) for one in seeds)
    angles = (None if truth is None else sin_angle(truth, run.estimate.components) for run in runs)
    return SimulationRuns(simulations=runs, sin_angles=tuple(angles))


def runs_summary(runs: SimulationRuns) -> dict[str, Any]:
    """Return the runs as plain values; the document is the last run's."""
    last, run = runs.last.document, runs.simulations[-1]
    value: dict[str, Any] = {
        "algorithm": last["plan"]["algorithm"],
        "n_sites": len(last["plan"]["study"]["federation"]["sites"]),
        "rounds": len(last["rounds"]),
        "repeat": len(runs.simulations),
        "private": last["private"],
        "guarantee": last["guarantee"],
        "result": run.result.published().to_dict(),
        "warnings": list(run.warnings),
    }
    if run.plan.masked:
        seen = [
            {
                "round": one.round,
                "attempt": one.attempt,
                "kind": NAMES[type(run.queries[one.round].query)],
                "honest": one.honest,
                "values": one.values.tolist(),
            }
            for one in run.coalition_views
        ]
        value |= {"attempts": run.attempts, "seen": seen}
    angles = [angle for angle in runs.sin_angles if angle is not None]
    if angles:
        value |= {"sin_angles": angles, "sin_angle_median": statistics.median(angles)}
    return value


def write_simulation(runs: SimulationRuns, folder: Path) -> dict[str, str]:
    """Write the last run as simulation.zip (unsigned) and report.html; return their paths."""
    from eigenveil.reporting.report import render  # drawing takes a second to import

    last, angle = runs.last, runs.sin_angles[-1]
    where = {"release": folder / SIMULATION_FILE, "report": folder / "report.html"}
    write_durably(where["release"], unsigned_release(last.document, last.result))
    write_durably(where["report"], render(last, measured_sin_angle=angle).encode())
    return {name: str(path) for name, path in where.items()}


def draw_last(runs: SimulationRuns, path: Path) -> dict[str, str]:
    """Draw all pictures of the last run as one figure, unless it released no components."""
    from eigenveil_client.local.tables import draw_overview  # drawing takes a second to import

    if not len(runs.simulations[-1].result.components):
        return {}
    draw_overview(path, runs.last)
    return {"plot": str(path)}


def runs_text(runs: SimulationRuns, value: dict[str, Any]) -> str:
    """Return the printed text of the runs."""
    result = value["result"]
    lines = [
        f"{value['algorithm']} over {value['n_sites']} sites in {value['rounds']} rounds"
        + ("" if value["repeat"] == 1 else f", {value['repeat']} times; the last run:"),
        value["guarantee"]["text"],
        "",
    ]
    lines += [
        f"component {one.number}: variance {one.variance:.4g}, {100 * one.share:.1f} %: {one.sentence}"
        for one in runs.simulations[-1].loadings
    ]
    if result["declined"]:
        lines.append(f"no release: {result['declined']}")
    elif result["predicted_sin_angle"] is not None:
        lines.append(f"predicted sine to the records' own components: {result['predicted_sin_angle']:.3g}")
    last = runs.simulations[-1].result
    if last.decision:
        lines.append(f"decision: {last.decision}")
    if last.prior is not None:
        lines.append(last.prior.text)
    if "sin_angles" in value:
        median, angles = value["sin_angle_median"], value["sin_angles"]
        least, most = f"{min(angles):.3g}", f"{max(angles):.3g}"
        spread = "" if len(angles) == 1 else f" (median of {len(angles)}, {least} to {most})"
        lines.append(f"measured sine to the exact components: {median:.3g}{spread}")
    if extra := sum(value.get("attempts", ())) - len(value.get("attempts", ())):
        lines.append(f"attempts that failed because a site was unavailable: {extra}, each charged")
    if value.get("seen"):
        lines.append(
            f"the colluding sites and the coordinator could compute {len(value['seen'])} sums of the others' "
            "answers, each with the noise of their shares, or pure noise if a site failed: --json lists them"
        )
    lines += [f"warning: {sentence}" for sentence in value["warnings"]]
    lines += [value[name] for name in ("release", "report", "plot") if name in value]
    return "\n".join(lines)


@contextmanager
def on_cluster(address: ClusterAddress | None) -> Iterator[SumFactory | None]:
    """Yield the `sum_factory` argument of `simulate` that runs its sites on a cluster, if there is one.

    Raises:
        RequestError: code `bad-config`, a library or a file is missing.
        PeerError: code `unreachable`, also from the simulation: a worker or the scheduler is gone."""
    if address is None:
        yield None
        return
    with closing(Cluster(address)) as cluster:
        yield partial(_scatter_sites, cluster)


def _scatter_sites(cluster: Cluster, sites: Mapping[str, Site], plan: Plan) -> ContributionSum:
    names, threads = sorted(sites), max(1, cluster.workers().threads)
    size = -(-len(names) // threads)
    shares = [names[first : first + size] for first in range(0, len(names), size)]
    futures = [cluster.scatter({name: sites[name] for name in share}) for share in shares]
    max_records = plan.study.max_records

    def sum_contributions(
        round_query: RoundQuery, present: Sequence[str], mask: Mask | None = None
    ) -> IntArray:
        round_query.digest  # noqa: B018 - computed here once, and sent along
        there = [[name for name in share if name in set(present)] for share in shares]
        sums = [
            cluster.submit(_answer, future, max_records, round_query, names, mask)
            for future, names in zip(futures, there, strict=True)
        ]
        return aggregate_groups(round_query, cluster.results(sums, sums, lambda done, of: None))

    return sum_contributions


def _answer(
    share: dict[str, Site], max_records: int, query: RoundQuery, present: Sequence[str], mask: Mask | None
) -> IntArray:
    with single_blas_thread():  # the worker's tasks are the threads
        return sum_contributions(share, max_records, query, present, mask)
