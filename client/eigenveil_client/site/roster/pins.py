"""Key cards pinned at this site, the two kinds of their owners, and the rules for import."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any, Generic

from eigenveil.errors import Code, RequestError
from eigenveil.key_cards import AnyCard, SignedKeyCard, card_from_dict, card_to_dict
from eigenveil.signatures import check_format, formatted

ROSTER_FORMAT = "eigenveil-roster/1"


class PinStatus(Enum):
    """`imported`: not confirmed yet. `confirmed`: a person compared the fingerprint with its owner.
    `changed`: another card was shown in its place since, and no person has decided about it."""

    IMPORTED = "imported"
    CONFIRMED = "confirmed"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmation:
    """Name of the person who compared a card with its owner, and the Unix time."""

    by: str
    at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConflictingCard:
    """Digest of a card that was shown in place of the pinned one, and the Unix time."""

    digest: str
    at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin(Generic[AnyCard]):
    """Key card of one owner. `conflict` stays until a person confirms this card or its successor; `until` is
    the time at which this card was removed, None for a present one."""

    signed: SignedKeyCard[AnyCard]
    card: AnyCard
    confirmed: Confirmation | None = None
    conflict: ConflictingCard | None = None
    until: int | None = None

    @property
    def status(self) -> PinStatus:
        if self.conflict is not None:
            return PinStatus.CHANGED
        return PinStatus.IMPORTED if self.confirmed is None else PinStatus.CONFIRMED

    def to_dict(self) -> dict[str, Any]:
        confirmed, conflict = self.confirmed, self.conflict
        stated = {"confirmed": confirmed and asdict(confirmed), "seen": conflict and asdict(conflict)}
        return card_to_dict(self.signed) | stated | {"until": self.until}


def pin_from_dict(written: dict[str, Any], read: Callable[..., SignedKeyCard[AnyCard]]) -> Pin[AnyCard]:
    """Return the pin of `Pin.to_dict`'s values; `read` makes the signed card. Raises ValueError, KeyError,
    TypeError or PeerError if they are invalid."""
    signed, until = card_from_dict(written, read), written["until"]
    confirmed, conflict = written["confirmed"], written["seen"]
    return Pin(
        signed=signed,
        card=signed.check(),
        confirmed=confirmed and Confirmation(by=str(confirmed["by"]), at=int(confirmed["at"])),
        conflict=conflict and ConflictingCard(digest=str(conflict["digest"]), at=int(conflict["at"])),
        until=until if until is None else int(until),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RosterKind(Generic[AnyCard]):
    """Names and texts for the key cards of one kind of owner.

    `entries` names the file (entries.json), its list and the command. `owner` is the word for an owner,
    `reader` (with the name) for the person who reads out the fingerprint. `read` makes a signed card of its
    bytes. `event` is logged when a card changes. `change_effect` is what a changed card stops; `without`
    introduces the removal of a card. `duplicate_key_advice` applies if two owners have one key. `own` returns
    this site's own card in an identity's folder, if it has one of this kind. `header` returns plain values
    about the folder, which head the list of cards, and `heading` their text. `empty` and `changed` are texts
    below it; `confirmed` and `resolved` follow a confirmation, the latter if it resolved a change."""

    entries: str
    owner: str
    reader: str
    read: Callable[..., SignedKeyCard[AnyCard]]
    event: str
    change_effect: str
    without: str
    duplicate_key_advice: str
    own: Callable[[Path], AnyCard | None]
    header: Callable[[Path], dict[str, Any]]
    heading: Callable[[dict[str, Any]], str]
    empty: str
    changed: str
    confirmed: str
    resolved: str

    @property
    def file(self) -> str:
        return f"{self.entries}.json"

    @property
    def command(self) -> str:
        return f"eigenveil-site {self.entries}"


class ImportOutcome(Enum):
    """Result of an import: a new owner, a known card, a replaced card, or this site's own card."""

    NEW = "new"
    KNOWN = "known"
    REPLACED = "replaced"
    OWN = "own"


