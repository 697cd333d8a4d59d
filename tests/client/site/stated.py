"""What an honest coordinator states of rounds [R21], for plans whose releases a rehearsal imagines."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from eigenveil.planning.choose import rehearse, rehearse_with_releases
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import RoundQuery
from eigenveil.protocol.rounds import Release, RoundStatement, SignedRound
from eigenveil.protocol.wire import query_to_proto, round_to_proto
from eigenveil_proto.v1 import eigenveil_pb2 as pb

RELEASE_KEY = Ed25519PrivateKey.generate()  # one for all of a test run, so that `work` can sign
PLANS: dict[str, Plan] = {}  # of which `work` can state the rounds before


@cache
def released(plan_digest: str) -> tuple[Release, ...]:
    """The releases of a study in which every question is answered with what a rehearsal imagines."""
    return tuple(release for _, release in rehearse_with_releases(PLANS[plan_digest]))


@cache
def rehearsal(plan_digest: str) -> Sequence[RoundQuery]:
    return rehearse(PLANS[plan_digest])


def state(asked: RoundQuery, releases: Sequence[Release], release: str = "", size: int = 0) -> SignedRound:
    after = releases[asked.round - 1].digest if asked.round else ""
    statement = RoundStatement(
        plan=asked.plan_digest, round=asked.round, query=asked.digest, after=after, release=release,
        ledger="0" * 64, size=size or 1 + asked.round,
    )  # fmt: skip
    return statement.signed(RELEASE_KEY.sign)


def sealed(asked: RoundQuery, releases: Sequence[Release]) -> pb.SealedRound:
    release = releases[asked.round]
    message = round_to_proto(release, state(asked, releases, release.digest))
    message.query.CopyFrom(query_to_proto(asked))
    return message


def work(
    asked: RoundQuery | None, plan: pb.SignedPlan | None = None, releases: Sequence[Release] | None = None
) -> pb.NextWorkResponse:
    """What an honest coordinator says of `query`, where `releases` (or what was rehearsed) were released."""
    if asked is None:
        return pb.NextWorkResponse(plan=plan)
    response = pb.NextWorkResponse(plan=plan, query=query_to_proto(asked))
    if releases is None:
        releases = released(asked.plan_digest) if asked.plan_digest in PLANS else ()
    if asked.round <= len(releases):
        signed = state(asked, releases)
        response.signed_round.CopyFrom(
            pb.SignedRound(signed_json=signed.signed_json, signature=signed.signature)
        )
        if asked.round:
            before = rehearsal(asked.plan_digest)[asked.round - 1]
            response.release.CopyFrom(sealed(before, releases))
    return response
