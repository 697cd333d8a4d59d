"""Without its guard a coordinator serves nobody: whatever ends the one ends the other."""

from __future__ import annotations

import asyncio
from typing import NoReturn, cast
from unittest import mock

import pytest

from eigenveil.errors import Code, InternalError
from eigenveil_server.pki.authority_files import Authorities
from eigenveil_server.pki.keys import ServerCertificate
from eigenveil_server.rpc import callers
from eigenveil_server.rpc.callers import Watchdog


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
