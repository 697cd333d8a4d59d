"""Submitting, explaining, listing, watching, cancelling [R10] [R11] [R12]."""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc
import pytest

from eigenveil.accounting.budget import NoiseRule
from eigenveil.accounting.gaussian import micro_rho_for
from eigenveil.errors import Code
from eigenveil.identity import Role
from eigenveil.numerics.encoding import frozen
from eigenveil.study.toml import parse_study, study_digest
from eigenveil_client.analyst.client import Analyst
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.planning import planner
from eigenveil_server.rpc import responses
from tests.server.rig import Client, Rig, Sites, a_directory, answering, made, refusal, serving, study_toml


class Connected(Analyst):
    """An analyst's own client, over a connection that is there already."""

    def __init__(self, over: Client) -> None:
        self._channel = over.channel


async def test_submitting_twice_is_one_study(rig: Rig, ada: Client, sites: Sites) -> None:
    eve = await rig.client(Role.ANALYST, "eve")
    first = await asyncio.gather(*(ada.submit(study_toml(), "s-1") for _ in range(3)))
    assert len(set(first)) == 1
    committed = rig.repository.ledger.ledger.committed().micro_rho
    assert committed == micro_rho_for(1.0, 1e-6)
    other = await refusal(ada.submit(study_toml(epsilon=0.5), "s-1"))
    assert (other.code, "belongs to another study" in str(other)) == (Code.CONFLICT, True)
    # A plan names its analyst, so the same text and id are another study in other hands.
    assert await eve.submit(study_toml(), "s-1") != first[0]
    assert await ada.submit(study_toml(), "s-2") != first[0]
    for bad in ("", "a b", "x" * 65):
        assert (await refusal(ada.submit(study_toml(), bad))).code is Code.BAD_ARGUMENT


async def test_a_study_beyond_the_budget_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    async with serving(made(tmp_path / "c", budget_epsilon=1.5, noise=NoiseRule.GAUSSIAN)) as rig:
        await rig.sites()
        ada = await rig.client(Role.ANALYST, "ada")
        refused = await refusal(ada.submit(study_toml(epsilon=2.0)))
        assert refused.code is Code.BUDGET
        books = rig.repository.ledger.ledger
        assert (books.spent.micro_rho, books.committed().micro_rho) == (0, 0)
        assert list((await ada.stub.ListStudies(pb.ListStudiesRequest())).studies) == []
        await ada.submit(study_toml(epsilon=1.5))
        assert (await refusal(ada.submit(study_toml(epsilon=0.4), "two"))).code is Code.BUDGET


@pytest.mark.parametrize("rule", list(NoiseRule))
async def test_a_budget_in_mu_admits_gaussian_noise_alone(tmp_path: Path, rule: NoiseRule) -> None:
    """Or who asks could choose, by the results so far, which of two limits to use up. Where any noise is
    admitted, the budget is zCDP's, and does not hold a Gaussian study of its own epsilon."""
    async with serving(made(tmp_path / "c", budget_epsilon=1.0, noise=rule)) as rig:
        await rig.sites()
        ada = await rig.client(Role.ANALYST, "ada")
        small = study_toml(epsilon=0.2)
        for other in (small.replace("gauss-cov", "adaptive-cov"), small.replace("1e-6", "0.0")):
            explained = ada.stub.ExplainStudy(pb.ExplainStudyRequest(study_toml=other))
            if rule is NoiseRule.ANY:
                await explained
                continue
            for call in (explained, ada.submit(other)):
                assert "admits only Gaussian noise" in str(await refusal(call))
        if rule is NoiseRule.ANY:
            assert (await refusal(ada.submit(study_toml()))).code is Code.BUDGET
        else:
            await ada.submit(study_toml())


@pytest.mark.parametrize(("epsilon", "delta"), [(2.1, 1e-6), (2.0, 1e-4)])
async def test_one_study_cannot_reserve_what_all_share(tmp_path: Path, epsilon: float, delta: float) -> None:
    async with serving(made(tmp_path / "c", max_epsilon_per_study=2.0)) as rig:
        await rig.sites()
        ada = await rig.client(Role.ANALYST, "ada")
        toml = study_toml(epsilon=epsilon).replace("delta = 1e-6", f"delta = {delta}")
        refused = await refusal(ada.submit(toml))
        assert refused.code is Code.BUDGET
        assert "allows one study 2 (max_epsilon_per_study)" in str(refused)
        assert rig.repository.ledger.ledger.committed().micro_rho == 0
        await ada.submit(study_toml(epsilon=2.0))


