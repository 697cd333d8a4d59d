"""An analyst's client believes no plan and no release that is not the one it asked for. [R4] [R12]"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from eigenveil import simulate
from eigenveil.errors import Code
from eigenveil.planning.resolve import make_plan
from eigenveil.protocol.signatures import PLAN_SIGNED
from eigenveil.reporting.document import seal_bundle
from eigenveil.study.toml import parse_study, study_to_toml
from eigenveil_client.analyst.client import Analyst
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.support import a_study, refused

KEY, OTHER = (Ed25519PrivateKey.from_private_bytes(bytes(31) + bytes([i])) for i in (1, 2))
PUBLIC = KEY.public_key().public_bytes_raw()
TOML = study_to_toml(a_study())
STUDY = parse_study(TOML)


class Told(Analyst):
    """A client whose coordinator, which may lie, gives these answers, one a call."""

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)
        self._identity: Any = SimpleNamespace(release_key=PUBLIC, identity=SimpleNamespace(name="ada"))

    async def _call(self, *asked: Any, **given: Any) -> Any:
        return self._answers.pop(0)


def submitted(key: Ed25519PrivateKey = KEY, digest: str = "", **changes: Any) -> pb.SubmitStudyResponse:
    """The plan of the study that was submitted, but for `changes`, as a coordinator signs it."""
    named: dict[str, Any] = {"study": STUDY, "federation": "test", "submission": "s", "analyst": "ada"}
    plan = make_plan(**(named | changes))
    said = plan.to_json()
    signed = pb.SignedPlan(plan_json=said, signature=key.sign(PLAN_SIGNED + said))
    return pb.SubmitStudyResponse(plan=signed, plan_digest=bytes.fromhex(digest or plan.digest))


def test_the_plan_of_the_study_that_was_submitted_is_believed() -> None:
    plan, _ = asyncio.run(Told(submitted()).submit(TOML, "s"))
    assert (plan.study, plan.submission, plan.analyst) == (STUDY, "s", "ada")


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"study": replace(STUDY, epsilon=2.0)}, Code.PROTOCOL),
        ({"submission": "t"}, Code.PROTOCOL),
        ({"analyst": "eve"}, Code.PROTOCOL),
        ({"digest": "ab" * 32}, Code.PROTOCOL),
        ({"key": OTHER}, Code.IDENTITY),
    ],
)
def test_a_plan_of_anything_else_is_refused(change: dict[str, Any], code: Code) -> None:
    with refused(code):
        asyncio.run(Told(submitted(**change)).submit(TOML, "s"))


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    rows = np.random.default_rng(1).normal(50, 10, size=(400, 3))
    return simulate(STUDY, {"north": rows, "south": rows}, seed=1).document


def release(document: dict[str, Any], key: Ed25519PrivateKey = KEY) -> bytes:
    return seal_bundle(document, sign=key.sign, public_key=key.public_key().public_bytes_raw())


def test_only_the_whole_release_of_the_study_under_the_federation_s_key_is_believed(
    document: dict[str, Any],
) -> None:
    data, plan = release(document), bytes.fromhex(document["plan_digest"])
    parts = [pb.GetReleaseResponse(release_json=one, total_bytes=len(data)) for one in (data[:99], data[99:])]
    assert asyncio.run(Told(*parts).release(plan)) == data
    with refused(Code.PROTOCOL, "less of the release than there is"):
        asyncio.run(Told(parts[0], pb.GetReleaseResponse(total_bytes=len(data))).release(plan))
    with refused(Code.PROTOCOL, "the release of another study"):
        asyncio.run(Told(*parts).release(bytes(32)))
    strange = release(document, OTHER)
    with refused(Code.BAD_RELEASE):
        answer = pb.GetReleaseResponse(release_json=strange, total_bytes=len(strange))
        asyncio.run(Told(answer).release(plan))
