"""Things that stand between a site and its coordinator: a proxy, a TLS inspection, a NAT, a slow line."""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

PIECE = 64 * 1024


@dataclass
class Middle:
    """Listens on loopback and forwards; `seen` counts connections, `requests` holds CONNECT requests.

    `delay` seconds are added to every piece, each way. After `idle` seconds without a byte a
    connection is dead: both ends keep their sockets and hear nothing any more, as behind a NAT that
    forgot the mapping."""

    target: int = 0
    host: str = "127.0.0.1"
    delay: float = 0.0
    idle: float | None = None
    seen: int = 0
    forgotten: int = 0
    requests: list[bytes] = field(default_factory=list)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @asynccontextmanager
    async def listening(self, port: int = 0, host: str = "127.0.0.1") -> AsyncIterator[int]:
        server = await asyncio.start_server(self._accept, host, port)
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()
            for task in self.tasks:
                task.cancel()
            await asyncio.gather(*self.tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        self.seen += 1
        try:
            with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await self.handle(reader, writer)
        finally:
            writer.transport.abort()
            self.tasks.discard(task)

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self.join(reader, writer, self.target)

    async def join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: int) -> None:
        onward, back = await asyncio.open_connection(self.host, target)
        line = Line(self)
        pumps = {asyncio.create_task(line.pump(reader, back)), asyncio.create_task(line.pump(onward, writer))}
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            back.transport.abort()


class Line:
    """The two directions of one connection, which share the moment of the last byte."""

    def __init__(self, middle: Middle) -> None:
        self._middle = middle
        self._last = asyncio.get_running_loop().time()
        self._dead = False

    async def pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        """Forward until the source ends; a mapping that was forgotten swallows everything."""
        while piece := await source.read(PIECE):
            now = asyncio.get_running_loop().time()
            idle = self._middle.idle
            if idle is not None and now - self._last > idle and not self._dead:
                self._dead = True
                self._middle.forgotten += 1
            if self._dead:
                continue
            self._last = now
            if self._middle.delay:
                await asyncio.sleep(self._middle.delay)
            sink.write(piece)
            await sink.drain()
        if self._dead:
            await asyncio.Event().wait()


@dataclass
class ConnectProxy(Middle):
    """A plain CONNECT proxy. `user` is user:password, if it wants one; `answer` replaces its own.

    It dials loopback whatever host is asked for: names of the tests exist nowhere else."""

    user: str = ""
    answer: bytes = b""

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        self.requests.append(request)
        refusal = self.answer or self._refusal(request)
        if refusal:
            writer.write(refusal)
            await writer.drain()
            return
        writer.write(b"HTTP/1.1 200 Connection established\r\nVia: 1.1 test\r\n\r\n")
        await self.join(reader, writer, int(request.split()[1].rpartition(b":")[2]))

    def _refusal(self, request: bytes) -> bytes:
        wanted = base64.b64encode(self.user.encode())
        if self.user and b"Basic " + wanted not in request.replace(b"  ", b" "):
            return (
                b'HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm="x"\r\n\r\n'
            )
        return b""


@dataclass
class Inspection(Middle):
    """TLS inspection: ends TLS with a certificate that an authority of its own signed for 127.0.0.1."""

    folder: Path = field(default_factory=Path)
    name: str = "Hospital TLS Inspection"
    uri: str = ""
    tls: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3
    received: list[bytes] = field(default_factory=list)

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Shake hands and listen for what nobody should say."""
        await writer.start_tls(self._context())
        while piece := await reader.read(PIECE):
            self.received.append(piece)

    def _context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.maximum_version = self.tls
        context.set_alpn_protocols(["h2"])
        path = self.folder / "inspection.pem"
        if not path.exists():
            path.write_bytes(forged(self.name, self.uri))
        context.load_cert_chain(path)
        return context


def forged(authority: str, uri: str = "") -> bytes:
    """Key and certificate (PEM) for 127.0.0.1 and localhost, signed by `authority`."""
    key, signer = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)
    names: list[x509.GeneralName] = [x509.IPAddress(ip_address("127.0.0.1")), x509.DNSName("localhost")]
    if uri:
        names.append(x509.UniformResourceIdentifier(uri))
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, authority)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=30))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(signer, hashes.SHA256())
    )
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return pem + certificate.public_bytes(Encoding.PEM)
