"""Honest-looking messages in an order that no honest coordinator says them in, and what people do meanwhile:
each alone would be answered. Every number that leaves was charged, and the same bytes twice are charged once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cached_property
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
from tests.client.site.masking import EVERY, Peers, confirm, keys_of, stated_key
from tests.client.site.stated import RELEASE_KEY, released, sealed, work
from tests.client.site.support import SITE, a_plan, a_study, write_records
from tests.torture.masked.attacks import SETS
from tests.torture.masked.scene import Scene, acquainted

C = EVERY[2]
MASKED_ALONE = TrustRules(trust=("secure-aggregation",))


@dataclass
class Conversation:
    """A site, what comes of what it is told, and the bytes that left for each attempt."""

    peers: Peers
    scene: Scene
    sent: dict[tuple[str, int, int], str] = field(default_factory=dict)

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
            store.egress.verify(store.ledger)
        return " ".join(found)

    @cached_property
    def two(self) -> Scene:
        return Scene.of(self.peers, "two")

    @cached_property
    def wary(self) -> Scene:
        return Scene.of(self.peers, "wary", colluding=2)

    @cached_property
    def twin(self) -> Scene:
        """A study of the same records, of which the coordinator is to see the totals."""
        study = a_study(federation=Federation(sites=EVERY, quorum=3))
        return Scene(peers=self.peers, plan=a_plan(study, submission="central"))

    @cached_property
    def anew(self) -> SiteKeys:
        return keys_of(self.peers.stage, C, "anew")

    @property
    def members(self) -> dict[str, str]:
        return {name: self.scene.key(name) for name in EVERY} | {
            C: stated_key(self.anew, self.scene.plan.digest).digest
        }

    @property
    def digest(self) -> bytes:
        return bytes.fromhex(self.scene.plan.digest)

    def rule(self, **changes: object) -> str:
        self.peers.stage.rule(**changes)
        return ""

    def changes_records(self) -> str:
        write_records(self.peers.stage.records, rows=41)
        return ""

    def removes(self, name: str) -> str:
        self.peers.roster.remove(name)
        return ""

    def confirms(self, keys: SiteKeys, *, replacing: bool = False) -> str:
        confirm(self.peers.roster, keys, self.peers.keys[SITE], replacing=replacing)
        return ""

    def over(self) -> pb.NextWorkResponse:
        """Word that the study was cancelled."""
        return pb.NextWorkResponse(
            ended=[pb.StudyEnd(plan_digest=self.digest, state=pb.STUDY_STATE_CANCELLED)]
        )

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

    def loses_its_state(self) -> str:
        """And its people accept that, and make keys anew."""
        state = self.peers.stage.config.state
        for path in (*state.parent.glob(f"{state.name}*"), state.with_name("egress.key")):
            path.unlink()
        accepted = site(written(self.peers.stage, "budget_epsilon = 1000.0\n"), "accept-loss")
        assert "move peer.key away" in " ".join(accepted.out.split())
        self.sent.clear()
        identity = self.peers.stage.config.identity
        (identity / NAME).rename(identity / "peer.key.old")
        SiteKeys.make(identity)
        return ""


def mixed(one: Scene, other: Scene) -> pb.NextWorkResponse:
    """A question with the set of another study."""
    return one.beside(0, other.attempt(0).signed(RELEASE_KEY.sign))


def merged(one: pb.NextWorkResponse, other: pb.NextWorkResponse) -> pb.NextWorkResponse:
    one.MergeFrom(other)
    return one


# What happens in order, each `hears` one life of the process; and what comes of each.
Story = Callable[[Conversation, Scene], Iterable[str]]
STORIES: dict[str, tuple[Story, str]] = {
    "rounds that a site may miss are passed over, once": (
        lambda t, one: [t.hears(one.fixed(2), one.fixed(1), one.question(1), one.fixed(2, 2))],
        "2.1 no no 2.2",
    ),
    "ready for the next": (
        lambda t, one: [t.hears(one.question(0), one.question(1), one.fixed(0), one.fixed(1))],
        "ready ready no 1.1",
    ),
    "the last round again after its release was stated": (
        lambda t, one: [t.hears(one.fixed(0), one.question(1), one.fixed(0, 2), one.fixed(0))],
        "0.1 ready no no",
    ),
    "cancelled": (
        lambda t, one: [t.hears(one.fixed(0), t.over(), one.fixed(0), one.fixed(0, 2), one.fixed(1))],
        "0.1 - no no no",
    ),
    "cancelled beside a question": (
        lambda t, one: [t.hears(one.fixed(0), merged(one.fixed(1), t.over()))], "0.1 no",
    ),
    "a lie and then the truth, also after a restart": (
        lambda t, one: [t.hears(one.fixed(0), t.lied(), one.fixed(1), one.fixed(1, 2)),
                        t.hears(one.fixed(1), t.lied())],
        "0.1 1.1 no no | no 1.1",
    ),
    "the truth and then a lie": (
        lambda t, one: [t.hears(one.fixed(0), one.question(1), t.lied(), one.fixed(1))],
        "0.1 ready no 1.1",
    ),
    "two studies in step, with sets that are for the other": (
        lambda t, one: [t.hears(one.question(0), t.two.question(0), mixed(one, t.two), t.two.fixed(0)),
                        t.hears(t.two.fixed(1), one.fixed(0), t.two.fixed(0))],
        "ready ready no 0.1 | 1.1 0.1 no",
    ),
    "the set of a study with larger shares of noise": (
        lambda t, one: [t.hears(t.wary.fixed(0), mixed(one, t.wary), one.fixed(0))], "0.1 no 0.1",
    ),
    "a central twin where the rules want masks": (
        lambda t, one: [t.rule(secrecy=MASKED_ALONE),
                        t.hears(one.question(0), t.twin.question(0), one.fixed(0), t.twin.question(0))],
        "ready no 0.1 no",
    ),
    "a central twin until the rules change": (
        lambda t, one: [t.hears(t.twin.question(0)), t.rule(secrecy=MASKED_ALONE),
                        t.hears(t.twin.question(0), t.twin.question(1), one.fixed(0))],
        "EXACT | no no 0.1",
    ),
    "more colluders feared": (
        lambda t, one: [t.hears(one.fixed(0)), t.rule(secrecy=TrustRules(colluding=2)),
                        t.hears(one.fixed(0), one.fixed(0, 2), one.fixed(1))],
        "0.1 | no no no",
    ),
    "more sites wanted": (
        lambda t, one: [t.hears(one.fixed(0, sites=SETS[2])), t.rule(secrecy=TrustRules(minimum_sites=4)),
                        t.hears(one.fixed(0, sites=SETS[2]), one.fixed(0, 2), t.two.fixed(0))],
        "0.1 | no no no",
    ),
    "approval ends": (
        lambda t, one: [t.hears(one.question(0)), t.rule(approval_ends=date(2020, 1, 1)),
                        t.hears(one.fixed(0))],
        "ready | no",
    ),
    "records change once ready": (
        lambda t, one: [t.hears(one.question(0)), t.changes_records(), t.hears(one.fixed(0))], "ready | no",
    ),
    "records change between attempts": (
        lambda t, one: [t.hears(one.fixed(0)), t.changes_records(),
                        t.hears(one.fixed(0), one.fixed(0, 2, sites=SETS[2]))],
        "0.1 | 0.1 no",
    ),
    "a peer removed and confirmed again": (
        lambda t, one: [t.hears(one.fixed(0)), t.removes(C), t.hears(one.fixed(0)),
                        t.confirms(t.peers.keys[C]), t.hears(one.fixed(0), one.fixed(1))],
        "0.1 | no | 0.1 1.1",
    ),
    "a peer with a new card": (
        lambda t, one: [t.hears(one.fixed(0)), t.confirms(t.anew, replacing=True),
                        t.hears(one.fixed(0, members=t.members), one.fixed(0, 2, members=t.members))],
        "0.1 | no 0.2",
    ),
    "declined and asked again": (
        lambda t, one: [t.removes(C), t.hears(one.fixed(0)), t.confirms(t.peers.keys[C]),
                        t.hears(one.fixed(0), t.two.fixed(0))],
        "no | no 0.1",
    ),
    "consent beside a set": (
        lambda t, one: [t.hears(merged(one.fixed(0), pb.NextWorkResponse(consent=t.digest)), one.fixed(0))],
        "no 0.1",
    ),
    "a budget for the attempts of one study": (
        lambda t, one: [t.rule(budget_epsilon=1.2),
                        t.hears(one.fixed(0), t.two.fixed(0), one.fixed(0, 2), one.fixed(0, 3))],
        "0.1 no 0.2 0.3",
    ),
    "a lost state and a new card": (
        lambda t, one: [t.hears(one.fixed(0)), t.loses_its_state(),
                        t.hears(one.fixed(0), one.fixed(0, 2), one.fixed(1))],
        "0.1 | no no no",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", STORIES)
def test_nothing_leaves_that_is_not_due(name: str, tmp_path: Path) -> None:
    peers = acquainted(tmp_path)
    conversation, (story, due) = Conversation(peers=peers, scene=Scene.of(peers, "one")), STORIES[name]
    assert " | ".join(filter(None, story(conversation, conversation.scene))) == due
