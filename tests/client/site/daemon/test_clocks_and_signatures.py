"""[R31] A clock that went wrong once ends no analyst's signature for good, and begins none."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from eigenveil.aggregation import Contribution
from eigenveil.planning.choose import rehearse
from eigenveil.study_authorization import MAX_AUTHORIZATION_SECONDS
from eigenveil_client.site.commands.checks import offline_checks
from eigenveil_client.site.daemon.decisions import Refusal
from eigenveil_client.site.daemon.worker import Postponed, Reply
from eigenveil_client.site.policy import Approval
from eigenveil_client.site.state.store import SiteStore
from eigenveil_common.doctor import Level
from tests.client.site.stated import work
from tests.client.site.support import Coordinator, Stage, a_plan, a_stage, until
from tests.support import signed_by_analyst

NOW = 1_800_000_000
FAR = NOW + 5 * 365 * 86_400
PLAN, OTHER = a_plan(submission="one"), a_plan(submission="other")


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    stage = a_stage(tmp_path)
    stage.know_analyst()
    return stage


def asked(stage: Stage, store: SiteStore, expires: int) -> Reply | None:
    sent = stage.authorized(PLAN, signed_by_analyst(PLAN, expires=expires))
    return stage.worker(store).work(work(rehearse(PLAN)[0], sent))


def put_off(store: SiteStore, reply: Reply | None) -> None:
    """Nothing is said or stored of a plan."""
    assert isinstance(reply, Postponed)
    assert (store.declined.get(PLAN.digest), store.proofs.all(), store.egress.rows()) == (None, [], [])


def write_ahead(stage: Stage) -> None:
    """A state that was written to while the clock was years ahead."""
    with closing(stage.store()) as store:
        store._clock = lambda: FAR
        other = a_plan(submission="another", analyst="bob")
        assert isinstance(stage.worker(store).work(work(rehearse(other)[0], stage.signed(other))), Refusal)


def test_signatures_hold_again_once_a_clock_that_was_ahead_goes_right(stage: Stage) -> None:
    write_ahead(stage)
    with closing(stage.store()) as store:
        assert store.now() == FAR, "years and approvals go by the latest time, signatures by the clock"
        assert isinstance(asked(stage, store, NOW + 3600), Contribution)


def test_a_signature_that_lasts_too_long_by_a_slow_clock_is_looked_at_again(stage: Stage) -> None:
    most = NOW + MAX_AUTHORIZATION_SECONDS
    with closing(stage.store()) as store:
        store._clock = lambda: NOW - 7200
        put_off(store, asked(stage, store, most))
        store._clock = lambda: NOW
        assert isinstance(asked(stage, store, most), Contribution)


@pytest.mark.parametrize("approval", Approval)
def test_a_signature_that_has_ended_by_a_fast_clock_is_looked_at_again(
    stage: Stage, approval: Approval
) -> None:
    stage.rule(approval=approval)
    with closing(stage.store()) as store:
        store._clock = lambda: NOW + 8 * 86_400
        put_off(store, asked(stage, store, NOW + 7 * 86_400))
        store._clock = lambda: NOW
        reply = asked(stage, store, NOW + 7 * 86_400)
        assert isinstance(reply, Contribution) if approval is Approval.AUTO else reply is None
        assert store.studies.find(PLAN.digest)


async def test_what_is_put_off_is_no_decline_and_lets_other_studies_have_their_turn(stage: Stage) -> None:
    """The coordinator would keep a decline for good, and offers first what is not named as answered."""
    late, other = (
        stage.authorized(plan, signed_by_analyst(plan, expires=expires))
        for plan, expires in ((PLAN, NOW - 1), (OTHER, NOW + 3600))
    )
    coordinator = Coordinator(work=[work(rehearse(PLAN)[0], late), work(rehearse(OTHER)[0], other)])

    async with stage.serving(coordinator), stage.daemon():
        await until(lambda: coordinator.contributions)
    assert coordinator.declines == []
    assert [one.plan_digest.hex() for one in coordinator.asked[1].answered] == [PLAN.digest]
    assert [one.plan_digest.hex() for one in coordinator.contributions] == [OTHER.digest]


def test_check_says_that_the_state_is_ahead_of_the_clock(stage: Stage) -> None:
    def lines() -> list[Level]:
        return [one.level for one in offline_checks(stage.config, None) if one.about == "state's time"]

    with closing(stage.store()):
        pass
    assert lines() == []
    write_ahead(stage)
    assert lines() == [Level.WARN]
