"""One open round in memory: who answered, who declined, who is awaited, and what their answers add up to.

Everything happens on the event loop, so each method is one step; but for adding an answer, which the close
waits for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from contextlib import suppress

from eigenveil.aggregation import Total
from eigenveil.errors import Code, InternalError, RequestError, spoken
from eigenveil.numerics.encoding import IntArray
from eigenveil.protocol.query import RoundQuery
from eigenveil.protocol.round import RoundState, move
from eigenveil.secure_aggregation.attempt import Attempt
from eigenveil.study.study import Federation
from eigenveil_server.storage.states import shown
from eigenveil_server.storage.study_reads import Answers

LATE = "did not answer"
WAITING = "waiting"
ABSENT = "absent"
APPROVAL = "waiting for approval"
UNDECIDED = "nobody has approved the study there"
Run = Callable[[Callable[[str, IntArray], None], str, IntArray], Awaitable[None]]


class DifferentAnswer(RequestError):
    """A site's second answer is not its first: refused, audited, and told to the operator."""

    def __init__(self, site: str, round: int) -> None:
        super().__init__(
            Code.CONFLICT,
            f"site {site} answered {spoken(round)} differently before; nothing was added, "
            "and the operator was told",
        )


class LateAnswer(RequestError):
    """An answer came after its round was closed: it is never added."""

    def __init__(self, site: str, round: int) -> None:
        said = f"{spoken(round)} was closed before site {site} answered; ask for work"
        super().__init__(Code.CONFLICT, said)


