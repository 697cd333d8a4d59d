"""[R31] What the coordinator signed in a name whose key did not is stored whole, and stays."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from eigenveil.errors import Code
from eigenveil.numerics.encoding import canonical, parse_json
from eigenveil.planning.choose import rehearse
from eigenveil.protocol.plan import Plan, verify_plan
from eigenveil.study_authorization import AUTHORIZATION_SIGNED, MOST_SENT, SignedAuthorization
from eigenveil_client.connection.identity import load_identity
from eigenveil_client.site.commands import study_list
from eigenveil_client.site.daemon.decisions import Refusal
from eigenveil_client.site.roster.analysts import ANALYSTS
from eigenveil_client.site.roster.roster import Roster
from eigenveil_client.site.state import declined_plans
from eigenveil_client.site.state.store import SiteStore
from tests.client.site.command_line import site, written
from tests.client.site.scripted import FEDERATION
from tests.client.site.stated import work
from tests.client.site.support import Killed, Log, Patch, Stage, a_plan, a_stage, a_study, at_failpoint
from tests.support import analyst_card, analyst_key, refused, signed_by_analyst

NOW = 1_800_000_000
Signing = Callable[[Plan], SignedAuthorization | None]
by = partial(signed_by_analyst, expires=NOW + 3600)


def unsigned(_: Plan) -> None: ...


def by_another_key(plan: Plan) -> SignedAuthorization:
    return by(plan, key=analyst_key("eve"))


def declined(stage: Stage, store: SiteStore, one: Plan, signing: Signing = unsigned) -> None:
    reply = stage.worker(store).work(work(rehearse(one)[0], stage.authorized(one, signing(one))))
    assert isinstance(reply, Refusal)


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    stage = a_stage(tmp_path)
    stage.know_analyst()
    return stage


def signed_by_ada(plan: Plan, message: bytes) -> SignedAuthorization:
    return replace(
        by(plan), signed_json=message, signature=analyst_key("ada").sign(AUTHORIZATION_SIGNED + message)
    )


LIES: dict[Code, Signing] = {
    Code.UNSIGNED: unsigned,
    Code.UNCONFIRMED: by_another_key,
    Code.IDENTITY: lambda plan: replace(by(plan), signature=bytes(64)),
    Code.AUTHORIZATION: lambda _: by(a_plan(submission="the one that she signed")),
    Code.PROTOCOL: lambda plan: signed_by_ada(plan, b"{ }"),
    Code.VERSION: lambda plan: signed_by_ada(
        plan, canonical(parse_json(by(plan).signed_json) | {"format": "eigenveil-authorization/2"})
    ),
}


@pytest.mark.parametrize("reason", LIES)
def test_plan_in_a_pinned_name_without_its_key_is_stored(stage: Stage, reason: Code) -> None:
    one, signing = a_plan(submission="lie"), LIES[reason]
    with closing(stage.store()) as store:
        declined(stage, store, one, signing)
        declined(stage, store, one, signing)
    with closing(stage.store()) as store:
        (proof,) = store.proofs.all()
        result = study_list.studies(stage.config, store)["proofs"]
    key = load_identity(stage.config.identity).release_keys.known
    assert (verify_plan(proof.plan_json, proof.signature, key), proof.reason) == (one, reason.value)
    signed = signing(one)
    assert proof.authorization == (b"" if signed is None else signed.to_proto().SerializeToString())
    (row,) = json.loads(json.dumps(result))
    assert (row["analyst"], row["reason"], row["plan"]) == ("ada", reason.value, proof.plan_json.decode())
    assert (row["authorization"] is None) is (signed is None)


def test_decline_without_proof_leaves_a_digest_alone(stage: Stage, store: SiteStore) -> None:
    declined(stage, store, a_plan(submission="new", analyst="bob"), by)
    declined(stage, store, a_plan(a_study(epsilon=5.5), submission="dear"), by)
    assert store.proofs.all() == []


def test_oversized_signature_hides_no_plan_and_is_not_stored(stage: Stage, store: SiteStore) -> None:
    one = a_plan(submission="lie")
    sent = stage.authorized(one, by(one))
    sent.authorization.key_card_json = bytes(MOST_SENT)
    assert isinstance(stage.worker(store).work(work(rehearse(one)[0], sent)), Refusal)
    (proof,) = store.proofs.all()
    assert (proof.plan, proof.reason, proof.authorization) == (one.digest, Code.PROTOCOL.value, b"")


def rotate(stage: Stage, days: float, *, confirmed: bool = True) -> None:
    """Ada's card was put aside so many days ago, and another one was confirmed in its place."""
    then = Roster(ANALYSTS, stage.config.identity, lambda: NOW - days * 86_400)
    card, new = analyst_card("ada", FEDERATION), analyst_card("ada", FEDERATION, analyst_key("new"))
    then.import_cards([card], FEDERATION, replacing=False)
    if confirmed:
        then.confirm("ada", card.check().fingerprint, "Kim")
    then.import_cards([new], FEDERATION, replacing=True)
    then.confirm("ada", new.check().fingerprint, "Kim")


def proofs_of_old_key(stage: Stage) -> tuple[int, bool]:
    """Count of stored proofs of a plan that Ada's first key signed; true if the new key is in doubt."""
    with closing(stage.store()) as store:
        declined(stage, store, a_plan(submission="old"), by)
        return len(store.proofs.all()), bool(Roster(ANALYSTS, stage.config.identity).changed())


