"""Requests that are not answered are bounded in bytes, for each guest and in all, and none waits for ever."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eigenveil.identity import Role
from eigenveil_common.rpc import MESSAGE_BYTES
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.front import message_quota
from eigenveil_server.front.message_quota import (
    FREE_BYTES,
    LONG_SECONDS,
    LOOK_SECONDS,
    MAX_BYTES_PER_CLIENT,
    MOST_REQUEST_BYTES,
    RequestQuota,
)
from eigenveil_server.front.quota import GatewayClient
from tests.server.front.test_gateway import connected, received
from tests.server.rig import Rig, made, serving
from tests.support import a_hello
from tests.torture.front.frames import (
    END_HEADERS,
    GOAWAY,
    HEADERS,
    HELLO,
    SERVICE,
    data,
    frame,
    head,
    message,
    parse,
    window_update,
)

CLIENTS = [GatewayClient(name=f"guest {n}", role=Role.SITE) for n in range(100)]
WHOLE = MESSAGE_BYTES


class PageContext:
    """Requests of one door whose clock is set by hand; who is cut gives back what it holds."""

    def __init__(self) -> None:
        self.now = 0.0
        self.cut: list[str] = []
        self.sent: dict[str, int] = {}
        self.requests = RequestQuota(self._cut, clock=lambda: self.now)

    def _cut(self, client: GatewayClient) -> None:
        self.cut.append(client.name)
        self.requests.give_back(client, self.sent.pop(client.name, 0))

    def take(self, client: GatewayClient, count: int) -> bool:
        may = self.requests.take(client, count)
        if may:
            self.sent[client.name] = self.sent.get(client.name, 0) + count
        return may


def test_a_client_with_more_than_four_messages_is_cut_and_all_of_it_given_back() -> None:
    context = PageContext()
    assert context.take(CLIENTS[0], MAX_BYTES_PER_CLIENT)
    assert not context.take(CLIENTS[0], 1)
    assert context.cut == [CLIENTS[0].name]
    assert context.take(CLIENTS[0], MAX_BYTES_PER_CLIENT), "of what it held nothing is left"


def test_while_all_room_is_taken_others_wait_but_for_small_requests() -> None:
    context = PageContext()
    for client in CLIENTS[: MOST_REQUEST_BYTES // WHOLE]:
        assert context.take(client, FREE_BYTES + 1)
    assert not context.take(CLIENTS[-1], FREE_BYTES + 1)
    assert context.take(CLIENTS[-1], FREE_BYTES)
    assert context.take(CLIENTS[0], WHOLE - FREE_BYTES - 1), "whoever has begun a message can end it"
    context.requests.give_back(CLIENTS[1], FREE_BYTES + 1)
    assert context.take(CLIENTS[-1], 1)
    assert not context.cut


def test_who_holds_several_messages_or_one_for_long_makes_room_for_others() -> None:
    context = PageContext()
    for client in CLIENTS[: MOST_REQUEST_BYTES // WHOLE - 1]:
        assert context.take(client, WHOLE)
        context.now += 0.1
    assert not context.take(CLIENTS[9], WHOLE + 1)
    assert context.take(CLIENTS[-1], WHOLE)
    context.requests.give_back(CLIENTS[3], WHOLE)
    assert context.take(CLIENTS[9], 1)
    context.now += 2 * LOOK_SECONDS
    assert context.take(CLIENTS[-2], WHOLE), "nine had two"
    assert context.cut == [CLIENTS[9].name]
    assert context.take(CLIENTS[-3], WHOLE)
    context.now = LONG_SECONDS - 0.1
    assert not context.take(CLIENTS[-4], WHOLE)
    context.now = LONG_SECONDS
    assert context.take(CLIENTS[-4], WHOLE)
    assert context.cut == [CLIENTS[9].name, CLIENTS[0].name], "the oldest"


def full(context: PageContext) -> None:
    """All room is taken by guests with one message each, the first of them by the oldest."""
    for client in CLIENTS[: MOST_REQUEST_BYTES // WHOLE]:
        assert context.take(client, WHOLE)
        context.now += 0.001


def test_however_many_wait_for_room_clients_are_visited_ten_times_a_second() -> None:
    context, visits = PageContext(), 0

    class Counted(dict[str, message_quota._ClientBytes]):
        def values(self) -> Any:
            nonlocal visits
            visits += 1
            return super().values()

    context.requests._of = Counted()
    full(context)
    for _ in range(10):
        for client in CLIENTS[MOST_REQUEST_BYTES // WHOLE :]:
            assert not context.take(client, WHOLE)
        context.now += 1.01 * LOOK_SECONDS
    assert 10 <= visits <= 2 * 10, "a look may visit them twice"


def test_the_client_that_is_cut_is_the_one_that_the_gateway_knows_now() -> None:
    shut: list[GatewayClient] = []
    stored = RequestQuota(shut.append, clock=lambda: 0.0)
    old, new = (GatewayClient(name="eve", role=Role.SITE) for _ in range(2))
    assert stored.take(old, 1)
    assert stored.take(new, MAX_BYTES_PER_CLIENT - 1)
    assert not stored.take(new, 1)
    assert len(shut) == 1
    assert shut[0] is new


def test_who_waits_for_the_coordinator_with_a_complete_request_is_not_cut_as_slow() -> None:
    context = PageContext()
    full(context)
    slow = CLIENTS[MOST_REQUEST_BYTES // WHOLE - 1]
    for client in CLIENTS[: MOST_REQUEST_BYTES // WHOLE - 1]:
        context.requests.complete(client, WHOLE)
    context.now = 0.9 * LONG_SECONDS
    assert not context.take(CLIENTS[-1], WHOLE)
    context.now += LONG_SECONDS
    assert context.take(CLIENTS[-1], WHOLE)
    assert context.cut == [slow.name], "not the oldest but the only one that has not sent all"
    context.requests.complete(CLIENTS[-1], WHOLE)
    context.now += 10 * LONG_SECONDS
    assert not context.take(slow, WHOLE), "complete requests keep their room: gRPC keeps their bytes"
    context.requests.give_back(CLIENTS[0], WHOLE, whole=WHOLE)
    assert context.take(slow, WHOLE)
    assert context.cut == [slow.name]


def test_a_request_that_is_begun_behind_a_complete_one_has_its_own_time() -> None:
    context = PageContext()
    for client in CLIENTS[: MOST_REQUEST_BYTES // WHOLE]:
        assert context.take(client, WHOLE - 10)
        context.requests.complete(client, WHOLE - 10)
    context.now = 2 * LONG_SECONDS
    assert context.take(CLIENTS[0], 1)
    assert not context.take(CLIENTS[-1], WHOLE)
    context.now += LONG_SECONDS
    assert context.take(CLIENTS[-1], WHOLE)
    assert context.cut == [CLIENTS[0].name]


@given(
    steps=st.lists(
        st.tuples(st.integers(0, 99), st.integers(1, 2 * WHOLE), st.booleans()), min_size=50, max_size=300
    )
)
def test_waiting_requests_never_exceed_their_bounds(steps: list[tuple[int, int, bool]]) -> None:
    context = PageContext()
    for number, count, answered in steps:
        client = CLIENTS[number]
        if answered:
            context.requests.give_back(client, context.sent.pop(client.name, 0))
        else:
            context.take(client, count)
        context.now += 0.5
        assert all(sent <= MAX_BYTES_PER_CLIENT for sent in context.sent.values())
        assert sum(sent for sent in context.sent.values() if sent > FREE_BYTES) <= MOST_REQUEST_BYTES
    for name, sent in tuple(context.sent.items()):
        context.requests.give_back(next(client for client in CLIENTS if client.name == name), sent)
    assert context.requests._reserved == 0
    assert not context.requests._of


async def test_endless_messages_cost_one_client_its_connections_and_the_coordinator_little(
    rig: Rig, tmp_path: Path
) -> None:
    """100 MiB of one connection, before they were counted."""
    opened = head(f"{SERVICE}/PutChunk")
    half = message(bytes(MESSAGE_BYTES - 1000))[:-1]
    text = b"".join(
        frame(HEADERS, END_HEADERS, n, opened) + data(n, half, end=False) for n in range(1, 60, 2)
    )

    anna, bert = await rig.credentials(Role.SITE, "anna"), await rig.client(Role.SITE, "bert")
    await bert.stub.Hello(a_hello())
    pair = await connected(rig, anna, tmp_path, HELLO + window_update(0, 2**24))
    pair[1].write(text)
    answer = await received(pair)
    assert GOAWAY in [kind for kind, *_ in parse(answer)]
    assert b"too many bytes of unanswered requests" in answer
    await bert.stub.Hello(a_hello())
    assert not rig.daemon._main_gateway.requests._of


async def test_a_request_is_counted_until_its_answer_and_no_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_quota, "MAX_BYTES_PER_CLIENT", 200_000)

    async with serving(made(tmp_path / "c")) as rig:
        ada = await rig.client(Role.ANALYST, "ada")
        for _ in range(5):
            with pytest.raises(Exception, match="not valid TOML"):
                await ada.stub.ExplainStudy(pb.ExplainStudyRequest(study_toml="?" * 150_000))
        assert not rig.daemon._main_gateway.requests._of
