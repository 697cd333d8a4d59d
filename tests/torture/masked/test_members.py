"""One valid certificate of a site against a masked study of everybody: the coordinator holds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from eigenveil.errors import Code
from eigenveil.identity import Role
from eigenveil.numerics.encoding import frozen
from eigenveil.protocol.query import RoundQuery
from eigenveil.secure_aggregation.masking import Attempt
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.server.masked.sites import (
    MaskedSite,
    attempts_of,
    charges_of,
    masked_sites,
    masked_toml,
    sent_key,
    serving_sites,
    study_key,
)
from tests.server.rig import SITES, made, refusal, serving, study_toml


def ready(round_query: RoundQuery, **changes: object) -> pb.ReadyRequest:
    message: dict[str, object] = {
        "plan_digest": bytes.fromhex(round_query.plan_digest), "round": round_query.round,
        "query_digest": bytes.fromhex(round_query.digest),
        "study_key": sent_key(study_key("anna", round_query.plan_digest)),
    }  # fmt: skip
    return pb.ReadyRequest(**(message | changes))  # type: ignore[arg-type]


async def test_a_site_that_is_not_invited_has_no_part_in_it(tmp_path: Path) -> None:
    async with serving(made(tmp_path / "c")) as rig:
        sites, ada = await masked_sites(rig), await rig.client(Role.ANALYST, "ada")
        dora = await rig.client(Role.SITE, "dora")
        digest = await ada.submit(masked_toml())
        round_query, _ = await sites["anna"].round_query()
        assert (await refusal(dora.stub.Ready(ready(round_query)))).code is Code.NOT_FOUND
        for site in sites.values():
            await site.ready(round_query)
        _, attempt = await sites["anna"].round_query()
        assert attempt is not None
        answer = dora.contribution(round_query, frozen([7]), attempt.digest)
        for call in (dora.stub.Contribute(answer), dora.open_upload(answer)):
            assert (await refusal(call)).code is Code.NOT_FOUND
        declined = pb.DeclineRequest(plan_digest=answer.plan_digest, round=0, reason=pb.DECLINE_REASON_POLICY)
        assert (await refusal(dora.stub.Decline(declined))).code is Code.NOT_FOUND
        async with serving_sites(sites):
            last = (await ada.events(digest))[-1]
        assert last.state == pb.STUDY_STATE_RELEASED
        assert set(attempts_of(rig, digest).values()) == {SITES}


async def test_a_site_gets_ready_for_nothing_but_the_open_question(tmp_path: Path) -> None:
    async with serving(made(tmp_path / "c")) as rig:
        sites, ada = await masked_sites(rig), await rig.client(Role.ANALYST, "ada")
        digest = await ada.submit(masked_toml())
        round_query, _ = await sites["anna"].round_query()
        anna = sites["anna"].client
        for changes, code in (
            ({"query_digest": bytes(32)}, Code.PROTOCOL),
            ({"round": 1}, Code.NOT_FOUND),
            ({"round": 2**31}, Code.NOT_FOUND),
            ({"plan_digest": bytes(32)}, Code.NOT_FOUND),
            ({"study_key": pb.SignedStudyKey()}, Code.PROTOCOL),
            ({"study_key": pb.SignedStudyKey(signed_json=bytes(2**20))}, Code.PROTOCOL),
            ({"study_key": sent_key(study_key("bert", digest))}, Code.PROTOCOL),
            ({"study_key": sent_key(study_key("anna", "00" * 32))}, Code.PROTOCOL),
        ):
            assert (await refusal(anna.stub.Ready(ready(round_query, **changes)))).code is code, changes
        other = await ada.submit(study_toml(name="exact"), "exact")
        plain = ready(round_query, plan_digest=bytes.fromhex(other))
        assert (await refusal(anna.stub.Ready(plain))).code in (Code.BAD_ARGUMENT, Code.NOT_FOUND)
        assert charges_of(rig, digest) == []


class Spoiler(MaskedSite):
    seed = 0

    def answer(self, round_query: RoundQuery, attempt: Attempt) -> pb.ContributeRequest:
        """Any words at all: what hides numbers hides whether they are any."""
        draw = np.random.default_rng([self.seed, attempt.round])
        values = draw.integers(-(2**63), 2**63 - 1, round_query.query.length, dtype=np.int64, endpoint=True)
        self.sent.setdefault(
            attempt.digest, self.client.contribution(round_query, frozen(values), attempt.digest)
        )
        return self.sent[attempt.digest]


@pytest.mark.parametrize(
    "algorithm",
    ["gauss-cov", *(pytest.param(name, marks=pytest.mark.slow) for name in ("private-oja", "dp-pca"))],
)
async def test_a_member_that_sends_anything_spoils_the_study_and_nothing_else(
    algorithm: str, tmp_path: Path
) -> None:
    """Nobody can tell; the study ends, as a study, and the next one is asked."""
    async with serving(made(tmp_path / "c")) as rig:
        sites, ada = await masked_sites(rig), await rig.client(Role.ANALYST, "ada")
        honest = dict(sites)
        bert = sites["bert"]
        sites["bert"] = Spoiler(client=bert.client, key=bert.key, rows=bert.rows)
        digest = await ada.submit(masked_toml(algorithm=algorithm, components=1, epsilon=0.5))
        async with serving_sites(sites):
            last = (await ada.events(digest))[-1]
        assert last.state in (pb.STUDY_STATE_RELEASED, pb.STUDY_STATE_FAILED)
        assert "defect" not in last.failure
        assert len(charges_of(rig, digest)) == len(attempts_of(rig, digest)) > 0
        following = await ada.submit(masked_toml(name="following", epsilon=0.5), "following")
        async with serving_sites(honest):
            assert (await ada.events(following))[-1].state == pb.STUDY_STATE_RELEASED
