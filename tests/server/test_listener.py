"""One peer's bytes end no listener for the others."""

from __future__ import annotations

import asyncio
import logging
import ssl
from pathlib import Path

import pytest

from eigenveil.errors import Code, EigenveilError
from eigenveil.identity import Role
from eigenveil_client.transport import call
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.pki import new_key
from tests.server.rig import Client, Rig, made, refusal, request_for, serving
from tests.torture.frames import END_HEADERS, HEADERS, HELLO, data, frame, head, message

NO_UTF8 = HELLO + frame(HEADERS, END_HEADERS, 1, head("/eigenveil.v1.\xef/Hello")) + data(1, message(b""))


async def say(rig: Rig, port: int, site: Client | None = None) -> None:
    """Shake hands and name a method that is no text."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls.load_verify_locations(cadata=rig.ca.decode())
    tls.set_alpn_protocols(["h2"])
    if site is not None:
        held = rig.forged(name=site.name)
        pair = rig.config.state / "pair.pem"
        pair.write_bytes(held.key + held.certificate)
        tls.load_cert_chain(pair)
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
    writer.write(NO_UTF8)
    async with asyncio.timeout(20):
        while await reader.read(65_536):
            pass  # until the listener breaks, or gives this up
    writer.transport.abort()


async def opened_again(caplog: pytest.LogCaptureFixture) -> None:
    async with asyncio.timeout(20):
        while "listener-opened-again" not in caplog.text:
            await asyncio.sleep(0.01)


def test_a_site_that_names_no_method_cuts_off_nobody_for_long(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with serving(made(tmp_path / "c")) as rig:
            site = await rig.client(Role.SITE, "anna")
            await site.stub.Hello(pb.HelloRequest(version_min=1, version_max=1))
            await say(rig, rig.ports.port, site)
            await opened_again(caplog)
            hello = await call(site.stub.Hello, pb.HelloRequest(version_min=1, version_max=1))
            assert hello.federation == rig.config.federation

    caplog.set_level(logging.INFO, "eigenveil")
    asyncio.run(scenario())


def test_nobody_at_all_can_end_enrolment(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> EigenveilError:
        async with serving(made(tmp_path / "c")) as rig:
            for _ in range(3):
                caplog.clear()
                await say(rig, rig.ports.enrol_port)
                await opened_again(caplog)
            await rig.client(Role.SITE, "anna")
            return await refusal(rig.enrol("no token", request_for(new_key())))

    caplog.set_level(logging.INFO, "eigenveil")
    assert asyncio.run(scenario()).code is Code.IDENTITY