async def test_a_study_of_unknown_sites_of_nonsense_or_beyond_a_message_is_refused(
    ada: Client, monkeypatch: pytest.MonkeyPatch, sites: Sites
) -> None:
    unknown = await refusal(ada.submit(study_toml(sites=("anna", "zoe"))))
    one = study_toml(sites=("anna",), algorithm="private-oja-shuffled")
    single = await refusal(ada.submit(one.replace("delta", 'neighbours = "replace-one"\ndelta', 1)))
    assert "single records" in str(single)
    assert (unknown.code, "zoe" in str(unknown)) == (Code.BAD_STUDY, True)
    assert (await refusal(ada.submit("not = [toml"))).code is Code.BAD_STUDY
    monkeypatch.setattr(planner, "MESSAGE_BYTES", planner.ENVELOPE_BYTES + 2000)
    toml = study_toml(columns=60, algorithm="dp-pca")
    result = {"submission": "x", "analyst": "ada", "directory": a_directory()}
    wide = planner.answer("planned", {"study_toml": toml, "most_columns": 60, **result})
    assert (wide["code"], "a message with its plan" in wide["why"]) == (Code.OVERFLOW.value, True)


@pytest.mark.parametrize(
    "toml",
    [
        study_toml(sites=("anna", "zoe")),
        study_toml(epsilon=2.1),
        study_toml(epsilon=1.2),
        study_toml(columns=2_100),
        study_toml(sites=("anna",), algorithm="private-oja-shuffled").replace(
            "delta", 'neighbours = "replace-one"\ndelta', 1
        ),
        study_toml(epsilon=0.1).replace("delta = 1e-6", "delta = 0.0"),
        "not = [toml",
    ],
)
async def test_what_would_not_be_taken_is_not_explained_either(toml: str, tmp_path: Path) -> None:
    """Unknown sites, above a price, above what is left, too many columns, single records, other
    noise than Gaussian, no TOML."""
    config = made(tmp_path / "c", max_epsilon_per_study=2.0, budget_epsilon=2.2, noise=NoiseRule.GAUSSIAN)
    async with serving(config) as rig:
        await rig.sites()
        ada, eve = [await rig.client(Role.ANALYST, name) for name in ("ada", "eve")]
        await eve.submit(study_toml(epsilon=1.9), "first")
        submitted = await refusal(ada.submit(toml, "second"))
        explained = await refusal(ada.stub.ExplainStudy(pb.ExplainStudyRequest(study_toml=toml)))
        assert (explained.code, str(explained)) == (submitted.code, str(submitted))


async def test_a_watch_sends_nothing_after_a_denial(rig: Rig, sites: Sites) -> None:
    ada, eve = [await rig.client(Role.ANALYST, name) for name in ("ada", "eve")]
    plan = bytes.fromhex(await ada.submit(study_toml()))
    watch = eve.stub.WatchStudy(pb.WatchStudyRequest(plan_digest=plan))
    await watch.read()
    rig.daemon._calls.sweep = lambda: None  # type: ignore[method-assign]  # which ends it as well
    rig.daemon.registry.deny(Role.ANALYST, "eve")
    await ada.stub.CancelStudy(pb.CancelStudyRequest(plan_digest=plan))

    async def rest() -> None:
        while (event := await watch.read()) is not grpc.aio.EOF:
            assert isinstance(event, pb.StudyEvent)
            assert event.state != pb.STUDY_STATE_CANCELLED

    assert (await refusal(rest())).code is Code.IDENTITY


async def test_the_rows_of_ones_own_studies_show_which_are_identical(rig: Rig, sites: Sites) -> None:
    ada, eve = [await rig.client(Role.ANALYST, name) for name in ("ada", "eve")]
    await ada.submit(study_toml(), "s-1")
    await ada.submit(study_toml() + "\n# the same\n", "s-2")
    await ada.submit(study_toml(epsilon=0.5), "s-3")
    rows = (await ada.stub.ListStudies(pb.ListStudiesRequest())).studies
    result = {row.submission: row.study_digest.hex() for row in rows}
    same, other = (
        study_digest(parse_study(study_toml())),
        study_digest(parse_study(study_toml(epsilon=0.5))),
    )
    assert result == {"s-1": same, "s-2": same, "s-3": other}
    rows = (await eve.stub.ListStudies(pb.ListStudiesRequest())).studies
    assert {(row.submission, row.study_digest) for row in rows} == {("", b"")}


