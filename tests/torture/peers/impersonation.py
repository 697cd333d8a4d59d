"""Attacks of a coordinator in the name of an analyst whose key people at the site have confirmed.

It holds the federation's release key, so every plan here is signed as honest ones are; the analyst's key it
does not hold. Each entry says what must be in the site's log. [R31]"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from eigenveil.numerics.encoding import canonical, parse_json
from eigenveil.planning.choose import rehearse
from eigenveil.protocol.plan import Plan
from eigenveil.study.study import Study
from eigenveil.study_authorization import AUTHORIZATION_SIGNED, SignedAuthorization
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.client.site.stated import work
from tests.client.site.support import Stage, a_plan, a_study
from tests.support import analyst_card, analyst_key, signed_by_analyst

Responses = list[pb.NextWorkResponse]
Evil = Callable[[Stage], Responses]
MALLORY = analyst_key("mallory")
GREEDY = a_study(epsilon=2.0)


def question(stage: Stage, plan: Plan, signed: SignedAuthorization | None) -> Responses:
    return [work(rehearse(plan)[0], stage.authorized(plan, signed))]


def stated(signed: SignedAuthorization, **changes: object) -> SignedAuthorization:
    """A statement with changed fields, under the analyst's real signature: as if one had ever been made."""
    message = canonical(parse_json(signed.signed_json) | changes)
    return replace(
        signed, signed_json=message, signature=analyst_key("ada").sign(AUTHORIZATION_SIGNED + message)
    )


def forged(
    name: str, sign: Callable[[Plan], SignedAuthorization | None], study: Study = GREEDY, analyst: str = "ada"
) -> Evil:
    """The first question of a plan of this study, with what is signed of it."""
    plan = a_plan(study, submission=name, analyst=analyst)
    return lambda stage: question(stage, plan, sign(plan))


def expiring(seconds: int) -> Callable[[Plan], SignedAuthorization]:
    return lambda plan: signed_by_analyst(plan, expires=int(time.time()) + seconds)


def under_the_id_of(used: Plan) -> Evil:
    """Another plan, which the analyst signed as well, as after "that one was lost, sign again"."""

    def evil(stage: Stage) -> Responses:
        plan = a_plan(GREEDY, submission=used.submission)
        return question(stage, plan, signed_by_analyst(plan))

    return evil


def ended_and_replayed(plan: Plan) -> Evil:
    def evil(stage: Stage) -> Responses:
        end = pb.StudyEnd(plan_digest=bytes.fromhex(plan.digest), state=pb.STUDY_STATE_RELEASED)
        return [pb.NextWorkResponse(ended=[end]), *question(stage, plan, signed_by_analyst(plan))]

    return evil


# By another clock these hold: nothing is said of them.
PUT_OFF = frozenset({"a signature that has expired", "a signature that hardly ends"})
HONEST = a_study()
ATTACKS: Mapping[str, tuple[str, Evil]] = {
    "a plan in her name by another key": (
        "code=unconfirmed-analyst", forged("forged", lambda plan: signed_by_analyst(plan, MALLORY)),
    ),
    "a plan in her name by another key under her card": (
        "code=identity",
        forged("forged", lambda plan: replace(signed_by_analyst(plan, MALLORY),
                                              card=analyst_card("ada", plan.federation))),
    ),
    "a study without its signature": ("code=unsigned", forged("stripped", lambda plan: None)),
    "her signature under another plan": (
        "code=authorization",
        forged("greedy", lambda plan: signed_by_analyst(a_plan(submission="greedy"))),
    ),
    "a signature of an older form": (
        "code=version",
        forged("older", lambda plan: stated(signed_by_analyst(plan), format="eigenveil-authorization/0")),
    ),
    "a signature that has expired": ("code=authorization-expired", forged("expired", expiring(-1), HONEST)),
    "a signature that hardly ends": ("code=authorization", forged("endless", expiring(40 * 86_400), HONEST)),
    # Certified by the coordinator, with a key of its own.
    "an analyst whom nobody compared": (
        "code=unconfirmed-analyst", forged("stranger", signed_by_analyst, HONEST, "mallory"),
    ),
}  # fmt: skip
