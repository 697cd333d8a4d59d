"""One site of a masked study, with peers whose keys are here, and a coordinator that says what it is told to.

All that reaches the coordinator is kept as bytes. As every secret of a pair is known here, a masked answer can
be opened: what is left is the exact answer and a share of noise, or it is no answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf.message import Message

from eigenveil.noise.shares import share_spec
from eigenveil.numerics.encoding import IntArray
from eigenveil.planning.dry_run import rehearse
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import RoundQuery
from eigenveil.secure_aggregation.attempt import Attempt, SignedAttempt
from eigenveil.secure_aggregation.masks import add_mask, mask_key
from eigenveil.site.quantize import to_grid
from eigenveil.site.site import Site
from eigenveil.study.study import Federation, Study, Trust
from eigenveil_client.site.peers.keys import OwnKeys
from eigenveil_client.site.peers.roster import Roster
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.client.site.stated import RELEASE_KEY
from tests.client.site.support import (
    FEDERATION,
    SITE,
    Context,
    Coordinator,
    Stage,
    a_plan,
    a_stage,
    a_study,
    store_identity,
    work,
)

PEERS = ("hospital-b", "hospital-c", "hospital-d")
STRANGER = "hospital-x"  # of whom no person here knows
SITES = (SITE, *PEERS)
ATTEMPTS = 3
LOUDEST = 12  # standard deviations: what is left of an answer must be within so many
Responses = list[pb.NextWorkResponse]
Place = tuple[int, int]  # a round, and the number of an attempt at it


def masked_study(**changes: object) -> Study:
    """Four sites of which three must answer, this one among them."""
    federation = changes.pop("federation", None) or Federation(sites=SITES, quorum=3, required=(SITE,))
    values: dict[str, object] = {
        "federation": federation, "trust": Trust.SECURE_AGGREGATION, "attempts": ATTEMPTS,
    }  # fmt: skip
    return a_study(**(values | changes))


def peers_of(stage: Stage, names: Sequence[str] = (*PEERS, STRANGER)) -> dict[str, OwnKeys]:
    """Keys of other sites, made as sites make them; this site's own are made as well."""
    keys = {SITE: OwnKeys.make(stage.config.identity)}
    for name in names:
        folder = stage.folder / name
        store_identity(stage.authority, folder, "127.0.0.1:1", uri=f"eigenveil://{FEDERATION}/site/{name}")
        keys[name] = OwnKeys.make(folder)
    return keys


def confirm(stage: Stage, keys: Mapping[str, OwnKeys], names: Sequence[str] = PEERS) -> None:
    """A person here has compared these sites' cards."""
    roster = Roster(stage.config.identity)
    roster.take([keys[name].signed for name in names], keys[SITE].card, replacing=False)
    for name in names:
        roster.confirm(name, keys[name].card.fingerprint, "Eva")


def masked_stage(folder: Path, **policy: object) -> tuple[Stage, dict[str, OwnKeys]]:
    """A site that knows its peers, and all keys."""
    folder.mkdir(parents=True, exist_ok=True)
    stage = a_stage(folder, **({"budget_epsilon": 1000.0} | policy))
    keys = peers_of(stage)
    confirm(stage, keys)
    return stage, keys


@dataclass
class Heard(Coordinator):
    """Keeps every request, by the name of its call, as bytes."""

    ready: list[pb.ReadyRequest] = field(default_factory=list)
    wire: list[tuple[str, bytes]] = field(default_factory=list)

    async def Ready(self, request: pb.ReadyRequest, context: Context) -> pb.ReadyResponse:
        """A site has computed an answer."""
        self.wire.append(("Ready", request.SerializeToString()))
        self.ready.append(request)
        found = await super().NextWork(request.next, context) if request.HasField("next") else None
        return pb.ReadyResponse(next=found)


