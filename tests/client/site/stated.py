"""Statements of an honest coordinator on rounds [R21], for plans whose releases are rehearsed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from eigenveil.planning.choose import rehearse, rehearse_with_releases
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import RoundQuery
from eigenveil.protocol.rounds import Release, RoundStatement, SignedRound
from eigenveil.protocol.wire import query_to_proto, round_to_proto
from eigenveil.secure_aggregation.study_keys import SignedStudyKey
from eigenveil_proto.v1 import eigenveil_pb2 as pb

RELEASE_KEY = Ed25519PrivateKey.generate()  # one for all of a test run, so that `work` can sign
PLANS: dict[str, Plan] = {}  # of which `work` can state the rounds before
STUDY_KEYS: dict[str, SignedStudyKey] = {}  # of other sites, by digest: what the coordinator can pass on


def keys_sent(digests: Iterable[str]) -> list[pb.SignedStudyKey]:
    found = [STUDY_KEYS[one] for one in digests if one in STUDY_KEYS]
    return [pb.SignedStudyKey(signed_json=one.signed_json, signature=one.signature) for one in found]


@cache
def released(plan_digest: str) -> tuple[Release, ...]:
    """The releases of a study in which every question is answered with what a rehearsal imagines."""
    return tuple(release for _, release in rehearse_with_releases(PLANS[plan_digest]))


@cache
def rehearsal(plan_digest: str) -> Sequence[RoundQuery]:
    return rehearse(PLANS[plan_digest])


def state(
    round_query: RoundQuery, releases: Sequence[Release], release: str = "", size: int = 0
) -> SignedRound:
    after = releases[round_query.round - 1].digest if round_query.round else ""
    statement = RoundStatement(
        plan=round_query.plan_digest, round=round_query.round, query=round_query.digest, after=after,
        release=release,
        ledger="0" * 64, size=size or 1 + round_query.round,
    )  # fmt: skip
    return statement.signed(RELEASE_KEY.sign)


def sealed(round_query: RoundQuery, releases: Sequence[Release]) -> pb.SealedRound:
    release = releases[round_query.round]
    message = round_to_proto(release, state(round_query, releases, release.digest))
    message.query.CopyFrom(query_to_proto(round_query))
    return message


def work(
    round_query: RoundQuery | None,
    plan: pb.SignedPlan | None = None,
    releases: Sequence[Release] | None = None,
) -> pb.NextWorkResponse:
    """Message of an honest coordinator on `round_query` after `releases` (or the rehearsed ones)."""
    if round_query is None:
        return pb.NextWorkResponse(plan=plan)
    response = pb.NextWorkResponse(plan=plan, query=query_to_proto(round_query))
    if releases is None:
        releases = released(round_query.plan_digest) if round_query.plan_digest in PLANS else ()
    if round_query.round <= len(releases):
        signed = state(round_query, releases)
        response.signed_round.CopyFrom(
            pb.SignedRound(signed_json=signed.signed_json, signature=signed.signature)
        )
        if round_query.round:
            before = rehearsal(round_query.plan_digest)[round_query.round - 1]
            response.release.CopyFrom(sealed(before, releases))
    return response
