"""[R31] A state from before analysts signed is read, and what it had answered keeps its id."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict

import pytest

from eigenveil.errors import Code
from eigenveil.planning.dry_run import rehearse
from eigenveil_client.site.daemon.refusals import Refusal
from eigenveil_client.site.state import received_plans
from eigenveil_client.site.state.egress import Fingerprints
from eigenveil_client.site.state.received_plans import Decision, ReceivedPlan
from eigenveil_client.site.state.store import SCHEMA, VERSION
from eigenveil_common.storage.sqlite import Database
from tests.client.site.stated import work
from tests.client.site.support import Stage, a_plan, a_study

SIGNED_SINCE = 9
OLD_STUDIES = received_plans.SCHEMA.split("CREATE TABLE submissions")[0].replace(
    ",\n  authorization BLOB NOT NULL DEFAULT x''", ""
)
OLD = SCHEMA.replace(received_plans.SCHEMA, OLD_STUDIES)
ENDED, DECLINED = a_plan(submission="ended"), a_plan(submission="declined")


@pytest.fixture
def older(stage: Stage) -> Stage:
    """A site with a state of the version before, in which one study ended and one was declined."""
    assert "authorization" not in OLD
    Fingerprints(stage.config.state.with_name("egress.key"), stage.config.state)  # makes its key
    with closing(Database(stage.config.state, OLD, SIGNED_SINCE - 1)) as database:
        for plan, standing in ((ENDED, Decision.ENDED), (DECLINED, Decision.DECLINED)):
            sent = stage.signed(plan)
            seen = ReceivedPlan(
                plan=plan.digest, plan_json=sent.plan_json, signature=sent.signature, standing=standing, at=1
            )
            row = asdict(seen) | {"standing": standing.value}
            del row["authorization"]
            with database.transaction() as change:
                change.insert("studies", row)
    return stage


def test_an_older_state_is_brought_up_and_its_ids_stay_used(older: Stage) -> None:
    assert VERSION >= SIGNED_SINCE
    with closing(older.store()) as store:
        assert store.studies.find(ENDED.digest).signed is None
        again = {name: a_plan(a_study(epsilon=0.5), submission=name) for name in ("ended", "declined")}
        replies = {
            name: older.worker(store).work(work(rehearse(plan)[0], older.signed(plan)))
            for name, plan in again.items()
        }
        assert {name: isinstance(reply, Refusal) for name, reply in replies.items()} == {
            "ended": True,
            "declined": False,
        }
        assert store.studies.find(again["ended"].digest).reason == Code.CONFLICT.value
