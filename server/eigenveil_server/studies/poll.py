"""What a site says of itself whenever it asks for work [R5] [R24]."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from eigenveil.errors import Code, PeerError
from eigenveil.protocol.wire import digest_from_bytes
from eigenveil_proto.v1 import eigenveil_pb2 as pb

MOST_LISTED = 4096  # plans or rounds that one NextWork may name
Place = tuple[str, int, int]  # a study's digest, a round, and an attempt at it; 0 where there is none


@dataclass(frozen=True, slots=True, kw_only=True)
class Poll:
    """`known` are the plans that the site holds, and of how many rounds it holds the releases; `answered` are
    rounds whose answers are under way; `awaiting` waits for a person there, and `agreed` is agreed to, by a
    person or by the rules alone.

    Raises:
        PeerError: code `protocol`: it contradicts itself.
    """

    known: Mapping[str, int]
    answered: frozenset[Place]
    awaiting: frozenset[str]
    agreed: Mapping[str, bool]

    def __post_init__(self) -> None:
        if not self.agreed.keys() <= self.known.keys() or self.agreed.keys() & self.awaiting:
            raise PeerError(Code.PROTOCOL, "who agrees to a plan holds it, and waits for nobody's word on it")


def poll_of(request: pb.NextWorkRequest) -> Poll:
    """What `request` says.

    Raises:
        PeerError: code `protocol`: it names too much, or contradicts itself.
    """
    listed = (request.known_plans, request.answered, request.awaiting, request.held, request.agreed)
    if max(map(len, listed)) > MOST_LISTED:
        raise PeerError(Code.PROTOCOL, f"at most {MOST_LISTED} plans or rounds may be named")
    known = dict.fromkeys(map(digest_from_bytes, request.known_plans), 0)
    known |= zip(known, request.held, strict=False)
    return Poll(
        known=known,
        answered=frozenset(
            (digest_from_bytes(one.plan_digest), one.round, one.attempt) for one in request.answered
        ),
        awaiting=frozenset(map(digest_from_bytes, request.awaiting)),
        agreed={digest_from_bytes(one.plan_digest): one.person for one in request.agreed},
    )
