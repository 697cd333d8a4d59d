"""What a browser that watches is sent, and when that ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from eigenveil_common.web import serving


def read(pieces: list[str], lives: list[bool], wait: bool = False) -> tuple[list[str], int]:
    """Everything that is sent, and how many pieces were made for it. `lives` is what is answered in turn."""
    made = 0

    async def source() -> AsyncIterator[str]:
        nonlocal made
        for piece in pieces:
            made += 1
            yield piece
        if wait:
            await asyncio.Event().wait()

    async def run() -> list[str]:
        answers = iter(lives)
        response = serving.event_stream(source(), lambda: next(answers, False))
        return [str(one) async for one in response.body_iterator]

    return asyncio.run(run()), made


def test_a_piece_of_many_lines_arrives_as_one_message() -> None:
    sent, _ = read(['<p id="a">\n1</p>'], [True] * 4)
    assert sent[1:] == ['data: <p id="a">\ndata: 1</p>\n\n']


def test_a_stream_ends_with_its_session_and_what_was_made_for_it_is_not_sent() -> None:
    sent, made = read(["<p>1</p>", "<p>2</p>", "<p>3</p>"], [True, True, True, False])
    assert sent[1:] == ["data: <p>1</p>\n\n"]
    assert made <= 2


def test_a_quiet_stream_asks_whether_the_session_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "BEAT_SECONDS", 0.001)
    sent, _ = read([], [True, True], wait=True)
    assert sent[1:] == [": still here\n\n"] * 2


async def test_nothing_is_made_before_the_reader_took_what_was_before() -> None:
    made = 0

    async def source() -> AsyncIterator[str]:
        nonlocal made
        while True:
            made += 1
            yield "<p>x</p>"

    body = serving.event_stream(source(), lambda: True).body_iterator
    for _ in range(3):
        await anext(aiter(body))
    await asyncio.sleep(0.01)
    assert made <= 3
