"""A reader that the kernel does not end is waited for as long as is said, and no longer."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from eigenveil_client.records.isolated import fork_server
from eigenveil_client.records.isolated.fork_server import ENDING_SECONDS, RUNNING, ForkServer


def test_a_reader_that_never_ends_is_waited_for_no_longer_than_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slept: list[float] = []
    clock = SimpleNamespace(monotonic=lambda: sum(slept), sleep=slept.append)
    monkeypatch.setattr(fork_server, "time", clock)
    server = ForkServer()
    monkeypatch.setattr(server, "_send", lambda message, descriptors: RUNNING)
    assert server.exit_status(17) == RUNNING
    assert sum(slept) == pytest.approx(ENDING_SECONDS)
