"""[R31] A site that ever confirmed another site's card answers masked studies only, unless told so."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from eigenveil.errors import Code, RequestError
from eigenveil_client.site.commands import consent, study_list
from eigenveil_client.site.commands.checks import offline_checks
from eigenveil_client.site.daemon.answers import Ready
from eigenveil_client.site.daemon.decisions import Refusal
from eigenveil_client.site.policy import Approval
from eigenveil_client.site.policy_sections import KNOWN, TrustRules
from eigenveil_client.site.roster import peers
from eigenveil_client.site.state.received_plans import ConsentStatus
from eigenveil_client.site.state.store import SiteStore
from eigenveil_common.doctor import Level
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.client.site.masking import OTHERS, PLAN, QUESTIONS, Peers, assignment, confirm
from tests.client.site.stated import rehearsal, work
from tests.client.site.support import SITE, Stage, a_plan, a_stage, reason_of
from tests.support import refused

CENTRAL = a_plan()


def central(stage: Stage) -> object:
    with closing(stage.store()) as store:
        return stage.worker(store).work(work(rehearsal(CENTRAL.digest)[0], stage.signed(CENTRAL)))


@pytest.mark.parametrize("since", ["confirmed", "removed", "contradicted"])
def test_central_study_is_declined_after_a_confirmed_peer(peers: Peers, since: str) -> None:
    for name in OTHERS:
        if since == "removed":
            peers.roster.remove(name)
        elif since == "contradicted":
            peers.roster.mark_changed(name, "00" * 32)
    assert reason_of(central(peers.stage)) == pb.DECLINE_REASON_POLICY
    failed = [one.about for one in offline_checks(peers.stage.config, CENTRAL) if one.level is Level.FAIL]
    assert "policy trust" in failed


def test_site_toml_may_allow_both_trusts(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    both = Peers(a_stage(tmp_path / "a", secrecy=TrustRules(trust=KNOWN)))
    assert not isinstance(central(both.stage), Refusal)
    message = peers.verdicts(both.stage.config.identity, "anna", CENTRAL, TrustRules(trust=KNOWN))
    assert message == (), "what site.toml states is said once, with the other stated rules"
    assert not isinstance(central(a_stage(tmp_path / "b")), Refusal)


def test_central_study_ends_once_a_peer_is_confirmed(stage: Stage, store: SiteStore) -> None:
    first, second = rehearsal(CENTRAL.digest)[:2]
    assert not isinstance(stage.worker(store).work(work(first, stage.signed(CENTRAL))), Refusal)
    Peers(stage)
    assert isinstance(stage.worker(store).work(work(second)), Refusal)


def test_a_person_cannot_agree_to_it_and_masked_studies_wait_as_ever(tmp_path: Path) -> None:
    stage = a_stage(tmp_path, approval=Approval.MANUAL)
    with closing(stage.store()) as store:
        worker = stage.worker(store)
        assert worker.work(work(rehearsal(CENTRAL.digest)[0], stage.signed(CENTRAL))) is None
        Peers(stage)
        with refused(Code.POLICY, "trust: central", "in site.toml"):
            consent.approve(stage.config, store, store.studies.find(CENTRAL.digest), by="ida")
        assert worker.work(assignment(QUESTIONS[0], None, stage.signed(PLAN))) is None
        assert store.studies.status(PLAN.digest) is ConsentStatus.PENDING


FIRST = QUESTIONS[0]
BOTH = TrustRules()
MISSING = "the key card of hospital-c, hospital-d is not confirmed here: telephone each"


def test_where_the_rules_decide_a_study_with_a_stranger_is_declined(tmp_path: Path) -> None:
    peers = Peers(a_stage(tmp_path), confirmed=OTHERS[:1])
    store = peers.stage.store()
    refusal = peers.stage.worker(store).work(assignment(FIRST, None, peers.stage.signed(PLAN)))
    assert isinstance(refusal, Refusal)
    assert refusal.reason == pb.DECLINE_REASON_POLICY
    assert [(one["rule"], one["plans"]) for one in store.declined.counts()] == [("peers", 1)]
    assert store.ledger.ledger.size == 0
    store.close()


def test_where_a_person_decides_a_study_waits_until_the_cards_are_confirmed(tmp_path: Path) -> None:
    peers = Peers(a_stage(tmp_path, approval=Approval.MANUAL), confirmed=OTHERS[:1])
    config, store = peers.stage.config, peers.stage.store()
    worker = peers.stage.worker(store)
    assert worker.work(assignment(FIRST, None, peers.stage.signed(PLAN))) is None
    seen = store.studies.find(PLAN.digest)
    (result,) = [
        peers for peers in consent.explain_plan(config, store, PLAN, None)["policy"] if not peers["passed"]
    ]
    assert result["rule"] == "peers"
    assert MISSING in result["text"]
    assert "eigenveil-site peers confirm hospital-c" in result["text"]
    (listed,) = study_list.studies(config, store)["studies"]
    assert listed["reason"] == "cannot be approved yet: peers; see explain"
    with pytest.raises(RequestError, match=MISSING):
        consent.approve(config, store, seen, by="ida")
    for name in OTHERS[1:]:
        confirm(peers.roster, peers.keys[name], peers.keys[SITE])
    assert study_list.studies(config, store)["studies"][0]["reason"] == ""
    consent.approve(config, store, seen, by="ida")
    assert isinstance(worker.work(assignment(FIRST)), Ready)
    store.close()


def test_pending_study_with_unconfirmed_peers_is_refused_under_auto_approval(tmp_path: Path) -> None:
    peers = Peers(a_stage(tmp_path, approval=Approval.MANUAL), confirmed=OTHERS[:1])
    with closing(peers.stage.store()) as store:
        assert peers.stage.worker(store).work(assignment(FIRST, None, peers.stage.signed(PLAN))) is None
        peers.stage.rule(approval=Approval.AUTO)
        assert reason_of(peers.stage.worker(store).work(assignment(FIRST))) == pb.DECLINE_REASON_POLICY
        assert store.ledger.ledger.size == 0


def test_a_site_without_a_card_fails_the_peer_rule(stage: Stage) -> None:
    trust, verdict = peers.verdicts(stage.config.identity, SITE, PLAN, BOTH)
    assert (trust.rule, trust.passed) == ("trust", True)
    assert not verdict.passed
    assert "eigenveil-site peers export" in verdict.text
    failed = [one.about for one in offline_checks(stage.config, PLAN) if one.level is Level.FAIL]
    assert failed == ["policy peers"], "so does eigenveil-site check"
