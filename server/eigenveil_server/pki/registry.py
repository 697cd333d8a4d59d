"""Registry of callers: one-time tokens, issued and renewed certificates, the deny-list, and its snapshots."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from cryptography import x509

from eigenveil.errors import Code, PeerError, RequestError
from eigenveil.identity import Identity, Role
from eigenveil.signatures import key_print
from eigenveil_common.files import failpoint
from eigenveil_common.storage.database import Connection, Database, Row
from eigenveil_server.pki.authority import Authority, fingerprint, pem, requested_key
from eigenveil_server.process import Clock, as_datetime
from eigenveil_server.storage.database import Store, audit

CallerKey = tuple[str, str]  # role and name


class CertificateStatus(NamedTuple):
    """Status of an issued certificate; `unused` since a renewal. Unix milliseconds."""

    superseded: bool
    renewal_unused: bool
    expires_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EnrolmentSnapshot:
    """The deny-list and all certificates, by identity and fingerprint, as of the audit line `version`."""

    version: int
    denied: frozenset[CallerKey]
    certificates: Mapping[CallerKey, Mapping[str, CertificateStatus]]

    def check(self, identity: Identity, print: str) -> bool:
        """Raise unless this certificate of this identity may be used; True at its first use since a renewal,
        which `Registry.mark_used` must note. Raises PeerError: code `identity`: denied, never issued here, or
        replaced by a later one."""
        found = self._admitted(identity).get(print)
        if found is None:
            raise identity_error(f"this certificate of {identity.uri} is unknown here; enrol again")
        if found.superseded:
            raise identity_error(
                f"this certificate of {identity.uri} was replaced by a later one; use that one"
            )
        return found.renewal_unused

    def check_enrolled(self, identity: Identity, now: int) -> None:
        """Raise unless an identity that others vouch for could call with a certificate as well."""
        issued = self._admitted(identity).values()
        if not any(not one.superseded and one.expires_at > now for one in issued):
            raise identity_error(f"{identity.uri} has no valid certificate; enrol first")

    def _admitted(self, identity: Identity) -> Mapping[str, CertificateStatus]:
        """Return the certificates of an identity that is not denied."""
        caller_key = (identity.role.value, identity.name)
        if caller_key in self.denied:
            raise identity_error(f"{identity.uri} is on the deny-list; ask the coordinator's operator")
        return self.certificates.get(caller_key, {})


def current_enrolments(reader: Database, known: EnrolmentSnapshot | None) -> EnrolmentSnapshot:
    """Return the current snapshot; `known` itself if nothing has changed, since every call reads it. Every
    such change writes an audit line in its transaction. The last line's number is read first: what is read
    after that is as new, or newer."""
    version: int = reader.rows("SELECT COALESCE(MAX(id), 0) FROM audit")[0][0]
    if known is not None and known.version == version:
        return known
    denied = frozenset((row["role"], row["name"]) for row in reader.rows("SELECT role, name FROM denied"))
    certificates: dict[CallerKey, dict[str, CertificateStatus]] = {}
    columns = "role, name, fingerprint, superseded, renewal_unused, expires_at"
    for role, name, print, superseded, unused, ends in reader.rows(f"SELECT {columns} FROM certificates"):
        status = CertificateStatus(bool(superseded), bool(unused), ends)
        certificates.setdefault((role, name), {})[print] = status
    return EnrolmentSnapshot(version=version, denied=denied, certificates=certificates)


def identity_error(message: str) -> PeerError:
    return PeerError(Code.IDENTITY, message)


TOKEN_BYTES = 32
UNKNOWN_TOKEN = "the token is unknown or was replaced; ask the operator for a join file"
LIVE = "superseded = 0 AND expires_at > ?"


@dataclass(frozen=True, slots=True, kw_only=True)
class EnrolledCaller:
    """One enrolled identity on one `device` (empty: the first), as the operator sees it. Times in Unix
    milliseconds. `key` is the SHA-256 of its latest certificate's public key; the party sees the same one."""

    role: str
    name: str
    device: str
    expires_at: int
    denied: bool
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuedCertificate:
    """`key` is the fingerprint of the certificate's key."""

    identity: Identity
    key: str
    pem: bytes


