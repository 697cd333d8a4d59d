"""[P27] What becomes of a draw whose process ended before all of it was told."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from itertools import count
from pathlib import Path
from unittest.mock import Mock

import pytest

from eigenveil import barrier
from eigenveil.errors import Code, RequestError
from eigenveil.session import Session
from eigenveil_common.files import arm, disarm
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.config import Config
from tests.server.recovery.test_restart import Died, charges, dying, enrolled_at, sealed
from tests.server.rig import SITES, Credentials, answering, made, serving, study_toml


async def lives_until_its_death(config: Config) -> tuple[str, dict[str, Credentials]]:
    """Every site answers until the process ends; the study's digest and what its callers hold."""
    async with serving(config) as rig:
        stored = await enrolled_at(rig)
        digest = await rig.connect(stored["ada"]).submit(study_toml())
        async with answering({name: rig.connect(stored[name]) for name in SITES}):
            with pytest.raises(Died):
                await rig.daemon.engine._tasks[digest]
    return digest, stored


async def last_event(config: Config, digest: str, stored: dict[str, Credentials]) -> pb.StudyEvent:
    """End of the study in the next life."""
    async with serving(config) as rig, answering({name: rig.connect(stored[name]) for name in SITES}):
        return (await rig.connect(stored["ada"]).events(digest))[-1]


async def test_a_step_that_ends_the_process_by_what_it_was_fed_discards_no_draw(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = made(tmp_path / "c")
    with monkeypatch.context() as patched:
        patched.setattr(Session, "feed", dying)
        digest, stored = await lives_until_its_death(config)
    remaining = sealed(config.state)
    assert (list(charges(config)), list(remaining)) == ([(digest, 0)], [0])
    assert (await last_event(config, digest, stored)).state == pb.STUDY_STATE_RELEASED
    assert sealed(config.state)[0] == remaining[0]


@pytest.mark.parametrize("place", ["round-sealed", "round-released", "round-followed", "round-opening"])
async def test_a_release_without_the_next_query_leads_to_it_after_a_restart(
    place: str, tmp_path: Path
) -> None:
    config, passages = made(tmp_path / "c"), count(1)
    due = 2 if place == "round-opening" else 1  # its first passage opens the first round

    def dies() -> None:
        if next(passages) == due:
            raise Died

    try:
        arm(place, dies)
        digest, stored = await lives_until_its_death(config)
    finally:
        disarm()
    remaining = sealed(config.state)
    assert (list(charges(config)), list(remaining)) == ([(digest, 0)], [0])
    with closing(sqlite3.connect(config.state / "state.db")) as database:
        assert database.execute("SELECT round FROM rounds").fetchall() == [(0,)]
    assert (await last_event(config, digest, stored)).state == pb.STUDY_STATE_RELEASED
    assert sealed(config.state)[0] == remaining[0]
    assert sorted(charges(config)) == [(digest, round) for round in sorted(sealed(config.state))]


async def test_a_draw_that_failed_and_was_paid_is_not_drawn_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = made(tmp_path / "c")
    failing = Mock(side_effect=RequestError(Code.OVERFLOW, "the noised sum does not fit"))
    try:
        with monkeypatch.context() as patched:
            patched.setattr(barrier, "apply_mechanism", failing)
            arm("failure-charged", dying)
            digest, stored = await lives_until_its_death(config)
    finally:
        disarm()
    last = await last_event(config, digest, stored)
    assert last.state == pb.STUDY_STATE_FAILED
    assert "failed earlier and is charged" in last.failure
    assert (list(charges(config)), sealed(config.state)) == ([(digest, 0)], {})
