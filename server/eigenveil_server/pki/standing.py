"""Who may call, as the tables say at one moment: read whole, and again only when anything has changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from eigenveil.errors import Code, PeerError
from eigenveil.identity import Identity
from eigenveil_common.storage.database import Database

Who = tuple[str, str]  # role and name


class Certificate(NamedTuple):
    """What is noted of one that was issued; `unused` since a renewal. Unix milliseconds."""

    superseded: bool
    unused: bool
    expires_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The deny-list and all certificates, by whose they are and by their fingerprints. `version` is the line
    of the audit before which all of that was written."""

    version: int
    denied: frozenset[Who]
    certificates: Mapping[Who, Mapping[str, Certificate]]

    def check(self, identity: Identity, print: str) -> bool:
        """Whether this certificate of this identity may be used; True if this is its first use since a
        renewal, which `Registry.take_up` must note.

        Raises:
            PeerError: code `identity`: denied, never issued here, or replaced by a later one.
        """
        who = (identity.role.value, identity.name)
        self._check_admitted(identity)
        found = self.certificates.get(who, {}).get(print)
        if found is None:
            raise refused(f"this certificate of {identity.uri} is not known here; enrol again")
        if found.superseded:
            raise refused(f"this certificate of {identity.uri} was replaced by a later one; use that")
        return found.unused

    def check_enrolled(self, identity: Identity, now: int) -> None:
        """Insist that somebody whom others vouch for might call with a certificate as well.

        Raises:
            PeerError: code `identity`: denied, or without a certificate that is good now.
        """
        self._check_admitted(identity)
        held = self.certificates.get((identity.role.value, identity.name), {}).values()
        if not any(not one.superseded and one.expires_at > now for one in held):
            raise refused(f"{identity.uri} has no certificate that is good now; enrol first")

    def _check_admitted(self, identity: Identity) -> None:
        if (identity.role.value, identity.name) in self.denied:
            raise refused(f"{identity.uri} is on the deny-list; speak to the coordinator's operator")


def standing(reader: Database, known: Standing | None) -> Standing:
    """Who may call now; `known` itself if nothing has changed since: every call asks.

    Whatever changes who may call writes a line of the audit in its transaction. The last one's number is read
    first: what is read after that is as new, or newer.
    """
    version: int = reader.rows("SELECT COALESCE(MAX(id), 0) FROM audit")[0][0]
    if known is not None and known.version == version:
        return known
    denied = frozenset((row["role"], row["name"]) for row in reader.rows("SELECT role, name FROM denied"))
    certificates: dict[Who, dict[str, Certificate]] = {}
    columns = "role, name, fingerprint, superseded, unused, expires_at"
    for role, name, print, superseded, unused, ends in reader.rows(f"SELECT {columns} FROM certificates"):
        noted = Certificate(bool(superseded), bool(unused), ends)
        certificates.setdefault((role, name), {})[print] = noted
    return Standing(version=version, denied=denied, certificates=certificates)


def refused(message: str) -> PeerError:
    """Nobody who may call."""
    return PeerError(Code.IDENTITY, message)
