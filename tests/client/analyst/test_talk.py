"""An error of ours comes out of the thread that makes the calls as its sentence, and a bug as it arose."""

from __future__ import annotations

import traceback
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from eigenveil.errors import Code, PeerError
from eigenveil_client.analyst.coordinator import _result_of


def unreachable(deep: int) -> None:
    if deep:
        unreachable(deep - 1)
    try:
        raise OSError("connection refused")
    except OSError as problem:
        raise PeerError(Code.UNREACHABLE, "nobody answers") from problem


def bug(deep: int) -> None:
    raise ZeroDivisionError(deep)


def shown(future: Future[None], kind: type[Exception]) -> str:
    with pytest.raises(kind) as raised:
        _result_of(future)
    return "".join(traceback.format_exception(raised.value))


def test_an_error_of_ours_shows_no_frame_of_the_thread_and_a_bug_all() -> None:
    with ThreadPoolExecutor(1) as threads:
        ours = shown(threads.submit(unreachable, 9), PeerError)
        assert "nobody answers" in ours
        assert "unreachable(deep" not in ours
        assert "connection refused" not in ours
        assert "in bug" in shown(threads.submit(bug, 1), ZeroDivisionError)
