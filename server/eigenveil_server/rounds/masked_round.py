"""One stage of a masked round: sites get ready, or the members of a set answer an attempt [R29]."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from eigenveil.errors import Code, PeerError, RequestError, round_label
from eigenveil.protocol.query import RoundQuery
from eigenveil.protocol.rounds import RoundState
from eigenveil.secure_aggregation.masking import Attempt
from eigenveil.study.study import Federation
from eigenveil_server.rounds.open_round import ABSENT, WAITING, OpenRound
from eigenveil_server.storage.study_reads import RoundAnswers

READY = "ready"


class MaskedRound(OpenRound):
    """One stage of a masked round.

    Until a set is fixed, every invited site is awaited to report that it is ready. Then all members of
    `attempt` are awaited. What the others have sent is noise without the last member's answer, so a member
    that declines or is denied ends the attempt at once. Other sites may still get ready for the next set.

    Each attempt has its own stage and sum, so that answers of two attempts are never added; `before` are the
    earlier attempts. Ready sites are in memory only: after a restart they report again [R5].
    """

    def __init__(
        self,
        round_query: RoundQuery,
        federation: Federation,
        earlier: RoundAnswers,
        attempt: Attempt | None = None,
        before: Iterable[Attempt] = (),
    ) -> None:
        self.attempt = attempt
        self._members = frozenset[str]() if attempt is None else frozenset(attempt.members)
        self._before = frozenset(one.digest for one in before)
        self._key_cards: dict[str, str] = {}
        self._denied: frozenset[str] = frozenset()
        super().__init__(round_query, federation, earlier)
        self.enter(RoundState.OPEN)
        if attempt is not None:
            self.enter(RoundState.FIXED)

    def next_stage(self, attempt: Attempt) -> MaskedRound:
        """Return the next stage, that of the later `attempt`."""
        before = () if self.attempt is None else (self.attempt,)
        earlier = RoundAnswers(macs={}, declined=dict(self._declined))
        stage = MaskedRound(self.round_query, self._federation, earlier, attempt, before)
        stage._before |= self._before
        return stage

    def take_over(self, last: MaskedRound) -> None:
        """Replace the `last` stage, with the sites that got ready or declined meanwhile."""
        self._declined |= last._declined
        self._stored |= last._declined.keys()
        self._key_cards = {
            site: key_card for site, key_card in last._key_cards.items() if site not in self._members
        }
        self.deny(last._denied)

    # ------------------------------------------------------------ sites

    def number_for(self, site: str) -> int:
        return self.number if site in self._members else 0

    def awaits(self, site: str) -> bool:
        """True if `site` is invited, has not declined, and has to act: a member answers, another reports
        ready."""
        said = self._answered if site in self._members else self._key_cards
        return not self._closed and site in self._sites and site not in self._declined and site not in said

    def is_earlier_attempt(self, attempt: str) -> bool:
        return attempt in self._before

    def note_ready(self, site: str, query: str, key_card: str) -> bool:
        """Note that `site`, with this key card digest, can answer; True if that is new. Members are ready
        already.

        Raises:
            PeerError: code `protocol`, it is ready for another query.
            RequestError: code `conflict`, it declined.
        """
        if query != self.round_query.digest:
            raise PeerError(
                Code.PROTOCOL, f"{round_label(self.round_query.round)} has another query; poll for new work"
            )
        if site in self._declined:
            raise RequestError(
                Code.CONFLICT,
                f"site {site} declined {round_label(self.round_query.round)}; a decline is final",
            )
        if site in self._members:
            return False
        is_new = site not in self._key_cards
        self._key_cards[site] = key_card
        self._update_ready()
        return is_new

    def _check_awaited(self, site: str) -> None:
        super()._check_awaited(site)
        if site not in self._members:
            raise PeerError(
                Code.BAD_CONTRIBUTION,
                f"site {site} is not in the set of sites of {round_label(self.round_query.round)}",
            )

    def decline(self, site: str, reason: str) -> None:
        """Note that `site` will not answer. Allowed also while the next set is being fixed: refused then, the
        site would be in it, and would decline an attempt that is charged."""
        if self._closed and not self.is_complete and site not in self._answered:
            self._declined.setdefault(site, reason)
        else:
            super().decline(site, reason)
        self._key_cards.pop(site, None)

    def deny(self, sites: frozenset[str]) -> None:
        """Stop waiting for the denied sites."""
        self._denied = sites
        for site in sites & self._key_cards.keys():
            del self._key_cards[site]
        self._update_ready()

    # ------------------------------------------------------------ the next set

    @property
    def is_complete(self) -> bool:
        """True if the answers of all members are in."""
        return self.attempt is not None and self._answered == self._members

    def missing_members(self) -> list[str]:
        """Return the members without an answer."""
        return sorted(self._members - self._answered)

    def eligible(self, *, overdue: bool = False) -> dict[str, str]:
        """Return the sites that the next set can have, with their key cards. These are the members, without
        those whose answers are `overdue`, and other ready sites. Declined and denied sites are left out."""
        members = {} if self.attempt is None else self.attempt.members
        there = self._answered if overdue else members.keys()
        key_cards = {site: members[site] for site in there} | self._key_cards
        return {
            site: key_card
            for site, key_card in key_cards.items()
            if site not in self._declined and site not in self._denied
        }

    def absent(self) -> dict[str, str]:
        ready = self._key_cards if self.attempt is None else {}
        return {site: why for site, why in super().absent().items() if site not in ready}

    def statuses(self, waiting: Collection[str] = ()) -> dict[str, str]:
        ready = {} if self._closed and self.attempt is not None else self._key_cards
        said = super().statuses(waiting) | dict.fromkeys(ready, READY)
        if self.attempt is None:
            return said
        return {site: self._status_outside_set(site, status) for site, status in said.items()}

    def _status_outside_set(self, site: str, status: str) -> str:
        """Return ABSENT in place of WAITING for a site outside of the set."""
        return ABSENT if status == WAITING and site not in self._members else status

    def _update_ready(self) -> None:
        """Set `ready` when due. Runs after every message, so its cost must not grow with the number of
        sites."""
        out = (self._declined.keys() & self._stored) | self._denied
        if self.attempt is not None:
            if self.is_complete or not (out - self._answered).isdisjoint(self._members):
                self.ready.set()
            return
        out &= self._sites
        few = len(self._sites) - len(out) < self._federation.least
        if few or not out.isdisjoint(self._federation.required):
            self.ready.set()
        if len(self._key_cards) + len(out - self._key_cards.keys()) == len(self._sites):
            self.ready.set()