@pytest.mark.parametrize(("limit", "most"), [("ROOM", 1), ("STUDIES_AT_ONCE", 2)])
async def test_a_list_in_parts_is_the_whole_list(
    ada: Client, monkeypatch: pytest.MonkeyPatch, limit: str, most: int, sites: Sites
) -> None:
    for name in "wxyz":  # twice the studies that a message holds at most, to the last one
        await ada.submit(study_toml(name=name, epsilon=0.5), name, agreed=False)
    whole = await ada.stub.ListStudies(pb.ListStudiesRequest())
    assert (len(whole.studies), whole.more) == (4, False)
    monkeypatch.setattr(responses, limit, most)
    found: list[pb.StudyRow] = []
    part = pb.ListStudiesResponse(more=True)
    while part.more:
        after = found[-1].plan_digest if found else b""
        part = await ada.stub.ListStudies(pb.ListStudiesRequest(after=after))
        assert 0 < len(part.studies) <= most
        found += part.studies
    assert found == list(whole.studies)
    assert await Connected(ada).listed() == whole
    unknown = ada.stub.ListStudies(pb.ListStudiesRequest(after=b"\1" * 32))
    assert (await refusal(unknown)).code is Code.NOT_FOUND


async def test_watching_resumes_from_a_sequence_number(sites: Sites, ada: Client) -> None:
    async with answering(sites):
        digest = await ada.submit(study_toml())
        live = await ada.events(digest)
    assert [event.sequence for event in live] == list(range(1, len(live) + 1))
    assert await ada.events(digest) == live
    assert await ada.events(digest, after=live[2].sequence) == live[3:]
    assert await ada.events(digest, after=live[-1].sequence) == []
    assert await ada.events(digest, after=2**64 - 1) == []
    states = [event.round_state for event in live if event.round == 0]
    assert states[0] == "planned"
    assert list(dict.fromkeys(states))[:3] == ["planned", "open", "released"]
    spending = [event.spent_micro_rho for event in live]
    assert spending == sorted(spending)
    assert spending[-1] <= live[-1].micro_rho
    unknown = pb.WatchStudyRequest(plan_digest=b"\x01" * 32)
    assert (await refusal(ada.stub.WatchStudy(unknown).read())).code is Code.NOT_FOUND


async def watches(analyst: Client, watch: pb.WatchStudyRequest) -> bool:
    try:
        await analyst.stub.WatchStudy(watch).read()
    except grpc.aio.AioRpcError:
        return False
    return True


async def test_one_analyst_cannot_take_every_watch(tmp_path: Path) -> None:
    async with serving(made(tmp_path / "c", max_watches=8)) as rig:
        await rig.client(Role.SITE, "anna")
        ada, eve = [await rig.client(Role.ANALYST, name) for name in ("ada", "eve")]
        digest = await ada.submit(study_toml(sites=("anna",)))
        watch = pb.WatchStudyRequest(plan_digest=bytes.fromhex(digest))
        taken = [eve.stub.WatchStudy(watch) for _ in range(2)]
        for one in taken:
            await one.read()
        refused = await refusal(eve.stub.WatchStudy(watch).read())
        assert (refused.code, "of your watches" in str(refused)) == (Code.NOT_READY, True)
        await ada.stub.WatchStudy(watch).read()
        taken[0].cancel()
        async with asyncio.timeout(20):
            while not await watches(eve, watch):
                await asyncio.sleep(0.05)


async def test_cancelling(rig: Rig, sites: Sites, ada: Client) -> None:
    eve = await rig.client(Role.ANALYST, "eve")
    digest = await ada.submit(study_toml())
    cancel = pb.CancelStudyRequest(plan_digest=bytes.fromhex(digest))
    assert "is not one of yours" in str(await refusal(eve.stub.CancelStudy(cancel)))
    assert (await refusal(ada.release(digest))).code is Code.NOT_READY
    query = await sites["anna"].query()
    await ada.stub.CancelStudy(cancel)
    await ada.stub.CancelStudy(cancel)
    assert (await ada.events(digest))[-1].state == pb.STUDY_STATE_CANCELLED
    assert (await refusal(ada.release(digest))).code is Code.CANCELLED
    late = await refusal(sites["anna"].contribute(query, frozen([60])))
    assert (late.code, "was closed before" in str(late)) == (Code.CONFLICT, True)
    assert rig.repository.ledger.ledger.committed().micro_rho == 0
    async with answering(sites):
        done = await ada.submit(study_toml(), "two")
        await ada.events(done)
    ended = await refusal(ada.stub.CancelStudy(pb.CancelStudyRequest(plan_digest=bytes.fromhex(done))))
    assert (ended.code, "it is released" in str(ended)) == (Code.CONFLICT, True)
