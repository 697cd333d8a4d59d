"""What is in the roster's file, and how a card comes into it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from eigenveil.errors import Code, RequestError
from eigenveil.secure_aggregation.card import Card, SignedCard
from eigenveil_client.site.peers.peer import Peer, imported, peer_from_dict


class Outcome(Enum):
    """What became of a card: it is of a site that was not here, of one whose very card was here, in place of
    another one, or this site's own."""

    NEW = "new"
    KNOWN = "known"
    REPLACED = "replaced"
    OWN = "own"


@dataclass(frozen=True, slots=True, kw_only=True)
class RosterContent:
    """The peers by name, and what was put aside, the oldest first."""

    peers: Mapping[str, Peer] = field(default_factory=dict)
    earlier: tuple[Peer, ...] = ()

    @classmethod
    def from_dict(cls, written: dict[str, Any]) -> RosterContent:
        """Raises ValueError, KeyError, TypeError, PeerError: it is none."""
        peers = map(peer_from_dict, written["peers"])
        return cls(
            peers={one.card.site: one for one in peers},
            earlier=tuple(map(peer_from_dict, written["earlier"])),
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "peers": [self.peers[name].to_dict() for name in sorted(self.peers)],
            "earlier": [one.to_dict() for one in self.earlier],
        }

    def of(self, name: str) -> Peer:
        """Raises RequestError, code `not-found`: there is no card of this site."""
        if name not in self.peers:
            raise RequestError(
                Code.NOT_FOUND,
                f"there is no card of another site {name!r} here; see eigenveil-site peers list, or "
                "import its file: eigenveil-site peers import FILE",
            )
        return self.peers[name]

    def having(self, peer: Peer) -> RosterContent:
        """With this peer, in place of what was held of it."""
        return replace(self, peers={**self.peers, peer.card.site: peer})

    def without(self, peer: Peer, now: int) -> RosterContent:
        """With this peer put aside."""
        peers = {name: one for name, one in self.peers.items() if name != peer.card.site}
        return replace(self, peers=peers, earlier=(*self.earlier, replace(peer, until=now)))

    def taking(
        self, signed: SignedCard, own: Card, *, replacing: bool, now: int
    ) -> tuple[RosterContent, Outcome]:
        """With this card, and what became of it. Raises as `Roster.take`."""
        card = signed.check()
        if card == own:
            return self, Outcome.OWN
        self._check_whose(card, own)
        before = self.peers.get(card.site)
        if before is None:
            return self.having(imported(signed)), Outcome.NEW
        if before.card == card:
            return self, Outcome.KNOWN
        if before.confirmed is not None and not replacing:
            raise _confirmed_before(before)
        # A change that was marked is decided by a confirmation, and not by a file that came.
        successor = imported(signed, seen=before.seen)
        return self.without(before, now).having(successor), Outcome.REPLACED

    def _check_whose(self, card: Card, own: Card) -> None:
        if card.federation != own.federation:
            raise _refused(
                f"the card of {card.site} is of federation {card.federation}, and this site is in "
                f"{own.federation}: ask {card.site} for the other one"
            )
        if card.site == own.site:
            raise _refused(
                f"a card in this site's own name, {own.site}, is not the one that this site made. If it is "
                "no older one of yours, somebody passes for you: tell the other sites"
            )
        others = [own, *(one.card for one in self.peers.values() if one.card.site != card.site)]
        for other in others:
            if card.agreement == other.agreement or card.signing == other.signing:
                raise _refused(
                    f"the card of {card.site} has the keys of {other.site}: one folder was copied from the "
                    f"other. At the copy, move peer.key away and run: eigenveil-site peers export"
                )


def one_each(cards: Iterable[SignedCard]) -> dict[str, SignedCard]:
    """These cards by site. Raises as `Roster.take`."""
    found: dict[str, SignedCard] = {}
    for signed in cards:
        site = signed.check().site
        if found.setdefault(site, signed).said != signed.said:
            raise _refused(f"there are two cards of {site}: telephone {site}, and import only the right one")
    return found


def _confirmed_before(before: Peer) -> RequestError:
    name = before.card.site
    return _refused(
        f"this is another card of {name} than the one that was confirmed here. Telephone {name}, at a number "
        "that did not come with the file: has it made a new card? If so, import it with --replace, then "
        "confirm the new digits. If not, somebody else made this file"
    )


def _refused(why: str) -> RequestError:
    return RequestError(Code.CONFLICT, f"{why}; nothing was imported")