@dataclass(eq=False)
class Registry:
    """Tokens, certificates and the deny-list of one federation."""

    _store: Store
    _federation: str
    _clock: Clock

    def new_token(
        self, role: Role, name: str, valid_ms: int, *, lift_denial: bool = False, device: str = ""
    ) -> str:
        """Return a new one-time token; only its hash is stored. Unused tokens of the same identity and device
        become invalid. A further `device` of a person does not replace the certificate of another one. Raises
        PeerError: `name` or `device` is not a valid name; RequestError: the identity is on the deny-list, and
        `lift_denial` is not set, or a site would have two devices."""
        Identity(federation=self._federation, role=role, name=name)
        if device:
            Identity(federation=self._federation, role=role, name=device)
            if role is Role.SITE:
                raise RequestError(Code.BAD_ARGUMENT, "a site has one daemon; name a device for people only")
        token, now, caller_key = secrets.token_urlsafe(TOKEN_BYTES), self._clock(), (role.value, name)
        with self._store.writer.transaction() as change:
            denied = _denied(change, caller_key)
            if denied and not lift_denial:
                raise RequestError(
                    Code.CONFLICT,
                    f"{'/'.join(caller_key)} is on the deny-list; to let it in again, add --lift-denial",
                )
            _void_tokens(change, caller_key, device)
            change.execute(
                "INSERT INTO tokens (hash, role, name, device, expires_at) VALUES (?, ?, ?, ?, ?)",
                (hashlib.sha256(token.encode()).digest(), *caller_key, device, now + valid_ms),
            )
            change.execute("DELETE FROM denied WHERE (role, name) = (?, ?)", caller_key)
            if denied:
                audit(change, now, "denial-lifted", "/".join(caller_key))
            audit(change, now, "token", "/".join(caller_key))
        return token

    def enrol(
        self, token: str, csr_der: bytes, authority: Authority, days: Callable[[Role], float]
    ) -> IssuedCertificate:
        """Return the certificate for the token; the same key again gets the same certificate. `days` is its
        validity. An identity whose certificate has expired enrols again in the same way, under the same name.
        Raises PeerError: code `identity`: the token is unknown, expired or used with another key; the name is
        on the deny-list; or the key was certified before; RequestError: the certificate request is
        invalid."""
        key, token_hash = requested_key(csr_der), (hashlib.sha256(token.encode()).digest(),)
        new_key_print = key_print(key)
        # Any caller may try; only one with a token may delay writers.
        if not self._store.reader.rows("SELECT 1 FROM tokens WHERE hash = ?", token_hash):
            raise identity_error(UNKNOWN_TOKEN)
        with self._store.writer.transaction() as change:
            rows = change.execute("SELECT * FROM tokens WHERE hash = ?", token_hash)
            if not rows:
                raise identity_error(UNKNOWN_TOKEN)
            (row,) = rows
            caller_key = (row["role"], row["name"])
            if _denied(change, caller_key):
                raise identity_error(f"{'/'.join(caller_key)} is on the deny-list; ask the operator")
            identity = Identity(federation=self._federation, role=Role(row["role"]), name=row["name"])
            if row["key_print"] is not None:
                if row["key_print"] != new_key_print:
                    raise identity_error("the token was used already; ask the operator for a new join file")
                return IssuedCertificate(identity=identity, key=new_key_print, pem=row["certificate"])
            if self._clock() >= row["expires_at"]:
                raise identity_error("the token has expired; ask the operator for a new join file")
            _check_new_key(change, new_key_print)
            issued = authority.issue(identity, key, now=as_datetime(self._clock()), days=days(identity.role))
            # Earlier certificates and stored greetings of the name end: each device has one live certificate.
            device = row["device"]
            same = "WHERE (role, name, device) = (?, ?, ?)"
            change.execute(f"UPDATE certificates SET superseded = 1 {same}", (*caller_key, device))
            change.execute("DELETE FROM greetings WHERE (role, name) = (?, ?)", caller_key)
            self._record(change, identity, issued, authority, "enrolled", device)
            change.execute(
                "UPDATE tokens SET key_print = ?, certificate = ? WHERE hash = ?",
                (new_key_print, pem(issued), *token_hash),
            )
            failpoint("certificate-issuing")
        failpoint("certificate-issued")
        return IssuedCertificate(identity=identity, key=new_key_print, pem=pem(issued))

    def renew(
        self, caller: Identity, presented: str, csr_der: bytes, authority: Authority, days: float
    ) -> IssuedCertificate:
        """Return the next certificate of `caller`, the same for the same key. The one `presented`, by its
        fingerprint, stays valid until the next one is used."""
        key, caller_key, now = requested_key(csr_der), (caller.role.value, caller.name), self._clock()
        new_key_print = key_print(key)
        with self._store.writer.transaction() as change:
            live = change.execute(
                f"SELECT * FROM certificates WHERE (role, name) = (?, ?) AND {LIVE}", (*caller_key, now)
            )
            shown = next((row for row in live if row["fingerprint"] == presented), None)
            if shown is None or _denied(change, caller_key):
                raise identity_error(f"the certificate of {caller.uri} was replaced or denied; enrol again")
            device = shown["device"]
            for row in live:
                if (row["key_print"], row["device"]) == (new_key_print, device):
                    return IssuedCertificate(identity=caller, key=new_key_print, pem=row["certificate"])
            self._check_due(shown)
            _check_new_key(change, new_key_print)
            # Issued and never used: the answer was lost together with its key.
            same = "DELETE FROM certificates WHERE (role, name, device) = (?, ?, ?) AND"
            never_used = f"{same} renewal_unused = 1 AND fingerprint != ?"
            change.execute(never_used, (*caller_key, device, presented))
            change.execute(f"{same} superseded = 1 AND expires_at <= ?", (*caller_key, device, now))
            issued = authority.issue(caller, key, now=as_datetime(now), days=days)
            self._record(change, caller, issued, authority, "renewed", device)
            failpoint("renewal-issuing")
        failpoint("renewal-issued")
        return IssuedCertificate(identity=caller, key=new_key_print, pem=pem(issued))

    def _check_due(self, shown: Row) -> None:
        """Raise before half of the validity is over, so that renewals cannot fill the disk; clients wait for
        two thirds."""
        if self._clock() < (shown["issued_at"] + shown["expires_at"]) // 2:
            raise RequestError(Code.NOT_READY, "too early: renew after two thirds of the validity")

    def _record(
        self,
        change: Connection,
        identity: Identity,
        issued: x509.Certificate,
        issuer: Authority,
        action: str,
        device: str,
    ) -> None:
        print = fingerprint(issued)
        row = {
            "fingerprint": print,
            "role": identity.role.value,
            "name": identity.name,
            "device": device,
            "issued_at": self._clock(),
            "expires_at": int(1000 * issued.not_valid_after_utc.timestamp()),
            "renewal_unused": int(action == "renewed"),
            "issuer": fingerprint(issuer.certificate),
            "key_print": key_print(issued.public_key()),  # type: ignore[arg-type]  # as requested_key insists
            "certificate": pem(issued),
        }
        change.insert("certificates", row)
        about, on_device = f"{identity.role.value}/{identity.name}", f", device {device}" if device else ""
        audit(change, self._clock(), action, about, f"certificate {print}{on_device}")

    def mark_used(self, caller: Identity, used: str) -> None:
        """Note the first use of a renewed certificate; earlier ones of this caller's device become
        invalid."""
        caller_key = (caller.role.value, caller.name)
        with self._store.writer.transaction() as change:
            change.execute(
                "UPDATE certificates SET superseded = 1 WHERE (role, name) = (?, ?) AND fingerprint != ? "
                "AND device = (SELECT device FROM certificates f WHERE f.fingerprint = ? AND "
                "f.renewal_unused = 1)",
                (*caller_key, used, used),
            )
            change.execute("UPDATE certificates SET renewal_unused = 0 WHERE fingerprint = ?", (used,))
            audit(change, self._clock(), "renewal-used", "/".join(caller_key), f"certificate {used}")
            failpoint("renewal-taking-up")

    def deny(self, role: Role, name: str, reason: str = "") -> None:
        """Refuse every further message of this identity, and void its unused tokens. The console states a
        reason for the audit log."""
        caller_key = (role.value, name)
        same = "(role, name) = (?, ?)"
        with self._store.writer.transaction() as change:
            known = f"SELECT 1 FROM certificates WHERE {same} UNION SELECT 1 FROM tokens WHERE {same}"
            if not change.execute(known, caller_key * 2):
                raise RequestError(Code.NOT_FOUND, f"no {role.value} {name} has enrolled or was invited")
            _void_tokens(change, caller_key)
            change.execute(
                "INSERT INTO denied VALUES (?, ?, ?) ON CONFLICT (role, name) DO UPDATE SET at = excluded.at",
                (*caller_key, self._clock()),
            )
            change.execute("UPDATE certificates SET superseded = 1 WHERE (role, name) = (?, ?)", caller_key)
            audit(change, self._clock(), "denied", "/".join(caller_key), reason)

    def sites(self) -> frozenset[str]:
        """Return the names of the sites that have enrolled and are not denied."""
        return frozenset(
            one.name for one in self.enrolled() if one.role == Role.SITE.value and not one.denied
        )

    def enrolled(self) -> list[EnrolledCaller]:
        """Return every enrolled identity, with expiry and key of its latest certificate. A replaced
        certificate counts only if there is no other."""
        rows = self._store.reader.rows(
            "SELECT role, name, device, expires_at, key_print AS key, EXISTS (SELECT 1 FROM denied d "
            "WHERE (d.role, d.name) = (c.role, c.name)) AS denied "
            "FROM certificates c ORDER BY role, name, device, superseded DESC, issued_at, expires_at"
        )
        latest = {(row["role"], row["name"], row["device"]): row for row in rows}
        return [EnrolledCaller(**{**dict(row), "denied": bool(row["denied"])}) for row in latest.values()]


def _denied(change: Connection, caller_key: CallerKey) -> bool:
    return bool(change.execute("SELECT 1 FROM denied WHERE (role, name) = (?, ?)", caller_key))


def _void_tokens(change: Connection, caller_key: CallerKey, device: str | None = None) -> None:
    """Delete unused tokens, of one device or of all: they may have leaked. Used ones stay, to answer the same
    request again."""
    unused = "DELETE FROM tokens WHERE (role, name) = (?, ?) AND key_print IS NULL"
    if device is None:
        change.execute(unused, caller_key)
    else:
        change.execute(f"{unused} AND device = ?", (*caller_key, device))


def _check_new_key(change: Connection, print: str) -> None:
    """Raise if the key was certified before, for this or another identity."""
    if change.execute("SELECT 1 FROM certificates WHERE key_print = ?", (print,)):
        raise identity_error("this key was certified before; make a new key")
