"""Work done once in the life of a study, however many ask for it: the coordinator and its planning process
are run in one process here, and counted together."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from io import BytesIO
from typing import Any

import pytest

from eigenveil.identity import Role
from eigenveil.planning import choose
from eigenveil.protocol import plan as plans
from eigenveil.session import Session
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.planning import planner
from eigenveil_server.planning.pool import Worker
from eigenveil_server.storage.states import StudyState
from eigenveil_server.studies.study_run import StudyRun
from tests.server.rig import SITES, Client, Rig, Sites, answering, study_toml
from tests.support import signed_request

ROUNDS = 7


class Here:
    serves = True

    def __init__(self, lane: str) -> None:
        self.lane = lane

    def ask(self, request: dict[str, Any]) -> Any:
        """The answer, in the messages that go between processes."""
        received = _passed(request)
        return _passed(planner.answer(received["work"], received["inputs"]))

    def end(self) -> None:
        """Nothing to end."""

    gone = end


def _passed(message: Any) -> Any:
    stream = BytesIO()
    planner.write(stream, message)
    stream.seek(0)
    return planner.read(stream)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    counts: Counter[str] = Counter()

    def count(home: object, name: str) -> None:
        work = getattr(home, name)

        def counting(*args: Any, **kwargs: Any) -> Any:
            counts[name] += 1
            return work(*args, **kwargs)

        monkeypatch.setattr(home, name, counting)

    count(Session, "__init__")
    count(choose, "rehearse_with_releases")
    count(plans, "plan_to_dict")
    monkeypatch.setattr(Worker, "acquire", Here)
    monkeypatch.setattr(Worker, "idle", [])
    return counts


async def test_a_submission_is_rehearsed_once(
    counted: Counter[str], rig: Rig, ada: Client, sites: Sites
) -> None:
    await ada.stub.ExplainStudy(pb.ExplainStudyRequest(study_toml=study_toml()))
    assert (counted["rehearse_with_releases"], counted["__init__"]) == (1, 1)
    before = Counter(counted)
    signed = await signed_request(ada.stub, study_toml(), "one")
    async with answering(sites):
        digest = (await ada.stub.SubmitStudy(signed)).plan_digest.hex()
        assert (await ada.stub.SubmitStudy(signed)).plan_digest.hex() == digest  # its answer was lost
        (*_, end) = await ada.events(digest)
    assert (end.state, end.round) == (pb.STUDY_STATE_RELEASED, ROUNDS - 1)
    done = counted - before
    assert done["rehearse_with_releases"] == 1
    assert done["__init__"] <= 2, "a session for the rehearsal and one for the run"
    # Once where it was planned, once where it runs and once where the repetition is looked at; and at
    # its analyst, who signs it, and at each site.
    assert done["plan_to_dict"] <= 4 + len(SITES)


async def test_a_study_that_ends_while_it_is_taken_up_again_is_not_run_again(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rig.sites()
    ada, engine = await rig.client(Role.ANALYST, "ada"), rig.daemon.engine
    digest = await ada.submit(study_toml())
    run, reads, go = await engine.run(digest), asyncio.Event(), asyncio.Event()

    async def slowly(work: Callable[..., Any], *args: Any) -> Any:
        found = work(*args)
        if work is StudyRun:
            reads.set()
            await go.wait()
        return found

    monkeypatch.setattr(engine, "_read", slowly)
    again = asyncio.create_task(engine._launch(run.stored, run.plan))
    await reads.wait()
    await engine.cancel(digest, "ada")
    go.set()
    await again
    assert engine.running(digest) is None
    assert engine._states[digest] is StudyState.CANCELLED
