"""Secrets of the coordinator: release key, HMAC key for contributions, CA key; and its server certificate."""

from __future__ import annotations

import hmac
import os
import secrets
import ssl
import threading
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from eigenveil.accounting.checkpoint import CHECKPOINT_SIGNED
from eigenveil.errors import Code, RequestError
from eigenveil.identity import Identity, Role
from eigenveil.protocol.authorities import KeyUse, ReleaseKey
from eigenveil.protocol.plan import PLAN_SIGNED
from eigenveil_common import log
from eigenveil_common.files import path_exists, read_secret, write_durably, write_secret
from eigenveil_server.config import Config, Files
from eigenveil_server.pki.authority import Authority, key_to_pem, new_key, pem
from eigenveil_server.pki.authority_files import Authorities
from eigenveil_server.process import Clock, as_datetime

RAW_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """Keys that sign, authenticate and certify."""

    authorities: Authorities
    release: Ed25519PrivateKey
    audit: bytes

    @property
    def authority(self) -> Authority:
        return self.authorities.issuing

    @property
    def release_public(self) -> bytes:
        """Return the raw Ed25519 public key (32 bytes) that verifies plans and releases."""
        return self.release.public_key().public_bytes_raw()

    @property
    def known_release_keys(self) -> tuple[bytes, ...]:
        """Return the public halves of all release keys, by which what was signed earlier is verified."""
        return self.authorities.current_list.known_keys

    def sign_plan(self, plan_json: bytes) -> bytes:
        """Return the signature that a site checks before it reads a plan [R4]."""
        return self.release.sign(PLAN_SIGNED + plan_json)

    def sign_checkpoint(self, checkpoint_json: bytes) -> bytes:
        """Return the signature under the ledger checkpoint that sites store [R20]."""
        return self.release.sign(CHECKPOINT_SIGNED + checkpoint_json)

    def mac(self, contribution_digest: str) -> bytes:
        """Return the HMAC to store of a contribution; without the key it confirms no candidate values."""
        return hmac.digest(self.audit, bytes.fromhex(contribution_digest), "sha256")


def create_keys(files: Files) -> ec.EllipticCurvePrivateKey:
    """Write every secret anew into `files`, which have none yet; return the first authority's key."""
    key, release = new_key(), Ed25519PrivateKey.generate()
    write_secret(files.ca_key, key_to_pem(key))
    write_secret(files.release_key, release.private_bytes_raw())
    write_secret(files.audit_key, secrets.token_bytes(32))
    return key


def release_public(files: Files) -> bytes:
    """Return the public half of the release key (raw)."""
    return read_release_key(files.release_key).public_key().public_bytes_raw()


def first_release_keys(files: Files) -> tuple[ReleaseKey, ...]:
    """Return the release keys of the first list of authorities."""
    return (ReleaseKey(key=release_public(files), use=KeyUse.SIGNS),)


def read_release_key(path: Path) -> Ed25519PrivateKey:
    """Return the release key in a file. Raises RequestError: it is damaged, or others can read it."""
    return Ed25519PrivateKey.from_private_bytes(_read_raw_key(path))


def _read_raw_key(path: Path) -> bytes:
    raw = read_secret(path)
    if len(raw) != RAW_BYTES:
        raise RequestError(Code.BAD_CONFIG, f"{path} must have {RAW_BYTES} bytes; restore it from the backup")
    return raw


def load_keys(files: Files) -> Keys:
    """Return the secrets in `files`."""
    release, audit = read_release_key(files.release_key), _read_raw_key(files.audit_key)
    keys = Keys(authorities=Authorities(files), release=release, audit=audit)
    if keys.authorities.current_list.release_key != keys.release_public:
        if path_exists(files.next_release_key):
            raise RequestError(
                Code.CONFLICT,
                "a change of the release key was interrupted; complete it: release-key switch, or start the "
                "coordinator",
            )
        raise RequestError(
            Code.BAD_CONFIG,
            f"{files.release_key} is not the release key in the list of authorities; restore both files "
            "from the backup",
        )
    return keys


NAME = "coordinator"
HTTP2, HTTP1 = "h2", "http/1.1"
ContextKey = tuple[bytes, bytes | None, str]  # key and certificate; trusted authorities; protocol


class ServerCertificate:
    """Key and certificate of the listeners, read at every handshake. Certificate and key are replaced without
    a restart after two thirds of their validity, or when another authority issues."""

    def __init__(self, config: Config, keys: Keys, clock: Clock) -> None:
        self._config = config
        self._keys = keys
        self._clock = clock
        self._lock = threading.Lock()  # renewed on another thread
        self._contexts: dict[ContextKey, ssl.SSLContext] = {}
        self._certificate = self._issue()
        for client_certificates in (True, False):  # errors come at the start
            self.tls(client_certificates=client_certificates)

    def _issue(self) -> x509.Certificate:
        config, files = self._config, self._config.files
        key, self._issuer = new_key(), self._keys.authority
        certificate = self._issuer.issue(
            Identity(federation=config.federation, role=Role.COORDINATOR, name=NAME),
            key.public_key(),
            now=as_datetime(self._clock()),
            days=config.certificate_days,
            hosts=tuple(dict.fromkeys((config.host, "localhost"))),
        )
        key_pem, certificate_pem = key_to_pem(key), pem(certificate)
        self._pair = key_pem + certificate_pem
        write_secret(files.server_key, key_pem)
        write_durably(files.server, certificate_pem)
        return certificate

    def tls(self, *, client_certificates: bool, alpn_protocol: str = HTTP2) -> ssl.SSLContext:
        """Return the TLS context of one listener, which demands a client certificate or not."""
        self.renew()
        with self._lock:
            authorities = self._keys.authorities.pem if client_certificates else None
            context_key = (self._pair, authorities, alpn_protocol)
            if context_key not in self._contexts:
                current = {key: one for key, one in self._contexts.items() if key[0] == self._pair}
                self._contexts = current | {context_key: _context(*context_key)}
            return self._contexts[context_key]

    def renew(self) -> None:
        with self._lock:
            begins, ends = self._certificate.not_valid_before_utc, self._certificate.not_valid_after_utc
            due = as_datetime(self._clock()) >= begins + (ends - begins) * 2 / 3
            if due or self._issuer.certificate != self._keys.authority.certificate:
                self._certificate = self._issue()
                log.event("certificate-renewed", federation=self._config.federation)


def _context(pair: bytes, authorities: bytes | None, alpn_protocol: str) -> ssl.SSLContext:
    """Return a TLS 1.3 context that trusts each authority itself. There are no session tickets: certificates
    are verified each time."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0
    context.set_alpn_protocols([alpn_protocol])
    # `ssl` reads only files, and those on disk change separately.
    with os.fdopen(os.memfd_create("pair"), "wb", buffering=0) as file:
        file.write(pair)
        context.load_cert_chain(f"/proc/self/fd/{file.fileno()}")
    if authorities is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.load_verify_locations(cadata=authorities.decode())
    return context
