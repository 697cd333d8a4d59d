"""The coordinator's own certificate: issued by its own CA, renewed while serving."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta

import grpc
from cryptography import x509

from eigenveil.identity import Identity, Role
from eigenveil_common import log
from eigenveil_common.files import write_durably, write_secret
from eigenveil_server.clock import Clock, as_datetime
from eigenveil_server.config import Config
from eigenveil_server.keys import Keys
from eigenveil_server.pki import key_to_pem, new_key, pem

NAME = "coordinator"
Shown = tuple[tuple[bytes, bytes], bytes | None]  # key and certificate; whom to trust


class Leaf:
    """Key and certificate of both listeners. gRPC asks at every handshake; two thirds of a life
    after it was issued, or when another authority issues, a certificate is replaced, key and all, without
    a restart."""

    def __init__(self, config: Config, keys: Keys, clock: Clock) -> None:
        self._config = config
        self._keys = keys
        self._clock = clock
        self._lock = threading.Lock()  # gRPC asks from its own threads
        self._certificate = self._issue()

    def _issue(self) -> x509.Certificate:
        config, files = self._config, self._config.files
        key, self._issuer = new_key(), self._keys.authority
        certificate = self._issuer.issue(
            Identity(federation=config.federation, role=Role.COORDINATOR, name=NAME),
            key.public_key(),
            now=self._now(),
            days=config.certificate_days,
            hosts=tuple(dict.fromkeys((config.host, "localhost"))),
        )
        self._pair = key_to_pem(key), pem(certificate)
        write_secret(files.server_key, self._pair[0])
        write_durably(files.server, self._pair[1])
        return certificate

    def _now(self) -> datetime:
        return as_datetime(self._clock())

    def credentials(self, *, client_certificates: bool) -> grpc.ServerCredentials:
        """What one listener presents, and whether it demands a certificate of the federation."""
        shown = self._shown(client_certificates)

        def renewed() -> grpc.ServerCertificateConfiguration | None:
            nonlocal shown
            self.renew()
            now = self._shown(client_certificates)
            if shown == now:
                return None
            shown = now
            return _configuration(now)

        return grpc.dynamic_ssl_server_credentials(
            _configuration(shown),
            renewed,  # type: ignore[arg-type]  # None says "no change"; grpc's stubs leave that out
            client_certificates,
        )

    def _shown(self, client_certificates: bool) -> Shown:
        with self._lock:
            return self._pair, self._keys.authorities.pem if client_certificates else None

    def renew(self) -> None:
        """Replace the certificate if it is time."""
        with self._lock:
            old = self._issuer.certificate != self._keys.authority.certificate
            if old or self._now() >= renewal(self._certificate):
                self._certificate = self._issue()
                log.event("certificate-renewed", federation=self._config.federation)


def _configuration(shown: Shown) -> grpc.ServerCertificateConfiguration:
    pair, roots = shown
    return grpc.ssl_server_certificate_configuration([pair], roots)


def renewal(certificate: x509.Certificate) -> datetime:
    """When two thirds of a certificate's life are over."""
    life: timedelta = certificate.not_valid_after_utc - certificate.not_valid_before_utc
    return certificate.not_valid_before_utc + life * 2 / 3
