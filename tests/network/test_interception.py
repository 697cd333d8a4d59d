"""TLS inspection between a client and its coordinator is refused, and named."""

from __future__ import annotations

import asyncio
import ssl

import pytest

from eigenveil.errors import Code
from eigenveil_client.connection.identity import load_identity, open_channel
from tests.client.site.support import FEDERATION, Stage, store_identity
from tests.network.forwarders import Inspection, Middle
from tests.support import refused


async def dial(stage: Stage, middle: Middle) -> int:
    """Open a channel to where `middle` listens; its port."""
    async with middle.listening() as port:
        store_identity(stage.authority, stage.config.identity, f"127.0.0.1:{port}")
        async with await open_channel(load_identity(stage.config.identity)):
            return port


@pytest.mark.parametrize("tls", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_inspection_is_named_with_its_issuer_and_the_remedy(stage: Stage, tls: ssl.TLSVersion) -> None:
    inspection = Inspection(folder=stage.folder, tls=tls)
    with refused(
        Code.IDENTITY, "your network's TLS inspection, issuer CN=Hospital TLS Inspection,",
        "ask IT to exempt 127.0.0.1:",
    ):  # fmt: skip
        await dial(stage, inspection)
    assert inspection.seen == 2
    assert inspection.received == []  # not a byte was said to it


async def test_an_issuer_cannot_write_to_the_operator_s_terminal(stage: Stage) -> None:
    with refused(Code.IDENTITY, "issuer CN=?[2J" + "x" * 50 + ","):
        await dial(stage, Inspection(folder=stage.folder, name="\x1b[2J" + "x" * 50))


async def test_inspection_that_copies_the_coordinator_s_names_is_named(stage: Stage) -> None:
    uri = f"eigenveil://{FEDERATION}/coordinator/main"
    with refused(Code.IDENTITY, uri, "CN=Hospital TLS Inspection signed it"):
        await dial(stage, Inspection(folder=stage.folder, uri=uri))


async def test_a_sign_in_page_is_no_coordinator(stage: Stage) -> None:
    class Page(Middle):
        async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(1)
            writer.write(b"HTTP/1.1 302 Found\r\nLocation: http://login/\r\n\r\n")
            await writer.drain()

    with refused(Code.IDENTITY, "does not use the TLS of a coordinator", "sign-in page"):
        await dial(stage, Page())


def test_the_federation_s_own_certificate_is_never_called_inspection(stage: Stage) -> None:
    """One that has expired; and a coordinator that breaks off during the handshake is just unreachable."""
    leaf = stage.authority.leaf(f"eigenveil://{FEDERATION}/coordinator/main", server=True, life=-1.0)
    (stage.folder / "inspection.pem").write_bytes(leaf.key + leaf.certificate)
    with refused(Code.IDENTITY, "is the federation's, but cannot be used (certificate has expired)", "clock"):
        asyncio.run(dial(stage, Inspection(folder=stage.folder)))
    with refused(Code.UNREACHABLE, "closed during the handshake"):
        asyncio.run(dial(stage, Inspection(folder=stage.folder, tls=ssl.TLSVersion.TLSv1_2)))