def _kept(name: str) -> Callable[..., Awaitable[Any]]:
    async def method(self: Heard, request: Message, context: Context) -> Any:
        self.wire.append((name, request.SerializeToString()))
        return await getattr(Coordinator, name)(self, request, context)

    return method


for call in ("Hello", "NextWork", "Contribute", "Decline", "OpenUpload", "PutChunk", "Commit"):
    setattr(Heard, call, _kept(call))


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A masked study of one site, and what a coordinator with the real keys can say of it."""

    stage: Stage
    keys: Mapping[str, OwnKeys]
    plan: Plan

    @classmethod
    def of(cls, stage: Stage, keys: Mapping[str, OwnKeys], name: str, **changes: object) -> Scene:
        """A study of its own."""
        return cls(stage=stage, keys=keys, plan=a_plan(masked_study(**changes), submission=name))

    @cached_property
    def queries(self) -> tuple[RoundQuery, ...]:
        """What the study asks."""
        return tuple(rehearse(self.plan))

    @cached_property
    def site(self) -> Site:
        """The site's own records, as a judge sees them."""
        lines = self.stage.records.read_text().splitlines()[1:]
        rows = np.array([[float(cell) for cell in line.split(",")] for line in lines])
        return Site(to_grid(rows, self.plan.study))

    def attempt(self, round: int = 0, number: int = 1, sites: Sequence[str] = SITES, **changes: Any) -> Attempt:
        """An honest attempt, but for the changes."""
        asked = self.queries[round]
        values = {
            "plan": asked.plan_digest, "round": round, "query": asked.digest, "number": number,
            "members": {name: self.keys[name].card.digest for name in sites},
        }  # fmt: skip
        return Attempt(**(values | changes))

    def question(self, round: int = 0, asked: RoundQuery | None = None) -> pb.NextWorkResponse:
        """A question without an attempt; the plan comes along."""
        return work(asked or self.queries[round], self.stage.signed(self.plan))

    def fixed(self, round: int = 0, number: int = 1, **changes: Any) -> pb.NextWorkResponse:
        """A question with an attempt at it."""
        attempt = self.attempt(round, number, **changes)
        return self.beside(round, attempt.signed(RELEASE_KEY.sign))

    def beside(self, round: int, signed: SignedAttempt) -> pb.NextWorkResponse:
        """A question with whatever is said of its set of sites."""
        response = self.question(round)
        response.attempt.CopyFrom(pb.SignedAttempt(said=signed.said, signature=signed.signature))
        return response

    def left(self, request: pb.ContributeRequest, attempt: Attempt) -> IntArray:
        """A masked answer without its masks and without the exact answer: a share of noise, if it is one."""
        words = np.frombuffer(request.values, dtype="<u8").copy()
        for other in attempt.sites:
            if other != SITE:
                secret = self.keys[SITE].secret_with(self.keys[other].card)
                add_mask(words, mask_key(secret, attempt, SITE, other), negative=not other > SITE)
        words -= self.exact(attempt.round).view(np.uint64)
        return words.view(np.int64)

    def exact(self, round: int) -> IntArray:
        """The answer that nobody may see."""
        return self.site.answer(self.queries[round].query)

    def is_masked(self, request: pb.ContributeRequest, attempt: Attempt) -> bool:
        """Whether it is the exact answer with a share of the right size, and with the masks of this attempt."""
        sigma = share_spec(self.queries[attempt.round], self.plan.study, len(attempt.members)).sigma
        left = self.left(request, attempt).astype(np.float64)
        named = request.attempt_digest.hex() == attempt.digest
        return named and bool(np.all(np.abs(left) <= LOUDEST * sigma + 1))


def other_cards(keys: Mapping[str, OwnKeys], sites: Sequence[str], **cards: str) -> dict[str, str]:
    """The members of an attempt, with some cards of one's own."""
    return {name: keys[name].card.digest for name in sites} | cards


__all__ = ["SITE", "Heard", "Scene", "a_plan", "a_study", "replace", "work"]
