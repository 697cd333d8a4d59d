"""The whole federation in one process: the same session, sites and barrier, no network."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from eigenveil import barrier
from eigenveil.accounting.ledger import Ledger
from eigenveil.aggregation import Contribution, aggregate, validate
from eigenveil.algorithms import Estimate
from eigenveil.errors import Code, RequestError
from eigenveil.noise.seeded import SeededNoise
from eigenveil.noise.source import NoiseSource, OsNoise
from eigenveil.numerics.blas import one_thread
from eigenveil.numerics.encoding import FloatArray, IntArray, digest, frozen
from eigenveil.planning.resolve import make_plan
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import RoundQuery
from eigenveil.protocol.release import Release
from eigenveil.queries import NAMES
from eigenveil.reporting.document import RoundRecord, build
from eigenveil.session import Session
from eigenveil.site.partition import SPREAD, deal
from eigenveil.site.quantize import to_grid
from eigenveil.site.site import Apply, Site
from eigenveil.study.grid import GridRows
from eigenveil.study.study import Federation, Study

CORES = os.cpu_count() or 1
SHARED = 2**18  # entries from which on starting threads costs less than they save


class MemoryJournal:
    """The journal of a study that lives and dies with this process."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.ledger = Ledger(budget=plan.cost)
        self.ledger.apply(self.ledger.reserve(plan.digest, plan.cost, at=0))
        self.releases: dict[int, Release] = {}

    def sealed(self, round: int) -> Release | None:
        """The release of a round, if there is one."""
        return self.releases.get(round)

    def charge(self, asked: RoundQuery) -> None:
        """Spend the query's price."""
        entry = self.ledger.charge(self.plan.digest, asked.round, asked.digest, asked.cost, at=0)
        if entry is not None:
            self.ledger.apply(entry)

    def seal(self, release: Release) -> None:
        """Keep the release."""
        self.releases[release.round] = release


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Simulation:
    """What a simulated study gave. `document` is the content of release.json, unsigned."""

    plan: Plan
    estimate: Estimate
    releases: tuple[Release, ...]
    document: dict[str, Any]


def simulate(
    study: Study,
    parts: Mapping[str, FloatArray],
    *,
    seed: int | None = None,
    drop_outs: Mapping[int, Sequence[str]] | None = None,
    submission: str = "simulation",
    on_round: Callable[[Release], None] | None = None,
) -> Simulation:
    """Run a study on records held by simulated sites.

    Shape: parts maps each invited site's name to its records (n_i, d), in the units of the study's
    bounds, NaN for a missing value; a site that is left out never answers. Which site a record is at must not
    depend on other records, or one record moves many (`split_rows` deals by what a record is). `drop_outs`
    maps a round to the sites that do not answer it. With `seed` the noise is reproducible and the release
    says that it is not private.

    Raises:
        RequestError: records do not fit the study; too few sites answered a round.
    """
    plan = make_plan(study, federation="simulation", submission=submission, analyst="simulation")
    noise: NoiseSource = OsNoise() if seed is None else SeededNoise(seed)
    strange = sorted(set(parts) - set(study.federation.sites))
    if strange:
        raise RequestError(Code.BAD_ARGUMENT, f"records for uninvited sites: {', '.join(strange)}")
    secret = None if seed is None else bytes.fromhex(digest("simulated-order", seed))
    sites = {
        name: Site(to_grid(values, study), workers=CORES, secret=secret)
        for name, values in sorted(parts.items())
    }
    absent = {name: "no records" for name in study.federation.sites if name not in sites}
    small = [name for name, site in sites.items() if len(site) < study.federation.minimum_cohort]
    for name in small:
        absent[name] = "declined"  # as in a federation: the reason is the site's own affair
        del sites[name]
    session, journal = Session(plan), MemoryJournal(plan)
    rounds: list[RoundRecord] = []
    # The workers are the threads; more inside them only get in the way.
    with ThreadPoolExecutor(CORES) as threads, one_thread():
        while (asked := session.pending) is not None:
            gone = dict.fromkeys((drop_outs or {}).get(asked.round, ()), "dropped out") | absent
            _check_present(study.federation, gone, small)
            release = _round(asked, sites, gone, plan, journal, noise, threads)
            rounds.append(RoundRecord(round=asked.round, kind=NAMES[type(asked.query)], absent=gone))
            session.feed(release)
            if on_round is not None:
                on_round(release)
    document = build(plan, session.result, session.releases, rounds=rounds, private=noise.private)
    return Simulation(plan=plan, estimate=session.result, releases=tuple(session.releases), document=document)


def _check_present(federation: Federation, absent: Mapping[str, str], small: Collection[str]) -> None:
    """Whether the round may go on; who imagines the sites is told why not, but not how small a site is."""
    try:
        federation.check_present([name for name in federation.sites if name not in absent])
    except RequestError as problem:
        few = f"fewer records than minimum_cohort = {federation.minimum_cohort}"
        why = dict.fromkeys(small, few)
        reasons = "; ".join(f"{name}: {why.get(name, reason)}" for name, reason in absent.items())
        raise RequestError(problem.code, f"{problem} ({reasons})") from problem


def _round(
    asked: RoundQuery,
    sites: Mapping[str, Site],
    absent: Mapping[str, str],
    plan: Plan,
    journal: MemoryJournal,
    noise: NoiseSource,
    threads: ThreadPoolExecutor,
) -> Release:
    present = tuple(name for name in sites if name not in absent)
    answers: dict[str, IntArray] = {}
    for name in present:
        site = sites[name]
        apply: Apply = threads.map if site.rows.size >= SHARED else map
        contribution = Contribution(
            plan_digest=plan.digest,
            round=asked.round,
            query=asked.digest,
            site=name,
            values=site.answer(asked.query, apply),
        )
        validate(asked, contribution, range(plan.study.max_records + 1))
        answers[name] = contribution.values
    return barrier.release(asked, aggregate(asked, answers), present, plan=plan, journal=journal, noise=noise)


def site_places(rows: GridRows, weights: Mapping[str, float]) -> dict[str, IntArray]:
    """The positions of the records of each site, about as many as its weight (above 0) says.

    By what records are, as batches are dealt, never by where they stand: a record more joins one site and
    moves nobody from one site to another [P9].
    """
    tops = np.cumsum([weight / sum(weights.values()) for weight in weights.values()])
    place = deal(rows, SPREAD, frozen([0, 0, 0, 0])) / SPREAD
    site = np.searchsorted(tops[:-1], place, side="right")
    return {name: np.flatnonzero(site == i) for i, name in enumerate(weights)}


def split_rows(values: FloatArray, weights: Mapping[str, float]) -> dict[str, FloatArray]:
    """The records themselves, dealt to sites like that. Shape: values (n, d) -> (n_i, d) a site."""
    words = np.ascontiguousarray(values + 0.0).view(np.int16)  # + 0.0: the two zeros are one number
    return {name: values[mine] for name, mine in site_places(words, weights).items()}
