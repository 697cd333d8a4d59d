"""Persons decide at real sites, and a study waits for them: with the sites' daemons, over the wire [R24]."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

from eigenveil.dictionary.site_rules import DeclineReason
from eigenveil.identity import Role
from eigenveil_client.site.commands import consent
from eigenveil_client.site.policy import Approval
from eigenveil_client.site.state.rollback import RollbackGuard
from eigenveil_client.site.state.store import SiteStore
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.process import Clock, unix_ms
from tests.integration.living import config_of, enrolled, living
from tests.server.rig import DEADLINE, SITES, Client, Rig, made, serving, study_toml

WATCH = 0.05


def asking(
    tmp_path: Path,
    work: Callable[[Rig, Client], Coroutine[Any, Any, None]],
    clock: Clock = unix_ms,
    **changes: Any,
) -> None:
    """A federation in which a person decides at every site but `anna`, while `work` goes on."""

    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            config = made(tmp_path / "c", long_poll_seconds=2.0, **changes)
            rig = await stack.enter_async_context(serving(config, clock=clock))
            for name in SITES:
                identity = await enrolled(rig, tmp_path / name, name)
                approval = Approval.AUTO if name == "anna" else Approval.MANUAL
                site = living(identity.folder, approval=approval, disclose_reasons=name == "carl")
                await stack.enter_async_context(site)
            await work(rig, await rig.client(Role.ANALYST, "ada"))

    asyncio.run(scenario())


def person(tmp_path: Path, site: str, decide: Callable[..., object], **words: Any) -> None:
    """Somebody at `site` decides about the only study there, beside its daemon."""
    config = config_of(tmp_path / site, approval=Approval.MANUAL, disclose_reasons=site == "carl")
    with closing(SiteStore(config.state, config.policy.budget, RollbackGuard(config.identity))) as store:
        decide(config, store, store.studies.all()[0], by=f"{site}'s officer", **words)


async def words_are(ada: Client, digest: str, **wanted: str) -> pb.StudyRow:
    """Wait until these sites say so of the study."""
    while True:
        rows = (await ada.stub.ListStudies(pb.ListStudiesRequest())).studies
        (row,) = (one for one in rows if one.plan_digest.hex() == digest)
        message = {one.site: one.status for one in row.consent}
        if message.items() >= wanted.items():
            return row
        await asyncio.sleep(WATCH)


WAITS = dict.fromkeys(("bert", "carl"), "waiting for a person")


def test_two_persons_who_take_longer_than_a_round_are_waited_for(tmp_path: Path) -> None:
    ahead = [0]

    async def work(rig: Rig, ada: Client) -> None:
        digest = await ada.submit(study_toml(), agreed=False)
        await words_are(ada, digest, anna="agreed", **WAITS)
        ahead[0] = int(2000 * DEADLINE)
        (await rig.daemon.engine.run(digest)).consent.wake()
        person(tmp_path, "bert", consent.approve)
        row = await words_are(ada, digest, bert="agreed", carl="waiting for a person")
        assert (row.rounds, row.spent_micro_rho) == (0, 0), "nothing was asked meanwhile"
        person(tmp_path, "carl", consent.approve)
        events = await ada.events(digest)
        assert events[-1].state == pb.STUDY_STATE_RELEASED, events[-1].failure

    asking(tmp_path, work, lambda: unix_ms() + ahead[0], start_minutes=0.0)


def test_who_withdraws_before_the_start_was_asked_nothing_and_nothing_is_charged(tmp_path: Path) -> None:
    async def work(rig: Rig, ada: Client) -> None:
        digest = await ada.submit(study_toml(), agreed=False)
        await words_are(ada, digest, anna="agreed", **WAITS)
        for site in WAITS:
            person(tmp_path, site, consent.approve)
        row = await words_are(ada, digest, bert="agreed", carl="agreed")
        assert row.starts_unix_ms > row.submitted_unix_ms
        person(tmp_path, "carl", consent.withdraw)
        last = (await ada.events(digest))[-1]
        assert (last.state, last.spent_micro_rho) == (pb.STUDY_STATE_FAILED, 0)
        assert last.failure == "carl: declined: unstated; no query was sent to any site"
        assert not rig.daemon.runtime.repository.ledger.ledger.reserved
        config = config_of(tmp_path / "carl")
        with closing(SiteStore(config.state, config.policy.budget, RollbackGuard(config.identity))) as store:
            assert store.ledger.ledger.committed().micro_rho == 0
            assert [row.bytes for row in store.egress.rows()] == [0], "one refusal left, and no number"

    asking(tmp_path, work)


def test_a_reason_is_told_and_the_study_goes_on_without_that_site(tmp_path: Path) -> None:
    """`carl` tells what its officer wrote, `bert` keeps it."""

    async def work(rig: Rig, ada: Client) -> None:
        digest = await ada.submit(study_toml(quorum=1), agreed=False)
        await words_are(ada, digest, anna="agreed", **WAITS)
        no = partial(consent.decline, text="not before the board has met")
        person(tmp_path, "bert", no, word=DeclineReason.PURPOSE)
        person(tmp_path, "carl", no, word=DeclineReason.TIMING)
        events = await ada.events(digest)
        assert events[-1].state == pb.STUDY_STATE_RELEASED, events[-1].failure
        result = {one.site: (one.status, one.text) for event in events for one in event.consent}
        assert result["bert"] == ("declined: purpose", "")
        assert result["carl"] == ("declined: timing", "not before the board has met")
        absent = {one.site: one.status for one in events[-1].sites}
        assert absent == {"anna": "answered", "bert": "declined:purpose", "carl": "declined:timing"}

    asking(tmp_path, work)
