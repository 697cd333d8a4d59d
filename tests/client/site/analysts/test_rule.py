"""[R31] Once people have confirmed an analyst's key, nothing is answered that no such key signed."""

from __future__ import annotations

import html
import re
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from eigenveil.errors import Code
from eigenveil.planning.choose import rehearse
from eigenveil.protocol.plan import Plan
from eigenveil.study_authorization import SignedAuthorization
from eigenveil_client.site.commands import consent
from eigenveil_client.site.daemon.decisions import Refusal
from eigenveil_client.site.daemon.worker import Reply
from eigenveil_client.site.policy import Approval
from eigenveil_client.site.roster import analysts
from eigenveil_client.site.roster.analysts import ANALYSTS
from eigenveil_client.site.roster.pins import PinStatus
from eigenveil_client.site.roster.roster import Roster
from eigenveil_client.site.state.store import SiteStore
from eigenveil_client.site.state.store_access import open_site_store
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.client.site.command_line import site
from tests.client.site.commands.console.rig import Rig, rigged, study_plan
from tests.client.site.stated import work
from tests.client.site.support import FEDERATION, Log, Stage, a_plan, a_stage, a_study, reason_of
from tests.support import Capture, analyst_card, analyst_key, refused, signed_by_analyst

NOW = 1_800_000_000
PLAN = a_plan(submission="one")
EVE = analyst_key("eve")


def by(plan: Plan = PLAN, *, expires: int = NOW + 3600, **key: object) -> SignedAuthorization:
    return signed_by_analyst(plan, expires=expires, **key)  # type: ignore[arg-type]


def reply_to(
    stage: Stage, store: SiteStore, signed: SignedAuthorization | None, plan: Plan = PLAN, round: int = 0
) -> Reply | None:
    return stage.worker(store).work(work(rehearse(plan)[round], stage.authorized(plan, signed)))


def roster(stage: Stage) -> Roster:  # type: ignore[type-arg]
    return Roster(analysts.ANALYSTS, stage.config.identity, lambda: NOW)


def replaced(stage: Stage) -> None:
    roster(stage).import_cards([analyst_card("ada", FEDERATION, EVE)], FEDERATION, replacing=True)


SINCE: dict[str, Callable[[Stage], object]] = {
    "as it was": lambda _: None, "removed": lambda stage: roster(stage).remove("ada"),
    "contradicted": lambda stage: roster(stage).mark_changed("ada", "00" * 32), "replaced": replaced,
}  # fmt: skip


def declined_for(store: SiteStore, plan: Plan = PLAN) -> Code | None:
    assert store.studies.get(plan.digest) is None
    declined = store.declined.get(plan.digest)
    return None if declined is None else declined.reason


def test_a_signature_that_does_not_hold_is_refused_without_any_pin(stage: Stage, store: SiteStore) -> None:
    for submission, signed in (("a", by()), ("b", replace(by(), signature=bytes(64)))):
        reply = reply_to(stage, store, signed, a_plan(submission=submission))
        assert isinstance(reply, Refusal)
        assert reply.reason == pb.DECLINE_REASON_PROTOCOL
    assert store.ledger.ledger.size == 0


@pytest.mark.parametrize("since", SINCE)
def test_unsigned_study_is_refused_after_any_pin(stage: Stage, since: str, store: SiteStore) -> None:
    stage.know_analyst()
    SINCE[since](stage)
    assert isinstance(reply_to(stage, store, None), Refusal)
    assert declined_for(store) is Code.UNSIGNED
    assert isinstance(reply_to(stage, store, None, a_plan(analyst="bob")), Refusal), "in whoever's name"
    assert store.ledger.ledger.size == 0


@pytest.mark.parametrize("since", list(SINCE)[1:])
def test_key_of_a_changed_pin_signs_nothing(stage: Stage, since: str, store: SiteStore) -> None:
    stage.know_analyst()
    SINCE[since](stage)
    assert isinstance(reply_to(stage, store, by()), Refusal)
    assert declined_for(store) is Code.UNCONFIRMED


