"""What a malicious coordinator says of the sets of sites of a masked study, to a site that answers honestly."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from eigenveil.planning.dry_run import rehearse
from eigenveil.protocol.statements import ROUND_SIGNED
from eigenveil.queries import RowNorms
from eigenveil.secure_aggregation.attempt import ATTEMPT_SIGNED, MOST_BYTES, SignedAttempt
from eigenveil.study.study import MAX_SITES, Federation
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.client.site.stated import RELEASE_KEY, work
from tests.client.site.support import SITE, a_plan, a_study
from tests.torture.masked.scene import ATTEMPTS, PEERS, SITES, STRANGER, Place, Responses, Scene, other_cards

Evil = Callable[[Scene], Responses]
FIRST, SECOND = (0, 1), (1, 1)
B, C, D = PEERS
SETS = {1: SITES, 2: (SITE, B, C), 3: (SITE, C, D)}  # of honest attempts, by their number
REFUSED = "code=protocol"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """What is said between the honest attempts `before` and `after`. `again` are those of which the bytes
    leave once more; `refused` is how many of its messages are declined (all, if None), and `seen` is logged."""

    name: str
    evil: Evil
    seen: str = REFUSED
    before: tuple[Place, ...] = (FIRST,)
    after: tuple[Place, ...] = (SECOND,)
    again: tuple[Place, ...] = ()
    refused: int | None = None
    study: Mapping[str, object] = field(default_factory=dict)


def honest(scene: Scene, places: tuple[Place, ...]) -> Responses:
    """The attempts of an honest coordinator."""
    said = []
    for round, number in places:
        said += [scene.question(round)] if number == 1 else []
        said.append(scene.fixed(round, number, sites=SETS[number]))
    return said


def shown(round: int = 1, number: int = 1, **changes: Any) -> Evil:
    """One attempt that differs from an honest one."""
    return lambda scene: [scene.fixed(round, number, **changes)]


def cards(**changed: str) -> Evil:
    """The honest sites, with some cards of one's own."""
    return lambda scene: [scene.fixed(1, members=other_cards(scene.keys, SITES, **changed))]


def written(change: Callable[[bytes], bytes]) -> Evil:
    """What is stated of an honest attempt, changed, and signed with the real key."""

    def evil(scene: Scene) -> Responses:
        said = change(scene.attempt(1).said)
        signed = SignedAttempt(said=said, signature=RELEASE_KEY.sign(ATTEMPT_SIGNED + said))
        return [scene.beside(1, signed)]

    return evil


def stating(**changes: Any) -> Evil:
    """The same of single fields, which no constructor would take."""
    return written(lambda said: dumped(json.loads(said) | changes))


def dumped(value: Any) -> bytes:
    """As canonical JSON is, but of anything."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def signed_as(sign: Callable[[bytes], bytes]) -> Evil:
    """An honest attempt under another signature."""
    return lambda scene: [
        scene.beside(1, SignedAttempt(said=scene.attempt(1).said, signature=sign(scene.attempt(1).said)))
    ]


def moved(scene: Scene) -> Responses:
    """The attempt at the round before, beside the question of this one."""
    return [scene.beside(1, scene.attempt(0).signed(RELEASE_KEY.sign))]


def of_other_plan(scene: Scene) -> Responses:
    """An attempt at the same round of a study that differs in its name alone."""
    other = Scene.of(scene.stage, scene.keys, "other")
    return [scene.beside(1, other.attempt(1).signed(RELEASE_KEY.sign))]


def about_nobody(scene: Scene) -> RowNorms:
    """Another question than the second one of the study."""
    honest = next(asked.query for asked in scene.queries if isinstance(asked.query, RowNorms))
    return replace(honest, edges=honest.edges // 2)


def swapped(scene: Scene) -> Responses:
    """A question, and when its answer is ready, another one: with the first one's attempt, and with its own."""
    other = replace(scene.queries[1], query=about_nobody(scene))
    old, new = scene.attempt(1), scene.attempt(1, query=other.digest)
    said = [scene.question(1)]
    for attempt in (old, new):
        response = scene.question(1, other)
        signed = attempt.signed(RELEASE_KEY.sign)
        response.attempt.CopyFrom(pb.SignedAttempt(said=signed.said, signature=signed.signature))
        said.append(response)
    return said


