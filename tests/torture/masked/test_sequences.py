"""Honest-looking messages in an order that no honest coordinator says them in, and what people do meanwhile:
each alone would be answered. Every number that leaves was charged, and the same bytes twice are charged once.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path

import pytest

from eigenveil.accounting.ledger import EntryKind
from eigenveil.aggregation import Contribution
from eigenveil.numerics.encoding import frozen
from eigenveil.session import Session
from eigenveil.study.study import Federation
from eigenveil_client.site.daemon.answers import MaskedAnswer, Ready
from eigenveil_client.site.daemon.decisions import Refusal
from eigenveil_client.site.policy_sections import TrustRules
from eigenveil_client.site.roster.peers import NAME, SiteKeys
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.client.site.command_line import site, written
from tests.client.site.masking import EVERY, Peers, confirm, keys_of
from tests.client.site.stated import RELEASE_KEY, released, sealed, work
from tests.client.site.support import SITE, a_plan, a_study, write_records
from tests.torture.masked.attacks import SETS
from tests.torture.masked.scene import Scene, acquainted

B, C = EVERY[1], EVERY[2]
MASKED_ALONE = TrustRules(trust=("secure-aggregation",))


@dataclass
class Told:
    """A site, what comes of what it is told, and the bytes that left for each attempt."""

    peers: Peers
    scene: Scene
    sent: dict[tuple[str, int, int], str] = field(default_factory=dict)
    serial: Iterator[int] = field(default_factory=itertools.count)

    def hears(self, *message: pb.NextWorkResponse) -> str:
        """One life of its process, in short words."""
        with closing(self.peers.stage.store()) as store:
            worker = self.peers.stage.worker(store)
            found = []
            for one in message:
                reply = worker.work(one)
                if isinstance(reply, MaskedAnswer):
                    place = reply.plan_digest, reply.round, reply.number
                    assert self.sent.setdefault(place, reply.contribution.digest) == reply.contribution.digest
                    found.append(f"{reply.round}.{reply.number}")
                else:
                    words = {Ready: "ready", Refusal: "no", Contribution: "EXACT"}
                    found.append(words.get(type(reply), "-"))
            paid = [one for one in store.ledger.entries() if one.kind is EntryKind.ATTEMPT]
            assert len(paid) == len(self.sent), "as many attempts are charged as have left"
            store.egress.verify(store.ledger.ledger)
        return " ".join(found)

    def another(self, **changes: object) -> Scene:
        return Scene.of(self.peers, f"another-{next(self.serial)}", **changes)

    def central(self) -> Scene:
        """One over the same records, of which the coordinator is to see the totals."""
        study = a_study(federation=Federation(sites=EVERY, quorum=3))
        return Scene(peers=self.peers, plan=a_plan(study, submission=f"central-{next(self.serial)}"))

    def over(self) -> pb.NextWorkResponse:
        """Word that the study was cancelled."""
        digest = bytes.fromhex(self.scene.plan.digest)
        return pb.NextWorkResponse(ended=[pb.StudyEnd(plan_digest=digest, state=pb.STUDY_STATE_CANCELLED)])

    def lied(self) -> pb.NextWorkResponse:
        """The second question after a first release that was never drawn, with its set."""
        scene, true = self.scene, released(self.scene.plan.digest)[0]
        lie, session = replace(true, values=frozen(true.values + 7)), Session(scene.plan)
        session.feed(lie)
        assert session.pending is not None
        response = work(session.pending, self.peers.stage.signed(scene.plan), [lie])
        response.release.CopyFrom(sealed(scene.queries[0], [lie]))
        signed = scene.attempt(1, query=session.pending.digest).signed(RELEASE_KEY.sign)
        response.attempt.CopyFrom(
            pb.SignedAttempt(signed_json=signed.signed_json, signature=signed.signature)
        )
        return response

    def loses_its_state(self) -> None:
        """And its people accept that."""
        state = self.peers.stage.config.state
        for path in (*state.parent.glob(f"{state.name}*"), state.with_name("egress.key")):
            path.unlink()
        accepted = site(written(self.peers.stage, "budget_epsilon = 1000.0\n"), "accept-loss")
        assert "move peer.key away" in " ".join(accepted.out.split())


@pytest.fixture
def told(tmp_path: Path) -> Told:
    """A study that the site has no answer yet."""
    peers = acquainted(tmp_path)
    return Told(peers=peers, scene=Scene.of(peers, "one"))


Story = Callable[[Told, Scene], Iterator[tuple[str, str]]]  # what came, and what is due


def steps_back(told: Told, one: Scene) -> Iterator[tuple[str, str]]:
    """Rounds that a site may miss are passed over, once."""
    yield told.hears(one.fixed(2), one.fixed(1), one.question(1), one.fixed(2, 2)), "2.1 no no 2.2"


def ready_for_the_next(told: Told, one: Scene) -> Iterator[tuple[str, str]]:
    yield told.hears(one.question(0), one.question(1), one.fixed(0), one.fixed(1)), "ready ready no 1.1"


def a_late_attempt(told: Told, one: Scene) -> Iterator[tuple[str, str]]:
    """The last round tried again, after its release was stated."""
    yield told.hears(one.fixed(0), one.question(1), one.fixed(0, 2), one.fixed(0)), "0.1 ready no no"


def cancelled(told: Told, one: Scene) -> Iterator[tuple[str, str]]:
    again = one.fixed(0), one.fixed(0, 2), one.fixed(1)
    yield told.hears(one.fixed(0), told.over(), *again), "0.1 - no no no"


def cancelled_beside_a_question(told: Told, one: Scene) -> Iterator[tuple[str, str]]:
    both = one.fixed(1)
    both.MergeFrom(told.over())
    yield told.hears(one.fixed(0), both), "0.1 no"


def a_lie_and_then_the_truth(told: Told, one: Scene) -> Iterator[tuple[str, str]]:
    """Two questions in one round: the first that is answered stays the only one, also after a restart."""
    yield told.hears(one.fixed(0), told.lied(), one.fixed(1), one.fixed(1, 2)), "0.1 1.1 no no"
    yield told.hears(one.fixed(1), told.lied()), "no 1.1"


def the_truth_and_then_a_lie(told: Told, one: Scene) -> Iterator[tuple[str, str]]:
    yield told.hears(one.fixed(0), one.question(1), told.lied(), one.fixed(1)), "0.1 ready no 1.1"


def two_studies(told: Told, one: Scene) -> Iterator[tuple[str, str]]:
    """In step, with sets that are for the other."""
    two = told.another()
    mixed = one.beside(0, two.attempt(0).signed(RELEASE_KEY.sign))
    yield told.hears(one.question(0), two.question(0), mixed, two.fixed(0)), "ready ready no 0.1"
    yield told.hears(two.fixed(1), one.fixed(0), two.fixed(0)), "1.1 0.1 no"


def more_colluders_elsewhere(told: Told, one: Scene) -> Iterator[tuple[str, str]]:
    """The set of a study in which shares are larger does not serve one in which they are smaller."""
    wary = told.another(colluding=2)
    swapped = one.beside(0, wary.attempt(0).signed(RELEASE_KEY.sign))
    yield told.hears(wary.fixed(0), swapped, one.fixed(0)), "0.1 no 0.1"


def central_twin(told: Told, one: Scene) -> Iterator[tuple[str, str]]:
    told.peers.stage.rule(secrecy=MASKED_ALONE)
    twin = told.central()
    yield told.hears(one.question(0), twin.question(0), one.fixed(0), twin.question(0)), "ready no 0.1 no"


def central_until_the_rules_change(told: Told, one: Scene) -> Iterator[tuple[str, str]]:
    twin = told.central()
    yield told.hears(twin.question(0)), "EXACT"
    told.peers.stage.rule(secrecy=MASKED_ALONE)
    yield told.hears(twin.question(0), twin.question(1), one.fixed(0)), "no no 0.1"


def more_colluders_feared(told: Told, one: Scene) -> Iterator[tuple[str, str]]:
    yield told.hears(one.fixed(0)), "0.1"
    told.peers.stage.rule(secrecy=TrustRules(colluding=2))
    yield told.hears(one.fixed(0), one.fixed(0, 2), one.fixed(1)), "no no no"


def more_sites_wanted(told: Told, one: Scene) -> Iterator[tuple[str, str]]:
    yield told.hears(one.fixed(0, sites=SETS[2])), "0.1"
    told.peers.stage.rule(secrecy=TrustRules(minimum_sites=4))
    yield told.hears(one.fixed(0, sites=SETS[2]), one.fixed(0, 2), told.another().fixed(0)), "no no no"


def approval_ends(told: Told, one: Scene) -> Iterator[tuple[str, str]]:
    yield told.hears(one.question(0)), "ready"
    told.peers.stage.rule(approval_ends=date(2020, 1, 1))
    yield told.hears(one.fixed(0)), "no"


def records_change_once_ready(told: Told, one: Scene) -> Iterator[tuple[str, str]]:
    yield told.hears(one.question(0)), "ready"
    write_records(told.peers.stage.records, rows=41)
    yield told.hears(one.fixed(0)), "no"


def records_change_between_attempts(told: Told, one: Scene) -> Iterator[tuple[str, str]]:
    """What left before goes again, and nothing is made of the others."""
    yield told.hears(one.fixed(0)), "0.1"
    write_records(told.peers.stage.records, rows=41)
    yield told.hears(one.fixed(0), one.fixed(0, 2, sites=SETS[2])), "0.1 no"


def a_peer_put_aside_and_back(told: Told, one: Scene) -> Iterator[tuple[str, str]]:
    yield told.hears(one.fixed(0)), "0.1"
    told.peers.roster.remove(C)
    yield told.hears(one.fixed(0)), "no"
    confirm(told.peers.roster, told.peers.keys[C], told.peers.keys[SITE])
    yield told.hears(one.fixed(0), one.fixed(1)), "0.1 1.1"


def a_peer_with_a_new_card(told: Told, one: Scene) -> Iterator[tuple[str, str]]:
    """With it an attempt is another one, under a number that is gone."""
    yield told.hears(one.fixed(0)), "0.1"
    anew = keys_of(told.peers.stage, C, "anew")
    confirm(told.peers.roster, anew, told.peers.keys[SITE], replacing=True)
    members = {name: one.card(name) for name in EVERY} | {C: anew.card.digest}
    yield told.hears(one.fixed(0, members=members), one.fixed(0, 2, members=members)), "no 0.2"


def declined_and_asked_again(told: Told, one: Scene) -> Iterator[tuple[str, str]]:
    told.peers.roster.remove(C)
    yield told.hears(one.fixed(0)), "no"
    confirm(told.peers.roster, told.peers.keys[C], told.peers.keys[SITE])
    yield told.hears(one.fixed(0), told.another().fixed(0)), "no 0.1"


def consent_beside_a_set(told: Told, one: Scene) -> Iterator[tuple[str, str]]:
    both = one.fixed(0)
    both.consent = bytes.fromhex(one.plan.digest)
    yield told.hears(both, one.fixed(0)), "no 0.1"


def a_budget_for_one_study(told: Told, one: Scene) -> Iterator[tuple[str, str]]:
    """What all attempts may cost is set aside: a second study does not fit beside the first."""
    told.peers.stage.rule(budget_epsilon=1.2)
    yield (
        told.hears(one.fixed(0), told.another().fixed(0), one.fixed(0, 2), one.fixed(0, 3)),
        "0.1 no 0.2 0.3",
    )


def a_state_that_is_lost(told: Told, one: Scene) -> Iterator[tuple[str, str]]:
    """With a new card nothing is answered that was masked with the old one."""
    yield told.hears(one.fixed(0)), "0.1"
    told.loses_its_state()
    told.sent.clear()
    identity = told.peers.stage.config.identity
    (identity / NAME).rename(identity / "peer.key.old")
    SiteKeys.make(identity)
    yield told.hears(one.fixed(0), one.fixed(0, 2), one.fixed(1)), "no no no"


STORIES: tuple[Story, ...] = (
    steps_back, ready_for_the_next, a_late_attempt, cancelled, cancelled_beside_a_question,
    a_lie_and_then_the_truth, the_truth_and_then_a_lie, two_studies, more_colluders_elsewhere, central_twin,
    central_until_the_rules_change, more_colluders_feared, more_sites_wanted, approval_ends,
    records_change_once_ready, records_change_between_attempts, a_peer_put_aside_and_back,
    a_peer_with_a_new_card, declined_and_asked_again, consent_beside_a_set, a_budget_for_one_study,
    a_state_that_is_lost,
)  # fmt: skip


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_nothing_leaves_that_is_not_due(story: Story, told: Told) -> None:
    for came, due in story(told, told.scene):
        assert came == due
