"""Kinds of key cards ever confirmed at this site, and digests of removed confirmed cards [R30] [R31]. Without
their files a site would accept unsigned and central studies again; with older files, a stolen key. So both
facts are in the ledger's database, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from eigenveil_client.site.roster.analysts import ANALYSTS
from eigenveil_client.site.roster.peers import PEERS
from eigenveil_client.site.roster.pins import RosterKind
from eigenveil_client.site.roster.roster import RESTORE_ADVICE, Roster, RosterUnusable
from eigenveil_common.storage.database import Database

SCHEMA = """
CREATE TABLE confirmed_kinds (
  kind TEXT PRIMARY KEY
) STRICT;
CREATE TABLE removed_cards (
  kind TEXT NOT NULL,
  card TEXT NOT NULL,
  at INTEGER NOT NULL,
  PRIMARY KEY (kind, card)
) STRICT;
"""
TABLES = ("confirmed_kinds", "removed_cards")
KINDS: tuple[RosterKind[Any], ...] = (PEERS, ANALYSTS)
NOTE_REMOVAL = (
    "INSERT INTO removed_cards VALUES (?, ?, ?) "
    "ON CONFLICT (kind, card) DO UPDATE SET at = MAX(at, excluded.at)"
)


class ConfirmedKinds:
    """Confirmed kinds and removed cards in `database` (whose schema includes `SCHEMA`)."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._noted: set[str] = set()
        self._noted_removals: set[tuple[str, str, int]] = set()  # noted by this process

    def note(self, kind: RosterKind[Any]) -> None:
        """Record that a card of this kind was confirmed, durable on return."""
        if kind.entries in self._noted:
            return
        with self._database.transaction() as change:
            change.execute("INSERT OR IGNORE INTO confirmed_kinds VALUES (?)", (kind.entries,))
        self._noted.add(kind.entries)

    def note_and_require(self, folder: Path) -> None:
        """Run `note_cards`, then `require`."""
        self.note_cards(folder)
        self.require(folder)

    def note_cards(self, folder: Path) -> None:
        """Record each kind with a card ever confirmed in an identity's `folder`, and the removed confirmed
        cards, durable on return."""
        for kind in KINDS:
            content = Roster(kind, folder).content()
            if content.ever_confirmed:
                self.note(kind)
            self._note_removed(
                {
                    (kind.entries, one.card.digest, one.until)
                    for one in content.earlier
                    if one.confirmed is not None and one.until is not None
                }
            )

    def _note_removed(self, rows: set[tuple[str, str, int]]) -> None:
        if new := rows - self._noted_removals:
            with self._database.transaction() as change:
                for row in sorted(new):
                    change.execute(NOTE_REMOVAL, row)
            self._noted_removals |= new

    def require(self, folder: Path) -> None:
        """Require a confirmed card of each recorded kind in an identity's `folder`, and that no confirmed
        card there was removed since. Raises RosterUnusable: confirmed cards are missing, or are from an older
        file; or as `Roster`."""
        for kind in KINDS:
            noted = self._database.rows("SELECT 1 FROM confirmed_kinds WHERE kind = ?", (kind.entries,))
            content = Roster(kind, folder).content()
            if noted and not content.ever_confirmed:
                raise RosterUnusable(
                    f"key cards of {kind.entries} were confirmed here, and {folder / kind.file} has none: "
                    f"nothing is answered. {RESTORE_ADVICE}",
                )
            rows = self._database.rows("SELECT card, at FROM removed_cards WHERE kind = ?", (kind.entries,))
            until = {row["card"]: row["at"] for row in rows}
            for name, pin in content.pins.items():
                if pin.confirmed is not None and pin.confirmed.at <= until.get(pin.card.digest, -1):
                    raise RosterUnusable(
                        f"{folder / kind.file} is from an older backup: the key card of {name}, confirmed in "
                        "it, was removed since. Nothing is answered. Remove the card again: "
                        f"{kind.command} remove {name} --config site.toml; then start the daemon again"
                    )
