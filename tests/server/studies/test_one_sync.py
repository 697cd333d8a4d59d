"""[P27] A release is one transaction with its charge, and whatever was drawn is paid for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest import mock

import pytest

from eigenveil import barrier
from eigenveil.errors import Code, InternalError, RequestError
from eigenveil.noise.source import OsNoise
from eigenveil.numerics.encoding import frozen
from eigenveil.session import Session
from eigenveil_common.files import arm, disarm
from eigenveil_common.storage.database import VersionedDatabase
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.studies import contributions
from tests.server.rig import Client, Rig, Sites, answering, refusal, study_toml


def books(rig: Rig, digest: str) -> tuple[list[int], list[int], list[int]]:
    repository = rig.repository
    spent = "study = ? AND kind IN ('charge', 'attempt')"
    statement = f"SELECT DISTINCT round FROM ledger WHERE {spent} ORDER BY round"
    charged = [row[0] for row in repository.store.reader.rows(statement, (digest,))]
    released = [one.release.round for one in repository.studies.sealed_rounds(digest)]
    return charged, released, list(range(repository.studies.rounds(digest)))


async def test_a_release_is_one_transaction_with_its_charge_and_the_next_question_another_one(
    rig: Rig, ada: Client, sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in ("GATHER_SECONDS", "RELEASE_WAIT_SECONDS"):
        monkeypatch.setattr(contributions, limit, 60.0)
    seen: dict[str, object] = {}
    digest = await ada.submit(study_toml())
    round_query = {name: await site.query() for name, site in sites.items()}

    def look(place: str) -> None:
        seen[place] = books(rig, digest)

    for place in ("round-sealing", "round-followed"):
        arm(place, partial(look, place))
    commits = mock.patch.object(
        VersionedDatabase, "_commit", autospec=True, side_effect=VersionedDatabase._commit
    )
    try:
        async with asyncio.timeout(30):
            with commits as counted:
                await asyncio.gather(
                    *(one.contribute(round_query[name], frozen([60])) for name, one in sites.items())
                )
                assert (await sites["anna"].query()).round == 1
    finally:
        disarm()
    assert counted.call_count == 2
    assert books(rig, digest) == ([0], [0], [0, 1])
    assert rig.repository.studies.answers(digest, 0).macs.keys() == sites.keys()
    assert seen == {"round-sealing": ([], [], [0]), "round-followed": ([0], [0], [0])}


def leads_nowhere(feed: Callable[..., None]) -> Callable[..., None]:
    """The first release is one that the algorithm cannot go on from."""

    def fed(self: Session, release: object) -> None:
        feed(self, release)
        raise InternalError(Code.BUG, "the algorithm stopped")

    return fed


@pytest.mark.parametrize("place", [(barrier, "apply_mechanism"), (OsNoise, "draw")], ids=["sum", "noise"])
async def test_a_failed_draw_is_charged_before_it_is_reported_and_answers_stay(
    rig: Rig, ada: Client, sites: Sites, monkeypatch: pytest.MonkeyPatch, place: tuple[Any, str]
) -> None:
    received: list[set[int]] = []
    # A draw ahead that nobody waits for any more fails as well, and asyncio reports that to the loop.
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    failing = mock.Mock(side_effect=RequestError(Code.OVERFLOW, "the noised sum does not fit"))
    monkeypatch.setattr(*place, failing)
    digest = await ada.submit(study_toml())
    round_query = {name: await site.query() for name, site in sites.items()}
    studies = rig.repository.studies
    arm("failure-charged", lambda: received.append({one.state for one in studies.events(digest, 0)}))
    answers = [site.contribute(round_query[name], frozen([60])) for name, site in sites.items()]
    try:
        assert [one.repeated for one in await asyncio.gather(*answers)] == [False] * 3
        last = (await ada.events(digest))[-1]
    finally:
        disarm()
    assert (last.state, last.round_state) == (pb.STUDY_STATE_FAILED, "failed")
    assert books(rig, digest) == ([0], [], [0])
    assert (await sites["anna"].contribute(round_query["anna"], frozen([60]))).repeated
    assert "differently" in str(await refusal(sites["bert"].contribute(round_query["bert"], frozen([61]))))
    assert received == [{pb.STUDY_STATE_RUNNING}]


async def test_a_release_that_leads_nowhere_is_released_and_the_study_ends(
    rig: Rig, ada: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with answering(await rig.sites()):
        digest = await ada.submit(study_toml())
        monkeypatch.setattr(Session, "feed", leads_nowhere(Session.feed))
        last = (await ada.events(digest))[-1]
    assert (last.state, last.round_state) == (pb.STUDY_STATE_FAILED, "released")
    assert "the algorithm stopped" in last.failure
    assert books(rig, digest) == ([0], [0], [0])
    assert last.spent_micro_rho == rig.repository.ledger.spent(digest) > 0
