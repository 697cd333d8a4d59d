"""One open round in memory: answers, declines, awaited sites, sum of the answers, and prepared noise.

Everything happens on the event loop, so each method is one step. Only adding an answer may take longer; the
close waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from concurrent.futures import Executor, Future
from contextlib import suppress

from eigenveil.aggregation import RunningTotal
from eigenveil.errors import Code, InternalError, RequestError, round_label
from eigenveil.noise.source import NoiseSource, NoiseSpec
from eigenveil.numerics.encoding import FloatArray, IntArray
from eigenveil.protocol.query import RoundQuery
from eigenveil.protocol.rounds import RoundState, check_transition
from eigenveil.secure_aggregation.masking import Attempt
from eigenveil.study.study import Federation
from eigenveil_common.files import failpoint
from eigenveil_server.storage.states import shown
from eigenveil_server.storage.study_reads import RoundAnswers

LATE = "did not answer"
WAITING = "waiting"
ABSENT = "absent"
APPROVAL = "waiting for approval"
UNDECIDED = "not approved there yet"
Run = Callable[[Callable[[str, IntArray], None], str, IntArray], Awaitable[None]]


class DifferentAnswer(RequestError):
    """A site's second answer differs from its first: it is refused, audited and reported to the operator."""

    def __init__(self, site: str, round: int) -> None:
        super().__init__(
            Code.CONFLICT,
            f"site {site} answered {round_label(round)} differently before; nothing was added, "
            "and the operator was notified",
        )


class LateAnswer(RequestError):
    """An answer came after its round was closed: it is never added."""

    def __init__(self, site: str, round: int) -> None:
        said = f"{round_label(round)} was closed before site {site} answered; poll for new work"
        super().__init__(Code.CONFLICT, said)


