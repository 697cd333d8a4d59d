"""The federation's certificate authority, and what it accepts of a certificate request. Of a request only the
public key is used. The name comes from the token or, for the coordinator itself, from the configuration [R1]
[R2]."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from eigenveil.errors import Code, RequestError
from eigenveil.identity import Identity, Role
from eigenveil.protocol.authorities import AUTHORITIES_SIGNED
from eigenveil.signatures import UNREADABLE, key_print

CA_LIFE = timedelta(days=3650)
BACKDATED = timedelta(minutes=5)  # a clock slightly behind ours accepts a new certificate
BACKDATED_SHARE = 20  # at most this part of a short validity, so that two thirds remain
CSR_BYTES = 8192
MAX_NAME_LENGTH = 64  # characters of a common name: ub-common-name of RFC 5280
SigningKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
KEY_BLOCK = re.compile(rb"-----BEGIN PRIVATE KEY-----.+?-----END PRIVATE KEY-----\n?", re.DOTALL)


def new_key() -> ec.EllipticCurvePrivateKey:
    """Return a new P-256 key from the operating system's generator."""
    return ec.generate_private_key(ec.SECP256R1())


def key_to_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return the key as unencrypted PKCS #8 (PEM); the file's mode protects it."""
    plain = serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)


def key_from_pem(data: bytes) -> ec.EllipticCurvePrivateKey:
    """Return the key in PEM data, as `key_to_pem` wrote it."""
    try:
        key = serialization.load_pem_private_key(data, password=None)
    except (ValueError, TypeError) as problem:
        raise RequestError(Code.BAD_CONFIG, f"cannot read a key file: {problem}") from problem
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise RequestError(Code.BAD_CONFIG, "a key file contains no elliptic-curve key")
    return key


def keys_from_pem(data: bytes) -> list[ec.EllipticCurvePrivateKey]:
    """Return every key in a file; the error of `key_from_pem` if there is none."""
    return [key_from_pem(block) for block in KEY_BLOCK.findall(data)] or [key_from_pem(data)]


def signing_key(data: bytes) -> SigningKey:
    """Return a key that may sign lists of authorities: elliptic-curve or RSA."""
    try:
        key = serialization.load_pem_private_key(data, password=None)
    except (ValueError, TypeError) as problem:
        raise RequestError(
            Code.BAD_CONFIG,
            f"cannot read the key: {problem}. If it has a passphrase or is on a token, sign the draft with "
            "openssl dgst -sha256 -sign",
        ) from problem
    if not isinstance(key, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
        raise RequestError(Code.BAD_CONFIG, "a list needs an elliptic-curve or RSA key; use another key file")
    return key


def sign_list(key: SigningKey, list_json: bytes) -> bytes:
    """Return the signature under a list of authorities [R19]."""
    message = AUTHORITIES_SIGNED + list_json
    if isinstance(key, rsa.RSAPrivateKey):
        return key.sign(message, padding.PKCS1v15(), hashes.SHA256())
    return key.sign(message, ec.ECDSA(hashes.SHA256()))


def pem(*certificates: x509.Certificate) -> bytes:
    """Return the certificates as PEM, one after the other."""
    return b"".join(one.public_bytes(serialization.Encoding.PEM) for one in certificates)


def fingerprint(certificate: x509.Certificate) -> str:
    """Return the SHA-256 (hex) of the certificate's DER form."""
    return certificate.fingerprint(hashes.SHA256()).hex()


def requested_key(csr_der: bytes) -> ec.EllipticCurvePublicKey:
    """Return the public key of a certificate request that its secret key has signed."""
    if len(csr_der) > CSR_BYTES:
        raise RequestError(Code.BAD_ARGUMENT, f"a certificate request has at most {CSR_BYTES} bytes")
    try:
        request = x509.load_der_x509_csr(csr_der)
        key = request.public_key()
        signed = request.is_signature_valid
    except UNREADABLE as problem:
        raise RequestError(
            Code.BAD_ARGUMENT, "the certificate request cannot be read; send PKCS #10 in DER"
        ) from problem
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise RequestError(Code.BAD_ARGUMENT, "the certificate request needs a P-256 key")
    if not signed:
        raise RequestError(Code.BAD_ARGUMENT, "the certificate request is not signed with its own key")
    return key


@dataclass(frozen=True, slots=True, kw_only=True)
class Authority:
    """Certificate and secret key of the federation's CA."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def create(
        cls, federation: str, now: datetime, key: ec.EllipticCurvePrivateKey | None = None
    ) -> Authority:
        """Return a self-signed CA for leaf certificates only (path length 0); `key` is new unless given."""
        key = key or new_key()
        name, key_id = _ca_name(federation, key), x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        builder = _builder(name, name, key.public_key(), now, CA_LIFE)
        builder = _as_authority(builder).add_extension(key_id, critical=False)
        return cls(certificate=builder.sign(key, hashes.SHA256()), key=key)

    @classmethod
    def request(cls, federation: str, key: ec.EllipticCurvePrivateKey) -> bytes:
        """Return the request (PKCS #10, PEM) that an external authority signs: a CA for leaves only."""
        builder = x509.CertificateSigningRequestBuilder().subject_name(_ca_name(federation, key))
        return _as_authority(builder).sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def issue(
        self,
        identity: Identity,
        key: ec.EllipticCurvePublicKey,
        *,
        now: datetime,
        days: float,
        hosts: tuple[str, ...] = (),
    ) -> x509.Certificate:
        """Return a leaf certificate for `identity`; `hosts` are the coordinator's names and addresses."""
        names = [x509.UniformResourceIdentifier(identity.uri), *map(_host, hosts)]
        serves = identity.role is Role.COORDINATOR
        usage = ExtendedKeyUsageOID.SERVER_AUTH if serves else ExtendedKeyUsageOID.CLIENT_AUTH
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, identity.name)])
        builder = _builder(subject, self.certificate.subject, key, now, timedelta(days=days))
        for extension, critical in (
            (x509.BasicConstraints(ca=False, path_length=None), True),
            (_key_usage(signs_certificates=False), True),
            (x509.ExtendedKeyUsage([usage]), False),
            (x509.SubjectAlternativeName(names), False),
            (_authority_id(self.certificate), False),
        ):
            builder = builder.add_extension(extension, critical=critical)
        return builder.sign(self.key, hashes.SHA256())


Builder = TypeVar("Builder", x509.CertificateBuilder, x509.CertificateSigningRequestBuilder)


def _as_authority(builder: Builder) -> Builder:
    """Make a CA for leaf certificates only (path length 0)."""
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    return builder.add_extension(_key_usage(signs_certificates=True), critical=True)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, life: timedelta
) -> x509.CertificateBuilder:
    now = now.astimezone(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - min(BACKDATED, life / BACKDATED_SHARE))
        .not_valid_after(now + life)
    )


def _ca_name(federation: str, key: ec.EllipticCurvePrivateKey) -> x509.Name:
    """Return the authority's name, with the start of its key's fingerprint: issuers are looked up by name
    while two are trusted. A long federation name is cut here and complete in the leaves' URI."""
    suffix = f" {key_print(key.public_key())[:8]}"
    name = f"eigenveil {federation}"[: MAX_NAME_LENGTH - len(suffix)] + suffix
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _authority_id(authority: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    try:
        found = authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
    except x509.ExtensionNotFound:
        key: Any = authority.public_key()  # of any kind
        return x509.AuthorityKeyIdentifier.from_issuer_public_key(key)
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(found.value)


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
