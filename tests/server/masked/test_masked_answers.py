"""Answers to attempts: each belongs to one, and is added to nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from eigenveil.errors import Code
from eigenveil.identity import Role
from eigenveil.protocol.query import RoundQuery
from eigenveil.secure_aggregation.masking import Attempt
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.server.masked.sites import MaskedSite, masked_sites, masked_toml
from tests.server.rig import Client, Rig, made, refusal, serving

MaskedSites = dict[str, MaskedSite]


async def fixed(sites: MaskedSites) -> tuple[RoundQuery, Attempt]:
    """All get ready; the question and the first attempt at it."""
    for site in sites.values():
        await site.ready((await site.round_query())[0])
    found = [await site.round_query() for site in sites.values()]
    round_query, attempt = found[0]
    assert attempt is not None
    return round_query, attempt


async def tried_again(sites: MaskedSites) -> tuple[RoundQuery, Attempt, Attempt]:
    """Anna answers the first attempt, and carl declines it; both attempts."""
    round_query, first = await fixed(sites)
    await sites["anna"].send(round_query, first)
    await sites["carl"].decline(round_query)
    _, second = await sites["anna"].round_query()
    assert second is not None
    assert second.number == 2
    return round_query, first, second


def audited(rig: Rig) -> list[tuple[str, ...]]:
    return [tuple(row) for row in rig.rows("SELECT kind, subject FROM audit WHERE kind LIKE '%answer%'")]


async def test_an_answer_to_an_earlier_attempt_is_never_added(rig: Rig) -> None:
    sites, ada = await masked_sites(rig), await rig.client(Role.ANALYST, "ada")
    digest = await ada.submit(masked_toml())
    round_query, first, second = await tried_again(sites)
    anna, bert, carl = sites.values()
    assert (await anna.send(round_query, first)).repeated, "it was taken while its attempt was on"
    studies = rig.repository.studies
    assert studies.answers(digest, 0, 1).macs.keys() == {"anna"}
    other = anna.client.contribution(
        round_query, bert.rows[: round_query.query.length, 0].astype("<i8"), first.digest
    )
    assert "differently before" in str(await refusal(anna.client.stub.Contribute(other)))
    for _ in range(2):
        late = await refusal(bert.send(round_query, first))
        assert (late.code, "poll for new work" in str(late)) == (Code.CONFLICT, True)
    assert (await refusal(carl.send(round_query, first))).code is Code.CONFLICT
    assert studies.answers(digest, 0, 1).macs.keys() == {"anna"}
    opened = (await rig.daemon.engine.run(digest)).opened
    assert opened is not None
    assert opened.macs() == {}
    assert not opened._total._sum.any()
    assert sorted(audited(rig)) == [
        ("different-second-answer", "site/anna"),
        ("late-answer", "site/bert"), ("late-answer", "site/carl"),
    ]  # fmt: skip
    await anna.send(round_query, second)
    await bert.send(round_query, second)
    assert (await bert.send(round_query, second)).repeated
    while (found := await anna.round_query())[0].round == 0:
        pass
    assert found[1] is not None
    assert found[1].sites == ("anna", "bert")
    release = studies.sealed(digest, 0)
    assert release is not None
    assert abs(release.release.values[0] - 120) < 8 * release.release.sigma
    assert (await bert.send(round_query, second)).repeated, "its round is over"
    assert (await refusal(bert.send(round_query, first))).code is Code.CONFLICT


async def test_an_answer_for_another_set_or_for_none_is_refused_and_audited(rig: Rig) -> None:
    sites, ada = await masked_sites(rig), await rig.client(Role.ANALYST, "ada")
    await ada.submit(masked_toml())
    round_query, attempt = await fixed(sites)
    members = {name: attempt.members[name] for name in ("anna", "bert")}
    invented = Attempt(plan=attempt.plan, round=0, query=attempt.query, number=1, members=members)
    anna, bert, carl = sites.values()
    assert (await refusal(anna.send(round_query, invented))).code is Code.BAD_CONTRIBUTION
    exact = anna.client.contribution(round_query, anna.rows[:1, 0].astype("<i8"))
    assert (await refusal(anna.client.stub.Contribute(exact))).code is Code.BAD_CONTRIBUTION
    for digest in ("", invented.digest):
        values = anna.rows[:1, 0].astype("<i8")
        message = carl.client.contribution(round_query, values, digest)
        assert (await refusal(carl.client.open_upload(message))).code is Code.BAD_CONTRIBUTION
    await anna.send(round_query, attempt)
    changed = anna.client.contribution(round_query, anna.rows[:1, 0].astype("<i8"), attempt.digest)
    assert "differently before" in str(await refusal(anna.client.stub.Contribute(changed)))
    assert audited(rig) == [
        ("answer-refused", "site/anna"), ("different-second-answer", "site/anna"),
    ]  # fmt: skip
    assert (await bert.send(round_query, attempt)).repeated is False


async def announced(client: Client, message: pb.ContributeRequest) -> pb.OpenUploadResponse:
    opened = await client.open_upload(message)
    await client.stub.PutChunk(pb.PutChunkRequest(upload=opened.upload, index=0, data=message.values))
    return opened


async def test_an_upload_is_for_one_attempt(rig: Rig) -> None:
    sites, ada = await masked_sites(rig), await rig.client(Role.ANALYST, "ada")
    digest = await ada.submit(masked_toml())
    anna, bert, carl = sites.values()
    round_query, first = await fixed(sites)
    old = await announced(bert.client, bert.answer(round_query, first))
    await carl.decline(round_query)
    _, second = await bert.round_query()
    assert second is not None
    assert rig.daemon.engine.uploads._in_memory() == [], "the set of another attempt is fixed"
    gone = await refusal(bert.client.stub.Commit(pb.CommitRequest(upload=old.upload)))
    assert gone.code is Code.NOT_FOUND
    again = await refusal(bert.client.open_upload(bert.answer(round_query, first)))
    assert (again.code, "poll for new work" in str(again)) == (Code.CONFLICT, True)
    new = await announced(bert.client, bert.answer(round_query, second))
    assert new.upload != old.upload
    await bert.client.stub.Commit(pb.CommitRequest(upload=new.upload))
    await anna.send(round_query, second)
    assert (await anna.round_query())[0].round == 1
    assert rig.repository.studies.answers(digest, 0, 2).macs.keys() == {"anna", "bert"}


@pytest.mark.parametrize("number", [1, 2])
async def test_a_member_that_states_an_earlier_attempt_gets_the_next(number: int, tmp_path: Path) -> None:
    async with serving(made(tmp_path / "c", long_poll_seconds=0.3)) as rig:
        sites, ada = await masked_sites(rig), await rig.client(Role.ANALYST, "ada")
        await ada.submit(masked_toml())
        round_query, _, second = await tried_again(sites)
        bert = sites["bert"]
        plan = bytes.fromhex(round_query.plan_digest)
        bert.client.answered = [pb.Answered(plan_digest=plan, round=0, attempt=number)]
        found = await bert.client.stub.NextWork(bert.client.request())
        assert found.HasField("attempt") == (number == 1)
        if number == 1:
            assert bert.attempt_of(round_query, found) == second
