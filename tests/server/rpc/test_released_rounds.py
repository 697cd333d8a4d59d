"""A released round comes in parts that fit messages [R21]."""

from __future__ import annotations

import tracemalloc

import pytest

from eigenveil.errors import Code
from eigenveil.identity import Role
from eigenveil.numerics.encoding import from_bytes
from eigenveil.protocol.rounds import Release, SignedRound
from eigenveil_client.connection.channel import call, fetch_round
from eigenveil_common.rpc import MESSAGE_BYTES
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.rpc import service
from eigenveil_server.storage.sealed import SealedRelease
from tests.server.rig import Client, Rig, Sites, answering, refusal, study_toml
from tests.support import DIGEST


async def test_each_released_round_is_fetched_as_it_was_sealed(
    rig: Rig, ada: Client, sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "RELEASE_PART_BYTES", 24)
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
    values, joined, pieces = bytes(range(256)) * 5 * 2**12, b"", 0
    long = Release(
        round=0, query=DIGEST, values=from_bytes(values, (len(values) // 8,)), sigma=1.0, micro_rho=1,
        atto_delta=0, present=(),
    )  # fmt: skip
    sealed = SealedRelease(release=long, signed_round=SignedRound(signed_json=b"{}", signature=b""))
    gradient = pb.Gradient(spec=pb.GradientSpec(centre=bytes(round_query)))
    question = pb.Query(gradient=gradient).SerializeToString()
    while len(joined) < len(values):
        tracemalloc.start()
        text = service.release_part(sealed, question, len(joined))
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert most < len(values)  # a long release is not copied for each part of it
        assert text.ByteSize() < MESSAGE_BYTES
        assert text.total_bytes == len(values)
        piece = text.release
        assert piece.HasField("query") is (pieces == 0)
        joined, pieces = joined + piece.values, pieces + 1
        assert piece.values
    assert joined == values
