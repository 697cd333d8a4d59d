"""Bad certificates at both ends, each with one flaw, all refused before a handler runs.

A forged client certificate is signed by the federation's own authority, unless that is its flaw, and is
entered in the registry as if it had been issued, so that nothing but the flaw can be why it is refused.
The same certificate without a flaw gets in: that is the control."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import grpc
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID as Usage

from eigenveil.errors import Code, EigenveilError
from eigenveil.identity import Role
from eigenveil.signatures import key_print
from eigenveil_client.connection import session_start
from eigenveil_client.connection.channel import call
from eigenveil_client.connection.identity import open_channel
from eigenveil_client.connection.session_start import Generation
from eigenveil_client.connection.tls import verified_channel
from eigenveil_common.rpc import error_from
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_proto.v1 import eigenveil_pb2_grpc as rpc
from eigenveil_server.pki.authority import Authority, fingerprint, new_key, pem
from eigenveil_server.process import unix_ms
from eigenveil_server.storage.database import audit
from tests.client.site.support import Coordinator
from tests.integration.running_site import enrolled
from tests.server.process import process
from tests.server.rig import FEDERATION, Credentials, Rig, made, refusal, serving
from tests.support import a_hello
from tests.torture.front.besieged import attackers_tls
from tests.torture.peers.calls import counted
from tests.torture.peers.forge import LOOPBACK, Forged, Shape, client, forge, impostor, server, uri

LEAST_CLIENTS, LEAST_SERVERS = 24, 10
MOST_SECONDS = 2.0  # from a denial to the end of a call under way
ANNA = f"eigenveil://{FEDERATION}/site/anna"
COORDINATOR = f"eigenveil://{FEDERATION}/coordinator/coordinator"
HELLO = a_hello()


@dataclass(slots=True)
class Report:
    clients: int = 0
    servers: int = 0
    denial: float = 0.0
    faults: list[str] = field(default_factory=list)


def bad_shapes() -> dict[str, Shape]:
    """Flaws of what a certificate says; all are signed by the right authority."""
    good = client("anna", ANNA)
    named = {
        "two URIs": (uri(ANNA), uri(ANNA.replace("anna", "bert"))),
        "the same URI twice": (uri(ANNA), uri(ANNA)),
        "a URI and a host": (uri(ANNA), x509.DNSName("localhost")), "a host only": (x509.DNSName("anna"),),
        "an e-mail address only": (x509.RFC822Name("anna@test.example"),), "a subject only": (),
        "another federation": (uri("eigenveil://other-fed/site/anna"),),
        "the coordinator's role": (uri(ANNA.replace("site", "coordinator")),),
        "an unknown role": (uri(ANNA.replace("site", "root")),),
        "a wildcard": (uri(ANNA.replace("anna", "*")),),
        "user information": (uri(ANNA.replace("test-fed", "me@test-fed")),),
        "a port": (uri(ANNA.replace("test-fed", "test-fed:7443")),),
        "upper case": (uri(ANNA.replace("anna", "Anna")),),
        "percent-encoding": (uri(ANNA.replace("anna", "%61nna")),), "a trailing slash": (uri(ANNA + "/"),),
        "a query": (uri(ANNA + "?x"),), "another scheme": (uri(ANNA.replace("eigenveil", "spiffe")),),
        "an empty name": (uri(ANNA.replace("anna", "")),),
    }  # fmt: skip
    return {what: replace(good, names=names) for what, names in named.items()} | {
        "expired": replace(good, begins=-48.0, ends=-1.0), "not valid yet": replace(good, begins=1.0),
        "for servers": replace(good, usages=(Usage.SERVER_AUTH,)),
        "for both": replace(good, usages=(Usage.CLIENT_AUTH, Usage.SERVER_AUTH)),
        "for anything": replace(good, usages=(Usage.ANY_EXTENDED_KEY_USAGE,)),
        "for nothing stated": replace(good, usages=None),
        "two subjects": replace(good, subject=("anna", "bert")),
        "another's subject": replace(good, subject=("bert",)), "an authority": replace(good, ca=True),
        "a weak key": replace(good, key=rsa.generate_private_key(65537, 1024)),
        "another curve": replace(good, key=ec.generate_private_key(ec.SECP384R1())),
        "huge": replace(good, ballast=30_000), "larger than TLS allows": replace(good, ballast=200_000),
    }  # fmt: skip


def bad_signers(authority: Authority) -> dict[str, Forged]:
    good, leaf_key = client("anna", ANNA), new_key()
    leaf = forge(authority, replace(good, key=leaf_key))
    self_signed = Authority(certificate=leaf.leaf, key=leaf_key)
    stranger, namesake = impostor(FEDERATION), impostor(FEDERATION, authority)
    return {
        "another authority": forge(stranger, good),
        "another authority, shown": forge(stranger, good, stranger.certificate),
        "another authority of the same name": forge(namesake, good, namesake.certificate),
        "itself": forge(self_signed, replace(good, key=leaf_key)),
        "a site": forge(self_signed, good, leaf.leaf),
        "a site, above it the authority": forge(self_signed, good, leaf.leaf, authority.certificate),
    }


def register(rig: Rig, leaf: x509.Certificate) -> None:
    issuer = fingerprint(rig.daemon.runtime.keys.authority.certificate)
    key = leaf.public_key()
    cached = key_print(key) if isinstance(key, ec.EllipticCurvePublicKey) else fingerprint(leaf)
    row = (unix_ms(), unix_ms() + 86_400_000, issuer, cached, pem(leaf))
    with rig.daemon.runtime.repository.store.writer.transaction() as change:
        change.execute(
            "INSERT INTO certificates (fingerprint, role, name, renewal_unused, issued_at, expires_at, "
            "issuer, key_print, certificate) VALUES (?, 'site', 'anna', 0, ?, ?, ?, ?, ?)",
            (fingerprint(leaf), *row),
        )
        audit(change, unix_ms(), "enrolled", "site/anna", "forged")  # as whatever changes who may call


async def greet(rig: Rig, forged: Forged) -> Code | None:
    cached = Credentials(name="anna", key=forged.key, certificate=forged.chain, ca=rig.ca)
    client = rig.connect(cached)
    try:
        await client.stub.Hello(HELLO, timeout=20)
    except grpc.aio.AioRpcError as problem:
        return error_from(problem).code
    finally:
        await client.channel.close()
    return None


async def try_clients(rig: Rig, entries: Counter[str], report: Report) -> None:
    authority = rig.daemon.runtime.keys.authority
    bad = {what: forge(authority, shape) for what, shape in bad_shapes().items()} | bad_signers(authority)
    control = forge(authority, client("anna", ANNA))
    for forged in (*bad.values(), control):
        register(rig, forged.leaf)
    bad["never issued"] = forge(authority, client("anna", ANNA))
    if await greet(rig, control) is not None or entries.total() != 1:
        report.faults.append("a certificate without a flaw is refused: the check proves nothing")
    before = entries.total()
    for what, forged in bad.items():
        code = await greet(rig, forged)
        if code not in (Code.IDENTITY, Code.UNREACHABLE) or entries.total() != before:
            report.faults.append(f"client certificate: {what}: {code}")
            before = entries.total()
        report.clients += 1
    if await greet(rig, control) is not None:
        report.faults.append("a good client is not answered any more")


async def try_histories(rig: Rig, entries: Counter[str], report: Report, folder: Path) -> None:
    """Certificates that were good once: none shown, replaced, renewed, denied, of a copied daemon."""
    no_one = grpc.ssl_channel_credentials(rig.ca)
    first = await rig.client(Role.SITE, "bert")
    await rig.client(Role.SITE, "bert")
    denied = await rig.client(Role.SITE, "carl")
    rig.daemon.registry.deny(Role.SITE, "carl")
    analyst = await rig.client(Role.ANALYST, "ada")
    before = entries.total()
    async with grpc.aio.secure_channel(f"127.0.0.1:{rig.ports.port}", no_one) as channel:
        attempts = {
            "none": rpc.CoordinatorStub(channel).Hello(HELLO),
            "superseded by an enrolment": first.stub.Hello(HELLO),
            "denied": denied.stub.Hello(HELLO),
            "of another role": analyst.stub.NextWork(pb.NextWorkRequest()),
        }
        for what, attempt in attempts.items():
            if (await refusal(attempt)).code not in (Code.IDENTITY, Code.UNREACHABLE):
                report.faults.append(f"client certificate: {what}: not refused")
            report.clients += 1
    if entries.total() != before:
        report.faults.append("a handler ran for a certificate that was shut out")
    await _clone(rig, report, folder)
    await _denial(rig, report)


async def _clone(rig: Rig, report: Report, folder: Path) -> None:
    """The handler of Hello is what refuses a copy: it gets no further."""
    stored = await enrolled(rig, folder / "dora", "dora")
    shown = Generation(stored.folder)
    behind = folder / "behind"
    behind.mkdir()
    for generation in (shown, shown, Generation(behind)):
        if generation is not shown:
            generation.announce()
        async with await open_channel(stored) as channel:
            stub = rpc.CoordinatorStub(channel)
            try:
                await session_start.greet_coordinator(stub, "test", stored, generation)
            except EigenveilError as problem:
                refused = generation is not shown and problem.code is Code.IDENTITY
                work = (await refusal(stub.NextWork(pb.NextWorkRequest()))).code is Code.NOT_READY
                report.faults += [] if refused and work else [f"client certificate: cloned: {problem}"]
            else:
                report.faults += [] if generation is shown else ["client certificate: cloned: let in"]


async def _denial(rig: Rig, report: Report) -> None:
    site = await rig.client(Role.SITE, "eric")
    polling = asyncio.create_task(site.query())
    await asyncio.sleep(0.2)
    rig.daemon.registry.deny(Role.SITE, "eric")
    began = time.monotonic()
    refused = await refusal(polling)
    report.denial = time.monotonic() - began
    if refused.code is not Code.IDENTITY or report.denial > MOST_SECONDS:
        report.faults.append(f"a denial ended a call after {report.denial:.1f} s as {refused.code.value}")


def bad_servers(authority: Authority) -> dict[str, Forged]:
    good, leaf_key = server(COORDINATOR), new_key()
    site = forge(authority, replace(client("anna", ANNA), key=leaf_key))
    below = Authority(certificate=site.leaf, key=leaf_key)
    stranger, namesake = impostor(FEDERATION), impostor(FEDERATION, authority)
    host = x509.DNSName("elsewhere.example")
    shapes = {
        "expired": replace(good, begins=-48.0, ends=-1.0), "not valid yet": replace(good, begins=1.0),
        "for clients": replace(good, usages=(Usage.CLIENT_AUTH,)),
        "for both": replace(good, usages=(Usage.CLIENT_AUTH, Usage.SERVER_AUTH)),
        "for nothing stated": replace(good, usages=None), "no URI": replace(good, names=LOOPBACK),
        "a subject only": replace(good, names=(), subject=("localhost",)),
        "two URIs": replace(good, names=(*good.names, uri(ANNA))),
        "another federation": server("eigenveil://other-fed/coordinator/coordinator"), "a site": server(ANNA),
        "another host": replace(good, names=(uri(COORDINATOR), host)),
        "a wildcard": replace(good, names=(*good.names, x509.DNSName("*.example"))),
        "user information": server(COORDINATOR.replace("test-fed", "me@test-fed")),
    }  # fmt: skip
    return {what: forge(authority, shape) for what, shape in shapes.items()} | {
        "another authority": forge(stranger, good, stranger.certificate),
        "another authority of the same name": forge(namesake, good, namesake.certificate),
        "signed by a site": forge(below, good, site.leaf, authority.certificate),
        "signed by itself": forge(
            Authority(certificate=site.leaf, key=leaf_key), replace(good, key=leaf_key)
        ),
    }


@asynccontextmanager
async def impersonated(servicer: Coordinator, shown: Forged) -> AsyncIterator[str]:
    listener = grpc.aio.server()
    rpc.add_CoordinatorServicer_to_server(servicer, listener)
    port = listener.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([(shown.key, shown.chain)]))
    await listener.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await listener.stop(0)


async def dial(address: str, authority: Authority) -> Code | None:
    try:
        async with await verified_channel(address, FEDERATION, pem(authority.certificate), None) as channel:
            await call(rpc.CoordinatorStub(channel).Hello, HELLO, attempts=1)
    except EigenveilError as problem:
        return problem.code
    return None


async def try_servers(authority: Authority, report: Report) -> None:
    servicer = Coordinator()
    for what, shown in bad_servers(authority).items():
        async with impersonated(servicer, shown) as address:
            code = await dial(address, authority)
        if code is not Code.IDENTITY or servicer.hellos:
            report.faults.append(f"server certificate: {what}: {code}")
            servicer.hellos = 0
        report.servers += 1
    async with impersonated(servicer, forge(authority, server(COORDINATOR))) as address:
        if await dial(address, authority) is not None or servicer.hellos != 1:
            report.faults.append("a good server is refused: the check proves nothing")


async def old_tls(port: object, cached: Credentials, folder: Path, version: ssl.TLSVersion) -> str:
    """Error of a client with a good certificate and this version of TLS; empty if it is answered."""
    context = attackers_tls(cached, folder)
    context.minimum_version = context.maximum_version = version
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(str(port)), ssl=context)
        try:
            return "" if await reader.read(1) else "closed"
        finally:
            writer.transport.abort()
    except OSError as problem:
        return f"{type(problem).__name__} {problem}"


async def try_old_tls(cached: Credentials, report: Report, folder: Path) -> None:
    """1.2 is refused, 1.3 is not; by a process of its own, as gRPC reads its settings when it is loaded."""
    async with process(folder / "c" / "coordinator.toml") as coordinator:
        port = coordinator.serving["port"]
        if not await old_tls(port, cached, folder, ssl.TLSVersion.TLSv1_2):
            report.faults.append("TLS 1.2 is served")
        if message := await old_tls(port, cached, folder, ssl.TLSVersion.TLSv1_3):
            report.faults.append(f"TLS 1.3 is not served: {message}")


async def examine(folder: Path) -> Report:
    report = Report()
    with counted() as entries:
        async with serving(made(folder / "c", long_poll_seconds=30.0)) as rig:
            await try_clients(rig, entries, report)
            await try_histories(rig, entries, report, folder)
            await try_servers(rig.daemon.runtime.keys.authority, report)
            cached = await rig.credentials(Role.SITE, "fred")
        await try_old_tls(cached, report, folder)
    if report.clients < LEAST_CLIENTS or report.servers < LEAST_SERVERS:
        report.faults.append("fewer were tried than is promised")
    return report


async def run(folder: Path, scale: float) -> tuple[list[str], str]:
    """All of them at any scale: it takes seconds."""
    report = await examine(folder)
    return report.faults, (
        f"{report.clients} of clients and {report.servers} of servers refused before a handler ran, a clone "
        f"by Hello; TLS 1.2 refused; a denial ended a call under way after {report.denial:.1f} s"
    )