def central(scene: Scene) -> Responses:
    """An attempt beside the question of a study that is not masked."""
    plan = a_plan(a_study(federation=scene.plan.study.federation), submission="central")
    asked = rehearse(plan)[0]
    attempt = scene.attempt(0, plan=plan.digest, query=asked.digest).signed(RELEASE_KEY.sign)
    response = work(asked, scene.stage.signed(plan))
    response.attempt.CopyFrom(pb.SignedAttempt(said=attempt.said, signature=attempt.signature))
    return [response]


def alone(scene: Scene) -> Responses:
    """An attempt, and no question."""
    signed = scene.attempt(1).signed(RELEASE_KEY.sign)
    return [pb.NextWorkResponse(attempt=pb.SignedAttempt(said=signed.said, signature=signed.signature))]


def changed_plan(scene: Scene) -> Responses:
    """Fewer shares of noise would be due: the plan that was agreed to, changed under its signature."""
    study = replace(scene.plan.study, colluding=2)
    forged = pb.SignedPlan(
        plan_json=replace(scene.plan, study=study).to_json(), signature=scene.stage.signed(scene.plan).signature
    )
    response = scene.fixed(1)
    response.plan.CopyFrom(forged)
    return [response]


def many(scene: Scene) -> Responses:
    """As many sites as a set can have, each with a card."""
    crowd = {f"site-{number}": scene.keys[STRANGER].card.digest for number in range(MAX_SITES - len(SITES))}
    return shown(members=other_cards(scene.keys, SITES, **crowd))(scene)


def doubled(said: bytes) -> bytes:
    """A key that stands there twice: the reader takes the last."""
    return said[:-1] + b',"number":1}'


NOWHERE = "0" * 64
ODD_NAMES = ("", "Hospital-B", "hospital-b\n", "../hospital-b", "hospital\u00adb", "\ud800", "a" * 64, "b/c")
STRANGE_NUMBERS = (0, -1, 2**63, 1.0, True, "1", None, [1])

