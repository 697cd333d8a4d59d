"""The whole federation in one process: the same session, sites and barrier, no network.

`run_study` is the protocol, and the place to begin reading; `simulate` is the study around it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from eigenveil import barrier
from eigenveil.accounting.budget import Budget
from eigenveil.accounting.ledger import Ledger
from eigenveil.algorithms import Estimate, OwnAlgorithm, own
from eigenveil.attendance import Attendance
from eigenveil.contributing import SHARED, Hold, here
from eigenveil.errors import Code, RequestError
from eigenveil.noise.seeded import SeededNoise
from eigenveil.noise.source import NoiseSource, OsNoise
from eigenveil.numerics.apply import Apply
from eigenveil.numerics.blas import one_thread
from eigenveil.numerics.encoding import FloatArray, IntArray, digest, frozen
from eigenveil.planning.resolve import make_plan
from eigenveil.protocol.budget import attempt_cost
from eigenveil.protocol.plan import SIMULATION, Plan, plan_for
from eigenveil.protocol.query import RoundQuery
from eigenveil.protocol.release import Release
from eigenveil.queries import batch_of
from eigenveil.reporting.cards import release_card
from eigenveil.reporting.document import RoundRecord, build
from eigenveil.reporting.result import Result, result_of
from eigenveil.secure_aggregation.simulated import CoalitionView, MaskedRounds
from eigenveil.session import Session
from eigenveil.site.partition import SPREAD, deal
from eigenveil.site.quantize import to_grid
from eigenveil.site.site import Site
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.grid import GridRows, unit
from eigenveil.study.study import Study

WORKERS = os.cpu_count() or 1  # of a site's records, which may be worked on side by side


def run_study(
    session: Session,
    sites: Mapping[str, Site],
    *,
    journal: barrier.Journal,
    noise: NoiseSource,
    present: Callable[[RoundQuery], Sequence[str]] | None = None,
    hold: Hold = here,
) -> None:
    """The protocol, round by round, until the algorithm asks nothing more.

    What a coordinator, its sites and an analyst do over a network, each with the part that is theirs. All
    sites answer every round, unless `present` says which; `hold` has them answer, here or elsewhere. Under
    secure aggregation both are those of `MaskedRounds`: what is added up is masked then, the noise is in it
    already, and the barrier draws none.
    """
    plan = session.plan
    contribute = hold(sites, plan)
    while (asked := session.pending) is not None:  # the algorithm yielded a priced query
        names = tuple(sites if present is None else present(asked))
        total = contribute(asked, names)  # every site answers for its own records; they are added up exactly
        release = barrier.release(asked, total, names, plan=plan, journal=journal, noise=noise)
        session.feed(release)  # noised, charged and public: all that the algorithm ever sees


class MemoryJournal:
    """The journal of a study that lives and dies with this process."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.ledger = Ledger(budget=Budget(mixed=plan.cost))
        self.ledger.apply(self.ledger.reserve(plan.digest, plan.cost, at=0, gaussian=plan.gaussian))
        self.releases: dict[int, Release] = {}
        self.tried: dict[int, int] = {}

    def sealed(self, round: int) -> Release | None:
        """The release of a round, if there is one."""
        return self.releases.get(round)

    def seal(self, asked: RoundQuery, release: Release) -> None:
        """Spend the query's price, and keep the release."""
        self.charge(asked)
        self.releases[release.round] = release

    def attempt(self, asked: RoundQuery, number: int) -> None:
        """Spend the price of an attempt at a masked round, before anything of it is sent [P33]."""
        study, batch = self.plan.digest, batch_of(asked.query)
        began = asked.round if batch is None else batch.first
        paid = max((self.tried.get(round, 0) for round in range(began, asked.round)), default=0)
        due = attempt_cost(asked.price, number, paid, self.ledger.paid[study, began] if paid else None)
        self.ledger.apply(self.ledger.attempt(study, asked.round, asked.digest, due, at=0))
        self.tried[asked.round] = number

    def charge(self, asked: RoundQuery) -> None:
        """Spend the query's price; of a masked one its attempts have."""
        if self.plan.masked:
            return
        entry = self.ledger.charge(self.plan.digest, asked.round, asked.digest, asked.cost, at=0)
        if entry is not None:
            self.ledger.apply(entry)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Simulation:
    """What a simulated study gave.

    `plan` is what ran, `asked` its queries and `releases` their answers, round by round. `estimate` is what
    the algorithm returned, in grid units scaled to [-1, 1], and `result` the same in the study's units.
    `document` is the content of release.json, unsigned. Under secure aggregation `attempts` says how many
    each round took, and `seen` what colluding sites could make out, if some were named.

    >>> import numpy as np
    >>> from eigenveil import Column, Federation, Study, simulate
    >>> columns = tuple(Column(name=name, unit="mm", lower=-10, upper=10) for name in "ab")
    >>> study = Study(name="pilot", columns=columns, epsilon=2.0, delta=1e-6, components=1,
    ...               federation=Federation(sites=("north",)))
    >>> run = simulate(study, {"north": np.random.default_rng(0).normal(size=(500, 2)) * [4, 1]}, seed=0)
    >>> run.result.components.shape, len(run.asked) == len(run.releases), run.bytes_per_site
    ((1, 2), True, 1040)
    """

    plan: Plan
    estimate: Estimate
    result: Result
    asked: tuple[RoundQuery, ...]
    releases: tuple[Release, ...]
    document: dict[str, Any]
    attempts: tuple[int, ...] = ()
    seen: tuple[CoalitionView, ...] = ()

    @property
    def bytes_per_site(self) -> int:
        """What a site that answered every round, in every attempt, sent, without what goes around it on a
        network."""
        times = self.attempts or (1,) * len(self.asked)
        return sum(8 * asked.query.length * n for asked, n in zip(self.asked, times, strict=True))

    def _repr_html_(self) -> str:
        return release_card(self.document)


