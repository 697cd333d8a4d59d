"""A kind of owners whose cards are pinned: other sites and analysts differ in names and words alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic

from eigenveil.key_cards.key_card import AnyCard, SignedKeyCard


@dataclass(frozen=True, slots=True, kw_only=True)
class RosterKind(Generic[AnyCard]):
    """Cards of one kind: `entries` names the file (entries.json), its list and the command; `owner` is the
    word for who has a card, `voice` for who reads its digits out; `read` makes a signed card of its bytes.

    `event` is the alarm about a changed card; `effect` is what a changed card stops, `without` what a removed
    one does. `own` gives the digits of this site's own card, where it has one of the kind; `copied` says how
    two owners came to one key."""

    entries: str
    owner: str
    voice: Callable[[str], str]
    read: Callable[..., SignedKeyCard[AnyCard]]
    event: str
    effect: str
    without: str
    copied: str
    own: Callable[[Path], str | None]

    @property
    def file(self) -> str:
        return f"{self.entries}.json"

    @property
    def command(self) -> str:
        return f"eigenveil-site {self.entries}"
