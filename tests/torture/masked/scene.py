"""A masked study as its coordinator sees it, of one site whose peers' keys are all here.

All that reaches the coordinator is kept as bytes, and what a site sends can be opened: without its masks a
masked answer is the exact one and a share of noise, or it is none."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
from google.protobuf.message import Message

from eigenveil.noise.source import share_spec
from eigenveil.numerics.encoding import FloatArray, IntArray
from eigenveil.planning.choose import rehearse
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import RoundQuery
from eigenveil.secure_aggregation.masking import Attempt, SignedAttempt, add_mask, mask_key
from eigenveil.site.record_view import to_grid
from eigenveil.site.site import Site
from eigenveil_client.site.policy_sections import KNOWN, TrustRules
from eigenveil_client.site.roster.peers import SiteKeys
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.client.site.masking import EVERY, Peers, keys_of, masked_plan, private_key, stated_key
from tests.client.site.scripted import Context, Coordinator
from tests.client.site.stated import RELEASE_KEY, work
from tests.client.site.support import SITE, a_stage

STRANGER = "hospital-x"  # the coordinator has invented it; no person here knows of it
MAX_NOISE_SCALE = 12  # standard deviations that a share of noise may have
Responses = list[pb.NextWorkResponse]


def acquainted(folder: Path, **policy: object) -> Peers:
    """A site that knows its peers, and answers central studies all the same."""
    folder.mkdir(parents=True, exist_ok=True)
    usual = {"budget_epsilon": 1000.0, "secrecy": TrustRules(trust=KNOWN)}
    return Peers(a_stage(folder, **(usual | policy)))


@dataclass
class Recording(Coordinator):
    """Keeps every request, by the name of its call, as bytes."""

    wire: list[tuple[str, bytes]] = field(default_factory=list)


def _recorded(name: str) -> Callable[..., Awaitable[Any]]:
    async def method(self: Recording, request: Message, context: Context) -> Any:
        self.wire.append((name, request.SerializeToString()))
        return await getattr(Coordinator, name)(self, request, context)

    return method


for call in (
    "Hello",
    "NextWork",
    "Ready",
    "GetStudyKeys",
    "Contribute",
    "Decline",
    "OpenUpload",
    "PutChunk",
    "Commit",
):
    setattr(Recording, call, _recorded(call))


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A masked study, and what a coordinator with the real keys can say of it."""

    peers: Peers
    plan: Plan

    @classmethod
    def of(cls, peers: Peers, name: str, **changes: object) -> Scene:
        return cls(peers=peers, plan=masked_plan(name, **changes))

    @cached_property
    def queries(self) -> tuple[RoundQuery, ...]:
        return tuple(rehearse(self.plan))

    @cached_property
    def stranger(self) -> SiteKeys:
        return keys_of(self.peers.stage, STRANGER)

    def key(self, name: str) -> str:
        """Digest of a site's key for this study, which the coordinator passes on."""
        if name == STRANGER:
            return stated_key(self.stranger, self.plan.digest).digest
        return self.peers.study_key(name, self.plan.digest).digest

    def attempt(self, round: int, number: int = 1, sites: Iterable[str] = EVERY, **changes: Any) -> Attempt:
        round_query = self.queries[round]
        values: dict[str, Any] = {
            "plan": round_query.plan_digest, "round": round, "query": round_query.digest, "number": number,
            "members": {name: self.key(name) for name in sites},
        }  # fmt: skip
        return Attempt(**(values | changes))

    def question(self, round: int, round_query: RoundQuery | None = None) -> pb.NextWorkResponse:
        return work(round_query or self.queries[round], self.peers.stage.signed(self.plan))

    def fixed(self, round: int, number: int = 1, **changes: Any) -> pb.NextWorkResponse:
        return self.beside(round, self.attempt(round, number, **changes).signed(RELEASE_KEY.sign))

    def beside(
        self, round: int, signed: SignedAttempt, round_query: RoundQuery | None = None
    ) -> pb.NextWorkResponse:
        response = self.question(round, round_query)
        response.attempt.CopyFrom(
            pb.SignedAttempt(signed_json=signed.signed_json, signature=signed.signature)
        )
        return response

    @cached_property
    def _site(self) -> Site:
        lines = self.peers.stage.records.read_text().splitlines()[1:]
        rows = np.array([[float(cell) for cell in line.split(",")] for line in lines])
        return Site(to_grid(rows, self.plan.study))

    def exact(self, round: int) -> IntArray:
        return self._site.answer(self.queries[round].query)

    def share(self, request: pb.ContributeRequest, attempt: Attempt) -> FloatArray:
        """Rest of a masked answer without masks and without the exact answer, in standard deviations
        of the share of noise that is due."""
        words = np.frombuffer(request.values, dtype="<u8").copy()
        own = X25519PublicKey.from_public_bytes(self.peers.study_key(SITE, self.plan.digest).agreement)
        for other in attempt.sites:
            if other != SITE:
                secret = private_key(self.peers.keys[other], self.plan.digest).exchange(own)
                add_mask(words, mask_key(secret, attempt, SITE, other), negative=other < SITE)
        words -= self.exact(attempt.round).view(np.uint64)
        spec = share_spec(self.queries[attempt.round].priced, self.plan.study, len(attempt.members))
        scales = np.repeat([block.scale for block in spec.blocks], [block.count for block in spec.blocks])
        share: FloatArray = words.view(np.int64) / scales
        return share
