"""Attacks of a malicious coordinator that use a restart, an old copy of a site's state, and decisions of the
people of a site in the middle of a masked study."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from eigenveil.accounting.ledger import EntryKind
from eigenveil.errors import InternalError, RequestError
from eigenveil.study.study import Federation
from eigenveil_client.connection.identity import load_identity
from eigenveil_client.site.daemon.service import SiteDaemon
from eigenveil_client.site.policy_sections import TrustRules
from eigenveil_client.site.roster.peers import NAME, PEERS
from eigenveil_client.site.roster.roster import Roster
from eigenveil_client.site.state.store_access import open_site_store
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.client.site.command_line import site, written
from tests.client.site.masking import EVERY, Peers, keys_of, stated_key
from tests.client.site.support import SITE, a_plan, a_study, until, work
from tests.torture.masked.attacks import SETS
from tests.torture.masked.scene import STRANGER, Recording, Scene, acquainted
from tests.torture.peers.test_malicious import here

B = EVERY[1]


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    (tmp_path / "log").touch()
    return Scene.of(acquainted(tmp_path), "one")


@pytest.fixture
def received() -> Recording:
    return Recording()


@asynccontextmanager
async def served(peers: Peers, received: Recording) -> AsyncIterator[None]:
    stage = peers.stage
    async with stage.serving(received), here(stage, stage.folder / "log"):
        yield


async def ends(peers: Peers, received: Recording) -> None:
    stage = peers.stage
    async with stage.serving(received):
        with closing(stage.store()) as store:
            await SiteDaemon(stage.worker(store), lambda: load_identity(stage.config.identity)).run()


async def exchange(
    received: Recording, *message: pb.NextWorkResponse, answers: int = 0, refusals: int = 0
) -> None:
    sent, declined = len(received.contributions) + answers, len(received.declines) + refusals
    received.work += message
    await until(lambda: not received.work and len(received.contributions) >= sent, 30)
    await until(lambda: len(received.declines) >= declined, 30)
    assert (len(received.contributions), len(received.declines)) == (sent, declined)


def charges(scene: Scene) -> list[int]:
    with closing(scene.peers.stage.store()) as store:
        return [one.round for one in store.ledger.entries() if one.kind is EntryKind.ATTEMPT]


def log(scene: Scene) -> str:
    return (scene.peers.stage.folder / "log").read_text()


async def test_after_a_restart_only_the_same_set_is_answered(scene: Scene, received: Recording) -> None:
    async with served(scene.peers, received):
        await exchange(received, scene.question(0), scene.fixed(0), answers=1)
    async with served(scene.peers, received):
        await exchange(received, scene.fixed(0, sites=SETS[2]), refusals=1)
        await exchange(received, scene.fixed(0), answers=1)
    async with served(scene.peers, received):
        await exchange(received, scene.fixed(0, 2, sites=SETS[2]), scene.fixed(1), answers=2)
    assert received.contributions[0].values == received.contributions[1].values
    assert "second-set" in log(scene)
    assert charges(scene) == [0, 0, 1]


async def test_site_with_an_older_copy_of_its_state_does_not_start(scene: Scene, received: Recording) -> None:
    """Else it would answer under a number that it has answered: with new noise, or for another set."""
    stage = scene.peers.stage
    copy = stage.config.state.with_name("copy.db")

    async with served(scene.peers, received):
        await exchange(received, scene.question(0))
    shutil.copy(stage.config.state, copy)
    async with served(scene.peers, received):
        await exchange(received, scene.fixed(0), answers=1)
    shutil.copy(copy, stage.config.state)
    with pytest.raises(InternalError, match="older copy"), open_site_store(stage.config):
        pass


async def test_changed_card_of_a_peer_ends_the_daemon_until_a_person_decides(
    scene: Scene, received: Recording, caplog: pytest.LogCaptureFixture
) -> None:
    other = stated_key(keys_of(scene.peers.stage, B, "forged"), scene.plan.digest).digest
    forged = {name: scene.key(name) for name in EVERY} | {B: other}

    async with served(scene.peers, received):
        await exchange(received, scene.question(0), scene.fixed(0), answers=1)
    for _ in range(2):  # the second life ends before it says or hears anything
        calls = len(received.wire)
        received.work[:] = [scene.fixed(1, members=forged)]
        with pytest.raises(RequestError, match=f"another key card of {B}"):
            await asyncio.wait_for(ends(scene.peers, received), 30)
    assert len(received.wire) == calls
    assert len(received.contributions) == 1
    received.work.clear()
    Roster(PEERS, scene.peers.stage.config.identity).confirm(B, scene.peers.keys[B].card.fingerprint, "Eva")
    async with served(scene.peers, received):
        await exchange(received, scene.question(1), scene.fixed(1), answers=1)
    assert "peer-key-changed" in caplog.text
    assert charges(scene) == [0, 1]


async def test_removed_peer_is_in_no_later_set(scene: Scene, received: Recording) -> None:
    async with served(scene.peers, received):
        await exchange(received, scene.question(0), scene.fixed(0), answers=1)
        Roster(PEERS, scene.peers.stage.config.identity).remove(EVERY[3])
        await exchange(received, scene.fixed(1), refusals=1)
        await exchange(received, scene.fixed(1, 2, sites=SETS[2]), answers=1)
    assert "unknown-peer" in log(scene)
    assert charges(scene) == [0, 1]


async def test_site_with_new_keys_is_in_no_set_under_its_old_card(scene: Scene, received: Recording) -> None:
    stage = scene.peers.stage
    async with served(scene.peers, received):
        await exchange(received, scene.question(0), scene.fixed(0), answers=1)
        (stage.config.identity / NAME).unlink()
        keys_of(stage, SITE)
        await exchange(received, scene.fixed(0), scene.fixed(1), refusals=2)
    assert charges(scene) == [0]


async def test_nothing_leaves_again_of_a_withdrawn_study(scene: Scene, received: Recording) -> None:
    config = written(scene.peers.stage, "budget_epsilon = 1000.0\n")
    async with served(scene.peers, received):
        await exchange(received, scene.question(0), scene.fixed(0), answers=1)
        await asyncio.to_thread(site, config, "withdraw", scene.plan.digest)
        await exchange(received, scene.fixed(0), scene.fixed(1), refusals=2)
    assert charges(scene) == [0]


STRICT = TrustRules(trust=("secure-aggregation",), colluding=2, minimum_sites=3)
AGREED: dict[str, object] = {"colluding": 2}
UNWANTED: dict[str, dict[str, object]] = {
    "more trust in other sites than this one has": {"colluding": 1},
    "sums over fewer sites than this one wants": {
        "federation": Federation(sites=EVERY, quorum=2),
        "colluding": 1,
    },
    "a site that nobody here knows": {"federation": Federation(sites=(*EVERY, STRANGER), quorum=3)},
}


@pytest.mark.parametrize("name", [*UNWANTED, "numbers for the coordinator"])
async def test_a_plan_is_declined_that_hides_less_than_the_site_insists_on(
    name: str, tmp_path: Path, received: Recording
) -> None:
    (tmp_path / "log").touch()
    peers = acquainted(tmp_path, secrecy=STRICT)
    wanted = Scene.of(peers, "wanted", **AGREED)
    if name in UNWANTED:
        message = Scene.of(peers, "unwanted", **(AGREED | UNWANTED[name])).fixed(0)
    else:
        central = a_study(federation=Federation(sites=EVERY))
        unwanted = Scene(peers=peers, plan=a_plan(central, submission="unwanted"))
        message = work(unwanted.queries[0], peers.stage.signed(unwanted.plan))

    async with served(peers, received):
        await exchange(received, message, refusals=1)
        await exchange(received, wanted.question(0), wanted.fixed(0), answers=1)
    assert "code=site-policy" in log(wanted)
    assert charges(wanted) == [0]
