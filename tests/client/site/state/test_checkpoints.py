"""[R20] A site keeps the last checkpoint of its coordinator's ledger, and lets it move forward only."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field

import pytest

from eigenveil.accounting.checkpoint import CHECKPOINT_SIGNED, Checkpoint, checkpoint_of, verify_checkpoint
from eigenveil.accounting.zcdp import Cost
from eigenveil.errors import Code, RequestError
from eigenveil_client.site.state.rollback import CheckpointStore
from eigenveil_client.site.state.store import SiteStore
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.client.site.command_line import site, written
from tests.client.site.support import FEDERATION, Context, Coordinator, Stage, a_plan, until, work
from tests.support import refused

ROWS = [f"{number:04x}" * 16 for number in range(1, 60)]
OTHER = [f"{number:04x}" * 16 for number in range(101, 160)]


def signed(stage: Stage, rows: list[str], federation: str = FEDERATION) -> pb.SignedCheckpoint:
    """The checkpoint of a ledger with these rows, as the coordinator signs it."""
    said = checkpoint_of(federation, rows, [Cost(micro_rho=len(rows))], gaussian=True).to_json()
    return pb.SignedCheckpoint(
        checkpoint_json=said, signature=stage.authority.release_key.sign(CHECKPOINT_SIGNED + said)
    )


def advance(stage: Stage, checkpoints: CheckpointStore, rows: list[str], *, parted: bool = False) -> None:
    """Be shown it."""
    checkpoints.advance(signed(stage, rows), stage.authority.release_public, FEDERATION, parted=parted)


def test_heads_move_forward_and_outlive_the_process(stage: Stage) -> None:
    store = stage.store()
    assert store.checkpoints.latest() is None
    assert store.checkpoints.digest() == b""
    for size in (1, 5, 5, 50):
        advance(stage, store.checkpoints, ROWS[:size])
    assert store.checkpoints.latest() == signed(stage, ROWS[:50])
    assert (store.checkpoints.size(), store.checkpoints.digest()) == (0, bytes.fromhex(ROWS[49]))
    store.checkpoints.flush()
    store.close()
    store = stage.store()
    store.checkpoints.check()
    assert store.checkpoints.latest() == signed(stage, ROWS[:50])
    assert (store.checkpoints.size(), store.checkpoints.digest()) == (50, bytes.fromhex(ROWS[49]))
    store.close()


@pytest.mark.parametrize(
    "shown", [ROWS[:49], OTHER[:50], [*ROWS[:49], *OTHER[:9]]], ids=["smaller", "beside", "contradicting"]
)
def test_inconsistent_checkpoint_stops_the_site_until_accepted(stage: Stage, shown: list[str]) -> None:
    store = stage.store()
    advance(stage, store.checkpoints, ROWS[:50])
    with refused(Code.CONFLICT, "does not follow the one of 50 rows"):
        advance(stage, store.checkpoints, shown)
    store.close()
    store = stage.store()
    with refused(Code.CONFLICT, "accept-checkpoint"):
        store.checkpoints.check()
    assert store.checkpoints.latest() == signed(stage, ROWS[:50]), "it is still shown what it holds"
    store.close()
    told = site(written(stage), "accept-checkpoint", "--json")
    assert (told.code, told.json) == (0, {"rows_before": 50, "rows": len(shown)})
    store = stage.store()
    store.checkpoints.check()
    assert store.checkpoints.latest() == signed(stage, shown)
    store.close()
    assert site(written(stage), "accept-checkpoint").code == 8


def test_a_coordinator_that_lost_rows_says_so_even_where_its_trail_would_not_show_it(stage: Stage) -> None:
    store = stage.store()
    held, forked = ROWS[:50], [*ROWS[:45], *OTHER[:45]]
    assert not checkpoint(stage, forked).contradicts(checkpoint(stage, held))
    advance(stage, store.checkpoints, held)
    with refused(Code.CONFLICT, "does not follow the one of 50 rows"):
        advance(stage, store.checkpoints, forked, parted=True)
    with refused(Code.CONFLICT, "accept-checkpoint"):
        store.checkpoints.check()
    store.close()


def checkpoint(stage: Stage, rows: list[str]) -> Checkpoint:
    """What a signed checkpoint says."""
    one = signed(stage, rows)
    return verify_checkpoint(one.checkpoint_json, one.signature, stage.authority.release_public)


def test_what_the_federation_did_not_sign_changes_nothing(stage: Stage, store: SiteStore) -> None:
    public = stage.authority.release_public
    forged = pb.SignedCheckpoint(checkpoint_json=signed(stage, ROWS).checkpoint_json, signature=bytes(64))
    with refused(Code.IDENTITY, "not signed"):
        store.checkpoints.advance(forged, public, FEDERATION)
    with refused(Code.PROTOCOL, "federation elsewhere"):
        store.checkpoints.advance(signed(stage, ROWS, "elsewhere"), public, FEDERATION)
    store.checkpoints.check()
    assert store.checkpoints.latest() is None


@dataclass
class Greeted(Coordinator):
    """Remembers the greetings."""

    greetings: list[pb.HelloRequest] = field(default_factory=list)

    async def Hello(self, request: pb.HelloRequest, context: Context) -> pb.HelloResponse:
        self.greetings.append(request)
        return await super().Hello(request, context)


async def test_the_daemon_shows_its_head_and_ends_at_one_that_goes_back(stage: Stage) -> None:
    plan = stage.signed(a_plan())
    first, back = work(None, plan), work(None)
    first.checkpoint.CopyFrom(signed(stage, ROWS[:9]))
    back.checkpoint.CopyFrom(signed(stage, ROWS[:8]))

    coordinator = Greeted(work=[first])
    async with stage.serving(coordinator):
        async with stage.daemon() as store:
            await until(lambda: store.checkpoints.size() == 9)
            await until(lambda: len(coordinator.asked) == 2)
        assert coordinator.asked[1].checkpoint_digest == bytes.fromhex(ROWS[8])
        coordinator.work.append(back)
        store = stage.store()
        daemon = stage.make_daemon(store)
        with pytest.raises(RequestError, match="restored from an old copy"):
            await daemon.run()
        assert coordinator.greetings[-1].checkpoint == signed(stage, ROWS[:9])
        asked = len(coordinator.asked)
        with pytest.raises(RequestError), suppress(TimeoutError):
            await asyncio.wait_for(daemon.run(), 60)
        assert len(coordinator.asked) == asked
        assert not coordinator.contributions
        store.close()
