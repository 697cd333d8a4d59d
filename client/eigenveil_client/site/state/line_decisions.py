"""Decisions of a site whether too many lines of its records are lost: one for each version of the records and
of the settings, made once, so that no series of studies learns more than that one bit of a version."""

from __future__ import annotations

from dataclasses import dataclass

from eigenveil_common.storage.database import Database

SCHEMA = """
CREATE TABLE line_decisions (
  version TEXT PRIMARY KEY,
  declined INTEGER NOT NULL
) STRICT;
"""


@dataclass(eq=False)
class LineDecisions:
    """Decisions in `database` (whose schema includes `SCHEMA`)."""

    _database: Database

    def decide(self, version: str, *, declined: bool) -> bool:
        """Return the decision about a version, which is `declined` if there is none yet, durable on
        return."""
        stored = "SELECT declined FROM line_decisions WHERE version = ?"
        with self._database.transaction() as change:
            if not change.execute(stored, (version,)):
                change.insert("line_decisions", {"version": version, "declined": int(declined)})
            return bool(change.execute(stored, (version,))[0]["declined"])
