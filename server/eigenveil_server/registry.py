"""Who may call: one-time tokens, issued certificates, the deny-list."""

from __future__ import annotations

import hashlib
import secrets
import sqlite3
from dataclasses import dataclass

from cryptography import x509

from eigenveil.errors import Code, PeerError, RequestError
from eigenveil.identity import Identity, Role
from eigenveil_server.clock import Clock, as_datetime
from eigenveil_server.database import Store, audit
from eigenveil_server.pki import Authority, fingerprint, pem, requested_key

TOKEN_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Enrolled:
    """One identity as the operator sees it; times in Unix milliseconds."""

    role: str
    name: str
    expires_at: int
    denied: bool


class Registry:
    """Tokens, certificates and the deny-list of one federation."""

    def __init__(self, store: Store, federation: str, clock: Clock) -> None:
        self._store = store
        self._federation = federation
        self._clock = clock

    def new_token(self, role: Role, name: str, valid_ms: int, *, lift_denial: bool = False) -> str:
        """A one-time token; only its hash is kept. Unused ones of the same identity stop working.

        Raises:
            PeerError: `name` is not a name.
            RequestError: it is on the deny-list; only `lift_denial` takes it off.
        """
        Identity(federation=self._federation, role=role, name=name)
        token = secrets.token_urlsafe(TOKEN_BYTES)
        now, who = self._clock(), (role.value, name)
        with self._store.writer.transaction() as change:
            if _denied(change, who) and not lift_denial:
                raise RequestError(
                    Code.CONFLICT,
                    f"{'/'.join(who)} is on the deny-list; to let it in again, add --lift-denial",
                )
            _void_tokens(change, who)
            change.execute(
                "INSERT INTO tokens (hash, role, name, expires_at) VALUES (?, ?, ?, ?)",
                (_hash(token.encode()), *who, now + valid_ms),
            )
            change.execute("DELETE FROM denied WHERE (role, name) = (?, ?)", who)
            audit(change, now, "token", "/".join(who))
        return token

    def enrol(self, token: str, csr_der: bytes, authority: Authority, days: float) -> bytes:
        """The certificate (PEM) that the token is good for; the same request again gets the same one.

        Raises:
            PeerError: code `identity`: the token is unknown, expired, or was used with another key, or
                its name is on the deny-list.
            RequestError: the certificate request is refused.
        """
        key = requested_key(csr_der)
        with self._store.writer.transaction() as change:
            row = change.execute("SELECT * FROM tokens WHERE hash = ?", (_hash(token.encode()),)).fetchone()
            if row is None:
                raise _refused("the token is unknown or was replaced; ask the operator for a join file")
            if _denied(change, (row["role"], row["name"])):
                raise _refused(f"{row['role']}/{row['name']} is on the deny-list; speak to the operator")
            if row["csr_hash"] is not None:
                return _again(row, csr_der)
            if self._clock() >= row["expires_at"]:
                raise _refused("the token has expired; ask the operator for a new join file")
            identity = Identity(federation=self._federation, role=Role(row["role"]), name=row["name"])
            issued = authority.issue(identity, key, now=as_datetime(self._clock()), days=days)
            self._record(change, identity, issued)
            change.execute(
                "UPDATE tokens SET csr_hash = ?, certificate = ? WHERE hash = ?",
                (_hash(csr_der), pem(issued), row["hash"]),
            )
        return pem(issued)

    def _record(self, change: sqlite3.Connection, identity: Identity, issued: x509.Certificate) -> None:
        who = (identity.role.value, identity.name)
        expires_at = int(1000 * issued.not_valid_after_utc.timestamp())
        # One live certificate a name: who enrols again shuts out a copy of the old key.
        change.execute("UPDATE certificates SET superseded = 1 WHERE (role, name) = (?, ?)", who)
        change.execute(
            "INSERT INTO certificates (fingerprint, role, name, issued_at, expires_at) "
            "VALUES (?, ?, ?, ?, ?)",
            (fingerprint(issued), *who, self._clock(), expires_at),
        )
        audit(change, self._clock(), "enrolled", "/".join(who), fingerprint(issued))

    def deny(self, role: Role, name: str) -> None:
        """Refuse every further message of this identity, from now on, and void its unused tokens.

        Raises:
            RequestError: nobody of that name has enrolled or was invited.
        """
        who = (role.value, name)
        with self._store.writer.transaction() as change:
            if not _known(change, who):
                raise RequestError(Code.NOT_FOUND, f"no {role.value} {name} has enrolled or was invited")
            _void_tokens(change, who)
            change.execute("INSERT OR REPLACE INTO denied VALUES (?, ?, ?)", (*who, self._clock()))
            change.execute("UPDATE certificates SET superseded = 1 WHERE (role, name) = (?, ?)", who)
            audit(change, self._clock(), "denied", "/".join(who))

    def check(self, identity: Identity, print: str) -> None:
        """Whether this certificate of this identity may be used.

        Raises:
            PeerError: code `identity`: denied, never issued here, or replaced by a later one.
        """
        who = (identity.role.value, identity.name)
        rows = self._store.reader.rows(
            "SELECT c.superseded, EXISTS (SELECT 1 FROM denied d WHERE (d.role, d.name) = (?, ?)) AS denied "
            "FROM (SELECT 1) LEFT JOIN certificates c ON (c.role, c.name, c.fingerprint) = (?, ?, ?)",
            (*who, *who, print),
        )
        if rows[0]["denied"]:
            raise _refused(f"{identity.uri} is on the deny-list; speak to the coordinator's operator")
        if rows[0]["superseded"] is None:
            raise _refused(f"the certificate of {identity.uri} is not known here; enrol again")
        if rows[0]["superseded"]:
            raise _refused(f"the certificate of {identity.uri} was replaced by a later one; enrol again")

    def sites(self) -> frozenset[str]:
        """Names of the sites that have enrolled and are not denied."""
        return frozenset(
            one.name for one in self.enrolled() if one.role == Role.SITE.value and not one.denied
        )

    def enrolled(self) -> list[Enrolled]:
        """Everybody who has enrolled, with the expiry of the latest certificate."""
        rows = self._store.reader.rows(
            "SELECT role, name, MAX(expires_at) AS expires_at, EXISTS (SELECT 1 FROM denied d "
            "WHERE (d.role, d.name) = (c.role, c.name)) AS denied "
            "FROM certificates c GROUP BY role, name ORDER BY role, name"
        )
        return [
            Enrolled(role=r["role"], name=r["name"], expires_at=r["expires_at"], denied=bool(r["denied"]))
            for r in rows
        ]


def _denied(change: sqlite3.Connection, who: tuple[str, str]) -> bool:
    return bool(change.execute("SELECT 1 FROM denied WHERE (role, name) = (?, ?)", who).fetchall())


def _known(change: sqlite3.Connection, who: tuple[str, str]) -> bool:
    tables = ("certificates", "tokens")
    found = (change.execute(f"SELECT 1 FROM {table} WHERE (role, name) = (?, ?)", who) for table in tables)
    return any(rows.fetchall() for rows in found)


def _void_tokens(change: sqlite3.Connection, who: tuple[str, str]) -> None:
    """An unused token may have leaked; a used one is kept, to answer its own request again."""
    change.execute("DELETE FROM tokens WHERE (role, name) = (?, ?) AND csr_hash IS NULL", who)


def _hash(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def _again(row: sqlite3.Row, csr_der: bytes) -> bytes:
    if row["csr_hash"] != _hash(csr_der):
        raise _refused("the token was used already; ask the operator for a new join file")
    certificate: bytes = row["certificate"]
    return certificate


def _refused(message: str) -> PeerError:
    return PeerError(Code.IDENTITY, message)
