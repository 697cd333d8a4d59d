"""A card that this site holds of somebody else, and who here has confirmed it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic

from eigenveil.key_cards.card_file import card_from_dict, card_to_dict
from eigenveil.key_cards.key_card import AnyCard, SignedKeyCard


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
class Pin(Generic[AnyCard]):
    """The card of one owner. `seen` stays until a person confirms a card, the same one or its successor;
    `until` is when this card was put aside, None for the one that is held."""

    signed: SignedKeyCard[AnyCard]
    card: AnyCard
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


def imported(signed: SignedKeyCard[AnyCard], seen: Sighting | None = None) -> Pin[AnyCard]:
    """A card that nobody has confirmed yet. Raises PeerError, as `SignedKeyCard.check`."""
    return Pin(signed=signed, card=signed.check(), seen=seen)


def pin_from_dict(written: dict[str, Any], read: Callable[..., SignedKeyCard[AnyCard]]) -> Pin[AnyCard]:
    """The inverse of `Pin.to_dict`, for cards of which `read` makes the signed ones.

    Raises:
        ValueError, KeyError, TypeError, PeerError: it is none.
    """
    signed, until = card_from_dict(written, read), written["until"]
    confirmed, seen = written["confirmed"], written["seen"]
    return Pin(
        signed=signed,
        card=signed.check(),
        confirmed=confirmed and Confirmation(by=str(confirmed["by"]), at=int(confirmed["at"])),
        seen=seen and Sighting(digest=str(seen["digest"]), at=int(seen["at"])),
        until=until if until is None else int(until),
    )