def simulate(
    study: Study,
    records: Mapping[str, FloatArray],
    *,
    seed: int | None = None,
    drop_outs: Mapping[int, Sequence[str]] | None = None,
    lost: Mapping[int, Sequence[Sequence[str]]] | None = None,
    colluding: Sequence[str] = (),
    algorithm: OwnAlgorithm | Callable[[Plan], Generator[Any, Any, Any]] | None = None,
    submission: str = "simulation",
    apply: Apply = map,
    hold: Hold | None = None,
) -> Simulation:
    """Run a study on records held by simulated sites, with the session and the barrier of a federation.

    Shape: records maps each invited site's name to an array (n_i, d), in the units of the study's bounds, NaN
    for a missing value; a site that is left out never answers. Which site a record is at must not depend on
    other records, or one record moves many.

    `seed` makes the noise reproducible, and the release then says that it is not private. `drop_outs` maps a
    round (from 0) to the sites that do not answer it. Under secure aggregation they are not there when its
    set of sites is fixed, and `lost` maps a round to the sites that are lost after that, in its first
    attempt, its second and so on: each is charged. `colluding` sites pool what they know with the
    coordinator, and `Simulation.seen` is all that they can make of it. `algorithm` runs instead of the one
    that the study names: an algorithm of your own, which no federation runs (docs/own-algorithm.md). `apply`
    is `map` or an executor's, which works on large records side by side. `hold` has the sites answer
    elsewhere, as `eigenveil_client.local.on_cluster` does; the release is the same.

    Raises:
        RequestError: records do not fit the study; too few sites answered a round; the algorithm asked for
            what its plan does not allow.

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
    (False, ('north',))
    """
    plan = _plan(study, algorithm, submission)
    noise: NoiseSource = OsNoise() if seed is None else SeededNoise(seed)
    attendance = Attendance(study.federation, _imagined(study, records, seed, apply), drop_outs or {})
    session, journal = Session(plan), MemoryJournal(plan)
    answering: Hold = partial(here, apply=apply) if hold is None else hold
    _check_masked(study, lost or {}, set(colluding))
    masked = MaskedRounds(
        plan, attendance, journal.attempt, answering, seed=seed, lost=lost or {}, colluding=colluding
    )
    present = masked.present if study.masked else attendance
    answering = masked.hold if study.masked else answering
    with one_thread():  # the workers are the threads; more inside them only get in the way
        run_study(session, attendance.sites, journal=journal, noise=noise, present=present, hold=answering)
    return _simulated(session, attendance.rounds, masked.seen, noise.private)