class OpenRound:
    """Answers to one query. `earlier` are those from before this process.

    An answer is added to the single sum, and its values are dropped. The answers in the sum at the close
    count. The release, or the end of the study, stores the HMACs that are not stored yet. `ready` is set when
    no site is awaited, or when the round cannot succeed. `attempt` is the attempt that answers are masked
    for, once the set of sites of a masked round is fixed.
    """

    attempt: Attempt | None = None

    def __init__(self, round_query: RoundQuery, federation: Federation, earlier: RoundAnswers) -> None:
        self.round_query = round_query
        self.state = RoundState.PLANNED
        self.ready = asyncio.Event()
        self._federation = federation
        self._sites = frozenset(federation.sites)
        self._macs = dict(earlier.macs)
        self._declined = dict(earlier.declined)
        self._total = RunningTotal(round_query)
        self._adding = asyncio.Lock()
        self._partly_added = False  # an answer was added in part
        self._answered: set[str] = set()
        self._stored = set(earlier.declined)
        self._closed = False
        self._settled = asyncio.Event()
        self._update_ready()

    def enter(self, state: RoundState) -> None:
        """Move to `state`, if the state table allows it."""
        self.state = check_transition(self.state, state)

    def awaits(self, site: str) -> bool:
        """True if `site` is invited and has neither answered nor declined."""
        awaited = site not in self._answered and site not in self._declined
        return not self._closed and awaited and site in self._sites

    @property
    def number(self) -> int:
        """Return the number of the attempt; 0 where there is none."""
        return 0 if self.attempt is None else self.attempt.number

    def number_for(self, site: str) -> int:
        """Return the number of the attempt that `site` is to answer; 0 for an exact answer."""
        return 0

    def is_earlier_attempt(self, attempt: str) -> bool:
        """True if the attempt with this digest is an earlier one."""
        return False

    def deny(self, sites: frozenset[str]) -> None:
        """Note the denied sites. Their earlier answers stay in, and an exact round goes on without the
        others."""

    def is_stored(self, site: str) -> bool:
        """True if the answer or decline of `site` is durable."""
        return site in self._stored

    async def add_answer(self, site: str, mac: bytes, values: IntArray, run: Run) -> bool:
        """Add a validated contribution once, with `run`; True if the same one was added before. Must not be
        cancelled.

        Raises:
            DifferentAnswer: the site answered differently before.
            LateAnswer: the round is closed.
            RequestError: code `conflict`: the site declined it.
        """
        async with self._adding:
            if self._macs.get(site, mac) != mac:
                raise DifferentAnswer(site, self.round_query.round)
            if site in self._answered:
                return True
            self._check_awaited(site)
            repeated = site in self._macs
            self._macs[site] = mac
            self._answered.add(site)  # it cannot decline any more
            try:
                await run(self._total.add, site, values)
            except BaseException:
                self._partly_added = True  # stays set, whatever is added later
                raise
        self._update_ready()
        return repeated

    def _check_awaited(self, site: str) -> None:
        if self._closed:
            raise LateAnswer(site, self.round_query.round)
        if site in self._declined:
            raise RequestError(
                Code.CONFLICT,
                f"site {site} declined {round_label(self.round_query.round)}; a decline is final",
            )

    def unstored(self) -> dict[str, bytes]:
        """Return the HMACs of the received contributions that are not durable yet."""
        return {site: self._macs[site] for site in sorted(self._answered - self._stored)}

    def stored(self, sites: Iterable[str]) -> None:
        """Note that the answers or declines of these sites are durable; a decline counts from here on."""
        self._stored.update(sites)
        self._update_ready()

    async def complete(self, seconds: float) -> bool:
        """Wait up to `seconds` for `ready`; True if it is set."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.ready.wait()
        return self.ready.is_set()

    async def wait_until_settled(self, seconds: float) -> bool:
        """Wait up to `seconds` for the release, or the study's end, to store the received answers; True if it
        did."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._settled.wait()
        return not self.unstored()

    def decline(self, site: str, reason: str) -> None:
        """Note that `site` will not answer.

        Raises:
            RequestError: code `conflict`: it answered already, or the round is closed (LateAnswer).
        """
        if site in self._declined:
            return
        if self._closed:
            raise LateAnswer(site, self.round_query.round)
        if site in self._answered:
            raise RequestError(
                Code.CONFLICT, f"site {site} answered {round_label(self.round_query.round)} already"
            )
        self._declined[site] = reason

    @property
    def closed(self) -> bool:
        """True if the set of sites is frozen; nothing is published of that before the release."""
        return self._closed

    async def close(self) -> tuple[str, ...]:
        """Freeze the set of sites, once no answer is being added; return the sites that have answered."""
        self._closed = True
        async with self._adding:
            return tuple(sorted(self._answered))

    def total(self) -> IntArray:
        """Return the sum of the answers and drop it here.

        Raises:
            InternalError: one answer was added in part.
        """
        if self._partly_added:
            raise InternalError(
                Code.BUG, f"an answer to {round_label(self.round_query.round)} was added only in part"
            )
        total, self._total = self._total.whole(), RunningTotal(self.round_query)
        return total

    def macs(self) -> dict[str, bytes]:
        """Return the HMACs of the received contributions."""
        return {site: self._macs[site] for site in sorted(self._answered)}

    def settle(self, *, durable: bool) -> None:
        """End the round; `durable` if its release or the study's end stored the received answers."""
        if durable:
            self._stored |= self._answered
        self._settled.set()

    def absent(self) -> dict[str, str]:
        """Return the invited sites without an answer, and the reason that analysts see."""
        return {
            site: ": ".join(shown(self._declined[site])) if site in self._declined else LATE
            for site in self._federation.sites
            if site not in self._answered
        }

    def reasons(self, waiting: Collection[str]) -> str:
        """Return the sites without an answer, and why, as text; at the sites in `waiting` a person has not
        agreed yet."""
        late = {site: UNDECIDED for site, why in self.absent().items() if why == LATE and site in waiting}
        return "; ".join(f"{site}: {why}" for site, why in (self.absent() | late).items())

    def statuses(self, waiting: Collection[str] = ()) -> dict[str, str]:
        """Return the status of every invited site for analysts; at the sites in `waiting` a person must agree
        first."""
        said = {site: self._status(site) for site in self._federation.sites}
        late = {site: APPROVAL for site in waiting if said.get(site) == WAITING}
        return said | late

    def _status(self, site: str) -> str:
        if site in self._declined:
            return ":".join(shown(self._declined[site]))
        if site in self._answered:
            return "answered"
        return ABSENT if self._closed else WAITING

    def _update_ready(self) -> None:
        """Set `ready` when due. Runs after every answer, so its cost must not grow with their number."""
        federation, declined = self._federation, self._declined.keys() & self._stored
        few = len(self._sites) - len(declined) < federation.least
        if few or not declined.isdisjoint(federation.required):
            self.ready.set()
        if len(self._answered) + len(declined) == len(self._sites):
            self.ready.set()


class PreparedNoise:
    """Noise source that returns the prepared vector, once, for exactly its specification.

    The vector is drawn while the sites compute. It depends on no data, so its duration reveals nothing [P6].
    """

    def __init__(self, source: NoiseSource, threads: Executor) -> None:
        self._source = source
        self._threads = threads
        self._prepared: tuple[NoiseSpec, Future[IntArray]] | None = None

    @property
    def private(self) -> bool:
        return self._source.private

    def prepare(self, spec: NoiseSpec) -> None:
        """Start to draw; a prepared vector that was not used is discarded."""
        self.discard()
        self._prepared = spec, self._threads.submit(self._source.draw, spec)

    async def wait_until_drawn(self) -> None:
        """Wait for the prepared vector without blocking a thread. A failure is raised by `draw`, behind the
        barrier."""
        if self._prepared is not None:
            await asyncio.wait([asyncio.wrap_future(self._prepared[1])])

    def draw(self, spec: NoiseSpec) -> IntArray:
        """Return the prepared vector. Shape: (spec.length,). Blocks until it is drawn.

        Raises:
            InternalError: none is prepared, or with another specification.
        """
        failpoint("noise-taken")
        prepared, self._prepared = self._prepared, None
        if prepared is None or prepared[0] != spec:
            raise InternalError(Code.BUG, "the requested noise is not the prepared noise")
        return prepared[1].result()

    def uniform(self, count: int) -> FloatArray:
        """Return uniform numbers of the source: a trusted mechanism's need depends on its data."""
        return self._source.uniform(count)

    def discard(self) -> None:
        if self._prepared is not None:
            self._prepared[1].cancel()
            self._prepared = None
