"""A study that was explained under a submission is not planned again to be submitted under it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eigenveil.identity import Role
from eigenveil.protocol.plan import plan_from_json
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.planning import plan_cache
from eigenveil_server.planning.plan_cache import MOST_PLANS, PlanCache
from eigenveil_server.planning.pool import PlanningPool
from tests.server.rig import in_loop, made, serving, study_toml

WORDS = {"study_toml": "a study", "submission": "one", "analyst": "ada", "directory": {}, "most_columns": 9}


def planned(text: str = "a plan") -> dict[str, Any]:
    return {"plan": text, "rounds": 3, "warnings": ["small"], "explanation": "long"}


def test_a_plan_is_found_once_under_the_very_words_that_it_was_made_of() -> None:
    cache = PlanCache()
    cache.put(WORDS, planned())
    for key in WORDS:
        assert cache.take(WORDS | {key: "other"}) is None, key
    assert cache.take(dict(reversed(WORDS.items()))) == {"plan": "a plan", "rounds": 3, "warnings": ["small"]}
    assert cache.take(WORDS) is None


def test_the_oldest_plans_give_way(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = PlanCache()
    for number in range(MOST_PLANS + 1):
        cache.put(WORDS | {"submission": str(number)}, planned())
    assert cache.take(WORDS | {"submission": "0"}) is None
    assert cache.take(WORDS | {"submission": "1"}) is not None
    monkeypatch.setattr(plan_cache, "MOST_BYTES", 10)
    cache.put(WORDS, planned("ten bytes."))
    assert cache.take(WORDS) is not None
    cache.put(WORDS, planned("eleven byte"))
    assert cache.take(WORDS) is None, "one that is longer than all may be together"
    assert cache.take(WORDS | {"submission": "2"}) is None


@in_loop
async def test_a_submission_runs_the_plan_that_was_explained_and_plans_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    ask = PlanningPool.ask

    async def counting(self: PlanningPool, analyst: str, work: str, /, **words: Any) -> Any:
        asked.append(work)
        return await ask(self, analyst, work, **words)

    monkeypatch.setattr(PlanningPool, "ask", counting)
    async with serving(made(tmp_path / "c")) as rig:
        await rig.sites()
        ada = await rig.client(Role.ANALYST, "ada")
        wish = pb.ExplainStudyRequest(study_toml=study_toml(), submission="one")
        explained = await ada.stub.ExplainStudy(wish)
        plan = plan_from_json(explained.plan_json)
        assert (plan.submission, plan.analyst) == ("one", "ada")
        assert await ada.submit(study_toml(), "one", agreed=False) == plan.digest
        assert "planned" not in asked
        draft = await ada.stub.ExplainStudy(pb.ExplainStudyRequest(study_toml=study_toml(name="other")))
        assert plan_from_json(draft.plan_json).submission == "draft"
