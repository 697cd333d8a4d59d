"""The kinds of cards of which people of this site have ever confirmed one, and the digests of confirmed cards
that they put aside [R30] [R31].

The cards are in files beside the identity, which can be moved away, forgotten in a backup, or put back from
an older one. Without them a site would answer again as one that never knew anybody, and with older ones a
stolen key that was put aside would sign again; so both facts are in the ledger's own database, too.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from eigenveil_client.site.analysts.kind import ANALYSTS
from eigenveil_client.site.peers.kind import PEERS
from eigenveil_client.site.roster.kind import RosterKind
from eigenveil_client.site.roster.pin import Pin
from eigenveil_client.site.roster.roster import RESTORE, Roster, RosterUnusable
from eigenveil_common.storage.database import Database

SCHEMA = """
CREATE TABLE confirmed_kinds (
  kind TEXT PRIMARY KEY
) STRICT;
CREATE TABLE put_aside (
  kind TEXT NOT NULL,
  card TEXT NOT NULL,
  at INTEGER NOT NULL,
  PRIMARY KEY (kind, card)
) STRICT;
"""
KINDS: tuple[RosterKind[Any], ...] = (PEERS, ANALYSTS)
PUT_ASIDE = (
    "INSERT INTO put_aside VALUES (?, ?, ?) ON CONFLICT (kind, card) DO UPDATE SET at = MAX(at, excluded.at)"
)


class ConfirmedKinds:
    """The rows in `database` (whose schema includes `SCHEMA`)."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._noted: set[str] = set()
        self._put_aside: set[tuple[str, str, int]] = set()  # what was noted of it by this process

    def note(self, kind: RosterKind[Any]) -> None:
        """Remember that a card of this kind was confirmed, durably on return."""
        if kind.entries in self._noted:
            return
        with self._database.transaction() as change:
            change.execute("INSERT OR IGNORE INTO confirmed_kinds VALUES (?)", (kind.entries,))
        self._noted.add(kind.entries)

    def keep(self, folder: Path) -> None:
        """`note_cards`, then `require`."""
        self.note_cards(folder)
        self.require(folder)

    def note_cards(self, folder: Path) -> None:
        """Note each kind of which a card was ever confirmed in an identity's `folder`, and the confirmed
        cards that were put aside, durably on return."""
        for kind in KINDS:
            held = Roster(kind, folder).held()
            if held.ever_confirmed:
                self.note(kind)
            aside = ((one.card.digest, one.until) for one in held.earlier if one.confirmed is not None)
            self._note_put_aside({(kind.entries, card, at) for card, at in aside if at is not None})

    def _note_put_aside(self, rows: set[tuple[str, str, int]]) -> None:
        if new := rows - self._put_aside:
            with self._database.transaction() as change:
                for row in sorted(new):
                    change.execute(PUT_ASIDE, row)
            self._put_aside |= new

    def require(self, folder: Path) -> None:
        """Insist that no kind that was noted is without a confirmed card in an identity's `folder`, and that
        no card there was put aside after it was confirmed.

        Raises:
            RosterUnusable: confirmed cards are gone, or came back from an older file; or as `Roster`.
        """
        for kind in KINDS:
            noted = self._database.rows("SELECT 1 FROM confirmed_kinds WHERE kind = ?", (kind.entries,))
            held = Roster(kind, folder).held()
            if noted and not held.ever_confirmed:
                raise RosterUnusable(
                    f"people here have confirmed cards of {kind.entries}, and {folder / kind.file} holds "
                    f"none: nothing is answered. {RESTORE}",
                )
            self._require_not_put_aside(kind, folder, held.pins.values())

    def _require_not_put_aside(self, kind: RosterKind[Any], folder: Path, pins: Collection[Pin[Any]]) -> None:
        rows = self._database.rows("SELECT card, at FROM put_aside WHERE kind = ?", (kind.entries,))
        until = {row["card"]: row["at"] for row in rows}
        for pin in pins:
            if pin.confirmed is not None and pin.confirmed.at <= until.get(pin.card.digest, -1):
                name = pin.card.owner
                raise RosterUnusable(
                    f"{folder / kind.file} holds as confirmed a card of {name} that people here put aside "
                    "since: it is from an older backup, and nothing is answered. Put the card aside again: "
                    f"{kind.command} remove {name} --config site.toml; then start the daemon again"
                )