def _simulated(
    session: Session, rounds: Sequence[RoundRecord], seen: Sequence[CoalitionView], private: bool
) -> Simulation:
    plan, result = session.plan, result_of(session.plan, session.result)
    return Simulation(
        plan=plan,
        estimate=session.result,
        result=result,
        asked=tuple(session.asked),
        releases=tuple(session.releases),
        document=build(plan, result, session.releases, rounds=rounds, private=private),
        attempts=tuple(one.attempts for one in rounds) if plan.masked else (),
        seen=tuple(seen),
    )


def _check_masked(study: Study, lost: Mapping[int, Sequence[Sequence[str]]], colluding: set[str]) -> None:
    """Sites that collude, or are lost after a set was fixed, are invited to a masked study."""
    named = {site for attempts in lost.values() for sites in attempts for site in sites} | colluding
    strange = ", ".join(sorted(named - set(study.federation.sites)))
    wrong = ""
    if named and not study.masked:
        wrong = 'sites that collude, or are lost in an attempt, need trust = "secure-aggregation"'
    elif strange:
        wrong = f"uninvited sites cannot collude or be lost: {strange}"
    elif len(colluding) > study.colluders:
        wrong = (
            f"the study's noise is for colluding = {study.colluders}, not {len(colluding)}; raise it there"
        )
    if wrong:
        raise RequestError(Code.BAD_ARGUMENT, wrong)


def _imagined(
    study: Study, records: Mapping[str, FloatArray], seed: int | None, apply: Apply
) -> dict[str, Site]:
    """The sites; one that is small has its records in one piece, because cutting them up takes longer."""
    strange = sorted(set(records) - set(study.federation.sites))
    if strange:
        raise RequestError(Code.BAD_ARGUMENT, f"records for uninvited sites: {', '.join(strange)}")
    secret = None if seed is None else bytes.fromhex(digest("simulated-order", seed))
    sites: dict[str, Site] = {}
    for name, values in sorted(records.items()):
        rows = to_grid(values, study, apply)
        workers = WORKERS if rows.size >= SHARED else 1
        sites[name] = Site(rows, unit=unit(study), workers=workers, secret=secret)
    return sites


def _plan(
    study: Study, algorithm: OwnAlgorithm | Callable[[Plan], Generator[Any, Any, Any]] | None, submission: str
) -> Plan:
    if algorithm is None:
        return make_plan(study, federation=SIMULATION, submission=submission, analyst=SIMULATION)
    unnamed = replace(study, algorithm=Algorithm.AUTO)
    return plan_for(unnamed, own(algorithm), federation="", submission=submission)


def site_places(rows: GridRows, weights: Mapping[str, float], unit: int = 1) -> dict[str, IntArray]:
    """The positions of the records of each site, about as many as its weight (above 0) says.

    By what records are, as batches are dealt, never by where they stand: a record more joins one site and
    moves nobody from one site to another [P9]. `rows` times `unit` are on the grid, so that how finely a
    record is stored does not decide where it goes.
    """
    names = list(weights)
    tops = np.cumsum([weight / sum(weights.values()) for weight in weights.values()])
    place = deal(rows, SPREAD, frozen([0, 0, 0, 0]), unit) / SPREAD
    site = np.searchsorted(tops[:-1], place, side="right")
    order = np.argsort(site, kind="stable")
    ends = np.searchsorted(site[order], np.arange(1, len(names)))
    return dict(zip(names, np.split(order, ends), strict=True))


def split_rows(values: FloatArray, weights: Mapping[str, float]) -> dict[str, FloatArray]:
    """The records themselves, dealt to sites like that. Shape: values (n, d) -> (n_i, d) a site."""
    words = np.ascontiguousarray(values + 0.0).view(np.int16)  # + 0.0: the two zeros are one number
    return {name: values[mine] for name, mine in site_places(words, weights).items()}
