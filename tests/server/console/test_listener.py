"""A connection takes nothing from others, whoever opens it and however slowly it sends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from unittest import mock

import pytest

from eigenveil.identity import Role
from eigenveil_server.console import listener
from tests.server.console.test_access import PROXY
from tests.server.console.visits import Browser, Visits, visited

SECONDS = 100.0
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def speaking(browser: Browser, words: str) -> AsyncIterator[Connection]:
    """A connection on which no more than these words were said."""
    reader, writer = await asyncio.open_connection("127.0.0.1", browser.port, ssl=browser.context)
    try:
        writer.write(words.encode())
        yield reader, writer
    finally:
        writer.transport.abort()


def _never_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is closed is closed for another reason than its time."""
    for name in ("IDLE_SECONDS", "REQUEST_SECONDS"):
        monkeypatch.setattr(listener, name, 10 * SECONDS)


async def gone(connection: Connection, *, more: bytes = b"") -> None:
    """Wait until the other end closes, saying `more` all the while."""
    reader, writer = connection

    async def talk() -> None:
        while True:
            writer.write(more)
            await asyncio.sleep(0.05)

    talking = asyncio.create_task(talk())
    try:
        await asyncio.wait_for(reader.read(), SECONDS)
    except ConnectionError:
        return
    finally:
        talking.cancel()


async def test_a_request_that_never_ends_is_ended(visits: Visits, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of its head, its body or the one behind it, said on and on or not at all; an answer may go on."""
    operator = await visits.visitor(Role.OPERATOR, "olga")
    assert (await operator.get("/")).status == 200
    host = f"Host: 127.0.0.1:{visits.port}\r\n"
    form = f"Origin: https://127.0.0.1:{visits.port}\r\nContent-Type: application/x-www-form-urlencoded\r\n"
    whole = f"GET / HTTP/1.1\r\n{host}\r\n"
    head = f"GET / HTTP/1.1\r\n{host}X-Slow: "
    refused = f"POST /people/analyst/ada/deny HTTP/1.1\r\n{host}Content-Length: 9999\r\n\r\n"
    body = refused.replace(host, f"{host}{form}Cookie: {operator.cookie}\r\n")
    async with speaking(operator, whole.replace("/", "/live", 1)) as (live, _):
        await asyncio.wait_for(live.readuntil(b"\r\n\r\n"), SECONDS)
        monkeypatch.setattr(listener, "REQUEST_SECONDS", 0.2)
        for words in (head, refused, body, whole + head, whole + body):
            for more in (b"", b"x"):
                async with speaking(operator, words) as connection:
                    await gone(connection, more=more)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(live.read(), 0.5)


async def test_a_caller_that_is_no_proxy_takes_no_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "MOST_CONNECTIONS", 4)
    async with visited(tmp_path / "c", settings=PROXY) as visits, AsyncExitStack() as stored:
        await visits.rig.credentials(Role.OPERATOR, "olga")
        stranger = visits.browser(None)
        for _ in range(6):
            with pytest.raises(OSError):  # noqa: PT011 - however TLS puts it that nobody answers
                await stored.enter_async_context(speaking(stranger, "GET / HTTP/1.1\r\nX-Slow: "))
        proxy = visits.browser(None, whence="127.0.0.2")
        assert (await proxy.get("/people", **{"X-Forwarded-User": "olga@example.org"})).status == 200
        count = visits.rig.daemon.runtime.metrics.registry.get_sample_value
        assert count("eigenveil_console_refusals_total", {"why": "identity"}) == 6


@pytest.mark.parametrize("bound", ["MOST_OF_ONE", "MOST_OF_ADDRESS"])
async def test_one_certificate_or_address_has_no_more_than_its_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    monkeypatch.setattr(listener, bound, 3)
    _never_late(monkeypatch)
    async with visited(tmp_path / "c") as visits, AsyncExitStack() as stored:
        ada, olga = await visits.visitor(Role.ANALYST, "ada"), await visits.visitor(Role.OPERATOR, "olga")
        for one in (ada, ada, ada):
            await stored.enter_async_context(speaking(one, "GET / HTTP/1.1\r\n"))
        beyond = ada if bound == "MOST_OF_ONE" else olga
        async with speaking(beyond, "GET / HTTP/1.1\r\n") as connection:
            await gone(connection)
        olga.whence = None if bound == "MOST_OF_ONE" else "127.0.0.2"
        assert (await olga.get("/")).status == 200


async def test_of_all_connections_those_of_the_certificate_with_the_most_make_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "MOST_CONNECTIONS", 5)
    _never_late(monkeypatch)
    async with visited(tmp_path / "c") as visits, AsyncExitStack() as stored:
        eve, ada = await visits.visitor(Role.ANALYST, "eve"), await visits.visitor(Role.ANALYST, "ada")
        first = await stored.enter_async_context(speaking(ada, ""))
        crowd = [await stored.enter_async_context(speaking(eve, "GET / HTTP/1.1\r\n")) for _ in range(4)]
        crowd += [await stored.enter_async_context(speaking(eve, "")) for _ in range(4)]
        for connection in crowd[-2:-4:-1]:  # the idle ones before those that speak, however slowly
            await gone(connection)
        assert (await ada.get("/")).status == 200
        assert not first[0].at_eof()


async def test_half_open_sockets_take_no_place_and_hold_no_tls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "MAX_PENDING_CONNECTIONS", 5)
    async with visited(tmp_path / "c") as visits, AsyncExitStack() as stored:
        olga = await visits.visitor(Role.OPERATOR, "olga")
        idle = [await asyncio.open_connection("127.0.0.1", visits.port) for _ in range(20)]
        for _, writer in idle:
            stored.callback(writer.transport.abort)
        assert (await olga.get("/")).status == 200
        for connection in idle[:14]:
            await gone(connection)
        here = visits.rig.daemon._console
        assert here is not None
        assert len(here._listener._pending_connections) <= 5
        assert not here._listener._handshake_tasks, "nothing of TLS is made for them"
        count = visits.rig.daemon.runtime.metrics.registry.get_sample_value
        result = count("eigenveil_closed_connections_total", {"why": "console-handshakes", "peer": ""})
        assert result is not None
        assert result >= 15


def test_a_newcomer_makes_no_room_for_itself() -> None:
    """It is not idle yet, and shows the certificate of which there are most."""
    here = listener.ConsoleListener(mock.Mock(), proxies=frozenset(), refuse=mock.Mock(), closed=mock.Mock())
    newest, busy, other = (mock.Mock(certificate=shown, idle=False) for shown in (b"eve", b"eve", b"ada"))
    assert here._make_room([newest, other, busy], newest)
    ended = [bool(one.transport.abort.mock_calls) for one in (newest, other, busy)]
    assert ended == [False, False, True]
