"""What a site says of a study: silent, waiting for a person, agreed or declined; nobody goes back [R24]."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from eigenveil.identity import Role
from eigenveil_common.storage.database import Connection, Database
from eigenveil_server.storage.states import shown


class Standing(Enum):
    """In the order in which a site may come to say them; the values are what analysts read."""

    SILENT = "not heard of"
    WAITING = "waiting for a person"
    AGREED = "agreed"
    DECLINED = "declined"


ORDER = tuple(Standing)


@dataclass(frozen=True, slots=True, kw_only=True)
class Consent:
    """One site's word. `reason` is why it declined, `text` what a person there wrote to the analyst; a
    person's agreement says in `starts_at` (Unix milliseconds) before when nothing may be asked."""

    standing: Standing
    reason: str = ""
    text: str = ""
    starts_at: int = 0

    def follows(self, last: Consent) -> bool:
        """Whether it says more than the last word: nobody goes back, so that no site can go to and fro."""
        return ORDER.index(self.standing) > ORDER.index(last.standing)

    @property
    def status(self) -> str:
        """What analysts are told of it."""
        return ": ".join(shown(self.reason)) if self.standing is Standing.DECLINED else self.standing.value


UNHEARD = Consent(standing=Standing.SILENT)


def consents(reader: Database, study: str) -> dict[str, Consent]:
    """The words of the sites that said anything."""
    rows = reader.rows("SELECT * FROM consents WHERE study = ?", (study,))
    return {
        row["site"]: Consent(
            standing=Standing(row["standing"]),
            reason=row["reason"],
            text=row["text"],
            starts_at=row["starts_at"],
        )
        for row in rows
    }


def shut_out(reader: Database) -> frozenset[str]:
    """The sites on the deny-list: whatever they said, they can answer nothing."""
    return frozenset(
        row["name"] for row in reader.rows("SELECT name FROM denied WHERE role = ?", (Role.SITE.value,))
    )


def store_consent(change: Connection, study: str, site: str, said: Consent, at: int) -> None:
    """Remember what a site said, in place of what it said before."""
    change.execute("DELETE FROM consents WHERE (study, site) = (?, ?)", (study, site))
    row = {
        "study": study,
        "site": site,
        "standing": said.standing.value,
        "reason": said.reason,
        "text": said.text,
        "starts_at": said.starts_at,
        "at": at,
    }
    change.insert("consents", row)