class OpenRound:
    """What sites sent for `asked`. `earlier` is what they sent before this process started.

    An answer is added to the one sum there is, and its values are dropped. Whoever's are in that at the close
    is in: the release, or the end of the study, stores
    the HMACs that are not stored yet.
    `ready` is set when nobody is awaited any more, or when the round cannot succeed whoever still
    answers. `attempt` is what answers are masked for, in a round of that kind whose set of sites is fixed.
    """

    attempt: Attempt | None = None

    def __init__(self, asked: RoundQuery, federation: Federation, earlier: Answers) -> None:
        self.asked = asked
        self.state = RoundState.PLANNED
        self.ready = asyncio.Event()
        self._federation = federation
        self._sites = frozenset(federation.sites)
        self._macs = dict(earlier.macs)
        self._declined = dict(earlier.declined)
        self._total = Total(asked)
        self._adding = asyncio.Lock()
        self._torn = False  # an answer was not added to its end
        self._answered: set[str] = set()
        self._stored = set(earlier.declined)
        self._closed = False
        self._settled = asyncio.Event()
        self._look()

    def enter(self, state: RoundState) -> None:
        """Move on to `state`, if the table of moves allows it."""
        self.state = move(self.state, state)

    def wants(self, site: str) -> bool:
        """Whether `site` is invited and has neither answered nor declined."""
        awaited = site not in self._answered and site not in self._declined
        return not self._closed and awaited and site in self._sites

    @property
    def number(self) -> int:
        """Of the attempt; 0 where there is none."""
        return 0 if self.attempt is None else self.attempt.number

    def number_for(self, site: str) -> int:
        """Of the attempt that `site` is asked to answer; 0 where it is asked for no masked answer."""
        return 0

    def passed(self, attempt: str) -> bool:
        """Whether the attempt of this digest is one before this."""
        return False

    def deny(self, sites: frozenset[str]) -> None:
        """Take note of all who are shut out. What they answered before stays in, and a round of exact answers
        goes on without the others."""

    def holds(self, site: str) -> bool:
        """Whether what `site` said is durably known."""
        return site in self._stored

    async def put(self, site: str, mac: bytes, values: IntArray, run: Run) -> bool:
        """Add a validated contribution, once, by `run`; whether the same one was here before. Must not be
        cancelled: it is in, or it is not.

        Raises:
            DifferentAnswer: it answered differently before.
            LateAnswer: the round is closed.
            RequestError: code `conflict`: the site declined it.
        """
        async with self._adding:
            if self._macs.get(site, mac) != mac:
                raise DifferentAnswer(site, self.asked.round)
            if site in self._answered:
                return True
            self._check_awaited(site)
            repeated = site in self._macs
            self._macs[site] = mac
            self._answered.add(site)  # from here on it cannot decline
            try:
                await run(self._total.add, site, values)
            except BaseException:
                self._torn = True  # and it stays so, whatever is added to its end after it
                raise
        self._look()
        return repeated

    def _check_awaited(self, site: str) -> None:
        if self._closed:
            raise LateAnswer(site, self.asked.round)
        if site in self._declined:
            raise RequestError(
                Code.CONFLICT, f"site {site} declined {spoken(self.asked.round)}; that cannot be taken back"
            )

    def unstored(self) -> dict[str, bytes]:
        """HMACs of the contributions that are in and not durably known yet."""
        return {site: self._macs[site] for site in sorted(self._answered - self._stored)}

    def stored(self, sites: Iterable[str]) -> None:
        """What these said is durably known; a decline counts from here on."""
        self._stored.update(sites)
        self._look()

    async def complete(self, seconds: float) -> bool:
        """Wait up to `seconds` for `ready`; whether it is."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.ready.wait()
        return self.ready.is_set()

    async def stored_with_the_rest(self, seconds: float) -> bool:
        """Wait up to `seconds` for the release, or the end of the study, to store what is here; whether it
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
            raise LateAnswer(site, self.asked.round)
        if site in self._answered:
            raise RequestError(Code.CONFLICT, f"site {site} answered {spoken(self.asked.round)} already")
        self._declined[site] = reason

    @property
    def closed(self) -> bool:
        """Whether the set of sites is frozen, of which nobody is told before the release."""
        return self._closed

    async def close(self) -> tuple[str, ...]:
        """Freeze the set of sites, once nothing is being added any more; those whose records are in."""
        self._closed = True
        async with self._adding:
            return tuple(sorted(self._answered))

    def total(self) -> IntArray:
        """What the answers add up to; it is not kept here any more.

        Raises:
            InternalError: one of them was added in part.
        """
        if self._torn:
            raise InternalError(Code.BUG, f"an answer to {spoken(self.asked.round)} was added in part")
        total, self._total = self._total.whole(), Total(self.asked)
        return total

    def macs(self) -> dict[str, bytes]:
        """HMACs of the contributions that are in."""
        return {site: self._macs[site] for site in sorted(self._answered)}

    def settle(self, *, durable: bool) -> None:
        """The round is over; `durable`: what is here was stored with its release or the study's end."""
        if durable:
            self._stored |= self._answered
        self._settled.set()

    def absent(self) -> dict[str, str]:
        """Invited sites whose records are not in, and what analysts are told of it."""
        return {
            site: ": ".join(shown(self._declined[site])) if site in self._declined else LATE
            for site in self._federation.sites
            if site not in self._answered
        }

    def reasons(self, waiting: Collection[str]) -> str:
        """Who is not in, and why; a person has not agreed yet at those in `waiting`."""
        late = {site: UNDECIDED for site, why in self.absent().items() if why == LATE and site in waiting}
        return "; ".join(f"{site}: {why}" for site, why in (self.absent() | late).items())

    def statuses(self, waiting: Collection[str] = ()) -> dict[str, str]:
        """What to tell analysts of every invited site; a person has to agree first at those in `waiting`."""
        said = {site: self._status(site) for site in self._federation.sites}
        late = {site: APPROVAL for site in waiting if said.get(site) == WAITING}
        return said | late

    def _status(self, site: str) -> str:
        if site in self._declined:
            return ":".join(shown(self._declined[site]))
        if site in self._answered:
            return "answered"
        return ABSENT if self._closed else WAITING

    def _look(self) -> None:
        """After every answer, so at no cost that grows with their number."""
        federation, declined = self._federation, self._declined.keys() & self._stored
        few = len(self._sites) - len(declined) < federation.least
        if few or not declined.isdisjoint(federation.required):
            self.ready.set()
        if len(self._answered) + len(declined) == len(self._sites):
            self.ready.set()