def test_a_confirmed_key_signs_for_its_own_analyst_alone(stage: Stage, store: SiteStore) -> None:
    stage.know_analyst()
    bobs = a_plan(analyst="bob")
    assert isinstance(reply_to(stage, store, by(bobs, key=analyst_key("ada")), bobs), Refusal)
    assert not isinstance(reply_to(stage, store, by()), Refusal)
    assert [one.status for one in roster(stage).content().pins.values()] == [PinStatus.CONFIRMED]


@pytest.mark.parametrize("approval", Approval)
def test_another_key_in_a_confirmed_name_is_refused(tmp_path: Path, approval: Approval, caplog: Log) -> None:
    stage = a_stage(tmp_path, approval=approval)
    stage.know_analyst()
    with closing(stage.store()) as store:
        assert isinstance(reply_to(stage, store, by(key=EVE)), Refusal)
        assert declined_for(store) is Code.UNCONFIRMED
    assert "analyst-key-changed" in caplog.text
    with refused(Code.CONFLICT, "another key card of ada", "no study of this analyst is answered"):
        roster(stage).check_unchanged()


def test_unsigned_study_ends_once_a_key_is_confirmed(stage: Stage, store: SiteStore) -> None:
    assert not isinstance(reply_to(stage, store, None), Refusal)
    stage.know_analyst()
    assert isinstance(reply_to(stage, store, None, round=1), Refusal)
    assert isinstance(reply_to(stage, store, by(), round=1), Refusal), "a signature that comes later"
    assert [row.round for row in store.egress.rows() if row.query] == [0]


def test_nothing_leaves_after_the_signature_has_ended(stage: Stage, store: SiteStore) -> None:
    stage.know_analyst()
    signed = by(expires=NOW + 2)
    assert not isinstance(reply_to(stage, store, signed), Refusal)
    store._clock = lambda: NOW + 2
    assert isinstance(reply_to(stage, store, signed, round=1), Refusal)


def test_late_or_unsigned_approval_is_refused(tmp_path: Path) -> None:
    stage = a_stage(tmp_path, approval=Approval.MANUAL)
    plans = {name: a_plan(submission=name) for name in ("unsigned", "ended", "good")}
    with closing(stage.store()) as store:
        for name, signed in (("unsigned", None), ("ended", by(plans["ended"], expires=NOW + 2))):
            assert reply_to(stage, store, signed, plans[name]) is None
        stage.know_analyst()
        assert reply_to(stage, store, by(plans["good"]), plans["good"]) is None
        store._clock = lambda: NOW + 2
        for name, code in (("unsigned", Code.UNSIGNED), ("ended", Code.AUTHORIZATION_EXPIRED)):
            with refused(code, "sign"):
                consent.approve(stage.config, store, store.studies.find(plans[name].digest), by="ida")
        consent.approve(stage.config, store, store.studies.find(plans["good"].digest), by="ida")


def test_pending_unsigned_study_is_refused_under_auto_approval(tmp_path: Path) -> None:
    stage = a_stage(tmp_path, approval=Approval.MANUAL)
    with closing(stage.store()) as store:
        assert reply_to(stage, store, None) is None
        stage.know_analyst()
        stage.rule(approval=Approval.AUTO)
        assert isinstance(reply_to(stage, store, None), Refusal)
        assert store.ledger.ledger.size == 0


def test_a_new_analyst_s_study_waits_for_a_person_who_may_confirm_the_key(tmp_path: Path) -> None:
    stage, bobs = a_stage(tmp_path, approval=Approval.MANUAL), a_plan(analyst="bob")
    stage.know_analyst()
    with closing(stage.store()) as store:
        assert reply_to(stage, store, by(bobs), bobs) is None
        seen = store.studies.find(bobs.digest)
        result = consent.explain_plan(stage.config, store, bobs, seen.signed)
        assert result["analyst_signature"]["status"] == "not-compared"
        with refused(Code.UNCONFIRMED, "analysts import FILE", "eigenveil-site analysts confirm bob"):
            consent.approve(stage.config, store, seen, by="ida")
        stage.know_analyst("bob")
        consent.approve(stage.config, store, seen, by="ida")
        result = consent.explain_plan(stage.config, store, bobs, seen.signed)
        assert result["analyst_signature"]["status"] == "confirmed"


def rotated(stage: Stage) -> None:
    replaced(stage)
    roster(stage).confirm("ada", analyst_card("ada", FEDERATION, EVE).check().fingerprint, "Kim")