ATTACKS = (
    Attack(name="two sets under one number", evil=shown(0, sites=SETS[2]), seen="second-set"),
    Attack(name="another set under a later number's", evil=shown(1, 2, sites=SETS[3]), seen="second-set",
           after=((2, 1),), before=(FIRST, SECOND, (1, 2))),
    Attack(name="the same attempt again", evil=lambda scene: [scene.fixed(0), scene.fixed(0)],
           again=(FIRST, FIRST), refused=0, seen="round-answered"),
    Attack(name="an attempt after its release", evil=shown(0), before=(FIRST, SECOND), after=((2, 1),)),
    Attack(name="a new attempt after the release", evil=shown(0, 2), before=(FIRST, SECOND),
           after=((2, 1),)),
    Attack(name="a coordinator from an old copy", before=(FIRST, SECOND, (2, 1)), after=((3, 1),),
           evil=lambda scene: [scene.question(1), scene.fixed(1, sites=SETS[2]), scene.fixed(0)]),
    Attack(name="an attempt at another round", evil=moved),
    Attack(name="an attempt at another study", evil=of_other_plan),
    Attack(name="an attempt at another question", evil=shown(query=NOWHERE)),
    Attack(name="the question swapped once it is ready", evil=swapped, refused=2),
    Attack(name="numbers count down", before=(FIRST, SECOND, (1, 3)), evil=shown(1, 2, sites=SETS[2]),
           after=((2, 1),)),
    Attack(name="numbers are skipped, and come back", before=(FIRST, (1, 3)),
           evil=lambda scene: [scene.fixed(1, 1), scene.fixed(1, 2)], after=((2, 1),)),
    Attack(name="one attempt more than the plan has", evil=shown(1, ATTEMPTS + 1)),
    Attack(name="all attempts, each with another set", before=(FIRST, SECOND, (1, 2), (1, 3)),
           evil=lambda scene: [scene.fixed(1, 3, sites=SETS[2]), scene.fixed(1, 4), scene.fixed(1, 1)],
           after=((2, 1),)),
    *(Attack(name=f"number {number!r}", evil=stating(number=number)) for number in STRANGE_NUMBERS),
    Attack(name="a set of one", evil=lambda scene: stating(members={SITE: scene.keys[SITE].card.digest})(scene)),
    Attack(name="a set of nobody", evil=stating(members={})),
    Attack(name="below the quorum", evil=shown(sites=SITES[:2])),
    Attack(name="without a site that is required", evil=shown(sites=(SITE, C, D)),
           study={"federation": Federation(sites=SITES, quorum=3, required=(SITE, B))}),
    Attack(name="without this site", evil=shown(sites=PEERS)),
    Attack(name="this site under another card", evil=cards(**{SITE: NOWHERE})),
    Attack(name="this site under another name",
           evil=lambda scene: cards(**{STRANGER: scene.keys[SITE].card.digest})(scene)),
    Attack(name="an invented site in place of one", evil=shown(sites=(SITE, B, STRANGER))),
    Attack(name="an invented site beside them", evil=shown(sites=(*SITES, STRANGER))),
    Attack(name="a peer that is not invited", evil=shown(0, sites=SITES), before=(), after=((0, 2),),
           study={"federation": Federation(sites=SITES[:3], quorum=3)}),
    Attack(name="as many sites as there can be", evil=many),
    *(Attack(name=f"the name {name!r}", evil=stating(members={SITE: NOWHERE, name: NOWHERE}))
      for name in ODD_NAMES),
    Attack(name="a key that stands there twice", evil=written(doubled)),
    Attack(name="not in canonical form", evil=written(lambda said: said.replace(b":", b": "))),
    Attack(name="a key of its own", evil=stating(honest=True)),
    Attack(name="members as a list", evil=stating(members=list(SITES))),
    Attack(name="no JSON", evil=written(lambda said: b"\xff" + said)),
    Attack(name="nested too deep", evil=written(lambda said: b"[" * 100_000)),
    Attack(name="a number without end", evil=stating(number=10**4000)),
    Attack(name="too long", evil=written(lambda said: said + b" " * MOST_BYTES)),
    Attack(name="a card in capital letters",
           evil=lambda scene: cards(**{SITE: scene.keys[SITE].card.digest.upper()})(scene)),
    Attack(name="not signed", evil=signed_as(lambda said: b""), seen="code=identity"),
    Attack(name="signed by another federation", seen="code=identity",
           evil=signed_as(lambda said: Ed25519PrivateKey.generate().sign(ATTEMPT_SIGNED + said))),
    Attack(name="signed as something else", seen="code=identity",
           evil=signed_as(lambda said: RELEASE_KEY.sign(ROUND_SIGNED + said))),
    Attack(name="a signature of another attempt", seen="code=identity",
           evil=lambda scene: [scene.beside(1, replace(scene.attempt(1).signed(RELEASE_KEY.sign),
                                                       said=scene.attempt(1, 2).said))]),
    Attack(name="a question without an attempt, over and over", seen="round-ready", refused=0,
           evil=lambda scene: [scene.question(1)] * 3),
    Attack(name="the attempt left out when it is asked again", seen="round-ready", refused=0,
           evil=lambda scene: [scene.question(0)]),
    Attack(name="closed before it answered", evil=lambda scene: [scene.question(0), scene.fixed(1)],
           before=(), after=(), refused=1),
    Attack(name="masks where the study has none", evil=central),
    Attack(name="an attempt without a question", evil=alone, refused=0, seen=""),
    Attack(name="the plan changed after it was agreed to", evil=changed_plan, seen="code=identity"),
)  # fmt: skip
