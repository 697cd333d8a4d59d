"""What is in a roster's file, and how a card comes into it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Generic

from eigenveil.errors import Code, RequestError
from eigenveil.key_cards.key_card import AnyCard, SignedKeyCard
from eigenveil_client.site.roster.kind import RosterKind
from eigenveil_client.site.roster.pin import Pin, imported, pin_from_dict


class Outcome(Enum):
    """What became of a card: its owner was not here, that very card was here, it is in place of another one,
    or it is this site's own."""

    NEW = "new"
    KNOWN = "known"
    REPLACED = "replaced"
    OWN = "own"


@dataclass(frozen=True, slots=True, kw_only=True)
class RosterContent(Generic[AnyCard]):
    """The pins by their owners' names, and what was put aside, the oldest first."""

    kind: RosterKind[AnyCard]
    pins: Mapping[str, Pin[AnyCard]] = field(default_factory=dict)
    earlier: tuple[Pin[AnyCard], ...] = ()

    @classmethod
    def from_dict(cls, kind: RosterKind[AnyCard], written: dict[str, Any]) -> RosterContent[AnyCard]:
        """Raises ValueError, KeyError, TypeError, PeerError: it is none."""
        pins, earlier = (
            [pin_from_dict(one, kind.read) for one in written[name]] for name in (kind.entries, "earlier")
        )
        return cls(kind=kind, pins={one.card.owner: one for one in pins}, earlier=tuple(earlier))

    def to_dict(self) -> dict[str, Any]:
        return {
            self.kind.entries: [self.pins[name].to_dict() for name in sorted(self.pins)],
            "earlier": [one.to_dict() for one in self.earlier],
        }

    @property
    def ever_confirmed(self) -> bool:
        """Whether a person here has confirmed any card, also one that was changed or removed since."""
        return any(one.confirmed is not None for one in (*self.pins.values(), *self.earlier))

    def of(self, name: str) -> Pin[AnyCard]:
        """Raises RequestError, code `not-found`: there is no card of this owner."""
        if name not in self.pins:
            command = self.kind.command
            raise RequestError(
                Code.NOT_FOUND,
                f"there is no card of {self.kind.owner} {name!r} here; see {command} list, or import its "
                f"file: {command} import FILE",
            )
        return self.pins[name]

    def having(self, pin: Pin[AnyCard]) -> RosterContent[AnyCard]:
        """With this pin, in place of what was held of its owner."""
        return replace(self, pins={**self.pins, pin.card.owner: pin})

    def without(self, pin: Pin[AnyCard], now: int) -> RosterContent[AnyCard]:
        """With this pin put aside."""
        pins = {name: one for name, one in self.pins.items() if name != pin.card.owner}
        return replace(self, pins=pins, earlier=(*self.earlier, replace(pin, until=now)))

    def taking(
        self,
        signed: SignedKeyCard[AnyCard],
        federation: str,
        own: AnyCard | None,
        *,
        replacing: bool,
        now: int,
    ) -> tuple[RosterContent[AnyCard], Outcome]:
        """With this card, and what became of it. Raises as `Roster.take`."""
        card = signed.check()
        if card == own:
            return self, Outcome.OWN
        self._check_whose(card, federation, own)
        before = self.pins.get(card.owner)
        if before is None:
            return self.having(imported(signed)), Outcome.NEW
        if before.card == card:
            return self, Outcome.KNOWN
        if before.confirmed is not None and not replacing:
            raise _confirmed_before(before)
        # A change that was marked is decided by a confirmation, and not by a file that came.
        successor = imported(signed, seen=before.seen)
        return self.without(before, now).having(successor), Outcome.REPLACED

    def _check_whose(self, card: AnyCard, federation: str, own: AnyCard | None) -> None:
        if card.federation != federation:
            raise _refused(
                f"the card of {card.owner} is of federation {card.federation}, and this site is in "
                f"{federation}: ask {card.owner} for the other one"
            )
        if own is not None and card.owner == own.owner:
            raise _refused(
                f"a card in this site's own name, {own.owner}, is not the one that this site made. If it is "
                "no older one of yours, somebody passes for you: tell the other sites"
            )
        others = [one.card for one in self.pins.values() if one.card.owner != card.owner]
        for other in others if own is None else [own, *others]:
            if card.keys & other.keys:
                raise _refused(f"the card of {card.owner} has the keys of {other.owner}: {self.kind.copied}")


def one_each(
    cards: Iterable[SignedKeyCard[AnyCard]],
) -> dict[str, SignedKeyCard[AnyCard]]:
    """These cards by owner. Raises as `Roster.take`."""
    found: dict[str, SignedKeyCard[AnyCard]] = {}
    for signed in cards:
        owner = signed.check().owner
        if found.setdefault(owner, signed).said != signed.said:
            raise _refused(
                f"there are two cards of {owner}: telephone {owner}, and import only the right one"
            )
    return found


def _confirmed_before(before: Pin[AnyCard]) -> RequestError:
    name = before.card.owner
    return _refused(
        f"this is another card of {name} than the one that was confirmed here. Telephone {name}, at a number "
        "that did not come with the file: is there a new card? If so, import it with --replace, then "
        "confirm the new digits. If not, somebody else made this file"
    )


def _refused(why: str) -> RequestError:
    return RequestError(Code.CONFLICT, f"{why}; nothing was imported")