def test_study_of_a_rotated_key_locks_no_analyst_out(tmp_path: Path) -> None:
    stage, new = a_stage(tmp_path), a_plan(submission="new")
    stage.know_analyst()
    with closing(stage.store()) as store:
        assert not isinstance(reply_to(stage, store, by()), Refusal)
        rotated(stage)
        assert isinstance(reply_to(stage, store, by(), round=1), Refusal)
        assert roster(stage).changed() == {}
        with refused(Code.UNCONFIRMED, "a key of ada that was removed here", "signed again"):
            analysts.require(stage.config.identity, PLAN, by(), NOW)
        assert roster(stage).changed() == {}
        assert not isinstance(reply_to(stage, store, by(new, key=EVE), new), Refusal)


@pytest.mark.parametrize("since", ["as it was", "contradicted"])
def test_changed_key_is_reported_as_changed(stage: Stage, since: str) -> None:
    stage.know_analyst()
    SINCE[since](stage)
    with refused(Code.UNCONFIRMED, "showed another key card of ada", "Telephone ada", "--replace"):
        analysts.require(stage.config.identity, PLAN, by(key=EVE), NOW)


def test_where_the_rules_decide_a_new_analyst_is_declined(tmp_path: Path) -> None:
    stage, bobs = a_stage(tmp_path), a_plan(analyst="bob")
    stage.know_analyst()
    with closing(stage.store()) as store:
        assert reason_of(reply_to(stage, store, by(bobs), bobs)) == pb.DECLINE_REASON_POLICY
        assert declined_for(store, bobs) is Code.UNCONFIRMED, "at once: nothing of it waits or is set aside"
        assert store.ledger.ledger.size == 0


def test_an_id_runs_once_also_after_a_restart_and_what_was_declined_does_not_use_it(stage: Stage) -> None:
    stage.know_analyst()
    other, low_quality = (a_plan(a_study(epsilon=epsilon), submission="one") for epsilon in (0.5, 5.5))
    with closing(stage.store()) as store:
        assert isinstance(reply_to(stage, store, by(low_quality), low_quality), Refusal)
        assert not isinstance(reply_to(stage, store, by()), Refusal)
    with closing(stage.store()) as store:
        assert isinstance(reply_to(stage, store, by(other), other), Refusal)
        assert declined_for(store, other) is Code.CONFLICT
        store.end(PLAN.digest)
        third = a_plan(a_study(epsilon=0.25), submission="one")
        assert isinstance(reply_to(stage, store, by(third), third), Refusal)
        assert isinstance(reply_to(stage, store, by()), Refusal), "a study that has ended is not run again"
        assert not isinstance(
            reply_to(stage, store, by(a_plan(submission="two")), a_plan(submission="two")), Refusal
        )


def test_signature_status_is_in_the_plan_and_its_policy(stage: Stage, store: SiteStore) -> None:
    for signed, word in ((None, "none"), (by(), "not-compared"), (by(expires=NOW), "invalid")):
        result = consent.explain_plan(stage.config, store, PLAN, signed)
        assert result["analyst_signature"]["status"] == word
        (verdict,) = [one for one in result["policy"] if one["rule"] == "signature"]
        assert verdict["passed"] is (word != "invalid")
        assert ("only the coordinator vouches" in verdict["text"]) is (word != "invalid")


def test_a_damaged_roster_is_no_word_on_a_study(stage: Stage, store: SiteStore) -> None:
    stage.know_analyst()
    file = stage.config.identity / "analysts.json"
    whole = file.read_bytes()
    file.write_bytes(b"{")
    with refused(Code.BAD_CONFIG, "is damaged"):
        reply_to(stage, store, by())
    assert declined_for(store) is None
    file.write_bytes(whole)
    assert not isinstance(reply_to(stage, store, by()), Refusal)


