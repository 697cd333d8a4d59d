"""Decisions of a site whether too many lines of its records are lost: one for each version of the records and
of the settings, made once, so that no series of studies learns more than that one bit of a version."""

from __future__ import annotations

from dataclasses import dataclass

from eigenveil_client.records.summary import RecordsSummary
from eigenveil_client.records.tables.source import BadRecords
from eigenveil_client.site.engine.engine import LoadedRecords
from eigenveil_client.site.policy_sections import LineRules
from eigenveil_client.site.state.egress import KeyedDigests
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
    _digests: KeyedDigests

    def require(self, rules: LineRules, found: RecordsSummary | LoadedRecords) -> None:
        """Require that not too many lines of the records are lost; else raise BadRecords. The number is not
        in the message.

        Privacy: one bit of each version of the records, for every study alike, and without noise."""
        limits = f"{rules.max_lost_lines}/{rules.max_lost_share!r}"
        version = self._digests.of_lines(limits, found.version)
        exceeded = rules.exceeded(lines=found.lines, lost=found.lost)
        if self._decide(version, declined=exceeded):
            raise BadRecords(
                "more lines of the records are lost than max_lost_lines and max_lost_share allow. Run "
                "eigenveil-site check, which names them",
                about="lines",
            )

    def _decide(self, version: str, *, declined: bool) -> bool:
        """Return the decision about a version, which is `declined` if there is none yet, durable on
        return."""
        stored = "SELECT declined FROM line_decisions WHERE version = ?"
        with self._database.transaction() as change:
            if not change.execute(stored, (version,)):
                change.insert("line_decisions", {"version": version, "declined": int(declined)})
            return bool(change.execute(stored, (version,))[0]["declined"])
