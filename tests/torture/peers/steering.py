"""Honest-looking questions, in sequence, under the federation's real signature: each aims at one person.

All of them come after two honest rounds of a study that was agreed to, priced and stated as the honest third
question would be, unless the attack is on just that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from eigenveil.numerics.encoding import IntArray, frozen
from eigenveil.planning.choose import rehearse
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import NoiseDistribution
from eigenveil.protocol.rounds import ROUND_SIGNED, Release
from eigenveil.queries import ClippedSum, Gram, Query, RowNorms, SquaredNormSum
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.client.site.stated import released, sealed, state, work
from tests.client.site.support import Stage, a_plan
from tests.support import changed_query

Responses = list[pb.NextWorkResponse]
Evil = Callable[[Stage], Responses]
PERSON: IntArray = frozen([1_000, -2_000, 3_000])
ROUND = 2


def instead(plan: Plan, query: Query) -> Evil:
    return lambda _: [work(changed_query(rehearse(plan)[ROUND], query=query))]


def changed(plan: Plan, **changes: Any) -> Evil:
    """The honest question, but for one thing."""
    return lambda _: [work(changed_query(rehearse(plan)[ROUND], **changes))]


def touched(plan: Plan, touch: Callable[[pb.NextWorkResponse], object]) -> Evil:
    """The honest question, its message changed."""

    def evil(_: Stage) -> Responses:
        response = work(rehearse(plan)[ROUND])
        touch(response)
        return [response]

    return evil


def lied(releases: tuple[Release, ...], round: int, values: IntArray) -> tuple[Release, ...]:
    found = releases[round]
    made_up = Release(
        round=round, query=found.query, values=values, sigma=found.sigma, micro_rho=found.micro_rho,
        atto_delta=found.atto_delta, present=found.present,
    )  # fmt: skip
    return (*releases[:round], made_up, *releases[round + 1 :])


def about_person(plan: Plan) -> RowNorms:
    honest = next(
        round_query.query for round_query in rehearse(plan) if isinstance(round_query.query, RowNorms)
    )
    return RowNorms(centre=PERSON, edges=honest.edges)


def sign_as_stranger(response: pb.NextWorkResponse) -> None:
    stated = response.release.signed_round
    stated.signature = Ed25519PrivateKey.generate().sign(ROUND_SIGNED + stated.signed_json)


def lie_and_person(plan: Plan) -> Evil:
    """A release that was never drawn, and a question to which not even that leads."""
    releases = lied(released(plan.digest), 1, frozen(np.zeros(40, dtype=np.int64)))
    return lambda _: [work(changed_query(rehearse(plan)[ROUND], query=about_person(plan)), releases=releases)]


def shrink_ledger(plan: Plan, response: pb.NextWorkResponse) -> None:
    """State fewer rows of the ledger than before."""
    signed = state(rehearse(plan)[ROUND], released(plan.digest), size=1)
    response.signed_round.CopyFrom(pb.SignedRound(signed_json=signed.signed_json, signature=signed.signature))


def questions(plan: Plan) -> dict[str, Evil]:
    """Queries that a coordinator may try in the third round of `plan`, by name."""
    honest = rehearse(plan)[ROUND].query
    assert isinstance(honest, ClippedSum)
    narrow, priced = about_person(plan).edges // 2, rehearse(plan)[ROUND].priced
    person = work(changed_query(rehearse(plan)[ROUND], query=about_person(plan))).query
    other, lie = a_plan(submission="other-study"), lied(released(plan.digest), 0, frozen([7]))
    return {
        "presence of one exact record": instead(plan, RowNorms(centre=PERSON, edges=frozen([1]))),
        "the grid's bins about one person": instead(plan, about_person(plan)),
        "bins half as wide": instead(plan, RowNorms(centre=honest.centre, edges=narrow)),
        "a sum cut to radius 1": instead(plan, replace(honest, radius=1)),
        "a sum one unit and one more off": instead(plan, replace(honest, radius=honest.radius + 2)),
        "squared lengths at radius 1": instead(plan, SquaredNormSum(centre=PERSON, radius=1)),
        "products before their time": instead(plan, Gram(centre=honest.centre, radius=honest.radius)),
        "one micro-rho less": changed(plan, micro_rho=priced.micro_rho - 1),
        "one micro-rho more": changed(plan, micro_rho=priced.micro_rho + 1),
        "another noise": changed(plan, distribution=NoiseDistribution.LAPLACE),
        "a delta of its own": changed(plan, atto_delta=1),
        "a later question now": lambda _: [work(replace(rehearse(plan)[4], round=ROUND))],
        "a question that nobody stated": touched(plan, lambda sent: sent.ClearField("signed_round")),
        "a statement about another question": touched(plan, lambda sent: sent.query.CopyFrom(person)),
        "a release changed after signing": touched(
            plan, lambda sent: setattr(sent.release, "values", bytes(len(sent.release.values)))
        ),
        "a release that a stranger signed": touched(plan, sign_as_stranger),
        "a release never drawn, and one person": lie_and_person(plan),
        "a second release of one round": touched(
            plan, lambda sent: sent.release.CopyFrom(sealed(rehearse(plan)[0], lie))
        ),
        "a release of another study": touched(
            plan, lambda sent: sent.release.CopyFrom(sealed(rehearse(other)[1], released(other.digest)))
        ),
        "a ledger that shrank": touched(plan, partial(shrink_ledger, plan)),
    }
