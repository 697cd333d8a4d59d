"""What can stand between this machine and its coordinator, checked step by step: `eigenveil doctor`.

Every step is tried only if the one before it went well, because its message would say nothing new. Nothing
but greetings is sent, and no study is touched.
"""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from pathlib import Path

from eigenveil import __version__
from eigenveil.errors import Code, EigenveilError, PeerError, RequestError
from eigenveil_client.connection.channel import greet
from eigenveil_client.connection.identity import StoredIdentity, load_identity, open_channel
from eigenveil_client.connection.identity_files import KEY
from eigenveil_client.connection.proxy import Proxy, ProxyRule, connect, split_address
from eigenveil_client.connection.tls import verified_leaf
from eigenveil_client.connection.trusted_authorities import held_list
from eigenveil_common.doctor import Check, certificate, clock, examine, fail, ok, permissions, warn
from eigenveil_common.files import read
from eigenveil_common.trusted_files import believed
from eigenveil_proto.v1 import eigenveil_pb2_grpc as rpc

Accept = Callable[[StoredIdentity], StoredIdentity]

STEP_SECONDS = 10.0
SHORT_LIFE, SHORT_LIST = timedelta(days=2), timedelta(days=30)
DEAD_PORT = (
    "ask its operator whether it runs and listens there (eigenveil-coordinator doctor), and IT whether a "
    "firewall is in between"
)
ENROL = "enrol with a join file from the coordinator's operator"


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """Where the coordinator is, whom to believe that it is the coordinator, and through which proxy."""

    address: str
    ca_pem: bytes
    proxy: Proxy | None

    @property
    def first(self) -> str:
        """What is dialled: the proxy, or the coordinator."""
        return self.address if self.proxy is None else self.proxy.address


def files(folder: Path, *more: Path, folders: Sequence[Path] = (), settings: Sequence[Path] = ()) -> Check:
    """Whether others can read the keys of an identity, or any of `more`, or change what is beside them, in
    `folders` or in `settings`."""
    secrets, changed = [folder / KEY, *more], [*believed(folder), *settings]
    return examine("permissions", partial(permissions, secrets, [folder, *folders], changed))


def identity_and_network(
    folder: Path, rule: Callable[[], ProxyRule], accept: Accept = lambda stored: stored
) -> list[Check]:
    """The certificate, then the way to the coordinator; as far as a half-finished set-up allows.

    `accept` raises if the identity is somebody else's.
    """
    stored, first = _identity(folder, accept)
    checks = [first] if stored is None else [first, _days(stored), _authorities(stored)]
    try:
        chosen = rule()
        way = _way(folder, chosen)
    except EigenveilError as problem:
        return [*checks, fail("proxy", str(problem))]
    if way is None:
        return [*checks, warn("network", "not tried: the coordinator's address is not known yet", ENROL)]
    return [*checks, *asyncio.run(_network(way, stored and replace(stored, proxy=chosen)))]


def _identity(folder: Path, accept: Accept) -> tuple[StoredIdentity | None, Check]:
    if not (folder / "identity.json").exists():
        return None, warn("identity", f"{folder} holds none yet", ENROL)
    try:
        stored = accept(load_identity(folder))
    except EigenveilError as problem:
        return None, fail("identity", str(problem))
    return stored, ok("identity", stored.identity.uri)


def _days(stored: StoredIdentity) -> Check:
    todo = (
        "it should have been renewed by now: see the log of the daemon, or enrol again with a new join file"
    )
    return certificate("certificate", stored.expires, SHORT_LIFE, todo)


def _authorities(stored: StoredIdentity) -> Check:
    """Whom this identity trusts, and for how long that was said."""
    held = stored.authorities
    todo = "the coordinator's operator makes it anew (ca extend), and it comes with the next greeting"
    days = certificate("authorities", held.ends, SHORT_LIST, todo)
    names = ", ".join(one[:12] for one in held.prints)
    return replace(days, text=f"list of version {held.version}, {names}: {days.text}")


def _way(folder: Path, rule: ProxyRule) -> Way | None:
    """From the files alone, so that an identity that has ended still shows the way."""
    try:
        address = str(json.loads(read(folder / "identity.json"))["coordinator"])
        ca_pem = held_list(folder).issuers_pem
    except (RequestError, ValueError, KeyError, TypeError):
        return None
    return Way(address=address, ca_pem=ca_pem, proxy=rule.towards(address))


async def _network(way: Way, stored: StoredIdentity | None) -> list[Check]:
    checks = [_proxy(way)]
    for about, step in (("dns", _dns), ("port", _port), ("tls", _tls)):
        try:
            async with asyncio.timeout(STEP_SECONDS):
                checks.append(await step(way))
        except EigenveilError as problem:
            todo = DEAD_PORT if about == "port" and way.proxy is None else ""
            return [*checks, fail(about, str(problem), todo)]
        except TimeoutError:
            todo = f"ask IT whether a firewall drops what goes to {way.first}"
            return [*checks, fail(about, f"nothing came within {STEP_SECONDS:.0f} s", todo)]
    return [*checks, *(await _greeting(stored) if stored else ())]


def _proxy(way: Way) -> Check:
    if way.proxy is None:
        return ok("proxy", "none; the coordinator is dialled directly")
    user = "with a user name" if way.proxy.authorization else "without a user name"
    return ok("proxy", f"{way.proxy.address}, {user}")


async def _dns(way: Way) -> Check:
    host, port = split_address(way.first)
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as problem:
        todo = "check the name, and this machine's name server"
        detail = problem.strerror or str(problem)
        raise PeerError(Code.UNREACHABLE, f"{host} has no address here ({detail}); {todo}") from problem
    addresses = ", ".join(sorted({str(one[4][0]) for one in found}))
    return ok("dns", f"{host} is {addresses}")


async def _port(way: Way) -> Check:
    _, writer = await connect(way.address, way.proxy)
    writer.transport.abort()
    through = "" if way.proxy is None else f" through the proxy {way.proxy.address}"
    return ok("port", f"{way.address} answers{through}")


async def _tls(way: Way) -> Check:
    leaf = await verified_leaf(way.address, way.ca_pem, None, way.proxy)
    ends = f"{leaf.not_valid_after_utc:%Y-%m-%d %H:%M}"
    return ok(
        "tls", f"TLS 1.3 with the federation's own certificate (until {ends} UTC); nobody is in between"
    )


async def _greeting(stored: StoredIdentity) -> list[Check]:
    """Whether the coordinator takes our certificate, and how far the clocks are apart."""
    try:
        async with await open_channel(stored) as channel:
            began = time.time()
            stub = rpc.CoordinatorStub(channel)
            hello = await greet(stub, f"eigenveil doctor {__version__}", STEP_SECONDS)
            ended = time.time()
    except EigenveilError as problem:
        return [fail("coordinator", str(problem))]
    middle = 500 * (began + ended)
    text = f"it knows this certificate and speaks version {hello.version}"
    return [ok("coordinator", text), clock(round(middle - hello.unix_time_ms))]
