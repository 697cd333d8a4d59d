"""The coordinator's own certificate: issued by its own CA, renewed while serving."""

from __future__ import annotations

import os
import ssl
import threading
from datetime import datetime, timedelta

from cryptography import x509

from eigenveil.identity import Identity, Role
from eigenveil_common import log
from eigenveil_common.files import write_durably, write_secret
from eigenveil_server.clock import Clock, as_datetime
from eigenveil_server.config import Config
from eigenveil_server.pki.authority import key_to_pem, new_key, pem
from eigenveil_server.pki.keys import Keys

NAME = "coordinator"
HTTP2, HTTP1 = "h2", "http/1.1"
Shown = tuple[tuple[bytes, bytes], bytes | None, str]  # key and certificate; whom to trust; what is spoken


class ServerCertificate:
    """Key and certificate of the listeners, asked for at every handshake; two thirds of a life
    after it was issued, or when another authority issues, a certificate is replaced, key and all, without
    a restart."""

    def __init__(self, config: Config, keys: Keys, clock: Clock) -> None:
        self._config = config
        self._keys = keys
        self._clock = clock
        self._lock = threading.Lock()  # the guard renews on another thread
        self._contexts: dict[Shown, ssl.SSLContext] = {}
        self._certificate = self._issue()
        for client_certificates in (True, False):  # what cannot be shown is found at the start
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
        self._pair = key_to_pem(key), pem(certificate)
        write_secret(files.server_key, self._pair[0])
        write_durably(files.server, self._pair[1])
        return certificate

    def tls(self, *, client_certificates: bool, speaks: str = HTTP2) -> ssl.SSLContext:
        """What one listener presents now, and whether it demands a certificate of the federation."""
        self.renew()
        with self._lock:
            shown = self._pair, self._keys.authorities.pem if client_certificates else None, speaks
            if shown not in self._contexts:
                self._contexts = {old: made for old, made in self._contexts.items() if old[0] == shown[0]}
                self._contexts[shown] = _context(shown)
            return self._contexts[shown]

    def renew(self) -> None:
        with self._lock:
            old = self._issuer.certificate != self._keys.authority.certificate
            if old or as_datetime(self._clock()) >= renewal(self._certificate):
                self._certificate = self._issue()
                log.event("certificate-renewed", federation=self._config.federation)


def _context(shown: Shown) -> ssl.SSLContext:
    """TLS 1.3, each authority trusted as it stands, and no tickets: certificates are verified each time."""
    (key, certificate), authorities, speaks = shown
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0
    context.set_alpn_protocols([speaks])
    pair = os.memfd_create("pair")  # `ssl` reads files only, and the two on the disk change one by one
    try:
        os.write(pair, key + certificate)
        context.load_cert_chain(f"/proc/self/fd/{pair}")
    finally:
        os.close(pair)
    if authorities is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.load_verify_locations(cadata=authorities.decode())
    return context


def renewal(certificate: x509.Certificate) -> datetime:
    """When two thirds of a certificate's life are over."""
    life: timedelta = certificate.not_valid_after_utc - certificate.not_valid_before_utc
    return certificate.not_valid_before_utc + life * 2 / 3
