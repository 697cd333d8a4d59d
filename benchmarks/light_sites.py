"""Many sites in one process: each with its own certificate and its own connection, over real TLS, and the
calls of a site's daemon in their order. What is light about them is what they keep: no ledger, no disk, and
one set of records that all of them share, so that each question is computed once for all. Where a study is
masked, each has keys of its own, and its own share of the noise."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import grpc
import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from eigenveil.aggregation import Contribution
from eigenveil.errors import EigenveilError
from eigenveil.identity import Role
from eigenveil.key_cards import SiteKeyCard
from eigenveil.noise.source import OsNoise, share_spec
from eigenveil.numerics.encoding import IntArray
from eigenveil.protocol.plan import Plan, plan_from_json
from eigenveil.protocol.query import RoundQuery
from eigenveil.protocol.wire import query_from_proto
from eigenveil.secure_aggregation.masking import Attempt, masked
from eigenveil.site.record_view import to_grid
from eigenveil.site.site import Site
from eigenveil_client.connection.channel import backoff_seconds, call, negotiate_version
from eigenveil_client.connection.identity_files import request_for
from eigenveil_client.site.daemon.answers import MaskedAnswer, Ready
from eigenveil_client.site.daemon.sender import TransferLimits, fits_with_request, send
from eigenveil_client.site.roster.peers import SiteKeys
from eigenveil_client.site.state.study_keys import OwnStudyKey
from eigenveil_common.rpc import OPTIONS
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_proto.v1 import eigenveil_pb2_grpc as rpc
from eigenveil_server.pki.authority import Authority, key_to_pem, new_key
from eigenveil_server.pki.registry import Registry

FEDERATION = "many"
HOUR_MS, DAYS, POLL_SECONDS = 3_600_000, 1.0, 60.0
LIMITS = TransferLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Key of an enrolled caller, and address to dial."""

    name: str
    key: bytes
    certificate: bytes
    ca: bytes
    address: str

    def channel(self) -> grpc.aio.Channel:
        """A connection of its own."""
        shown = grpc.ssl_channel_credentials(self.ca, self.key, self.certificate)
        return grpc.aio.secure_channel(
            self.address, shown, options=(*OPTIONS, ("grpc.use_local_subchannel_pool", 1))
        )


def enrolled(registry: Registry, authority: Authority, role: Role, name: str, ca: bytes, to: str) -> Held:
    """A caller that the registry has admitted, without a coordinator in between."""
    key = new_key()
    token = registry.new_token(role, name, HOUR_MS)
    issued = registry.enrol(token, request_for(key), authority, lambda role: DAYS)
    return Held(name=name, key=key_to_pem(key), certificate=issued.pem, ca=ca, address=to)


def new_keys(name: str) -> SiteKeys:
    """Keys of a site."""
    signing = Ed25519PrivateKey.generate()
    card = SiteKeyCard(federation=FEDERATION, site=name, signing=signing.public_key().public_bytes_raw())
    return SiteKeys(signing=signing, card=card)


@dataclass(slots=True)
class Shared:
    """The records that every light site has, and what was asked of them; `seen` hears of each round when the
    first site is asked."""

    rows: int
    seen: Callable[[RoundQuery], None]
    lost: Counter[str] = field(default_factory=Counter)  # why connections broke
    keys: dict[tuple[str, str], OwnStudyKey] = field(default_factory=dict)  # by plan and site
    _plans: dict[str, Plan] = field(default_factory=dict)
    _sites: dict[str, Site] = field(default_factory=dict)
    _last: tuple[str, IntArray] = ("", np.zeros(0, dtype=np.int64))

    def key(self, plan: str, site: SiteKeys) -> OwnStudyKey:
        """A site's key for a study, which all others have from here on."""
        if (plan, site.card.site) not in self.keys:
            self.keys[plan, site.card.site] = OwnStudyKey.make(plan, site)
        return self.keys[plan, site.card.site]

    def plan(self, digest: str) -> Plan:
        """One that was taken."""
        return self._plans[digest]

    def take(self, signed: pb.SignedPlan) -> bytes:
        """A plan; its digest."""
        plan = next((one for one in self._plans.values() if one.to_json() == signed.plan_json), None)
        plan = plan or plan_from_json(signed.plan_json)
        self._plans[plan.digest] = plan
        return bytes.fromhex(plan.digest)

    def answer(self, round_query: RoundQuery) -> IntArray:
        """The answer of every site."""
        if self._last[0] != round_query.digest:
            self.seen(round_query)
            self._last = round_query.digest, self._site(round_query.plan_digest).answer(round_query.query)
        return self._last[1]

    def _site(self, plan: str) -> Site:
        if plan not in self._sites:
            study = self._plans[plan].study
            values = np.random.default_rng(0).uniform(-1, 1, (self.rows, len(study.columns)))
            self._sites[plan] = Site(to_grid(values, study))
        return self._sites[plan]


