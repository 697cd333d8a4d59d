"""What a site's commands tell of pinned cards: plain values, and words for the person at the telephone.

The digits of a card that nobody has confirmed are not shown: they are to be heard from its owner, and not
copied from the screen.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from eigenveil.key_cards.key_card import AnyCard
from eigenveil_client.site.roster.content import Outcome, RosterContent
from eigenveil_client.site.roster.kind import RosterKind
from eigenveil_client.site.roster.pin import Pin, Standing
from eigenveil_common.command import typed

BECAME = {
    Outcome.NEW: "new here",
    Outcome.KNOWN: "this very card is here",
    Outcome.REPLACED: "in place of the card that was here, which is kept",
    Outcome.OWN: "this site's own, left out",
}


def imports(outcomes: Mapping[str, Outcome], held: RosterContent[AnyCard]) -> dict[str, Any]:
    """What became of each card, and what is held of its owner now."""
    pins = {name: held.pins.get(name) for name in outcomes}
    return {
        "cards": [
            {
                held.kind.owner: name,
                "outcome": outcomes[name].value,
                "standing": one and one.standing.value,
            }
            for name, one in pins.items()
        ]
    }


def imported(kind: RosterKind[AnyCard], told: dict[str, Any], config_file: Path) -> str:
    """The same for a person, with the commands that must follow."""
    rows = told["cards"]
    lines = [
        f"{row[kind.owner]}: {BECAME[Outcome(row['outcome'])]}{_standing(row['standing'])}" for row in rows
    ]
    waiting = [row[kind.owner] for row in rows if row["standing"] not in (None, Standing.CONFIRMED.value)]
    if waiting:
        call = "Telephone each of them, at a number that did not come with the file, and type what you hear:"
        command = (*kind.command.split(), "confirm")
        lines += [call, *(f"  {typed(*command, name, '--config', config_file)}" for name in waiting)]
    return "\n".join(lines)


def _standing(stated: str | None) -> str:
    if stated is None:
        return ""
    return ", not confirmed yet" if stated == Standing.IMPORTED.value else f", {stated}"


def pin_row(kind: RosterKind[AnyCard], pin: Pin[AnyCard]) -> dict[str, Any]:
    """A pin as plain values."""
    confirmed, seen = pin.confirmed, pin.seen
    return {
        kind.owner: pin.card.owner,
        "standing": pin.standing.value,
        "card": pin.card.digest,
        "fingerprint": pin.card.fingerprint if pin.standing is Standing.CONFIRMED else None,
        "by": confirmed and confirmed.by,
        "confirmed": confirmed and confirmed.at,
        "seen": seen and seen.digest,
        "until": pin.until,
    }


def listed(held: RosterContent[AnyCard]) -> dict[str, Any]:
    """The pins by name, and what was put aside."""
    kind = held.kind
    return {
        kind.entries: [pin_row(kind, held.pins[name]) for name in sorted(held.pins)],
        "earlier": [pin_row(kind, one) for one in held.earlier],
    }
