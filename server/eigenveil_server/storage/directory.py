"""Stored directory of a federation: published dictionaries, and the statements and versions of sites."""

from __future__ import annotations

from dataclasses import dataclass

from eigenveil.dictionary.dictionary import Dictionary
from eigenveil.dictionary.directory import SiteStatement, statement_from_proto
from eigenveil.dictionary.formats import SignedDictionary
from eigenveil.errors import Code, RequestError
from eigenveil.protocol.capabilities import Capabilities, capabilities_from_proto
from eigenveil_common.storage.database import Connection, Database
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.storage.database import audit


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedDictionary:
    """One version of the dictionary; `at` in Unix milliseconds."""

    version: int
    signed: SignedDictionary
    at: int


LATEST_VERSION = "SELECT COALESCE(MAX(version), 0) FROM dictionaries"


def latest(reader: Database) -> PublishedDictionary | None:
    """Return the dictionary in force, if any was published."""
    return next(iter(history(reader, "ORDER BY version DESC LIMIT 1")), None)


def latest_version(reader: Database) -> int:
    """Return the version in force; 0 if none was published."""
    return int(reader.rows(LATEST_VERSION)[0][0])


def history(reader: Database, order: str = "ORDER BY version") -> list[PublishedDictionary]:
    """Return every published version, oldest first unless `order` says otherwise."""
    return [
        PublishedDictionary(
            version=row["version"],
            signed=SignedDictionary(signed_json=row["signed_json"], signature=row["signature"]),
            at=row["at"],
        )
        for row in reader.rows(f"SELECT * FROM dictionaries {order}")
    ]


def publish(change: Connection, dictionary: Dictionary, signed: SignedDictionary, at: int) -> None:
    """Put a dictionary in force, within a transaction. Raises RequestError: code `conflict`, its version is
    not above the last one: a version must never change its meaning."""
    last = change.execute(LATEST_VERSION)[0][0]
    if dictionary.version <= last:
        raise RequestError(
            Code.CONFLICT,
            f"version {last} is published, and this file says version {dictionary.version}: raise it to "
            f"{last + 1} or more",
        )
    row = {
        "version": dictionary.version,
        "signed_json": signed.signed_json,
        "signature": signed.signature,
        "at": at,
    }
    change.insert("dictionaries", row)
    audit(
        change, at, "dictionary-published", f"dictionary/{dictionary.name}", f"version {dictionary.version}"
    )


def statements(reader: Database) -> dict[str, SiteStatement]:
    """Return the latest statement of each site that has one."""
    rows = reader.rows("SELECT site, statement FROM statements")
    return {row["site"]: statement_from_proto(pb.SiteStatement.FromString(row["statement"])) for row in rows}


def note_statement(change: Connection, site: str, statement: SiteStatement | None) -> None:
    """Store the statement of a site; None removes it."""
    if statement is None:
        change.execute("DELETE FROM statements WHERE site = ?", (site,))
        return
    change.execute(
        "INSERT INTO statements VALUES (?, ?) "
        "ON CONFLICT (site) DO UPDATE SET statement = excluded.statement",
        (site, statement.to_proto().SerializeToString(deterministic=True)),
    )


def capabilities(reader: Database) -> dict[str, Capabilities]:
    """Return the versions that each site stated last."""
    rows = reader.rows("SELECT site, capabilities FROM capabilities")
    return {
        row["site"]: capabilities_from_proto(pb.Capabilities.FromString(row["capabilities"])) for row in rows
    }


def note_capabilities(change: Connection, site: str, stated: Capabilities, at: int) -> None:
    """Store the versions that a site has from now on."""
    change.execute(
        "INSERT INTO capabilities VALUES (?, ?, ?) "
        "ON CONFLICT (site) DO UPDATE SET capabilities = excluded.capabilities, at = excluded.at",
        (site, stated.to_proto().SerializeToString(deterministic=True), at),
    )
