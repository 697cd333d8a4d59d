"""Checks of the connection to the coordinator, step by step: `eigenveil doctor`. A step runs only if the step
before it passed. Only the greeting is sent, and no study is touched."""

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
from eigenveil_client.connection.channel import negotiate_version
from eigenveil_client.connection.identity import StoredIdentity, load_identity, open_channel
from eigenveil_client.connection.identity_files import KEY, stored_authorities
from eigenveil_client.connection.proxy import Proxy, ProxyRule, connect, split_address
from eigenveil_client.connection.tls import verified_leaf
from eigenveil_common.doctor import Check, Level, certificate, clock, examine, fail, ok, permissions, warn
from eigenveil_common.files import read
from eigenveil_common.trusted_files import trusted_entries
from eigenveil_proto.v1 import eigenveil_pb2_grpc as rpc

Accept = Callable[[StoredIdentity], StoredIdentity]

STEP_SECONDS = 10.0
CERTIFICATE_WARNING, AUTHORITIES_WARNING = timedelta(days=2), timedelta(days=30)
DEAD_PORT = (
    "ask its operator whether it runs and listens there (eigenveil-coordinator doctor), and IT whether a "
    "firewall blocks the connection"
)
NOT_RENEWED = "it should have been renewed: read the log of the daemon, or enrol again with a new join file"
ENROL = "enrol with a join file from the coordinator's operator"


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Address of the coordinator, the authorities to trust, and the proxy in between."""

    address: str
    ca_pem: bytes
    proxy: Proxy | None

    @property
    def dialled_address(self) -> str:
        """Address that is dialled: the proxy's, or the coordinator's."""
        return self.address if self.proxy is None else self.proxy.address


def check_files(
    folder: Path, *extra_secrets: Path, folders: Sequence[Path] = (), settings: Sequence[Path] = ()
) -> Check:
    """Check that other users can read no key of the identity and no file of `extra_secrets`. Also check that
    they can change nothing in the identity's folder, in `folders` or in `settings`."""
    secrets, changed = [folder / KEY, *extra_secrets], [*trusted_entries(folder), *settings]
    return examine("permissions", partial(permissions, secrets, [folder, *folders], changed))


def identity_and_network(
    folder: Path, rule: Callable[[], ProxyRule], accept: Accept = lambda stored: stored
) -> list[Check]:
    """Check the certificate, then the network path to the coordinator, as far as the set-up is complete.
    `accept` raises if the identity belongs to another party."""
    stored, identity_check = _check_identity(folder, accept)
    checks = [identity_check]
    if stored is not None:
        expiry = certificate("certificate", stored.expires, CERTIFICATE_WARNING, NOT_RENEWED)
        checks += [expiry, _check_authorities(stored)]
    try:
        chosen = rule()
        routes = _find_routes(folder, chosen)
    except EigenveilError as problem:
        return [*checks, fail("proxy", str(problem))]
    if not routes:
        return [*checks, warn("network", "not checked: the coordinator's address is not known yet", ENROL)]
    return [*checks, *asyncio.run(_check_routes(routes, stored and replace(stored, proxy=chosen)))]


def _check_identity(folder: Path, accept: Accept) -> tuple[StoredIdentity | None, Check]:
    if not (folder / "identity.json").exists():
        return None, warn("identity", f"{folder} holds no identity yet", ENROL)
    try:
        stored = accept(load_identity(folder))
    except EigenveilError as problem:
        return None, fail("identity", str(problem))
    return stored, ok("identity", stored.identity.uri)


def _check_authorities(stored: StoredIdentity) -> Check:
    """Check the list of authorities that this identity trusts, and its expiry."""
    todo = "ask the coordinator's operator to renew it (ca extend); it arrives with the next connection"
    known = stored.authorities
    days = certificate("authorities", known.ends, AUTHORITIES_WARNING, todo)
    names = ", ".join(one[:12] for one in known.fingerprints)
    return replace(days, text=f"list version {known.version}, {names}: {days.text}")


def _find_routes(folder: Path, rule: ProxyRule) -> list[Route]:
    """Return the routes from the files alone, so that they are known for an expired identity too: to the
    addresses in the list of authorities, then to that of the join file."""
    try:
        joined = str(json.loads(read(folder / "identity.json"))["coordinator"])
        known = stored_authorities(folder)
    except (RequestError, ValueError, KeyError, TypeError):
        return []
    addresses = dict.fromkeys((*known.addresses, joined))
    return [Route(address=one, ca_pem=known.issuers_pem, proxy=rule.proxy_for(one)) for one in addresses]


async def _check_routes(routes: Sequence[Route], stored: StoredIdentity | None) -> list[Check]:
    """Return the checks of the first route that has no failure; if each has one, those of the first."""
    tried = []
    for route in routes:
        tried.append(await _check_network(route, stored))
        if not any(one.level is Level.FAIL for one in tried[-1]):
            return tried[-1]
    return tried[0]


async def _check_network(route: Route, stored: StoredIdentity | None) -> list[Check]:
    checks = [_check_proxy(route)]
    for about, step in (("dns", _check_dns), ("port", _check_port), ("tls", _check_tls)):
        try:
            async with asyncio.timeout(STEP_SECONDS):
                checks.append(await step(route))
        except EigenveilError as problem:
            todo = DEAD_PORT if about == "port" and route.proxy is None else ""
            return [*checks, fail(about, str(problem), todo)]
        except TimeoutError:
            todo = f"ask IT whether a firewall blocks connections to {route.dialled_address}"
            return [*checks, fail(about, f"no answer within {STEP_SECONDS:.0f} s", todo)]
    return [*checks, *(await _check_greeting(stored) if stored else ())]


def _check_proxy(route: Route) -> Check:
    if route.proxy is None:
        return ok("proxy", "none: the connection is direct")
    user = "with" if route.proxy.authorization else "without"
    return ok("proxy", f"{route.proxy.address}, {user} a user name")


async def _check_dns(route: Route) -> Check:
    host, port = split_address(route.dialled_address)
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as problem:
        todo = "check the name and this machine's DNS server"
        detail = problem.strerror or str(problem)
        raise PeerError(Code.UNREACHABLE, f"{host} cannot be resolved ({detail}); {todo}") from problem
    addresses = ", ".join(sorted({str(one[4][0]) for one in found}))
    return ok("dns", f"{host} is {addresses}")


async def _check_port(route: Route) -> Check:
    _, writer = await connect(route.address, route.proxy)
    writer.transport.abort()
    through = "" if route.proxy is None else f" through the proxy {route.proxy.address}"
    return ok("port", f"{route.address} answers{through}")


async def _check_tls(route: Route) -> Check:
    leaf = await verified_leaf(route.address, route.ca_pem, None, route.proxy)
    ends = f"{leaf.not_valid_after_utc:%Y-%m-%d %H:%M}"
    return ok("tls", f"TLS 1.3 with the federation's own certificate (until {ends} UTC), not intercepted")


async def _check_greeting(stored: StoredIdentity) -> list[Check]:
    """Check that the coordinator accepts our certificate, and the difference of the clocks."""
    try:
        async with await open_channel(stored) as channel:
            began, stub = time.time(), rpc.CoordinatorStub(channel)
            hello = await negotiate_version(stub, f"eigenveil doctor {__version__}", STEP_SECONDS)
            local_ms = 500 * (began + time.time())
    except EigenveilError as problem:
        return [fail("coordinator", str(problem))]
    text = f"it accepts this certificate and uses protocol version {hello.version}"
    return [ok("coordinator", text), clock(round(local_ms - hello.unix_time_ms))]
