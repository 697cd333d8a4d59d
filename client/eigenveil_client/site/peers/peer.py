"""What this site holds of one other site: a card, and who here has confirmed it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from eigenveil.key_cards.card_file import card_from_dict, card_to_dict
from eigenveil.secure_aggregation.card import Card, SignedCard


class Standing(Enum):
    """`imported`: nobody has compared the card yet. `confirmed`: a person has. `changed`: since then another
    card was shown in its place, and nobody has decided."""

    IMPORTED = "imported"
    CONFIRMED = "confirmed"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmation:
    """Who compared a card with its owner, and when (Unix time)."""

    by: str
    at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """The digest of a card that was shown in place of the one that is held, and when (Unix time)."""

    digest: str
    at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """One other site. `seen` stays until a person confirms a card, the same one or its successor; `until` is
    when this card was put aside, None for the one that is held."""

    signed: SignedCard
    card: Card
    confirmed: Confirmation | None = None
    seen: Sighting | None = None
    until: int | None = None

    @property
    def standing(self) -> Standing:
        if self.seen is not None:
            return Standing.CHANGED
        return Standing.IMPORTED if self.confirmed is None else Standing.CONFIRMED

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        confirmed, seen = self.confirmed, self.seen
        return card_to_dict(self.signed) | {
            "confirmed": confirmed and {"by": confirmed.by, "at": confirmed.at},
            "seen": seen and {"digest": seen.digest, "at": seen.at},
            "until": self.until,
        }


def imported(signed: SignedCard, seen: Sighting | None = None) -> Peer:
    """A card that nobody has confirmed yet. Raises PeerError, as `SignedCard.check`."""
    return Peer(signed=signed, card=signed.check(), seen=seen)


def peer_from_dict(written: dict[str, Any]) -> Peer:
    """The inverse of `Peer.to_dict`.

    Raises:
        ValueError, KeyError, TypeError, PeerError: it is none.
    """
    signed, until = card_from_dict(written, SignedCard), written["until"]
    confirmed, seen = written["confirmed"], written["seen"]
    return Peer(
        signed=signed,
        card=signed.check(),
        confirmed=confirmed and Confirmation(by=str(confirmed["by"]), at=int(confirmed["at"])),
        seen=seen and Sighting(digest=str(seen["digest"]), at=int(seen["at"])),
        until=until if until is None else int(until),
    )
