"""One round at the coordinator: its state, and who answers, declines and is awaited in its latest attempt.

Theory of operation. A round moves by the events of `eigenveil.protocol.rounds.TRANSITIONS` alone:

- DISPATCH: the query is durable, and invited sites get it. In a central round they answer. In a masked round
  they get ready, and nothing is charged yet.
- FIX, masked: the set of an attempt is stored and charged in one transaction, then its members are to answer.
  Without the last member's answer the others are noise, so an attempt ends at once if one declines or is
  denied. Each attempt has a `Round` of its own: answers of two attempts are never added.
- CLOSE, central, or COMPLETE, masked: the frozen set of answers counts. Nothing of it is published yet.
- RELEASE: noise is added, then charge and release are one transaction, which also stores the close.
- FAIL: the study ended. Only the charges that were made stay.

`drivers` take these steps, and `study_writes` makes the same moves in the database. Everything here happens
on the event loop, so each method is one step. Only adding an answer may take longer; `freeze` waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence, Set
from contextlib import suppress

from eigenveil.aggregation import RunningTotal
from eigenveil.errors import Code, InternalError, PeerError, RequestError, round_label
from eigenveil.numerics.encoding import IntArray
from eigenveil.protocol.query import RoundQuery
from eigenveil.protocol.rounds import RoundEvent, RoundState, next_state
from eigenveil.secure_aggregation.masking import Attempt
from eigenveil.study.study import Federation
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.storage.states import shown
from eigenveil_server.storage.study_reads import RoundAnswers

LATE = "did not answer"
ANSWERED = "answered"
READY = "ready"
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


class Round:
    """A dispatched round; in a masked one, with the latest of its `attempts`. `earlier` are the answers from
    before this process. An answer is added to the single sum, and its values are dropped. The release, or the
    end of the study, stores the HMACs that are not stored yet. `message` is for sites, once the dispatch or
    the attempt is durable. `ready` is set when no site is awaited, or when the round or attempt cannot
    succeed. Ready sites are in memory only: after a restart they report again [R5]."""

    def __init__(
        self,
        round_query: RoundQuery,
        federation: Federation,
        earlier: RoundAnswers,
        *,
        masked: bool = False,
        attempts: Sequence[Attempt] = (),
    ) -> None:
        self.round_query = round_query
        self.masked = masked
        self.attempt = attempts[-1] if attempts else None
        self.message = pb.NextWorkResponse()
        self.ready = asyncio.Event()
        self.frozen = False  # the set of answers
        self._attempts = tuple(attempts)
        self._earlier_attempts = frozenset(one.digest for one in attempts[:-1])
        self._federation = federation
        self._sites = frozenset(federation.sites)
        self._members = frozenset(self.attempt.members if self.attempt else ()) if masked else self._sites
        self._study_keys: dict[str, str] = {}  # of the sites that are ready and no members
        self._renewed_keys: dict[str, str] = {}  # of members with a new card since, for the next attempt
        self._denied: frozenset[str] = frozenset()
        self._macs = dict(earlier.macs)
        self._declined = dict(earlier.declined)
        self._total = RunningTotal(round_query)
        self._adding = asyncio.Lock()
        self._partly_added = False  # an answer was added in part
        self._answered: set[str] = set()
        self._stored = set(earlier.declined)
        self._settled = asyncio.Event()
        self.state = RoundState.PLANNED
        self.enter(RoundEvent.DISPATCH)
        if self.attempt is not None:
            self.enter(RoundEvent.FIX)
        self._update_ready()

    def enter(self, event: RoundEvent) -> None:
        """Move to the next state, if the state table has it."""
        self.state = next_state(self.state, event)

    def close(self) -> None:
        """Let the frozen set of answers count."""
        self.enter(RoundEvent.COMPLETE if self.masked else RoundEvent.CLOSE)

    def next_attempt(self, attempt: Attempt) -> Round:
        """Return the round in its next attempt, with the sites that are ready or declined now."""
        earlier, attempts = RoundAnswers(macs={}, declined={}), (*self._attempts, attempt)
        later = Round(self.round_query, self._federation, earlier, masked=True, attempts=attempts)
        later.take_over(self)
        return later

    def take_over(self, last: Round) -> None:
        """Replace the `last` attempt, with the sites that got ready or declined meanwhile."""
        self._declined |= last._declined
        self._stored |= last._declined.keys()
        self._study_keys = {
            site: card for site, card in last._study_keys.items() if site not in self._members
        }
        self.deny(last._denied)

    # ------------------------------------------------------------ work for sites

    @property
    def number(self) -> int:
        """Return the number of the attempt; 0 where there is none."""
        return 0 if self.attempt is None else self.attempt.number

    @property
    def attempt_digest(self) -> str:
        """Return the digest of the attempt; empty where there is none."""
        return "" if self.attempt is None else self.attempt.digest

    def number_for(self, site: str) -> int:
        """Return the number of the attempt that `site` is to answer; 0 where there is none."""
        return self.number if site in self._members else 0

    def awaits(self, site: str) -> bool:
        """True if `site` has to act: a member answers, another invited site reports ready."""
        acted = self._answered if site in self._members else self._study_keys
        return not self.frozen and site in self._sites and site not in self._declined and site not in acted

    def message_for(self, site: str, stored_rounds: int) -> pb.NextWorkResponse:
        """Return the message for a site that stores the releases of `stored_rounds` rounds. The last release
        is included only if it is all that the site lacks; it fetches the others [R21]. An attempt is for its
        members [R29]."""
        message = pb.NextWorkResponse()
        message.CopyFrom(self.message)
        if stored_rounds != self.round_query.round - 1:
            message.ClearField("release")
        if not self.number_for(site):
            message.ClearField("attempt")
        return message

    # ------------------------------------------------------------ answers of sites

    def is_earlier_attempt(self, attempt: str) -> bool:
        """True if the attempt with this digest is an earlier one."""
        return attempt in self._earlier_attempts

    async def add_answer(self, site: str, mac: bytes, values: IntArray, run: Run) -> bool:
        """Add a validated contribution once, with `run`; True if the same one was added before. Must not be
        cancelled. Raises DifferentAnswer: the site answered differently before; LateAnswer: the answers are
        frozen; RequestError: code `conflict`: the site declined it; PeerError: the site is not in the set of
        the attempt."""
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
        if self.frozen:
            raise LateAnswer(site, self.round_query.round)
        self._check_not_declined(site)
        if site not in self._members:
            raise PeerError(
                Code.BAD_CONTRIBUTION,
                f"site {site} is not in the set of sites of {round_label(self.round_query.round)}",
            )

    def _check_not_declined(self, site: str) -> None:
        if site in self._declined:
            raise RequestError(
                Code.CONFLICT,
                f"site {site} declined {round_label(self.round_query.round)}; a decline is final",
            )

    def note_ready(self, site: str, query: str, key: str) -> bool:
        """Note that `site`, with this key for the study (digest), can answer; True if that is new. Raises
        PeerError: code `protocol`, it is ready for another query; RequestError: code `conflict`, it
        declined."""
        if query != self.round_query.digest:
            raise PeerError(
                Code.PROTOCOL, f"{round_label(self.round_query.round)} has another query; poll for new work"
            )
        self._check_not_declined(site)
        if site in self._members:
            self._renewed_keys[site] = key
            return False
        is_new = site not in self._study_keys
        self._study_keys[site] = key
        self._update_ready()
        return is_new

    def decline(self, site: str, reason: str) -> None:
        """Note that `site` will not answer. Allowed also while the next set is being fixed: refused then, the
        site would be in it, and would decline an attempt that is charged. Raises RequestError: code
        `conflict`: it answered already, or the answers are frozen (LateAnswer)."""
        if site not in self._declined:
            if self.frozen and not (self.masked and not self.is_complete and site not in self._answered):
                raise LateAnswer(site, self.round_query.round)
            if site in self._answered:
                raise RequestError(
                    Code.CONFLICT, f"site {site} answered {round_label(self.round_query.round)} already"
                )
            self._declined[site] = reason
        self._study_keys.pop(site, None)

    def deny(self, sites: frozenset[str]) -> None:
        """Stop waiting for the denied sites in a masked round; in a central one their answers stay in."""
        if self.masked:
            self._denied = sites
            for site in sites & self._study_keys.keys():
                del self._study_keys[site]
            self._update_ready()

    # ------------------------------------------------------------ what is durable

    def is_stored(self, site: str) -> bool:
        """True if the answer or decline of `site` is durable."""
        return site in self._stored

    def unstored(self) -> dict[str, bytes]:
        """Return the HMACs of the received contributions that are not durable yet."""
        return {site: self._macs[site] for site in sorted(self._answered - self._stored)}

    def stored(self, sites: Iterable[str]) -> None:
        """Note that the answers or declines of these sites are durable; a decline counts from here on."""
        self._stored.update(sites)
        self._update_ready()

    def settle(self, *, durable: bool) -> None:
        """End the round or attempt; `durable` if that stored the received answers."""
        if durable:
            self._stored |= self._answered
        self._settled.set()

    async def wait_until_settled(self, seconds: float) -> bool:
        """Wait up to `seconds` for `settle`; True if no received answer is left to be stored."""
        await _wait(self._settled, seconds)
        return not self.unstored()

    # ------------------------------------------------------------ the end of waiting

    async def complete(self, seconds: float) -> bool:
        """Wait up to `seconds` for `ready`; True if it is set."""
        await _wait(self.ready, seconds)
        return self.ready.is_set()

    async def freeze(self) -> tuple[str, ...]:
        """Freeze the set of answers, once no answer is being added; return the sites that have answered."""
        self.frozen = True
        async with self._adding:
            return tuple(sorted(self._answered))

    def total(self) -> IntArray:
        """Return the sum of the answers and drop it here. Raises InternalError: one answer was added in
        part."""
        if self._partly_added:
            raise InternalError(
                Code.BUG, f"an answer to {round_label(self.round_query.round)} was added only in part"
            )
        total, self._total = self._total.whole(), RunningTotal(self.round_query)
        return total

    def macs(self) -> dict[str, bytes]:
        """Return the HMACs of the received contributions."""
        return {site: self._macs[site] for site in sorted(self._answered)}

    @property
    def is_complete(self) -> bool:
        """True if the answers of all members of an attempt are in."""
        return self.attempt is not None and self._answered == self._members

    def missing_members(self) -> list[str]:
        """Return the members without an answer."""
        return sorted(self._members - self._answered)

    def eligible(self, *, overdue: bool = False) -> dict[str, str]:
        """Return the keys of the sites for a next set: members, but those `overdue`, and ready sites."""
        members = {} if self.attempt is None else self.attempt.members
        there = self._answered if overdue else members.keys()
        out = self._declined.keys() | self._denied
        keys = {site: self._renewed_keys.get(site, members[site]) for site in there} | self._study_keys
        return {site: key for site, key in keys.items() if site not in out}

    def check_present(self, sites: Collection[str], waiting: Collection[str]) -> None:
        """Raise RequestError, code `study-failed`, unless these sites suffice for the round or attempt."""
        try:
            self._federation.check_present(sites, self.number)
        except RequestError as problem:
            label, reasons = round_label(self.round_query.round), self.reasons(waiting)
            raise RequestError(problem.code, f"{label}: {problem} ({reasons})") from problem

    def _update_ready(self) -> None:
        """Set `ready` when due. Runs after every message, so its cost must not grow with the sites."""
        out = (self._declined.keys() & self._stored) | self._denied
        if self.attempt is not None:
            due = self.is_complete or not (out - self._answered).isdisjoint(self._members)
        else:
            acted: Set[str] = self._study_keys.keys() if self.masked else self._answered
            out &= self._sites
            few = len(self._sites) - len(out) < self._federation.least
            all_acted = len(acted) + len(out - acted) == len(self._sites)
            due = few or all_acted or not out.isdisjoint(self._federation.required)
        if due:
            self.ready.set()

    # ------------------------------------------------------------ what analysts see

    def absent(self) -> dict[str, str]:
        """Return the invited sites that neither answered nor got ready, and the reason."""
        there = self._answered if self.attempt is not None else self._answered | self._study_keys.keys()
        return {
            site: ": ".join(shown(self._declined[site])) if site in self._declined else LATE
            for site in self._federation.sites
            if site not in there
        }

    def reasons(self, waiting: Collection[str]) -> str:
        """Return the absent sites, and why, as text; at those in `waiting` a person has not agreed yet."""
        return "; ".join(
            f"{site}: {UNDECIDED if why == LATE and site in waiting else why}"
            for site, why in self.absent().items()
        )

    def statuses(self, waiting: Collection[str] = ()) -> dict[str, str]:
        """Return the status of every invited site; at the sites in `waiting` a person must agree first."""
        undecided = frozenset(waiting)
        return {site: self._status(site, undecided) for site in self._federation.sites}

    def _status(self, site: str, undecided: frozenset[str]) -> str:
        if site in self._declined:
            return ":".join(shown(self._declined[site]))
        if site in self._answered:
            return ANSWERED
        if site in self._study_keys and not (self.frozen and self.attempt is not None):
            return READY
        if self.frozen:
            return ABSENT
        if site in undecided:
            return APPROVAL
        return WAITING if self.attempt is None or site in self._members else ABSENT


async def _wait(event: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
