"""One peer's bytes end no listener for the others."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress

import pytest

from eigenveil.identity import Role
from tests.server.rig import Client, Rig
from tests.support import a_hello
from tests.torture.front.frames import END_HEADERS, HEADERS, HELLO, data, frame, head, message

NAMES = ("/eigenveil.v1.Coordinator/Nothing", "/eigenveil.v1.\xef/Hello", "/\xff")
REQUEST = a_hello()


async def send(rig: Rig, port: int, name: str, site: Client | None = None) -> None:
    """Shake hands and call a method of this name."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls.load_verify_locations(cadata=rig.ca.decode())
    tls.set_alpn_protocols(["h2"])
    if site is not None:
        stored = rig.forged(name=site.name)
        pair = rig.config.state / "pair.pem"
        pair.write_bytes(stored.key + stored.certificate)
        tls.load_cert_chain(pair)
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
    writer.write(HELLO + frame(HEADERS, END_HEADERS, 1, head(name)) + data(1, message(b"")))
    with suppress(TimeoutError):
        async with asyncio.timeout(0.2):
            while await reader.read(65_536):
                pass
    writer.transport.abort()


@pytest.mark.parametrize("name", NAMES)
async def test_a_site_that_names_no_method_disturbs_no_other(rig: Rig, name: str) -> None:
    site = await rig.client(Role.SITE, "anna")
    await site.stub.Hello(REQUEST)
    for _ in range(3):
        await send(rig, rig.ports.port, name, site)
        assert (await site.stub.Hello(REQUEST)).federation == rig.config.federation


@pytest.mark.parametrize("name", NAMES)
async def test_no_uncertified_caller_can_end_enrolment(rig: Rig, name: str) -> None:
    for site in ("anna", "bert"):
        await send(rig, rig.ports.enrol_port, name)
        await rig.client(Role.SITE, site)
