"""[P27] What becomes of a draw whose process ended before all of it was told."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest

from eigenveil import barrier
from eigenveil.errors import Code, RequestError
from eigenveil.identity import Role
from eigenveil.session import Session
from eigenveil_common.files import arm, disarm
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.config import Config
from tests.server.recovery.test_restart import Died, charges, dying, sealed
from tests.server.rig import SITES, Credentials, answering, made, serving, study_toml


async def lives_until_its_death(config: Config, held: dict[str, Credentials]) -> str:
    """Everybody answers; a new study if `held` is empty. The study's digest."""
    async with serving(config) as rig:
        if not held:
            held |= {name: await rig.credentials(Role.SITE, name) for name in SITES}
            held["ada"] = await rig.credentials(Role.ANALYST, "ada")
            await rig.connect(held["ada"]).submit(study_toml())
        ((digest, task),) = rig.daemon.engine._tasks.items()
        async with answering({name: rig.connect(held[name]) for name in SITES}):
            with pytest.raises(Died):
                await task
    return digest


def test_a_step_that_ends_the_process_by_what_it_was_fed_discards_no_draw(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, held = made(tmp_path / "c"), dict[str, Credentials]()
    with monkeypatch.context() as patched:
        patched.setattr(Session, "feed", dying)
        digest = asyncio.run(lives_until_its_death(config, held))
    kept = sealed(config.state)
    assert (list(charges(config)), list(kept)) == ([(digest, 0)], [0])

    async def goes_on() -> None:
        async with serving(config) as rig, answering({name: rig.connect(held[name]) for name in SITES}):
            assert (await rig.connect(held["ada"]).events(digest))[-1].state == pb.STUDY_STATE_RELEASED

    asyncio.run(goes_on())
    assert sealed(config.state)[0] == kept[0]


@pytest.mark.parametrize("place", ["round-sealed", "round-released", "round-followed", "round-opening"])
def test_a_release_without_the_question_after_it_leads_to_it_after_a_restart(
    place: str, tmp_path: Path
) -> None:
    config, held = made(tmp_path / "c"), dict[str, Credentials]()
    passages = count(1)
    due = 2 if place == "round-opening" else 1  # its first passage opens the first round

    def dies() -> None:
        if next(passages) == due:
            raise Died

    try:
        arm(place, dies)
        digest = asyncio.run(lives_until_its_death(config, held))
    finally:
        disarm()
    kept = sealed(config.state)
    assert (list(charges(config)), list(kept)) == ([(digest, 0)], [0])
    with closing(sqlite3.connect(config.state / "state.db")) as database:
        assert database.execute("SELECT round FROM rounds").fetchall() == [(0,)]

    async def goes_on() -> None:
        async with serving(config) as rig, answering({name: rig.connect(held[name]) for name in SITES}):
            assert (await rig.connect(held["ada"]).events(digest))[-1].state == pb.STUDY_STATE_RELEASED

    asyncio.run(goes_on())
    assert sealed(config.state)[0] == kept[0]
    assert sorted(charges(config)) == [(digest, round) for round in sorted(sealed(config.state))]


def test_a_draw_that_failed_and_was_paid_is_not_drawn_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, held = made(tmp_path / "c"), dict[str, Credentials]()

    def failing(*_: object, **__: object) -> None:
        raise RequestError(Code.OVERFLOW, "the noised sum does not fit")

    try:
        with monkeypatch.context() as patched:
            patched.setattr(barrier, "apply_mechanism", failing)
            arm("failure-charged", dying)
            digest = asyncio.run(lives_until_its_death(config, held))
    finally:
        disarm()

    async def ends() -> None:
        async with serving(config) as rig:
            last = (await rig.connect(held["ada"]).events(digest))[-1]
            assert last.state == pb.STUDY_STATE_FAILED
            assert "failed earlier and is charged" in last.failure

    asyncio.run(ends())
    assert (list(charges(config)), sealed(config.state)) == ([(digest, 0)], {})
