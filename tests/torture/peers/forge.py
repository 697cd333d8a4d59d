"""Certificates with any flaw, signed by whoever is asked to sign."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID as Usage
from cryptography.x509.oid import NameOID, ObjectIdentifier

from eigenveil_server.pki.authority import Authority, new_key, pem

Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
BALLAST = ObjectIdentifier("1.3.6.1.4.1.99999.1")
LOOPBACK = (x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1")))


def uri(text: str) -> x509.UniformResourceIdentifier:
    return x509.UniformResourceIdentifier(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Fields of a certificate. `begins` and `ends` in hours from now; `usages` of None is no extension."""

    names: tuple[x509.GeneralName, ...]
    subject: tuple[str, ...]
    usages: tuple[ObjectIdentifier, ...] | None
    begins: float = -1.0
    ends: float = 24.0
    ca: bool = False
    ballast: int = 0
    key: Key = field(default_factory=new_key)


def client(name: str, text: str) -> Shape:
    return Shape(names=(uri(text),), subject=(name,), usages=(Usage.CLIENT_AUTH,))


def server(text: str) -> Shape:
    return Shape(names=(uri(text), *LOOPBACK), subject=("coordinator",), usages=(Usage.SERVER_AUTH,))


@dataclass(frozen=True, slots=True, kw_only=True)
class Forged:
    key: bytes
    leaf: x509.Certificate
    chain: bytes


def forge(signer: Authority, shape: Shape, *above: x509.Certificate) -> Forged:
    """A certificate of this shape; the chain goes on with `above`."""
    now = datetime.now(UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, part) for part in shape.subject])
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(signer.certificate.subject)
        .public_key(shape.key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + timedelta(hours=shape.begins))
        .not_valid_after(now + timedelta(hours=shape.ends))
        .add_extension(x509.BasicConstraints(ca=shape.ca, path_length=None), critical=True)
    )
    if shape.names:
        builder = builder.add_extension(x509.SubjectAlternativeName(shape.names), critical=False)
    if shape.usages is not None:
        builder = builder.add_extension(x509.ExtendedKeyUsage(shape.usages), critical=False)
    if shape.ballast:
        ballast = x509.UnrecognizedExtension(BALLAST, bytes(shape.ballast))
        builder = builder.add_extension(ballast, critical=False)
    leaf = builder.sign(signer.key, hashes.SHA256())
    key = shape.key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return Forged(key=key, leaf=leaf, chain=pem(leaf, *above))


def impostor(federation: str, genuine: Authority | None = None) -> Authority:
    """Another authority; with `genuine`, one that has the same name."""
    now = datetime.now(UTC)
    if genuine is None:
        return Authority.create(federation, now)
    key = new_key()
    builder = (
        x509.CertificateBuilder()
        .subject_name(genuine.certificate.subject)
        .issuer_name(genuine.certificate.subject)
        .public_key(key.public_key())
        .serial_number(genuine.certificate.serial_number)
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    )
    return Authority(certificate=builder.sign(key, hashes.SHA256()), key=key)