class LightSite:
    """One site at its coordinator; `connections` counts how often it connected."""

    def __init__(self, stored: Held, shared: Shared) -> None:
        self._held = stored
        self._shared = shared
        self._keys = new_keys(stored.name)
        self._secrets: dict[tuple[str, str], bytes] = {}
        self._known: dict[bytes, int] = {}  # of how many rounds it holds the releases
        self._answered: dict[bytes, tuple[int, int]] = {}  # the last round, and the attempt at it
        self._generation = b""
        self._checkpoint = b""
        self.connections = 0

    async def run(self) -> None:
        """Work for ever, whatever breaks in between."""
        attempt = 0
        while True:
            try:
                async with self._held.channel() as channel:
                    await self._work(rpc.CoordinatorStub(channel))
            except EigenveilError as problem:
                self._shared.lost[str(problem)] += 1
            attempt += 1
            await asyncio.sleep(backoff_seconds(min(attempt, 3)))

    async def _work(self, stub: rpc.CoordinatorAsyncStub) -> None:
        following = secrets.token_bytes(32)
        also = pb.HelloRequest(generation=self._generation, next_generation=following)
        await negotiate_version(stub, "light", extra=also)
        self._generation, self._answered = following, {}
        self.connections += 1
        found = None
        while True:
            if found is None:
                found = await call(stub.NextWork, self._request(), seconds=POLL_SECONDS, attempts=1)
            self._receive(found)
            found = await self._reply(stub, found) if found.HasField("query") else None

    async def _reply(
        self, stub: rpc.CoordinatorAsyncStub, found: pb.NextWorkResponse
    ) -> pb.NextWorkResponse | None:
        """Send the answer; return the work that comes with it."""
        message = self._answer(found)
        return await send(
            stub,
            message,
            LIMITS,
            self._request() if fits_with_request(message, LIMITS) else None,
            POLL_SECONDS,
        )

    def _request(self) -> pb.NextWorkRequest:
        return pb.NextWorkRequest(
            known_plans=list(self._known),
            stored_releases=list(self._known.values()),
            agreed=[pb.Agreed(plan_digest=plan) for plan in self._known],
            answered=[
                pb.Answered(plan_digest=plan, round=at, attempt=number)
                for plan, (at, number) in self._answered.items()
            ],
            checkpoint_digest=self._checkpoint,
        )

    def _receive(self, found: pb.NextWorkResponse) -> None:
        if found.HasField("checkpoint"):
            at = found.checkpoint.checkpoint_json.find(b'"digest":"') + len(b'"digest":"')
            self._checkpoint = bytes.fromhex(found.checkpoint.checkpoint_json[at : at + 64].decode())
        if found.HasField("plan"):
            self._known[self._shared.take(found.plan)] = 0
        for end in found.ended:
            self._known.pop(end.plan_digest, None)
            self._answered.pop(end.plan_digest, None)

    def _answer(self, found: pb.NextWorkResponse) -> Contribution | MaskedAnswer | Ready:
        round_query = query_from_proto(found.query)
        values, plan = self._shared.answer(round_query), self._shared.plan(round_query.plan_digest)
        place, number = found.query.plan_digest, 0
        message: Contribution | MaskedAnswer | Ready
        if not plan.masked:
            message = self._contribution(round_query, values)
        elif found.HasField("attempt"):
            message = self._masked(plan, round_query, values, Attempt.read(found.attempt.signed_json))
            number = message.number
        else:
            message = Ready(
                plan_digest=plan.digest,
                round=round_query.round,
                query=round_query.digest,
                key=self._shared.key(plan.digest, self._keys).signed,
            )
        self._known[place], self._answered[place] = round_query.round, (round_query.round, number)
        return message

    def _masked(
        self, plan: Plan, round_query: RoundQuery, values: IntArray, attempt: Attempt
    ) -> MaskedAnswer:
        name = self._held.name
        others = [other for other in attempt.sites if other != name]
        for other in others:
            if (plan.digest, other) not in self._secrets:  # once, as a site's daemon does
                own, stated = self._shared.key(plan.digest, self._keys), self._shared.keys[plan.digest, other]
                self._secrets[plan.digest, other] = own.secret_with(stated.stated)
        secrets = {other: self._secrets[plan.digest, other] for other in others}
        share = OsNoise().draw(share_spec(round_query.priced, plan.study, len(attempt.members)))
        message = self._contribution(
            round_query, masked(values, share, name, secrets, attempt), attempt.digest
        )
        return MaskedAnswer(contribution=message, number=attempt.number)

    def _contribution(self, round_query: RoundQuery, values: IntArray, attempt: str = "") -> Contribution:
        return Contribution(
            plan_digest=round_query.plan_digest,
            round=round_query.round,
            query=round_query.digest,
            site=self._held.name,
            values=values,
            attempt=attempt,
        )
