"""What is stored of a federation's public words: the dictionaries that its operator published, and what its
sites state."""

from __future__ import annotations

from dataclasses import dataclass

from eigenveil.dictionary.dictionary import Dictionary
from eigenveil.dictionary.signed import SignedDictionary
from eigenveil.dictionary.statement import SiteStatement, statement_from_proto
from eigenveil.errors import Code, RequestError
from eigenveil_common.storage.database import Connection, Database, Row
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.storage.database import audit


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """One version of the dictionary; `at` in Unix milliseconds."""

    version: int
    signed: SignedDictionary
    at: int


def latest(reader: Database) -> Published | None:
    """The dictionary in force, if any was published."""
    rows = reader.rows("SELECT * FROM dictionaries ORDER BY version DESC LIMIT 1")
    return _published(rows[0]) if rows else None


def latest_version(reader: Database) -> int:
    """Its version; 0 if none was published."""
    version: int = reader.rows("SELECT COALESCE(MAX(version), 0) FROM dictionaries")[0][0]
    return version


def history(reader: Database) -> list[Published]:
    """Every version that was ever published, oldest first."""
    return [_published(row) for row in reader.rows("SELECT * FROM dictionaries ORDER BY version")]


def _published(row: Row) -> Published:
    signed = SignedDictionary(said=row["said"], signature=row["signature"])
    return Published(version=row["version"], signed=signed, at=row["at"])


def publish(change: Connection, dictionary: Dictionary, signed: SignedDictionary, at: int) -> None:
    """Put a dictionary in force, within a transaction.

    Raises:
        RequestError: code `conflict`, its version is not above that of the last one: what somebody holds
            under a version must never come to mean something else.
    """
    last = change.execute("SELECT COALESCE(MAX(version), 0) AS version FROM dictionaries")[0]["version"]
    if dictionary.version <= last:
        raise RequestError(
            Code.CONFLICT,
            f"version {last} is published, and this file says version {dictionary.version}: raise it to "
            f"{last + 1} or more",
        )
    row = {"version": dictionary.version, "said": signed.said, "signature": signed.signature, "at": at}
    change.insert("dictionaries", row)
    audit(
        change, at, "dictionary-published", f"dictionary/{dictionary.name}", f"version {dictionary.version}"
    )


def statements(reader: Database) -> dict[str, SiteStatement]:
    """What each site stated last, of those that state anything."""
    rows = reader.rows("SELECT site, statement FROM statements")
    return {row["site"]: statement_from_proto(pb.SiteStatement.FromString(row["statement"])) for row in rows}


def note_statement(change: Connection, site: str, statement: SiteStatement | None) -> None:
    """What a site states from now on; None: nothing."""
    if statement is None:
        change.execute("DELETE FROM statements WHERE site = ?", (site,))
        return
    change.execute(
        "INSERT INTO statements VALUES (?, ?) "
        "ON CONFLICT (site) DO UPDATE SET statement = excluded.statement",
        (site, statement.to_proto().SerializeToString(deterministic=True)),
    )
