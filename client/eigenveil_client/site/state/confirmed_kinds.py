"""The kinds of cards of which people of this site have ever confirmed one: the fact alone [R30] [R31].

The cards are in files beside the identity, which can be moved away or forgotten in a backup. Without them a
site would answer again as one that never knew anybody; so the fact is in the ledger's own database, too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from eigenveil_client.site.analysts.kind import ANALYSTS
from eigenveil_client.site.peers.kind import PEERS
from eigenveil_client.site.roster.kind import RosterKind
from eigenveil_client.site.roster.roster import RESTORE, Roster, RosterUnusable
from eigenveil_common.storage.database import Database

SCHEMA = """
CREATE TABLE confirmed_kinds (
  kind TEXT PRIMARY KEY
) STRICT;
"""
KINDS: tuple[RosterKind[Any], ...] = (PEERS, ANALYSTS)


class ConfirmedKinds:
    """The rows in `database` (whose schema includes `SCHEMA`)."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._noted: set[str] = set()

    def note(self, kind: RosterKind[Any]) -> None:
        """Remember that a card of this kind was confirmed, durably on return."""
        if kind.entries in self._noted:
            return
        with self._database.transaction() as change:
            change.execute("INSERT OR IGNORE INTO confirmed_kinds VALUES (?)", (kind.entries,))
        self._noted.add(kind.entries)

    def keep(self, folder: Path) -> None:
        """Note each kind of which a card was ever confirmed in an identity's `folder`, then `require`."""
        for kind in KINDS:
            if Roster(kind, folder).held().ever_confirmed:
                self.note(kind)
        self.require(folder)

    def require(self, folder: Path) -> None:
        """Insist that no kind that was noted is without a confirmed card in an identity's `folder`.

        Raises:
            RosterUnusable: confirmed cards are gone; or as `Roster`.
        """
        for kind in KINDS:
            noted = self._database.rows("SELECT 1 FROM confirmed_kinds WHERE kind = ?", (kind.entries,))
            if noted and not Roster(kind, folder).held().ever_confirmed:
                raise RosterUnusable(
                    f"people here have confirmed cards of {kind.entries}, and {folder / kind.file} holds "
                    f"none: nothing is answered. {RESTORE}",
                )
