"""Who may call: one-time tokens, issued and renewed certificates, the deny-list."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass

from cryptography import x509

from eigenveil.certificates import key_print
from eigenveil.errors import Code, RequestError
from eigenveil.identity import Identity, Role
from eigenveil_common.failpoints import failpoint
from eigenveil_common.storage.database import Connection, Row
from eigenveil_server.clock import Clock, as_datetime
from eigenveil_server.pki.authority import Authority, fingerprint, pem, requested_key
from eigenveil_server.pki.standing import Who, refused
from eigenveil_server.storage.database import Store, audit

TOKEN_BYTES = 32
UNKNOWN_TOKEN = "the token is unknown or was replaced; ask the operator for a join file"
LIVE = "superseded = 0 AND expires_at > ?"


@dataclass(frozen=True, slots=True, kw_only=True)
class Enrolled:
    """One identity as the operator sees it; times in Unix milliseconds. `key` is the SHA-256 of the public
    key of its latest certificate, which the other end has on its screen as well."""

    role: str
    name: str
    expires_at: int
    denied: bool
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Issued:
    """A certificate, and who holds which key."""

    identity: Identity
    key: str
    pem: bytes


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
            denied = _denied(change, who)
            if denied and not lift_denial:
                raise RequestError(
                    Code.CONFLICT,
                    f"{'/'.join(who)} is on the deny-list; to let it in again, add --lift-denial",
                )
            _void_tokens(change, who)
            change.execute(
                "INSERT INTO tokens (hash, role, name, expires_at) VALUES (?, ?, ?, ?)",
                (hashlib.sha256(token.encode()).digest(), *who, now + valid_ms),
            )
            change.execute("DELETE FROM denied WHERE (role, name) = (?, ?)", who)
            if denied:
                audit(change, now, "denial-lifted", "/".join(who))
            audit(change, now, "token", "/".join(who))
        return token

    def enrol(
        self, token: str, csr_der: bytes, authority: Authority, days: Callable[[Role], float]
    ) -> Issued:
        """The certificate that the token is good for; the same key again gets the same one. `days` is how
        long one lasts. Whoever was away for longer than theirs comes back in this way, under the same name.

        Raises:
            PeerError: code `identity`: the token is unknown, expired, or was used with another key, its name
                is on the deny-list, or the key was certified before, for whomever.
            RequestError: the certificate request is refused.
        """
        key, held = requested_key(csr_der), (hashlib.sha256(token.encode()).digest(),)
        # Anybody may ask: only who holds a token makes those wait who write.
        if not self._store.reader.rows("SELECT 1 FROM tokens WHERE hash = ?", held):
            raise refused(UNKNOWN_TOKEN)
        with self._store.writer.transaction() as change:
            rows = change.execute("SELECT * FROM tokens WHERE hash = ?", held)
            if not rows:
                raise refused(UNKNOWN_TOKEN)
            row = rows[0]
            if _denied(change, (row["role"], row["name"])):
                raise refused(f"{row['role']}/{row['name']} is on the deny-list; speak to the operator")
            identity = Identity(federation=self._federation, role=Role(row["role"]), name=row["name"])
            if row["key_print"] is not None:
                if row["key_print"] != key_print(key):
                    raise refused("the token was used already; ask the operator for a new join file")
                return Issued(identity=identity, key=key_print(key), pem=row["certificate"])
            if self._clock() >= row["expires_at"]:
                raise refused("the token has expired; ask the operator for a new join file")
            _insist_new(change, key_print(key))
            life = days(identity.role)
            issued = authority.issue(identity, key, now=as_datetime(self._clock()), days=life)
            _admit_anew(change, (row["role"], row["name"]))
            self._record(change, identity, issued, authority, "enrolled")
            change.execute(
                "UPDATE tokens SET key_print = ?, certificate = ? WHERE hash = ?",
                (key_print(key), pem(issued), row["hash"]),
            )
            failpoint("certificate-issuing")
        failpoint("certificate-issued")
        return Issued(identity=identity, key=key_print(key), pem=pem(issued))

    def renew(
        self, caller: Identity, print: str, csr_der: bytes, authority: Authority, days: float
    ) -> Issued:
        """The next certificate of `caller`, who shows the one with fingerprint `print`; for the same key the
        same one. The one that is shown works until the next one was used.

        Raises:
            PeerError: code `identity`: denied or replaced meanwhile, or a key that was certified before.
            RequestError: the request is refused; `not-ready`, it is too early.
        """
        key, who, now = requested_key(csr_der), (caller.role.value, caller.name), self._clock()
        held = key_print(key)
        with self._store.writer.transaction() as change:
            live = change.execute(
                f"SELECT * FROM certificates WHERE (role, name) = (?, ?) AND {LIVE}", (*who, now)
            )
            shown = next((row for row in live if row["fingerprint"] == print), None)
            if shown is None or _denied(change, who):
                raise refused(f"the certificate of {caller.uri} was replaced or shut out")
            for row in live:
                if row["key_print"] == held:
                    return Issued(identity=caller, key=held, pem=row["certificate"])
            self._check_due(shown)
            _insist_new(change, held)
            # One that was answered and never used: its answer was lost together with its key.
            lost = "(role, name) = (?, ?) AND unused = 1 AND fingerprint != ?"
            change.execute(f"DELETE FROM certificates WHERE {lost}", (*who, print))
            ended = "(role, name) = (?, ?) AND superseded = 1 AND expires_at <= ?"
            change.execute(f"DELETE FROM certificates WHERE {ended}", (*who, now))
            issued = authority.issue(caller, key, now=as_datetime(now), days=days)
            self._record(change, caller, issued, authority, "renewed")
            failpoint("renewal-issuing")
        failpoint("renewal-issued")
        return Issued(identity=caller, key=held, pem=pem(issued))

    def _check_due(self, shown: Row) -> None:
        """Nobody fills the disk by renewing: half of a life must be over. Clients wait for two thirds."""
        if self._clock() < (shown["issued_at"] + shown["expires_at"]) // 2:
            raise RequestError(Code.NOT_READY, "renew when two thirds of the certificate's life are over")

    def _record(
        self, change: Connection, identity: Identity, issued: x509.Certificate, by: Authority, how: str
    ) -> None:
        who = (identity.role.value, identity.name)
        expires_at = int(1000 * issued.not_valid_after_utc.timestamp())
        held = key_print(issued.public_key())  # type: ignore[arg-type]  # as requested_key insists
        change.execute(
            "INSERT INTO certificates (fingerprint, role, name, issued_at, expires_at, unused, issuer, "
            "key_print, certificate) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                *(fingerprint(issued), *who, self._clock(), expires_at, int(how == "renewed")),
                *(fingerprint(by.certificate), held, pem(issued)),
            ),
        )
        audit(change, self._clock(), how, "/".join(who), f"certificate {fingerprint(issued)}")

    def take_up(self, caller: Identity, print: str) -> None:
        """Note that a renewed certificate was used: the earlier ones of this caller work no more.

        Raises:
            InternalError: code `storage`.
        """
        who = (caller.role.value, caller.name)
        with self._store.writer.transaction() as change:
            change.execute(
                "UPDATE certificates SET superseded = 1 WHERE (role, name) = (?, ?) AND fingerprint != ? "
                "AND EXISTS (SELECT 1 FROM certificates f WHERE f.fingerprint = ? AND f.unused = 1)",
                (*who, print, print),
            )
            change.execute("UPDATE certificates SET unused = 0 WHERE fingerprint = ?", (print,))
            audit(change, self._clock(), "taken-up", "/".join(who), f"certificate {print}")
            failpoint("renewal-taking-up")

    def deny(self, role: Role, name: str, why: str = "") -> None:
        """Refuse every further message of this identity, from now on, and void its unused tokens; `why` is
        for the audit.

        Raises:
            RequestError: nobody of that name has enrolled or was invited.
        """
        who = (role.value, name)
        with self._store.writer.transaction() as change:
            tables, same = ("certificates", "tokens"), "(role, name) = (?, ?)"
            found = (change.execute(f"SELECT 1 FROM {table} WHERE {same}", who) for table in tables)
            if not any(found):
                raise RequestError(Code.NOT_FOUND, f"no {role.value} {name} has enrolled or was invited")
            _void_tokens(change, who)
            change.execute(
                "INSERT INTO denied VALUES (?, ?, ?) ON CONFLICT (role, name) DO UPDATE SET at = excluded.at",
                (*who, self._clock()),
            )
            change.execute("UPDATE certificates SET superseded = 1 WHERE (role, name) = (?, ?)", who)
            audit(change, self._clock(), "denied", "/".join(who), why)

    def sites(self) -> frozenset[str]:
        """Names of the sites that have enrolled and are not denied."""
        return frozenset(
            one.name for one in self.enrolled() if one.role == Role.SITE.value and not one.denied
        )

    def enrolled(self) -> list[Enrolled]:
        """Everybody who has enrolled, with the expiry and the key of the latest certificate; a replaced one
        counts only if there is no other."""
        rows = self._store.reader.rows(
            "SELECT role, name, expires_at, key_print AS key, EXISTS (SELECT 1 FROM denied d "
            "WHERE (d.role, d.name) = (c.role, c.name)) AS denied "
            "FROM certificates c ORDER BY role, name, superseded DESC, issued_at, expires_at"
        )
        latest = {(row["role"], row["name"]): row for row in rows}
        return [Enrolled(**{**dict(row), "denied": bool(row["denied"])}) for row in latest.values()]


def _denied(change: Connection, who: Who) -> bool:
    return bool(change.execute("SELECT 1 FROM denied WHERE (role, name) = (?, ?)", who))


def _void_tokens(change: Connection, who: Who) -> None:
    """An unused token may have leaked; a used one is kept, to answer its own request again."""
    change.execute("DELETE FROM tokens WHERE (role, name) = (?, ?) AND key_print IS NULL", who)


def _admit_anew(change: Connection, who: Who) -> None:
    """One live certificate a name: who enrols again shuts out a copy of the old key, and what the copy said
    of its generation is forgotten."""
    change.execute("UPDATE certificates SET superseded = 1 WHERE (role, name) = (?, ?)", who)
    change.execute("DELETE FROM greetings WHERE (role, name) = (?, ?)", who)


def _insist_new(change: Connection, print: str) -> None:
    """A key that was replaced, or is somebody else's, is not certified again."""
    if change.execute("SELECT 1 FROM certificates WHERE key_print = ?", (print,)):
        raise refused("this key was certified before; ask with a new one")