@pytest.mark.parametrize(("change", "with_first", "with_new"), [
    ("as it was", analysts.SignatureStatus.CONFIRMED, analysts.SignatureStatus.CHANGED),
    ("contradicted", analysts.SignatureStatus.CHANGED, analysts.SignatureStatus.CHANGED),
    ("removed", analysts.SignatureStatus.REMOVED, analysts.SignatureStatus.NOT_COMPARED),
    ("replaced", analysts.SignatureStatus.REMOVED, analysts.SignatureStatus.NOT_COMPARED),
])  # fmt: skip
def test_signature_status_follows_the_roster(
    stage: Stage, change: str, with_first: analysts.SignatureStatus, with_new: analysts.SignatureStatus
) -> None:
    stage.know_analyst()
    SINCE[change](stage)
    for key, expected in ((None, with_first), (EVE, with_new)):
        signed = signed_by_analyst(PLAN, key, expires=NOW + 3600)
        result = analysts.analyst_view(stage.config.identity, PLAN, signed, NOW)
        assert result["status"] == expected.value
        assert analysts.SIGNATURE_TEXT[expected] in analysts.analyst_text(result)


def test_a_card_that_was_never_confirmed_is_not_compared_also_once_it_is_gone(stage: Stage) -> None:
    for change in ("replaced", "removed"):
        SINCE[change](stage)
        result = analysts.analyst_view(
            stage.config.identity, PLAN, signed_by_analyst(PLAN, EVE, expires=NOW + 3600), NOW
        )
        assert result["status"] == "not-compared"


KEYS = {"her own": analyst_key("ada"), "another": analyst_key("eve")}
KNOWN = {"nobody": (), "another analyst": ("bob",), "her": ("ada",)}


def bare(text: str) -> str:
    """A text without markup and blanks, in which forty digits are found however they are grouped."""
    return re.sub(r"[\s.,:-]+", "", html.unescape(re.sub(r"<[^>]*>", "", text)))


def came(rig: Rig, key: Ed25519PrivateKey) -> list[str]:
    stage, result = rig.stage, []
    with open_site_store(stage.config) as store:
        for plan, approval in ((rig.plan, Approval.MANUAL), (a_plan(submission="two"), Approval.AUTO)):
            stage.rule(approval=approval)
            signed = signed_by_analyst(plan, expires=int(time.time()) + 3600, key=key)
            sent = work(rehearse(plan)[0], stage.authorized(plan, signed))
            result.append(repr(stage.worker(store).work(sent)))
    return result


def pages(rig: Rig, language: str) -> list[str]:
    browser = rig.browser(language)
    acts = ("", "/sheet", "/approve", "/decline", "/withdraw")
    return [browser.get(f"/studies/{rig.plan.digest}{act}").text for act in acts] + [browser.get("/").text]


def commands(rig: Rig) -> list[str]:
    study = rig.plan.digest
    words = (
        ("studies",), ("explain", study), ("check",), ("doctor",), ("analysts", "list"),
        ("approve", study, "--yes", "--by", "Kim"),
    )  # fmt: skip
    done = [site(rig.config_file, *word, *form) for word in words for form in ((), ("--json",))]
    assert 71 not in [one.code for one in done], "a command that ends in a defect shows nothing"
    return [one.out for one in done]


# Each takes two seconds of a processor. The quick ones: imported and not, and known to be changed.
CASES = [(key, known, imported) for imported in (False, True) for key in KEYS for known in KNOWN]
QUICK = [("her own", "nobody", False), ("her own", "another analyst", True), ("another", "her", False)]


@pytest.mark.parametrize(
    ("key", "known", "imported"),
    [pytest.param(*case, marks=[] if case in QUICK else [pytest.mark.slow]) for case in CASES],
)
def test_an_unconfirmed_fingerprint_is_in_no_output(
    tmp_path: Path, caplog: Log, capfd: Capture, key: str, known: str, imported: bool
) -> None:
    rig = rigged(tmp_path)
    for analyst in KNOWN[known]:
        rig.stage.know_analyst(analyst)
    card = analyst_card("ada", FEDERATION, KEYS[key])
    if imported and "ada" not in KNOWN[known]:
        Roster(ANALYSTS, rig.stage.config.identity).import_cards([card], FEDERATION, replacing=False)
    rig.plan = study_plan(name="signed", submission="one")
    shown = [
        *came(rig, KEYS[key]), *pages(rig, "en"), *pages(rig, "de"), *commands(rig), caplog.text,
        *capfd.readouterr(),
    ]  # fmt: skip
    found = [text for text in shown if bare(card.check().fingerprint) in bare(text)]
    assert bool(found) is (known == "her" and key == "her own"), found
    assert any("ada" in text for text in shown)
