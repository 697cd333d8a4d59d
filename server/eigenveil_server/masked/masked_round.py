"""One stage of a masked round: sites get ready, or the members of a set answer an attempt [R29]."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from eigenveil.errors import Code, PeerError, RequestError, spoken
from eigenveil.protocol.query import RoundQuery
from eigenveil.protocol.round import RoundState
from eigenveil.secure_aggregation.attempt import Attempt
from eigenveil.study.study import Federation
from eigenveil_server.rounds.open_round import ABSENT, WAITING, OpenRound
from eigenveil_server.storage.study_reads import Answers

READY = "ready"


class MaskedRound(OpenRound):
    """Until a set is fixed, every invited site is awaited, to say that it is ready. Then all members of the
    `attempt` are: what the others have sent is noise to everybody without the last of them, so that one who
    declines, or is shut out, ends it at once. Other sites may still get ready, for the next set.

    Each attempt has a stage of its own, with its own sum, so that nothing of one is ever added to another;
    `before` are those that came before it. Who is ready is known in memory only: who is forgotten is asked
    again [R5].
    """

    def __init__(
        self,
        asked: RoundQuery,
        federation: Federation,
        earlier: Answers,
        attempt: Attempt | None = None,
        before: Iterable[Attempt] = (),
    ) -> None:
        self.attempt = attempt
        self._members = frozenset[str]() if attempt is None else frozenset(attempt.members)
        self._before = frozenset(one.digest for one in before)
        self._cards: dict[str, str] = {}
        self._denied: frozenset[str] = frozenset()
        super().__init__(asked, federation, earlier)
        self.enter(RoundState.OPEN)
        if attempt is not None:
            self.enter(RoundState.FIXED)

    def fixed(self, attempt: Attempt) -> MaskedRound:
        """The next stage: that of `attempt`, a later one than this."""
        before = () if self.attempt is None else (self.attempt,)
        earlier = Answers(macs={}, declined=dict(self._declined))
        stage = MaskedRound(self.asked, self._federation, earlier, attempt, before)
        stage._before |= self._before
        return stage

    def take_over(self, last: MaskedRound) -> None:
        """From here on this stage is at work in place of the `last` one, which heard meanwhile who else is
        ready, and who declined."""
        self._declined |= last._declined
        self._stored |= last._declined.keys()
        self._cards = {site: card for site, card in last._cards.items() if site not in self._members}
        self.deny(last._denied)

    # ------------------------------------------------------------ sites

    def number_for(self, site: str) -> int:
        return self.number if site in self._members else 0

    def wants(self, site: str) -> bool:
        """Whether `site` is invited, has not declined, and its next word is wanted: a member's answer, or
        that another is ready."""
        said = self._answered if site in self._members else self._cards
        return not self._closed and site in self._sites and site not in self._declined and site not in said

    def passed(self, attempt: str) -> bool:
        return attempt in self._before

    def get_ready(self, site: str, query: str, card: str) -> bool:
        """Note that `site`, whose card has this digest, can answer; whether that is news. Of a member it is
        known.

        Raises:
            PeerError: code `protocol`, it got ready for another question.
            RequestError: code `conflict`, it declined.
        """
        if query != self.asked.digest:
            raise PeerError(Code.PROTOCOL, f"{spoken(self.asked.round)} asks another question; ask for work")
        if site in self._declined:
            raise RequestError(
                Code.CONFLICT, f"site {site} declined {spoken(self.asked.round)}; that cannot be taken back"
            )
        if site in self._members:
            return False
        news = site not in self._cards
        self._cards[site] = card
        self._look()
        return news

    def _check_awaited(self, site: str) -> None:
        super()._check_awaited(site)
        if site not in self._members:
            raise PeerError(
                Code.BAD_CONTRIBUTION, f"site {site} is in no set of sites for {spoken(self.asked.round)}"
            )

    def decline(self, site: str, reason: str) -> None:
        """Also while the next set is being fixed: refused then, the site would be put into it, and decline an
        attempt that is paid."""
        if self._closed and not self.whole and site not in self._answered:
            self._declined.setdefault(site, reason)
        else:
            super().decline(site, reason)
        self._cards.pop(site, None)

    def deny(self, sites: frozenset[str]) -> None:
        """Wait for none of those that are shut out."""
        self._denied = sites
        for site in sites & self._cards.keys():
            del self._cards[site]
        self._look()

    # ------------------------------------------------------------ the next set

    @property
    def whole(self) -> bool:
        """Whether the answers of all members are in."""
        return self.attempt is not None and self._answered == self._members

    def lost(self) -> list[str]:
        """The members whose answers are not in."""
        return sorted(self._members - self._answered)

    def able(self, *, overdue: bool = False) -> dict[str, str]:
        """The sites that the next set can have, and their cards: the members, but for those whose answers are
        `overdue`, and who is ready besides; nobody who declined or is shut out."""
        members = {} if self.attempt is None else self.attempt.members
        there = self._answered if overdue else members.keys()
        cards = {site: members[site] for site in there} | self._cards
        return {
            site: card
            for site, card in cards.items()
            if site not in self._declined and site not in self._denied
        }

    def absent(self) -> dict[str, str]:
        ready = self._cards if self.attempt is None else {}
        return {site: why for site, why in super().absent().items() if site not in ready}

    def statuses(self, waiting: Collection[str] = ()) -> dict[str, str]:
        ready = {} if self._closed and self.attempt is not None else self._cards
        said = super().statuses(waiting) | dict.fromkeys(ready, READY)
        if self.attempt is None:
            return said
        return {site: self._outside(site, word) for site, word in said.items()}

    def _outside(self, site: str, word: str) -> str:
        """Nobody waits for a site that is not in the set."""
        return ABSENT if word == WAITING and site not in self._members else word

    def _look(self) -> None:
        """After every word, so at no cost that grows with the number of sites."""
        out = (self._declined.keys() & self._stored) | self._denied
        if self.attempt is not None:
            if self.whole or not (out - self._answered).isdisjoint(self._members):
                self.ready.set()
            return
        out &= self._sites
        few = len(self._sites) - len(out) < self._federation.least
        if few or not out.isdisjoint(self._federation.required):
            self.ready.set()
        if len(self._cards) + len(out - self._cards.keys()) == len(self._sites):
            self.ready.set()
