"""A study that was explained under a submission is not planned again to be submitted under it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from eigenveil.identity import Role
from eigenveil.planning import choose
from eigenveil.protocol.plan import plan_from_json
from eigenveil.reporting.release_file import Data
from eigenveil.session import Session
from eigenveil.study.checks import plain_fields
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.planning import planner, pool
from eigenveil_server.planning.planner import TaskInputs
from eigenveil_server.planning.pool import MAX_CACHED_PLANS, PlanCache, PlanningPool, Worker
from tests.server.rig import Client, Sites, answering, made, serving, study_toml
from tests.support import signed_request

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


def test_a_plan_of_another_directory_is_not_found_and_not_stored() -> None:
    cache, now, later = PlanCache(), {"anna": 1}, {"anna": 2}
    cache.put(WORDS | {"directory": now}, planned())
    assert cache.take(WORDS | {"directory": later}) is None
    cache.put(WORDS | {"directory": later, "submission": "two"}, planned())
    assert cache.take(WORDS | {"directory": now}) is None
    assert cache.take(WORDS | {"directory": later}) is None
    assert cache.take(WORDS | {"directory": later, "submission": "two"}) is not None


def test_the_oldest_plans_give_way(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = PlanCache()
    for number in range(MAX_CACHED_PLANS + 1):
        cache.put(WORDS | {"submission": str(number)}, planned())
    assert cache.take(WORDS | {"submission": "0"}) is None
    assert cache.take(WORDS | {"submission": "1"}) is not None
    monkeypatch.setattr(pool, "MAX_CACHED_BYTES", 10)
    cache.put(WORDS, planned("ten bytes."))
    assert cache.take(WORDS) is not None
    cache.put(WORDS, planned("eleven byte"))
    assert cache.take(WORDS) is None, "one that is longer than all may be together"
    assert cache.take(WORDS | {"submission": "2"}) is None


async def test_a_submission_runs_the_plan_that_was_explained_and_plans_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query: list[str] = []
    request = PlanningPool.ask

    async def counting(self: PlanningPool, analyst: str, work: str, words: TaskInputs) -> Any:
        query.append(work)
        return await request(self, analyst, work, words)

    monkeypatch.setattr(PlanningPool, "ask", counting)
    async with serving(made(tmp_path / "c")) as rig:
        await rig.sites()
        ada = await rig.client(Role.ANALYST, "ada")
        task = pb.ExplainStudyRequest(study_toml=study_toml(), submission="one")
        explained = await ada.stub.ExplainStudy(task)
        plan = plan_from_json(explained.plan_json)
        assert (plan.submission, plan.analyst) == ("one", "ada")
        assert await ada.submit(study_toml(), "one", agreed=False) == plan.digest
        assert "planned" not in query
        draft = await ada.stub.ExplainStudy(pb.ExplainStudyRequest(study_toml=study_toml(name="other")))
        assert plan_from_json(draft.plan_json).submission == "draft"


class Here(Worker):
    """A planning process in this one, so that its work is counted."""

    serves = True

    def __init__(self, lane: str) -> None:
        self.lane = lane

    def ask(self, task: dict[str, Any], file: Data = b"") -> dict[str, Any]:
        task = json.loads(json.dumps(task, default=plain_fields))
        return planner.answer(task["work"], task["inputs"])

    def end(self) -> None:
        """Nothing to end."""


async def test_a_submission_is_rehearsed_once(
    monkeypatch: pytest.MonkeyPatch, ada: Client, sites: Sites
) -> None:
    counts: Counter[str] = Counter()

    def count(home: object, name: str) -> None:
        work = getattr(home, name)

        def counting(*words: Any, **named: Any) -> Any:
            counts[name] += 1
            return work(*words, **named)

        monkeypatch.setattr(home, name, counting)

    count(Session, "__init__")
    count(choose, "rehearse_with_releases")
    monkeypatch.setattr(Worker, "acquire", Here)
    monkeypatch.setattr(Worker, "idle", [])
    await ada.stub.ExplainStudy(pb.ExplainStudyRequest(study_toml=study_toml()))
    assert counts == {"rehearse_with_releases": 1, "__init__": 1}
    signed = await signed_request(ada.stub, study_toml(), "one")
    counts.clear()
    async with answering(sites):
        digest = (await ada.stub.SubmitStudy(signed)).plan_digest.hex()
        assert (await ada.stub.SubmitStudy(signed)).plan_digest.hex() == digest  # its answer was lost
        await ada.events(digest)
    assert counts == {"__init__": 1}, "the session of the run; the rehearsal was the signed explanation's"
