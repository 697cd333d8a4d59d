"""Messages of a malicious coordinator to a site about the sets of sites of a masked study."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from eigenveil.planning.choose import rehearse
from eigenveil.protocol.rounds import ROUND_SIGNED
from eigenveil.queries import RowNorms
from eigenveil.secure_aggregation.masking import ATTEMPT_SIGNED, MOST_BYTES, SignedAttempt
from eigenveil.study.study import MAX_SITES, Federation
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.client.site.masking import EVERY, OTHERS, SPARES
from tests.client.site.stated import RELEASE_KEY, work
from tests.client.site.support import SITE, a_plan, a_study
from tests.support import changed_query
from tests.torture.masked.scene import STRANGER, Responses, Scene

Evil = Callable[[Scene], Responses]
Place = tuple[int, int]  # a round, and the number of an attempt at it
FIRST, SECOND, LAST = (0, 1), (1, 1), 6  # a round, of the dearest query
DEAREST = (*((round, 1) for round in range(LAST)), *((LAST, number) for number in range(1, SPARES + 2)))
B, C, D = OTHERS
SETS = {1: EVERY, 2: (SITE, B, C), 3: (SITE, B, D)}  # of honest attempts, by their number
REFUSED = "code=protocol"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """Messages between the honest attempts `before` and `after`. `again` are those of which the bytes
    leave once more; `refused` is how many of its messages are declined (all, if None); `seen` is logged."""

    name: str
    evil: Evil
    seen: str = REFUSED
    before: tuple[Place, ...] = (FIRST,)
    after: tuple[Place, ...] = (SECOND,)
    again: tuple[Place, ...] = ()
    refused: int | None = None
    study: Mapping[str, object] = field(default_factory=dict)


def honest(scene: Scene, positions: tuple[Place, ...]) -> Responses:
    message = []
    for round, number in positions:
        message += [scene.question(round)] if number == 1 else []
        message.append(scene.fixed(round, number, sites=SETS[number]))
    return message


def shown(round: int = 1, number: int = 1, **changes: Any) -> Evil:
    """One attempt that differs from an honest one."""
    return lambda scene: [scene.fixed(round, number, **changes)]


def keys(**changed: Callable[[Scene], str]) -> Evil:
    def evil(scene: Scene) -> Responses:
        members = {name: scene.key(name) for name in EVERY}
        return shown(members=members | {name: key(scene) for name, key in changed.items()})(scene)

    return evil


def written(change: Callable[[bytes], bytes]) -> Evil:
    """Statement of an honest attempt, changed, and signed with the real key."""

    def evil(scene: Scene) -> Responses:
        message = change(scene.attempt(0).signed_json)
        return [
            scene.beside(
                0, SignedAttempt(signed_json=message, signature=RELEASE_KEY.sign(ATTEMPT_SIGNED + message))
            )
        ]

    return evil


def stating(**changes: Any) -> Evil:
    """The same of single fields, which no constructor would take."""
    return written(lambda message: dumped(json.loads(message) | changes))


def in_capitals(scene: Scene) -> Responses:
    members = dict(scene.attempt(0).members)
    return stating(members=members | {SITE: members[SITE].upper()})(scene)


def dumped(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def signed_as(sign: Callable[[bytes], bytes]) -> Evil:
    return lambda scene: [
        scene.beside(
            0,
            SignedAttempt(
                signed_json=scene.attempt(0).signed_json, signature=sign(scene.attempt(0).signed_json)
            ),
        )
    ]


def moved(scene: Scene) -> Responses:
    return [scene.beside(1, scene.attempt(0).signed(RELEASE_KEY.sign))]


def of_other_plan(scene: Scene) -> Responses:
    """An attempt at the same round of a study that differs in its name alone."""
    other = Scene.of(scene.peers, "other")
    return [scene.beside(1, other.attempt(1).signed(RELEASE_KEY.sign))]


def other_query(scene: Scene) -> RowNorms:
    """Another question than the second one of the study."""
    honest = next(
        round_query.query for round_query in scene.queries if isinstance(round_query.query, RowNorms)
    )
    return replace(honest, edges=honest.edges // 2)


def swapped(scene: Scene) -> Responses:
    """A question, and once its answer is ready another one: with the attempt at the first, and at it."""
    other = changed_query(scene.queries[1], query=other_query(scene))
    attempts = scene.attempt(1), scene.attempt(1, query=other.digest)
    evil = [scene.beside(1, attempt.signed(RELEASE_KEY.sign), other) for attempt in attempts]
    return [scene.question(1), *evil]


def renamed(scene: Scene, round: int) -> Responses:
    """Another question than the one that was answered, with a second attempt at it."""
    other = changed_query(scene.queries[round], micro_rho=scene.queries[round].priced.micro_rho + 1)
    return [scene.beside(round, scene.attempt(round, 2, query=other.digest).signed(RELEASE_KEY.sign), other)]


def central(scene: Scene) -> Responses:
    plan = a_plan(a_study(federation=scene.plan.study.federation), submission="central")
    round_query = rehearse(plan)[0]
    attempt = scene.attempt(0, plan=plan.digest, query=round_query.digest).signed(RELEASE_KEY.sign)
    response = work(round_query, scene.peers.stage.signed(plan))
    response.attempt.CopyFrom(pb.SignedAttempt(signed_json=attempt.signed_json, signature=attempt.signature))
    return [response] * 2  # the keys are fetched once its plan is accepted


def alone(scene: Scene) -> Responses:
    signed = scene.attempt(1).signed(RELEASE_KEY.sign)
    return [
        pb.NextWorkResponse(
            attempt=pb.SignedAttempt(signed_json=signed.signed_json, signature=signed.signature)
        )
    ]


def changed_plan(scene: Scene) -> Responses:
    """Fewer shares of noise would be due: the plan that was agreed to, changed under its signature."""
    study = replace(scene.plan.study, colluding=2)
    forged = pb.SignedPlan(
        plan_json=replace(scene.plan, study=study).to_json(),
        signature=scene.peers.stage.signed(scene.plan).signature,
    )
    response = scene.fixed(1)
    response.plan.CopyFrom(forged)
    return [response]


def many(scene: Scene) -> Responses:
    """As many sites as a set can have, each with a key."""
    crowd = range(MAX_SITES - len(EVERY))
    return keys(**{f"site-{number}": lambda scene: scene.key(STRANGER) for number in crowd})(scene)


def doubled(message: bytes) -> bytes:
    """A key that stands there twice: the reader takes the last."""
    return message[:-1] + b',"number":1}'


def unread(name: str, evil: Evil, seen: str = REFUSED) -> Attack:
    """Something that is refused before the site looks at what it says, as the first word of a study."""
    return Attack(name=name, evil=evil, seen=seen, before=(), after=(FIRST,))


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
    Attack(name="one attempt more than the pool pays for", before=DEAREST, after=(),
           evil=shown(LAST, SPARES + 2)),
    Attack(name="the same, of which a part was used before", before=(FIRST, (0, 2), *DEAREST[1:-1]), after=(),
           evil=shown(LAST, SPARES + 1)),
    Attack(name="another set for what the pool has paid for", before=DEAREST, after=(), seen="second-set",
           evil=shown(LAST, SPARES + 1, sites=SETS[2])),
    Attack(name="another question under the name of a repeat", before=(FIRST,),
           evil=lambda scene: renamed(scene, 0)),
    Attack(name="a later question under the name of a repeat", before=(FIRST,),
           evil=lambda scene: [scene.beside(0, scene.attempt(1, 2).signed(RELEASE_KEY.sign))]),
    Attack(name="a repeat where no attempt is spare", before=(FIRST,), evil=shown(0, 2),
           study={"spare_attempts": 0}),
    Attack(name="all attempts, each with another set", before=(FIRST, SECOND, (1, 2), (1, 3)),
           evil=lambda scene: [scene.fixed(1, 3, sites=SETS[2]), scene.fixed(1, 1)], after=((2, 1),)),
    *(unread(f"number {number!r}", stating(number=number)) for number in STRANGE_NUMBERS),
    unread("a set of one", lambda scene: stating(members={SITE: scene.key(SITE)})(scene)),
    unread("a set of nobody", stating(members={})),
    Attack(name="below the quorum", evil=shown(sites=(SITE, B))),
    Attack(name="without a site that is required", evil=shown(sites=(SITE, C, D))),
    Attack(name="without this site", evil=shown(sites=OTHERS)),
    Attack(name="this site under another key", evil=keys(**{SITE: lambda scene: NOWHERE})),
    Attack(name="this site under another name",
           evil=keys(**{STRANGER: lambda scene: scene.key(SITE)})),
    Attack(name="an invented site in place of one", evil=shown(sites=(SITE, B, STRANGER))),
    Attack(name="an invented site beside them", evil=shown(sites=(*EVERY, STRANGER))),
    Attack(name="a peer that is not invited", evil=lambda scene: shown(0, sites=EVERY)(scene) * 2, refused=1,
           before=(), after=((0, 2),), study={"federation": Federation(sites=EVERY[:3], quorum=3)}),
    Attack(name="as many sites as there can be", evil=many),
    *(unread(f"the name {name!r}", stating(members={SITE: NOWHERE, name: NOWHERE}))
      for name in ODD_NAMES),
    unread("a key that stands there twice", written(doubled)),
    unread("not in canonical form", written(lambda message: message.replace(b":", b": "))),
    unread("a key that must be known and is not", stating(honest=True, required=["honest"]),
           "code=version"),
    unread("members as a list", stating(members=list(EVERY))),
    unread("no JSON", written(lambda message: b"\xff" + message)),
    unread("nested too deep", written(lambda message: b"[" * 100_000)),
    unread("a number without end", stating(number=10**4000)),
    unread("too long", written(lambda message: message + b" " * MOST_BYTES)),
    unread("a key in capital letters", in_capitals),
    unread("not signed", signed_as(lambda message: b""), "code=identity"),
    unread("signed by another federation",
           signed_as(lambda message: Ed25519PrivateKey.generate().sign(ATTEMPT_SIGNED + message)),
           "code=identity"),
    unread("signed as something else", signed_as(lambda message: RELEASE_KEY.sign(ROUND_SIGNED + message)),
           "code=identity"),
    Attack(name="a signature of another attempt", seen="code=identity",
           evil=lambda scene: [scene.beside(1, replace(scene.attempt(1).signed(RELEASE_KEY.sign),
                                                       signed_json=scene.attempt(1, 2).signed_json))]),
    Attack(name="a question without an attempt, over and over", seen="round-ready", refused=0,
           evil=lambda scene: [scene.question(1)] * 3),
    Attack(name="the attempt left out when it is asked again", seen="round-ready", refused=0,
           evil=lambda scene: [scene.question(0)]),
    Attack(name="closed before it answered", evil=lambda scene: [scene.question(0), scene.fixed(1)],
           before=(), after=(), refused=1,
           study={"federation": Federation(sites=EVERY, quorum=3, required=(SITE,))}),
    Attack(name="masks where the study has none", evil=central, refused=1),
    Attack(name="an attempt without a question", evil=alone, refused=0, seen=""),
    Attack(name="the plan changed after it was agreed to", evil=changed_plan, seen="code=identity"),
)  # fmt: skip
