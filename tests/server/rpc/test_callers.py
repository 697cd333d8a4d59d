"""Last call times, which the operator alone can read; and the watchdog, whose end ends the process."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import NoReturn, cast
from unittest import mock

import pytest

from eigenveil.errors import Code, InternalError
from eigenveil_server.pki.authority_files import Authorities
from eigenveil_server.pki.keys import ServerCertificate
from eigenveil_server.rpc import callers
from eigenveil_server.rpc.callers import EVERY_MS, Presence, Watchdog, last_call_times


def test_last_call_times_outlive_the_process_and_are_readable_by_the_owner_only(
    tmp_path: Path,
) -> None:
    path, now = tmp_path / "presence.json", [10 * EVERY_MS]
    first = Presence(path, lambda: now[0])
    first.note_call("anna")
    now[0] += EVERY_MS
    first.note_call("bert")
    now[0] += EVERY_MS
    Presence(path, lambda: now[0]).note_call("anna")
    assert last_call_times(path) == {"anna": now[0], "bert": now[0] - EVERY_MS}
    assert path.stat().st_mode & 0o077 == 0
    assert [one.name for one in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("stored", [b"", b"[]", b'{"anna": "soon"}', b"\xff"])
def test_a_file_that_is_not_whole_is_as_none_and_one_that_cannot_be_written_stops_nothing(
    tmp_path: Path, stored: bytes
) -> None:
    path = tmp_path / "presence.json"
    path.write_bytes(stored)
    assert last_call_times(path) == {}
    Presence(tmp_path / "gone" / "presence.json", lambda: 10 * EVERY_MS).note_call("anna")


@pytest.mark.parametrize("problem", [InternalError(Code.STORAGE, "disk"), OSError("inodes"), TypeError("x")])
async def test_whatever_stops_the_guard_ends_the_process(
    problem: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = asyncio.Event()

    def fatal(problem: InternalError) -> NoReturn:
        ended.set()
        raise problem

    async def swept() -> None:
        pass

    monkeypatch.setattr(callers, "EVERY_SECONDS", 0.01)
    leaf = mock.Mock(renew=mock.Mock(side_effect=problem))
    authorities = mock.Mock(refresh=mock.Mock(return_value=False))
    looking = Watchdog(cast("Authorities", authorities), cast("ServerCertificate", leaf), swept, fatal)
    looking.start()
    async with asyncio.timeout(10):
        await ended.wait()
    with pytest.raises(InternalError):
        await looking.stop()
