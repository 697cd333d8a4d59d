"""Persons decide at real sites, and a study waits for them: with the sites' daemons, over the wire [R24]."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import Any

from eigenveil.identity import Role
from eigenveil_client.site.commands import consent
from eigenveil_client.site.policy import Approval
from eigenveil_client.site.state.rollback import RollbackGuard
from eigenveil_client.site.state.store import SiteStore
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.integration.running_site import config_of, enrolled, running_site
from tests.server.rig import SITES, Client, made, serving, study_toml

WATCH = 0.05


def person(tmp_path: Path, site: str, decide: Callable[..., object], **words: Any) -> None:
    """Somebody at `site` decides about the only study there, beside its daemon."""
    config = config_of(tmp_path / site, approval=Approval.MANUAL)
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


async def test_a_site_that_withdraws_before_the_start_gets_no_query_and_nothing_is_charged(
    tmp_path: Path,
) -> None:
    async with AsyncExitStack() as stack:
        rig = await stack.enter_async_context(serving(made(tmp_path / "c", long_poll_seconds=2.0)))
        for name in SITES:
            identity = await enrolled(rig, tmp_path / name, name)
            approval = Approval.AUTO if name == "anna" else Approval.MANUAL
            await stack.enter_async_context(running_site(identity.folder, approval=approval))
        ada = await rig.client(Role.ANALYST, "ada")
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
