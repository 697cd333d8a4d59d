"""Honest-looking questions, in sequence, under the federation's real signature: each aims at one person.

All of them come after two honest rounds of a study that was agreed to, priced and stated as the honest third
question would be, unless the attack is on just that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from eigenveil.numerics.encoding import IntArray, frozen
from eigenveil.planning.choose import rehearse
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import NoiseDistribution, RoundQuery
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
    """Another question at the price of the honest one."""
    return lambda _: [work(changed_query(rehearse(plan)[ROUND], query=query))]


def changed(plan: Plan, change: Callable[[RoundQuery], RoundQuery]) -> Evil:
    """The honest question, but for one thing."""
    return lambda _: [work(change(rehearse(plan)[ROUND]))]


def lied(releases: tuple[Release, ...], round: int, values: IntArray) -> tuple[Release, ...]:
    """The same releases, but for one that was never drawn."""
    found = releases[round]
    made_up = Release(
        round=round, query=found.query, values=values, sigma=found.sigma, micro_rho=found.micro_rho,
        atto_delta=found.atto_delta, present=found.present,
    )  # fmt: skip
    return (*releases[:round], made_up, *releases[round + 1 :])


def unstated(plan: Plan) -> Evil:
    def evil(_: Stage) -> Responses:
        response = work(rehearse(plan)[ROUND])
        response.ClearField("signed_round")
        return [response]

    return evil


def stated_otherwise(plan: Plan) -> Evil:
    """The statement is about the honest question, the question is not."""

    def evil(_: Stage) -> Responses:
        response = work(changed_query(rehearse(plan)[ROUND], query=about_person(plan)))
        response.signed_round.CopyFrom(work(rehearse(plan)[ROUND]).signed_round)
        return [response]

    return evil


def about_person(plan: Plan) -> RowNorms:
    """The grid's own bins, about one person's place."""
    honest = next(
        round_query.query for round_query in rehearse(plan) if isinstance(round_query.query, RowNorms)
    )
    return RowNorms(centre=PERSON, edges=honest.edges)


def release_changed(plan: Plan) -> Evil:
    def evil(_: Stage) -> Responses:
        response = work(rehearse(plan)[ROUND])
        response.release.values = bytes(len(response.release.values))
        return [response]

    return evil


def stranger_signed(plan: Plan) -> Evil:
    """A release that another key states."""

    def evil(_: Stage) -> Responses:
        response = work(rehearse(plan)[ROUND])
        stated = response.release.signed_round
        stated.signature = Ed25519PrivateKey.generate().sign(ROUND_SIGNED + stated.signed_json)
        return [response]

    return evil


def lie_and_person(plan: Plan) -> Evil:
    """A release that was never drawn, and a question to which not even that leads."""
    releases = lied(released(plan.digest), 1, frozen(np.zeros(40, dtype=np.int64)))
    return lambda _: [work(changed_query(rehearse(plan)[ROUND], query=about_person(plan)), releases=releases)]


def second_release(plan: Plan) -> Evil:
    """Another release of the first round, which the site has seen."""

    def evil(_: Stage) -> Responses:
        response = work(rehearse(plan)[ROUND])
        other = lied(released(plan.digest), 0, frozen([7]))
        response.release.CopyFrom(sealed(rehearse(plan)[0], other))
        return [response]

    return evil


def other_study(plan: Plan) -> Evil:
    """The release of another study's round."""
    other = a_plan(submission="other-study")

    def evil(_: Stage) -> Responses:
        response = work(rehearse(plan)[ROUND])
        response.release.CopyFrom(sealed(rehearse(other)[1], released(other.digest)))
        return [response]

    return evil


def shrunken_ledger(plan: Plan) -> Evil:
    """A statement that names fewer rows of the ledger than the last one did."""

    def evil(_: Stage) -> Responses:
        response, query = work(rehearse(plan)[ROUND]), rehearse(plan)[ROUND]
        signed = state(query, released(plan.digest), size=1)
        response.signed_round.CopyFrom(
            pb.SignedRound(signed_json=signed.signed_json, signature=signed.signature)
        )
        return [response]

    return evil


def questions(plan: Plan) -> dict[str, Evil]:
    """What a coordinator may try in the third round of `plan`, by name."""
    honest = rehearse(plan)[ROUND].query
    assert isinstance(honest, ClippedSum)
    narrow = about_person(plan).edges // 2
    return {
        "presence of one exact record": instead(plan, RowNorms(centre=PERSON, edges=frozen([1]))),
        "the grid's bins about one person": instead(plan, about_person(plan)),
        "bins half as wide": instead(plan, RowNorms(centre=honest.centre, edges=narrow)),
        "a sum cut to radius 1": instead(plan, replace(honest, radius=1)),
        "a sum one unit and one more off": instead(plan, replace(honest, radius=honest.radius + 2)),
        "squared lengths at radius 1": instead(plan, SquaredNormSum(centre=PERSON, radius=1)),
        "products before their time": instead(plan, Gram(centre=honest.centre, radius=honest.radius)),
        "one micro-rho less": changed(
            plan, lambda query: changed_query(query, micro_rho=query.priced.micro_rho - 1)
        ),
        "one micro-rho more": changed(
            plan, lambda query: changed_query(query, micro_rho=query.priced.micro_rho + 1)
        ),
        "another noise": changed(
            plan, lambda query: changed_query(query, distribution=NoiseDistribution.LAPLACE)
        ),
        "a delta of its own": changed(plan, lambda query: changed_query(query, atto_delta=1)),
        "a later question now": lambda _: [work(replace(rehearse(plan)[4], round=ROUND))],
        "a question that nobody stated": unstated(plan),
        "a statement about another question": stated_otherwise(plan),
        "a release changed after signing": release_changed(plan),
        "a release that a stranger signed": stranger_signed(plan),
        "a release never drawn, and one person": lie_and_person(plan),
        "a second release of one round": second_release(plan),
        "a release of another study": other_study(plan),
        "a ledger that shrank": shrunken_ledger(plan),
    }
