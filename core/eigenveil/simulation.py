"""Simulation of a federation in one process: the same session, sites and barrier, without a network.

Start reading at `run_study`, which is the protocol; `simulate` prepares a study for it."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from eigenveil import barrier
from eigenveil.accounting.budget import PrivacyBudget
from eigenveil.accounting.ledger import Ledger
from eigenveil.accounting.zcdp import Cost
from eigenveil.algorithms import CustomAlgorithm, Estimate, as_custom_algorithm
from eigenveil.errors import Code, RequestError
from eigenveil.noise.seeded import SeededNoise
from eigenveil.noise.source import NoiseSource, OsNoise
from eigenveil.numerics.encoding import FloatArray, IntArray, digest, frozen
from eigenveil.numerics.linalg import single_blas_thread
from eigenveil.planning.choose import make_plan
from eigenveil.protocol.plan import SIMULATION, Plan, plan_for
from eigenveil.protocol.query import RoundQuery
from eigenveil.protocol.query_limits import attempt_cost
from eigenveil.protocol.rounds import Release
from eigenveil.queries import batch_of
from eigenveil.reporting.document import release_document
from eigenveil.reporting.loadings import ComponentLoadings, component_loadings, release_warnings
from eigenveil.reporting.result import Result, result_of
from eigenveil.reporting.summary import release_dataframe, release_summary_html, release_summary_text
from eigenveil.secure_aggregation.simulated import CoalitionView, MaskedRounds
from eigenveil.session import Session
from eigenveil.simulated_sites import PARALLEL_ENTRIES, Attendance, SumFactory, sites_in_process
from eigenveil.site.batches import HASH_RANGE, assign_batches
from eigenveil.site.record_view import ParallelMap, to_grid
from eigenveil.site.site import Site
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.grid import GridRows, unit
from eigenveil.study.study import Study

WORKERS = os.cpu_count() or 1  # parallel parts of a site's records


def run_study(
    session: Session,
    sites: Mapping[str, Site],
    *,
    journal: barrier.Journal,
    noise: NoiseSource,
    present: Callable[[RoundQuery], Sequence[str]] | None = None,
    sum_factory: SumFactory = sites_in_process,
) -> None:
    """Run the protocol, round by round, until the algorithm has no more queries.

    A coordinator, its sites and an analyst do the same over a network, each its part. `present` returns the
    sites that answer a round (default: all). `sum_factory` returns the function that sums their answers,
    here or elsewhere. Under secure aggregation both are methods of `MaskedRounds`: the summed answers are
    masked and include the noise, so the barrier draws none."""
    plan = session.plan
    contribute = sum_factory(sites, plan)
    while (round_query := session.pending) is not None:  # the algorithm yielded a priced query
        names = tuple(sites if present is None else present(round_query))
        total = contribute(round_query, names)  # every site answers for its records; the exact sum
        release = barrier.release(round_query, total, names, plan=plan, journal=journal, noise=noise)
        session.feed(release)  # noised, charged and public: the algorithm's only input


class MemoryJournal:
    """Journal of a study in memory."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.ledger = Ledger(budget=PrivacyBudget(mixed=plan.cost))
        self.ledger.apply(self.ledger.reserve(plan.digest, plan.cost, at=0, gaussian=plan.gaussian))
        self.releases: dict[int, Release] = {}
        self.tried: dict[int, int] = {}

    def sealed(self, round: int) -> Release | None:
        """Return the release of a round, or None."""
        return self.releases.get(round)

    def seal(self, round_query: RoundQuery, release: Release) -> None:
        """Charge the query's cost and store the release."""
        self.charge(round_query)
        self.releases[release.round] = release

    def attempt(self, round_query: RoundQuery, number: int) -> None:
        """Charge an attempt at a masked round before any of its messages is sent [P33]."""
        study, round, due = self.plan.digest, round_query.round, self._due(round_query, number)
        pool = self.plan.spare_cost
        self.ledger.apply(self.ledger.attempt(study, round, round_query.digest, due, pool=pool, at=0))
        self.tried[round] = number

    def may_attempt(self, round_query: RoundQuery, number: int) -> bool:
        """Return True if the study's pool covers an attempt with this number [P35]."""
        due, pool = self._due(round_query, number), self.plan.spare_cost
        covered = self.ledger.covers(self.plan.digest, round_query.round, due, pool)
        return number <= self.plan.most_attempts and covered

    def _due(self, round_query: RoundQuery, number: int) -> Cost:
        study, batch = self.plan.digest, batch_of(round_query.query)
        began = round_query.round if batch is None else batch.first_round
        paid = max((self.tried.get(round, 0) for round in range(began, round_query.round)), default=0)
        first = self.ledger.paid[study, began].cost if paid else None
        return attempt_cost(round_query.priced.cost, number, paid, first)

    def charge(self, round_query: RoundQuery) -> None:
        """Charge the query's cost; in a masked study, the attempts were charged already."""
        if self.plan.masked:
            return
        entry = self.ledger.charge(
            self.plan.digest, round_query.round, round_query.digest, round_query.cost, at=0
        )
        if entry is not None:
            self.ledger.apply(entry)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Simulation:
    """Result of a simulated study.

    `plan` has run, `queries` are its queries and `releases` their releases, round by round. `estimate` is the
    algorithm's result in grid units scaled to [-1, 1], and `result` is it in the study's units. `document` is
    that of its release, unsigned. Under secure aggregation, `attempts` has the number of attempts of
    each round, and `coalition_views` the views of the `colluding` sites, if any.

    >>> import numpy as np
    >>> from eigenveil import Column, Federation, Study, simulate
    >>> columns = tuple(Column(name=name, unit="mm", lower=-10, upper=10) for name in "ab")
    >>> study = Study(name="pilot", columns=columns, epsilon=2.0, delta=1e-6, components=1,
    ...               federation=Federation(sites=("north",)))
    >>> run = simulate(study, {"north": np.random.default_rng(0).normal(size=(500, 2)) * [4, 1]}, seed=0)
    >>> run.result.components.shape, len(run.queries) == len(run.releases), run.bytes_per_site
    ((1, 2), True, 1040)"""

    plan: Plan
    estimate: Estimate
    result: Result
    queries: tuple[RoundQuery, ...]
    releases: tuple[Release, ...]
    document: dict[str, Any]
    attempts: tuple[int, ...] = ()
    coalition_views: tuple[CoalitionView, ...] = ()

    @property
    def bytes_per_site(self) -> int:
        """Bytes sent by a site that answered every attempt at every round, without network overhead."""
        times = self.attempts or (1,) * len(self.queries)
        return sum(
            8 * round_query.query.length * n for round_query, n in zip(self.queries, times, strict=True)
        )

    @property
    def loadings(self) -> tuple[ComponentLoadings, ...]:
        """Components with the loading of each column, its error, and a sentence."""
        return component_loadings(self.result)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about the result, a sentence or two each."""
        return release_warnings(self)

    def to_dataframe(self) -> Any:
        """Return a DataFrame with a row for each column: unit, mean, scale, and its loading in each component
        with the error. Raises RequestError: code `bad-config`, pandas is not installed."""
        return release_dataframe(self)

    def __repr__(self) -> str:
        return release_summary_text(self)

    def _repr_html_(self) -> str:
        return release_summary_html(self)


def simulate(
    study: Study,
    records: Mapping[str, FloatArray],
    *,
    seed: int | None = None,
    drop_outs: Mapping[int, Sequence[str]] | None = None,
    lost: Mapping[int, Sequence[Sequence[str]]] | None = None,
    colluding: Sequence[str] = (),
    algorithm: CustomAlgorithm | Callable[[Plan], Generator[Any, Any, Any]] | None = None,
    submission: str = "simulation",
    apply: ParallelMap = map,
    sum_factory: SumFactory | None = None,
) -> Simulation:
    """Run a study on records of simulated sites, with the session and the barrier of a federation.

    Shape: records maps each invited site's name to an array (n_i, d), in the units of the study's bounds, NaN
    for a missing value; a site that is left out never answers. The site of a record must not depend on other
    records, or one record would affect several sites.

    - `seed` makes the noise reproducible; the release then states that it is not private.
    - `drop_outs` maps a round (from 0) to the sites that do not answer it. Under secure aggregation they are
      absent when the members of an attempt are fixed.
    - `lost` maps a round to the sites lost after that, in each of its attempts. Each is charged.
    - `colluding` sites pool their knowledge with the coordinator; `Simulation.coalition_views` has their
      views.
    - `algorithm` is a custom algorithm, which no federation runs (docs/own-algorithm.md).
    - `apply` is `map` or that of an executor, for parallel work on large records.
    - `sum_factory` has the sites answer elsewhere, as `eigenveil_client.local.simulate` does.

    Raises:
        RequestError: records do not match the study; too few sites answered a round; the algorithm yielded a
            query that its plan does not allow.

    >>> import numpy as np
    >>> from eigenveil import Column, Federation, Study, simulate
    >>> columns = tuple(Column(name=name, unit="mm", lower=-10, upper=10) for name in "ab")
    >>> study = Study(name="pilot", columns=columns, epsilon=2.0, delta=1e-6, components=1,
    ...               federation=Federation(sites=("north", "south"), quorum=1))
    >>> rows = np.random.default_rng(0).normal(size=(2, 500, 2)) * [4, 1]
    >>> run = simulate(study, {"north": rows[0], "south": rows[1]}, seed=0, drop_outs={1: ["south"]})
    >>> abs(run.result.components).round(1).tolist()
    [[1.0, 0.0]]
    >>> run.document["private"], run.releases[1].present
    (False, ('north',))"""
    plan = _plan(study, algorithm, submission)
    noise: NoiseSource = OsNoise() if seed is None else SeededNoise(seed)
    attendance = Attendance(study.federation, _simulated_sites(study, records, seed, apply), drop_outs or {})
    session, journal = Session(plan), MemoryJournal(plan)
    answering = sum_factory or partial(sites_in_process, apply=apply)
    _check_masked(study, lost or {}, set(colluding))
    masked = MaskedRounds(
        plan, attendance, journal, answering, seed=seed, lost=lost or {}, colluding=colluding
    )
    present, answering = (masked.present, masked.sum_factory) if study.masked else (attendance, answering)
    with single_blas_thread():  # the workers run in parallel, so BLAS uses one thread
        run_study(
            session, attendance.sites, journal=journal, noise=noise, present=present, sum_factory=answering
        )
    return _simulated(session, attendance, masked, noise.private)


def _simulated(session: Session, attendance: Attendance, masked: MaskedRounds, private: bool) -> Simulation:
    plan, rounds, result = session.plan, attendance.rounds, result_of(session.plan, session.result)
    return Simulation(
        plan=plan,
        estimate=session.result,
        result=result,
        queries=tuple(session.queries),
        releases=tuple(session.releases),
        document=release_document(plan, result, session.releases, rounds=rounds, private=private),
        attempts=tuple(one.attempts for one in rounds) if plan.masked else (),
        coalition_views=tuple(masked.coalition_views),
    )


def _check_masked(study: Study, lost: Mapping[int, Sequence[Sequence[str]]], colluding: set[str]) -> None:
    """Check that colluding and lost sites are invited to a masked study."""
    named = {site for attempts in lost.values() for sites in attempts for site in sites} | colluding
    unknown_sites = ", ".join(sorted(named - set(study.federation.sites)))
    wrong = ""
    if named and not study.masked:
        wrong = 'colluding and lost need trust = "secure-aggregation"'
    elif unknown_sites:
        wrong = f"colluding or lost has sites that are not invited: {unknown_sites}"
    elif len(colluding) > study.colluders:
        wrong = f"the study states colluding = {study.colluders}, not {len(colluding)}; raise it in the study"
    if wrong:
        raise RequestError(Code.BAD_ARGUMENT, wrong)


def _simulated_sites(
    study: Study, records: Mapping[str, FloatArray], seed: int | None, apply: ParallelMap
) -> dict[str, Site]:
    """Return the simulated sites; only large records are divided into parts."""
    unknown_sites = sorted(set(records) - set(study.federation.sites))
    if unknown_sites:
        raise RequestError(
            Code.BAD_ARGUMENT, f"records of sites that are not invited: {', '.join(unknown_sites)}"
        )
    secret = None if seed is None else bytes.fromhex(digest("simulated-order", seed))
    sites: dict[str, Site] = {}
    for name, values in sorted(records.items()):
        rows = to_grid(values, study, apply)
        workers = WORKERS if rows.size >= PARALLEL_ENTRIES else 1
        sites[name] = Site(rows, unit=unit(study), workers=workers, secret=secret)
    return sites


def _plan(
    study: Study,
    algorithm: CustomAlgorithm | Callable[[Plan], Generator[Any, Any, Any]] | None,
    submission: str,
) -> Plan:
    if algorithm is None:
        return make_plan(study, federation=SIMULATION, submission=submission, analyst=SIMULATION)
    unnamed = replace(study, algorithm=Algorithm.AUTO)
    return plan_for(unnamed, as_custom_algorithm(algorithm), federation="", submission=submission)


def site_places(rows: GridRows, weights: Mapping[str, float], unit: int = 1) -> dict[str, IntArray]:
    """Return the positions of the records of each site, in proportion to its weight (above 0).

    Records are assigned by their values, as batches are, not by their positions. So one more record joins one
    site and moves no other record [P9]. `rows` times `unit` are on the grid, so the assignment does not
    depend on the resolution of stored records."""
    names = list(weights)
    tops = np.cumsum([weight / sum(weights.values()) for weight in weights.values()])
    place = assign_batches(rows, HASH_RANGE, frozen([0, 0, 0, 0]), unit) / HASH_RANGE
    site = np.searchsorted(tops[:-1], place, side="right")
    order = np.argsort(site, kind="stable")
    ends = np.searchsorted(site[order], np.arange(1, len(names)))
    return dict(zip(names, np.split(order, ends), strict=True))


def split_rows(values: FloatArray, weights: Mapping[str, float]) -> dict[str, FloatArray]:
    """Return the records of each site, by `site_places`. Shape: values (n, d) -> (n_i, d) per site."""
    words = np.ascontiguousarray(values + 0.0).view(np.int16)  # + 0.0: the two zeros are one number
    return {name: values[mine] for name, mine in site_places(words, weights).items()}
