"""What a coordinator does in the name of an analyst whose key people at the site have confirmed.

It holds the federation's release key, so every plan here is signed as honest ones are; the analyst's key it
does not hold. Each entry says what must be in the site's log. [R31]
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from eigenveil.numerics.encoding import canonical, parse_json
from eigenveil.planning.choose import rehearse
from eigenveil.protocol.plan import Plan
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
    """The first question of a plan, which comes with this authorization."""
    return [work(rehearse(plan)[0], stage.authorized(plan, signed))]


def stated(signed: SignedAuthorization, **changes: object) -> SignedAuthorization:
    """A statement with changed fields, under the analyst's real signature: as if one had ever been made."""
    message = canonical(parse_json(signed.signed_json) | changes)
    return replace(
        signed, signed_json=message, signature=analyst_key("ada").sign(AUTHORIZATION_SIGNED + message)
    )


def by_another_key(stage: Stage) -> Responses:
    plan = a_plan(GREEDY, submission="forged")
    return question(stage, plan, signed_by_analyst(plan, MALLORY))


def by_another_key_under_her_card(stage: Stage) -> Responses:
    plan = a_plan(GREEDY, submission="forged")
    signed = signed_by_analyst(plan, MALLORY)
    return question(stage, plan, replace(signed, card=analyst_card("ada", plan.federation)))


def stripped(stage: Stage) -> Responses:
    return question(stage, a_plan(GREEDY, submission="stripped"), None)


def borrowed(stage: Stage) -> Responses:
    """A signature that the analyst made under another plan."""
    honest, plan = a_plan(submission="greedy"), a_plan(GREEDY, submission="greedy")
    return question(stage, plan, signed_by_analyst(honest))


def in_an_older_form(stage: Stage) -> Responses:
    plan = a_plan(GREEDY, submission="older")
    return question(stage, plan, stated(signed_by_analyst(plan), form=0))


def expired(stage: Stage) -> Responses:
    plan = a_plan(submission="expired")
    return question(stage, plan, signed_by_analyst(plan, expires=int(time.time()) - 1))


def endless(stage: Stage) -> Responses:
    plan = a_plan(submission="endless")
    return question(stage, plan, signed_by_analyst(plan, expires=int(time.time()) + 40 * 86_400))


def another_analyst(stage: Stage) -> Responses:
    """Certified by the coordinator, with a key of its own, whom nobody here has compared."""
    plan = a_plan(submission="stranger", analyst="mallory")
    return question(stage, plan, signed_by_analyst(plan))


def under_the_id_of(used: Plan) -> Evil:
    """Another plan, which the analyst signed as well, as after "that one was lost, sign again"."""

    def evil(stage: Stage) -> Responses:
        plan = a_plan(GREEDY, submission=used.submission)
        return question(stage, plan, signed_by_analyst(plan))

    return evil


def ended_and_replayed(plan: Plan) -> Evil:
    """A study whose end this site heard, from its first question on."""

    def evil(stage: Stage) -> Responses:
        end = pb.StudyEnd(plan_digest=bytes.fromhex(plan.digest), state=pb.STUDY_STATE_RELEASED)
        return [pb.NextWorkResponse(ended=[end]), *question(stage, plan, signed_by_analyst(plan))]

    return evil


# By another clock these hold: nothing is said of them.
PUT_OFF = frozenset({"a signature that has expired", "a signature that hardly ends"})
ATTACKS: Mapping[str, tuple[str, Evil]] = {
    "a plan in her name by another key": ("code=unconfirmed-analyst", by_another_key),
    "a plan in her name by another key under her card": ("code=identity", by_another_key_under_her_card),
    "a study without its signature": ("code=unsigned", stripped),
    "her signature under another plan": ("code=authorization", borrowed),
    "a signature of an older form": ("code=version", in_an_older_form),
    "a signature that has expired": ("code=authorization-expired", expired),
    "a signature that hardly ends": ("code=authorization", endless),
    "an analyst whom nobody compared": ("code=unconfirmed-analyst", another_analyst),
}