@dataclass(frozen=True, slots=True, kw_only=True)
class RosterContent(Generic[AnyCard]):
    """Pins by owner's name, and the removed pins, oldest first."""

    kind: RosterKind[AnyCard]
    pins: Mapping[str, Pin[AnyCard]] = field(default_factory=dict)
    earlier: tuple[Pin[AnyCard], ...] = ()

    @classmethod
    def from_dict(cls, kind: RosterKind[AnyCard], written: dict[str, Any]) -> RosterContent[AnyCard]:
        """Return the content of a file. Raises as `pin_from_dict`."""
        check_format(written, ROSTER_FORMAT, "the file")
        pins, earlier = (
            [pin_from_dict(one, kind.read) for one in written[name]] for name in (kind.entries, "earlier")
        )
        return cls(kind=kind, pins={one.card.owner: one for one in pins}, earlier=tuple(earlier))

    def to_dict(self) -> dict[str, Any]:
        values = {
            self.kind.entries: [self.pins[name].to_dict() for name in sorted(self.pins)],
            "earlier": [one.to_dict() for one in self.earlier],
        }
        return formatted(ROSTER_FORMAT, values)

    @property
    def ever_confirmed(self) -> bool:
        """True if any card was ever confirmed here, also one that was changed or removed since."""
        return any(one.confirmed is not None for one in (*self.pins.values(), *self.earlier))

    def of(self, name: str) -> Pin[AnyCard]:
        """Return the pin of an owner. Raises RequestError, code `not-found`, if there is none."""
        if name not in self.pins:
            command = self.kind.command
            raise RequestError(
                Code.NOT_FOUND,
                f"there is no key card of {self.kind.owner} {name!r} here. See {command} list, or import its "
                f"file: {command} import FILE",
            )
        return self.pins[name]

    def with_pin(self, pin: Pin[AnyCard]) -> RosterContent[AnyCard]:
        """Return a copy with this pin in place of its owner's present one."""
        return replace(self, pins={**self.pins, pin.card.owner: pin})

    def without(self, pin: Pin[AnyCard], now: int) -> RosterContent[AnyCard]:
        """Return a copy with this pin moved to the removed ones."""
        pins = {name: one for name, one in self.pins.items() if name != pin.card.owner}
        return replace(self, pins=pins, earlier=(*self.earlier, replace(pin, until=now)))

    def import_card(
        self,
        signed: SignedKeyCard[AnyCard],
        federation: str,
        site_card: AnyCard | None,
        *,
        replacing: bool,
        now: int,
    ) -> tuple[RosterContent[AnyCard], ImportOutcome]:
        """Return a copy with this card, and the result. Raises as `Roster.import_cards`."""
        card = signed.check()
        if card == site_card:
            return self, ImportOutcome.OWN
        self._check_owner_and_keys(card, federation, site_card)
        pinned = self.pins.get(card.owner)
        if pinned is None:
            return self.with_pin(Pin(signed=signed, card=card)), ImportOutcome.NEW
        if pinned.card == card:
            return self, ImportOutcome.KNOWN
        if pinned.confirmed is not None and not replacing:
            raise _import_refused(
                f"this is another key card of {card.owner} than the confirmed one. Telephone {card.owner}, "
                "at a number that did not come with the file. If there is a new card, import it with "
                "--replace and confirm it; if not, the file is a forgery"
            )
        # Only a confirmation resolves a marked change; an imported file does not.
        successor = Pin(signed=signed, card=card, conflict=pinned.conflict)
        return self.without(pinned, now).with_pin(successor), ImportOutcome.REPLACED

    def _check_owner_and_keys(self, card: AnyCard, federation: str, site_card: AnyCard | None) -> None:
        if card.federation != federation:
            raise _import_refused(
                f"the key card of {card.owner} is of federation {card.federation}, and this site is in "
                f"{federation}: ask {card.owner} for the card of that federation"
            )
        if site_card is not None and card.owner == site_card.owner:
            raise _import_refused(
                f"the key card in this site's name, {site_card.owner}, is not the one that this site made. "
                "If it is not an older one of yours, someone is impersonating this site: warn the other sites"
            )
        others = [one.card for one in self.pins.values() if one.card.owner != card.owner]
        for other in others if site_card is None else [site_card, *others]:
            if card.keys & other.keys:
                advice = self.kind.duplicate_key_advice
                raise _import_refused(f"the card of {card.owner} has the keys of {other.owner}: {advice}")


def cards_by_owner(cards: Iterable[SignedKeyCard[AnyCard]]) -> dict[str, SignedKeyCard[AnyCard]]:
    """Return the cards by owner. Raises as `Roster.import_cards`."""
    found: dict[str, SignedKeyCard[AnyCard]] = {}
    for signed in cards:
        owner = signed.check().owner
        if found.setdefault(owner, signed).signed_json != signed.signed_json:
            raise _import_refused(
                f"there are two key cards of {owner}: telephone {owner}, and import only the right one"
            )
    return found


def _import_refused(why: str) -> RequestError:
    return RequestError(Code.CONFLICT, f"{why}; nothing was imported")
