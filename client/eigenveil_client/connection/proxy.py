"""HTTP proxy to the coordinator: its configuration, and the tunnel through it. The tunnel is `CONNECT
host:port`. TLS with the coordinator runs inside it, so the proxy sees names, sizes and times only. A proxy
from the process's environment is used only with `proxy = "environment"`."""

from __future__ import annotations

import asyncio
import base64
import re
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from eigenveil.errors import Code, PeerError, RequestError
from eigenveil_common.config import ensure
from eigenveil_common.files import read_secret

ENVIRONMENT = "environment"
DEFAULT_PORT = 3128
ANSWER_BYTES = 16 * 1024
STATUS_LINE = re.compile(rb"HTTP/1\.[01] ([0-9]{3})[^\r\n]*")
PRINTED_LENGTH = 100

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxy:
    """Address of a proxy. `authorization` is the value of Proxy-Authorization; empty sends none."""

    host: str
    port: int
    authorization: str = field(default="", repr=False)

    @property
    def address(self) -> str:
        """host:port, or [host]:port."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def options(self, coordinator: str) -> tuple[tuple[str, str], ...]:
        """Return the options that connect a gRPC channel through this proxy to `coordinator`. gRPC's own
        `grpc.http_proxy` is not used: `no_proxy` of the environment would override it."""
        host, _ = split_address(coordinator)
        headers = f"Proxy-Authorization: {self.authorization}" if self.authorization else ""
        return (
            ("grpc.http_connect_server", coordinator),
            *((("grpc.http_connect_headers", headers),) if headers else ()),
            ("grpc.default_authority", coordinator),
            ("grpc.ssl_target_name_override", host),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyRule:
    """Keys of a configuration: `proxy` is empty (direct connection), `environment`, or http://host:port.
    `proxy_credentials` is a file with one line, user:password, that only its owner may read."""

    proxy: str = ""
    proxy_credentials: Path | None = None

    def __post_init__(self) -> None:
        if self.proxy and self.proxy != ENVIRONMENT:
            _parse_url(self.proxy)
        both = self.proxy_credentials is None or bool(self.proxy)
        ensure(both, "proxy_credentials is set, but proxy is not; set both or neither")

    def proxy_for(self, coordinator: str) -> Proxy | None:
        """Return the proxy to use for `coordinator`, or None."""
        url = _environment_proxy(coordinator) if self.proxy == ENVIRONMENT else self.proxy
        if not url:
            return None
        host, port = _parse_url(url)
        return Proxy(host=host, port=port, authorization=self._authorization())

    def _authorization(self) -> str:
        if self.proxy_credentials is None:
            return ""
        pair = read_secret(self.proxy_credentials).strip()
        one_line = b":" in pair and pair.isascii() and pair.decode("ascii").isprintable()
        ensure(one_line, f"{self.proxy_credentials} must hold one line of ASCII text, user:password")
        return f"Basic {base64.b64encode(pair).decode()}"


DIRECT = ProxyRule()


def _parse_url(url: str) -> tuple[str, int]:
    """Return host and port. The error does not quote the URL, which may hold a password."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port, parts = None, None, urlsplit("")
    todo = "write user:password into a file of mode 0600, and state the file as proxy_credentials"
    ensure(parts.username is None and parts.password is None, f"the proxy's URL contains a user name; {todo}")
    if parts.scheme != "http" or not host or port == 0 or parts.path not in ("", "/") or parts.query:
        why = f'proxy must be "http://host:port" or "{ENVIRONMENT}"; correct it in the configuration'
        raise RequestError(Code.BAD_CONFIG, why)
    return host, port or DEFAULT_PORT


def _environment_proxy(coordinator: str) -> str:
    """Return the proxy of this host by https_proxy and no_proxy; empty for none."""
    from urllib.request import getproxies_environment, proxy_bypass  # imported only when needed

    known = getproxies_environment()
    host, _ = split_address(coordinator)
    return "" if proxy_bypass(host, known) else known.get("https", "")


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of `host:port` or `[host]:port`. Raises RequestError: not of that form."""
    host, _, port = address.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise RequestError(Code.BAD_CONFIG, f"{address!r} is not an address; write host:port")
    return host.removeprefix("[").removesuffix("]"), int(port)


async def connect(coordinator: str, proxy: Proxy | None) -> Streams:
    """Return a new TCP connection that ends at `coordinator`."""
    host, port = split_address(coordinator) if proxy is None else (proxy.host, proxy.port)
    try:
        reader, writer = await asyncio.open_connection(host, port, limit=ANSWER_BYTES)
    except OSError as problem:
        what = f"no coordinator answers at {coordinator}"
        if proxy is not None:
            what = f"the proxy {proxy.address} cannot be reached; check `proxy` in the configuration"
        raise PeerError(Code.UNREACHABLE, f"{what}: {problem}") from problem
    if proxy is not None:
        try:
            await _tunnel(reader, writer, coordinator, proxy)
        except BaseException:
            writer.transport.abort()
            raise
    return reader, writer


async def _tunnel(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, coordinator: str, proxy: Proxy
) -> None:
    lines = [f"CONNECT {coordinator} HTTP/1.1", f"Host: {coordinator}"]
    if proxy.authorization:
        lines.append(f"Proxy-Authorization: {proxy.authorization}")
    writer.write("\r\n".join([*lines, "", ""]).encode("ascii"))
    try:
        await writer.drain()
        answer = await reader.readuntil(b"\r\n\r\n")
    except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as problem:
        raise PeerError(
            Code.UNREACHABLE,
            f"the proxy {proxy.address} closed the connection at CONNECT {coordinator}; is it HTTP?",
        ) from problem
    found = STATUS_LINE.match(answer)
    status = 0 if found is None else int(found[1])
    if not 200 <= status < 300:
        first = answer.split(b"\r\n", 1)[0].decode("latin-1")  # untrusted
        line = "".join(c if c.isascii() and c.isprintable() else "?" for c in first)[:PRINTED_LENGTH]
        answered = f"the proxy {proxy.address} answered CONNECT {coordinator} with {line!r}"
        raise PeerError(Code.UNREACHABLE, f"{answered}; {_remedy(status, coordinator, proxy)}")


def _remedy(status: int, coordinator: str, proxy: Proxy) -> str:
    match status:
        case 407 if proxy.authorization:
            return "check user and password in the file of proxy_credentials; only Basic is supported"
        case 407:
            return "name a file with user:password as proxy_credentials"
        case 502 | 503 | 504:
            return "the proxy cannot reach the coordinator; ask the proxy's administrator"
        case _:
            return f"ask the proxy's administrator to allow CONNECT to {coordinator}"
