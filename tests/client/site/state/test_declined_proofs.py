"""[R31] What the coordinator signed in a name whose key did not is stored whole, and stays."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from eigenveil.analyst_signature.authorization import SignedAuthorization
from eigenveil.errors import Code
from eigenveil.planning.dry_run import rehearse
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.signatures import check_plan
from eigenveil_client.connection.identity import load_identity
from eigenveil_client.site.commands import consent
from eigenveil_client.site.daemon.refusals import Refusal
from eigenveil_client.site.policy import Approval
from eigenveil_client.site.state import declined_plans, declined_proofs
from eigenveil_client.site.state.store import SiteStore
from tests.client.site.stated import work
from tests.client.site.support import Stage, a_plan, a_stage, a_study
from tests.support import analyst_key, signed_by_analyst

NOW = 1_800_000_000
Signing = Callable[[Plan], SignedAuthorization | None]
by = partial(signed_by_analyst, expires=NOW + 3600)


def unsigned(_: Plan) -> None: ...


def by_another_key(plan: Plan) -> SignedAuthorization:
    return by(plan, key=analyst_key("eve"))


def void(plan: Plan) -> SignedAuthorization:
    return replace(by(plan), signature=bytes(64))


def of_another_plan(_: Plan) -> SignedAuthorization:
    return by(a_plan(submission="the one that she signed"))


def declined(stage: Stage, store: SiteStore, one: Plan, signing: Signing = unsigned) -> None:
    reply = stage.worker(store).work(work(rehearse(one)[0], stage.authorized(one, signing(one))))
    assert isinstance(reply, Refusal)


@pytest.fixture
def pinned(tmp_path: Path) -> Stage:
    stage = a_stage(tmp_path)
    stage.know_analyst()
    return stage


@pytest.mark.parametrize(
    ("signing", "reason"),
    [
        (unsigned, Code.UNSIGNED),
        (by_another_key, Code.UNCONFIRMED),
        (void, Code.IDENTITY),
        (of_another_plan, Code.AUTHORIZATION),
    ],
)
def test_a_plan_in_a_pinned_name_without_its_key_is_stored_as_it_was_signed(
    pinned: Stage, signing: Signing, reason: Code
) -> None:
    one = a_plan(submission="lie")
    with closing(pinned.store()) as store:
        declined(pinned, store, one, signing)
        declined(pinned, store, one, signing)
    with closing(pinned.store()) as store:
        (proof,) = store.proofs.all()
        told = consent.studies(pinned.config, store)["proofs"]
    key = load_identity(pinned.config.identity).release_key
    assert check_plan(proof.plan_json, proof.signature, key) == one
    assert proof.reason is reason
    signed = signing(one)
    assert proof.authorization == (b"" if signed is None else signed.to_proto().SerializeToString())
    (row,) = json.loads(json.dumps(told))
    assert (row["analyst"], row["reason"], row["plan"]) == ("ada", reason.value, proof.plan_json.decode())
    assert (row["authorization"] is None) is (signed is None)


def test_what_proves_nothing_against_the_coordinator_leaves_a_digest_alone(pinned: Stage) -> None:
    with closing(pinned.store()) as store:
        declined(pinned, store, a_plan(submission="new", analyst="bob"), by)
        dear = a_plan(a_study(epsilon=5.5), submission="dear")
        declined(pinned, store, dear, by)
        assert store.proofs.all() == []


def test_an_unsigned_study_is_alarmed_once_where_people_have_confirmed_a_key(
    pinned: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(pinned.store()) as store:
        for _ in range(2):
            declined(pinned, store, a_plan(submission="lie"))
    (line,) = [record for record in caplog.records if "unsigned-study" in record.getMessage()]
    assert line.levelname == "ERROR"
    assert "analyst=ada" in line.getMessage()


def test_the_first_proofs_stay_and_take_bounded_room(pinned: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    plans = [a_plan(submission=str(number)) for number in range(5)]
    monkeypatch.setattr(declined_proofs, "MOST_PROOFS", 2)
    with closing(pinned.store()) as store:
        for one in plans[:4]:
            declined(pinned, store, one)
        first = {one.digest for one in plans[:2]}
        assert {one.plan for one in store.proofs.all()} == first
        monkeypatch.setattr(declined_proofs, "MOST_PROOFS", 9)
        size = sum(one.size for one in store.proofs.all())
        monkeypatch.setattr(declined_proofs, "MOST_PROOF_BYTES", size + 1)
        declined(pinned, store, plans[4])
        assert {one.plan for one in store.proofs.all()} == first


def test_a_proof_that_was_forgotten_as_a_decline_is_declined_again(
    pinned: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(declined_plans, "MOST_DIGESTS", 1)
    with closing(pinned.store()) as store:
        for submission in ("a", "b", "a"):
            declined(pinned, store, a_plan(submission=submission))
        assert len(store.proofs.all()) == 2


def test_where_a_person_decides_a_name_of_which_no_key_was_confirmed_waits_and_another_is_stored(
    tmp_path: Path,
) -> None:
    stage = a_stage(tmp_path, approval=Approval.ASK)
    stage.know_analyst()
    with closing(stage.store()) as store:
        declined(stage, store, a_plan(submission="lie"), by_another_key)
        assert [one.reason for one in store.proofs.all()] == [Code.UNCONFIRMED]


def test_invented_names_are_counted_together_and_displace_no_other_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = a_stage(tmp_path, analysts=())
    monkeypatch.setattr(declined_plans, "MOST_OF_A_DAY", 3)
    with closing(stage.store()) as store:
        declined(stage, store, a_plan())
        store._latest += 86_400
        for number in range(6):
            declined(stage, store, a_plan(analyst=f"invented-{number}"))
        declined(stage, store, a_plan(submission="again", analyst="invented-0"))
        first, *second = [(one.analyst, one.plans) for one in store.declined.counts()]
    assert first == ("ada", 1)
    assert second == [("", 3), ("invented-0", 2), ("invented-1", 1), ("invented-2", 1)]
