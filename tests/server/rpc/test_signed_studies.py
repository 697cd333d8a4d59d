"""A study is taken with its analyst's signature alone, and goes to its sites with it. [R31]"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from eigenveil.errors import Code
from eigenveil.identity import Role
from eigenveil.planning.choose import make_plan
from eigenveil.protocol.plan import plan_from_json
from eigenveil.study.toml import parse_study
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.server.rig import Client, Rig, Sites, made, refusal, serving, study_toml
from tests.support import signed_by_analyst, signed_request


async def test_a_study_that_its_analyst_did_not_sign_is_not_taken(
    rig: Rig, ada: Client, sites: Sites
) -> None:
    """[R31] Nobody signed it, it is another plan's signature, of another key, or over."""
    request = await signed_request(ada.stub, study_toml(), "s")
    task = pb.ExplainStudyRequest(study_toml=study_toml(), submission="s")
    plan = plan_from_json((await ada.stub.ExplainStudy(task)).plan_json)
    ended = signed_by_analyst(plan, expires=int(time.time())).to_proto()
    spoiled = pb.SignedAuthorization.FromString(request.authorization.SerializeToString())
    spoiled.signature = bytes(64)
    other: dict[str, Any] = {"study_toml": study_toml(epsilon=0.5), "authorization": request.authorization}
    for code, change in (
        (Code.UNSIGNED, {"study_toml": study_toml(), "submission": "s"}),
        (Code.AUTHORIZATION, other),
        (Code.AUTHORIZATION, {"submission": "other", "authorization": request.authorization}),
        (Code.IDENTITY, {"authorization": spoiled}),
        (Code.AUTHORIZATION_EXPIRED, {"authorization": ended}),
        (Code.PROTOCOL, {"authorization": pb.SignedAuthorization(signed_json=bytes(5000))}),
    ):
        query = {"study_toml": study_toml(), "submission": "s"} | change
        refused = await refusal(ada.stub.SubmitStudy(pb.SubmitStudyRequest(**query)))
        assert refused.code is code
    assert not rig.repository.studies.all()
    changed = await refusal(ada.stub.SubmitStudy(pb.SubmitStudyRequest(submission="s", **other)))
    assert "another plan, which has changed since; explain the study, and sign it again" in str(changed)


async def test_sites_get_and_the_study_stores_the_signature_of_the_analyst(
    rig: Rig, sites: Sites, ada: Client
) -> None:
    request = await signed_request(ada.stub, study_toml(), "s")
    answer = await ada.stub.SubmitStudy(request)
    assert answer.plan.authorization == request.authorization
    for site in sites.values():
        found = await site.stub.NextWork(pb.NextWorkRequest())
        assert found.plan.authorization == request.authorization
    (stored,) = rig.repository.studies.all()
    assert stored.authorization is not None
    assert stored.authorization.to_proto() == request.authorization
    assert await ada.stub.SubmitStudy(request) == answer, "the same again is the same study"
    ends = stored.authorization.read().expires
    plan = plan_from_json(answer.plan.plan_json)
    for later, warned in ((3_600, 0), (3 * 86_400, 1)):
        request.authorization.CopyFrom(signed_by_analyst(plan, expires=ends + later).to_proto())
        same = await ada.stub.SubmitStudy(request)
        assert same.plan == answer.plan
        result = [sentence for sentence in same.warnings if "which still counts" in sentence]
        assert len(result) == warned, "a later end is not dropped without a word"
    again = pb.ExplainStudyRequest(study_toml=study_toml(), submission="s")
    assert (await ada.stub.ExplainStudy(again)).plan_json == answer.plan.plan_json
    other = pb.ExplainStudyRequest(study_toml=study_toml(epsilon=0.5), submission="s")
    assert (await refusal(ada.stub.ExplainStudy(other))).code is Code.CONFLICT


async def test_a_plan_that_was_signed_unexplained_costs_no_more_than_one_study_may(tmp_path: Path) -> None:
    """An analyst can make the plan that the coordinator will make, and sign it without asking."""
    toml = study_toml(epsilon=1.0)
    async with serving(made(tmp_path / "c", max_epsilon_per_study=0.5)) as rig:
        await rig.sites()
        ada = await rig.client(Role.ANALYST, "ada")
        names: dict[str, Any] = {"federation": rig.config.federation, "submission": "s", "analyst": "ada"}
        signed = signed_by_analyst(make_plan(parse_study(toml), **names)).to_proto()
        request = pb.SubmitStudyRequest(study_toml=toml, submission="s", authorization=signed)
        refused = await refusal(ada.stub.SubmitStudy(request))
        assert refused.code is Code.BUDGET
        assert "max_epsilon_per_study" in str(refused)
        assert not rig.repository.studies.all()
