"""A released round comes in parts that fit messages [R21]."""

from __future__ import annotations

import pytest

from eigenveil.errors import Code
from eigenveil.identity import Role
from eigenveil_client.connection.channel import call, fetch_round
from eigenveil_common.rpc import MESSAGE_BYTES
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.rpc import service
from eigenveil_server.storage import pieces
from tests.server.rig import Client, Rig, Sites, answering, refusal, study_toml


async def test_each_released_round_is_fetched_as_it_was_sealed(
    rig: Rig, ada: Client, sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "RELEASE_PART_BYTES", 24)
    monkeypatch.setattr(pieces, "PIECE_BYTES", 16)
    async with answering(sites):
        digest = await ada.submit(study_toml())
        await ada.events(digest)
    plan = bytes.fromhex(digest)
    sealed = rig.repository.studies.sealed_rounds(digest)
    assert max(one.release.values.nbytes for one in sealed) > 3 * service.RELEASE_PART_BYTES
    for stub in (ada.stub, sites["anna"].stub):
        for one in sealed:
            found = await fetch_round(
                lambda round_query, stub=stub: call(stub.GetRound, round_query),  # type: ignore[misc]
                plan,
                one.release.round,
            )
            assert found.query.plan_digest == plan
            found.ClearField("query")
            assert found == one.message()
    beyond = pb.GetRoundRequest(plan_digest=plan, round=len(sealed))
    assert (await refusal(ada.stub.GetRound(beyond))).code is Code.NOT_FOUND
    dora = await rig.client(Role.SITE, "dora")
    assert (await refusal(dora.stub.GetRound(pb.GetRoundRequest(plan_digest=plan)))).code is Code.NOT_FOUND


@pytest.mark.parametrize("round_query", [0, 1, 3 * 2**20, 4 * 2**20 - 200 * 1024])
def test_a_round_comes_in_pieces_that_fit_messages_however_long_its_question_is(round_query: int) -> None:
    """[R21] A plan is accepted where its questions fit a message beside it, and it has some bytes."""
    values, joined, number, questions = bytes(range(256)) * 5 * 2**12, b"", 0, list[int]()

    def read(start: int, most: int) -> tuple[pb.SealedRound, int]:
        return pb.SealedRound(values=values[start : start + most]), len(values)

    gradient = pb.Gradient(spec=pb.GradientSpec(centre=bytes(round_query)))
    question = pb.Query(gradient=gradient).SerializeToString()

    def read_query() -> bytes:
        questions.append(number)
        return question

    while len(joined) < len(values):
        text = service.release_part(read_query, len(joined), read)
        assert text.ByteSize() < MESSAGE_BYTES
        assert text.total_bytes == len(values)
        piece = text.release
        assert piece.HasField("query") is (number == 0)
        joined, number = joined + piece.values, number + 1
        assert piece.values
    assert joined == values
    assert questions == [0], "a transfer that goes on reads no query"