def test_a_signature_from_before_a_rotation_is_no_proof(tmp_path: Path) -> None:
    site_without_pins = a_stage(tmp_path)
    rotate(site_without_pins, days=30.9)
    assert proofs_of_old_key(site_without_pins) == (0, False)


@pytest.mark.parametrize(("days", "confirmed"), [(31, True), (1, False)])
def test_late_signature_of_a_removed_key_is_proof(
    tmp_path: Path, days: float, confirmed: bool, caplog: Log
) -> None:
    site_without_pins = a_stage(tmp_path)
    rotate(site_without_pins, days, confirmed=confirmed)
    assert proofs_of_old_key(site_without_pins) == (1, True)
    assert {"analyst-key-changed", "unsigned-study"} <= {
        one.getMessage().split()[0] for one in caplog.records
    }


def test_removed_key_that_signs_past_the_longest_term_is_alarmed(stage: Stage, caplog: Log) -> None:
    Roster(ANALYSTS, stage.config.identity, lambda: NOW - 31 * 86_400).remove("ada")
    assert proofs_of_old_key(stage) == (1, False)
    assert "code=unconfirmed-analyst" in caplog.text


def test_alarm_is_raised_before_the_decline_is_stored(stage: Stage, store: SiteStore, caplog: Log) -> None:
    def killed() -> None:
        assert "unsigned-study" in caplog.text
        raise Killed

    with at_failpoint("plan-declining", killed), pytest.raises(Killed):
        stage.worker(store)._decisions.admit(stage.signed(a_plan(submission="lie")))


def test_unsigned_study_is_alarmed_once_after_a_confirmed_key(stage: Stage, caplog: Log) -> None:
    with closing(stage.store()) as store:
        for _ in range(2):
            declined(stage, store, a_plan(submission="lie"))
    (line,) = [record for record in caplog.records if "unsigned-study" in record.getMessage()]
    assert line.levelname == "ERROR"
    assert "analyst=ada" in line.getMessage()


def test_first_proofs_stay_in_bounded_room(stage: Stage, monkeypatch: Patch, store: SiteStore) -> None:
    plans = [a_plan(submission=str(number)) for number in range(5)]
    monkeypatch.setattr(declined_plans, "MOST_OF_NAME", 9)
    monkeypatch.setattr(declined_plans, "MOST_PROOFS", 2)
    for one in plans[:4]:
        declined(stage, store, one)
    first = {one.digest for one in plans[:2]}
    assert {one.plan for one in store.proofs.all()} == first
    monkeypatch.setattr(declined_plans, "MOST_PROOFS", 9)
    size = sum(len(one.plan_json + one.signature + one.authorization) for one in store.proofs.all())
    monkeypatch.setattr(declined_plans, "MOST_PROOF_BYTES", size + 1)
    declined(stage, store, plans[4])
    assert {one.plan for one in store.proofs.all()} == first


def test_a_proof_that_was_changed_here_is_none(stage: Stage, store: SiteStore) -> None:
    declined(stage, store, a_plan(submission="lie"))
    store.check_whole()
    with store.database.transaction() as change:
        change.execute("UPDATE declined_proofs SET plan_json = ?", (a_plan(submission="own").to_json(),))
    with refused(Code.STORAGE, "stored as proof, was changed here"):
        store.check_whole()


def names(store: SiteStore) -> list[str]:
    return sorted(one.analyst for one in store.proofs.all())


def test_invented_names_give_way_to_confirmed_ones(stage: Stage, monkeypatch: Patch) -> None:
    stage.know_analyst("bob")
    monkeypatch.setattr(declined_plans, "MOST_PROOFS", 4)
    with closing(stage.store()) as store:
        for number in range(3):
            declined(stage, store, a_plan(submission=str(number), analyst="bob"))
        assert names(store) == ["bob", "bob"]
        for number in range(4):
            declined(stage, store, a_plan(analyst=f"invented-{number}"))
        assert names(store) == ["bob", "bob", "invented-0", "invented-1"]
        for number in range(3):
            declined(stage, store, a_plan(submission=str(number)))
        assert names(store) == ["ada", "ada", "bob", "bob"]


def test_a_proof_goes_by_a_person_s_command_and_makes_room(stage: Stage) -> None:
    config, plans = written(stage), [a_plan(submission=str(number)) for number in range(3)]
    with closing(stage.store()) as store:
        for one in plans[:2]:
            declined(stage, store, one)
    forget = ("studies", "--forget-proof", plans[0].digest[:12], "--json")
    assert site(config, *forget).json["forgotten"]["study"] == plans[0].digest
    assert site(config, *forget).code != 0
    with closing(stage.store()) as store:
        declined(stage, store, plans[2])
        assert {one.plan for one in store.proofs.all()} == {plans[1].digest, plans[2].digest}


def test_invented_names_are_counted_as_one_by_day(tmp_path: Path, monkeypatch: Patch) -> None:
    stage = a_stage(tmp_path, analysts=())
    monkeypatch.setattr(declined_plans, "MOST_OF_A_DAY", 3)
    with closing(stage.store()) as store:
        declined(stage, store, a_plan())
        store._latest += 86_400
        for number in range(6):
            declined(stage, store, a_plan(analyst=f"invented-{number}"))
        declined(stage, store, a_plan(submission="again", analyst="invented-0"))
        first, *second = [(one["analyst"], one["plans"]) for one in store.declined.counts()]
    assert first == ("ada", 1)
    assert second == [("", 3), ("invented-0", 2), ("invented-1", 1), ("invented-2", 1)]
