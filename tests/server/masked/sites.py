"""Sites that mask their answers, on the wire alone: what a hospital's daemon does with a masked round."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc

from eigenveil.errors import Code
from eigenveil.identity import Role
from eigenveil.noise.source import OsNoise, share_spec
from eigenveil.numerics.encoding import FloatArray, digest
from eigenveil.protocol.query import RoundQuery
from eigenveil.secure_aggregation.masking import Attempt, SignedAttempt, masked
from eigenveil.secure_aggregation.simulated import secret, simulated_key
from eigenveil.secure_aggregation.study_keys import StudyKey
from eigenveil.site.record_view import to_grid
from eigenveil.site.site import Site
from eigenveil_common.rpc import error_from
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.server.deadlines import Place
from tests.server.rig import SITES, Client, Rig, records, study_toml

ROWS = 60
Loses = Callable[[str, Place], bool]


def masked_toml(spares: int = 1, colluding: int = 1, **wishes: Any) -> str:
    trust = f'trust = "secure-aggregation"\nspare_attempts = {spares}\ncolluding = {colluding}'
    return study_toml(**{"quorum": 2, **wishes}).replace("delta = 1e-6", f"delta = 1e-6\n{trust}")


def study_key(site: str, plan: str, card: str = "test-card") -> StudyKey:
    """The key of a site for a study, by which `secret` is shared."""
    public = simulated_key(site).public_key().public_bytes_raw()
    return StudyKey(plan=plan, site=site, card=digest(card, site), agreement=public)


def key_of(site: str, plan: str) -> str:
    return study_key(site, plan).digest


def sent_key(key: StudyKey) -> pb.SignedStudyKey:
    """As a site sends it; the coordinator knows no card, so it checks no signature."""
    return pb.SignedStudyKey(signed_json=key.signed_json, signature=bytes(64))


@dataclass(slots=True, kw_only=True)
class MaskedSite:
    """A site that answers each attempt once, and sends the same bytes whenever it is asked again. `loses`
    says which attempts it does not answer; `sets` is the digest of every set that it was shown."""

    client: Client
    key: bytes
    rows: FloatArray
    loses: Loses = lambda site, place: False
    sets: dict[tuple[str, Place], str] = field(default_factory=dict)
    sent: dict[str, pb.ContributeRequest] = field(default_factory=dict)
    readied: list[int] = field(default_factory=list)
    _sites: dict[str, Site] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.client.name

    async def round_query(self) -> tuple[RoundQuery, Attempt | None]:
        """The next question, with the attempt that it comes with."""
        while True:
            found = await self.client.stub.NextWork(self.client.request())
            query = self.client.receive(found)
            if query is not None:
                return query, self.attempt_of(query, found)

    def attempt_of(self, round_query: RoundQuery, found: pb.NextWorkResponse) -> Attempt | None:
        """Attempt in a reply, if any; one number has one set for ever."""
        if not found.HasField("attempt"):
            return None
        signed = SignedAttempt(signed_json=found.attempt.signed_json, signature=found.attempt.signature)
        attempt = signed.check(self.key)
        assert attempt.is_of(round_query)
        assert attempt.members[self.name] == key_of(self.name, attempt.plan)
        place = (round_query.plan_digest, (attempt.round, attempt.number))
        assert self.sets.setdefault(place, attempt.digest) == attempt.digest, "two sets for one number"
        return attempt

    async def ready(self, round_query: RoundQuery, card: str = "test-card") -> pb.ReadyResponse:
        request = pb.ReadyRequest(
            plan_digest=bytes.fromhex(round_query.plan_digest),
            round=round_query.round,
            query_digest=bytes.fromhex(round_query.digest),
            study_key=sent_key(study_key(self.name, round_query.plan_digest, card)),
        )
        result = await self.client.stub.Ready(request)
        self.readied.append(round_query.round)
        self._answers(round_query, 0)
        return result

    def answer(self, round_query: RoundQuery, attempt: Attempt) -> pb.ContributeRequest:
        if attempt.digest not in self.sent:
            plan = self.client.plans[round_query.plan_digest]
            if plan.digest not in self._sites:
                self._sites[plan.digest] = Site(to_grid(self.rows, plan.study))
            exact = self._sites[plan.digest].answer(round_query.query)
            share = OsNoise().draw(share_spec(round_query.priced, plan.study, len(attempt.members)))
            secrets = {other: secret(self.name, other) for other in attempt.sites if other != self.name}
            values = masked(exact, share, self.name, secrets, attempt)
            self.sent[attempt.digest] = self.client.contribution(round_query, values, attempt.digest)
        return self.sent[attempt.digest]

    async def send(self, round_query: RoundQuery, attempt: Attempt) -> pb.ContributeResponse:
        result = await self.client.stub.Contribute(self.answer(round_query, attempt))
        self._answers(round_query, attempt.number)
        return result

    async def decline(self, round_query: RoundQuery) -> None:
        """Say that nothing of this round will come."""
        plan, reason = bytes.fromhex(round_query.plan_digest), pb.DECLINE_REASON_POLICY
        await self.client.stub.Decline(
            pb.DeclineRequest(plan_digest=plan, round=round_query.round, reason=reason)
        )

    async def serve(self) -> None:
        """Do what is asked, until cancelled; then say no word of an attempt that it `loses`."""
        while True:
            round_query, attempt = await self.round_query()
            number = 0 if attempt is None else attempt.number
            if self.loses(self.name, (round_query.round, number)):
                self._answers(round_query, number)
            else:
                try:
                    await (self.ready(round_query) if attempt is None else self.send(round_query, attempt))
                except grpc.aio.AioRpcError as problem:
                    if error_from(problem).code is not Code.CONFLICT:  # it was late: ask for work
                        raise

    def _answers(self, round_query: RoundQuery, number: int) -> None:
        plan = bytes.fromhex(round_query.plan_digest)
        cached = [one for one in self.client.answered if one.plan_digest != plan]
        self.client.answered = [
            *cached,
            pb.Answered(plan_digest=plan, round=round_query.round, attempt=number),
        ]


def site_of(rig: Rig, client: Client, loses: Loses = lambda site, place: False) -> MaskedSite:
    rows = records(ROWS, 4, SITES.index(client.name))
    return MaskedSite(client=client, key=rig.daemon.runtime.keys.release_public, rows=rows, loses=loses)


async def masked_sites(rig: Rig, loses: Loses = lambda site, place: False) -> dict[str, MaskedSite]:
    return {name: site_of(rig, await rig.client(Role.SITE, name), loses) for name in SITES}


@asynccontextmanager
async def serving_sites(sites: Mapping[str, MaskedSite]) -> AsyncIterator[None]:
    """All of them do what they are asked."""
    tasks = [asyncio.create_task(site.serve()) for site in sites.values()]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def attempts_of(rig: Rig, digest: str) -> dict[Place, tuple[str, ...]]:
    """The sets that are stored, by round and number."""
    studies = rig.repository.studies
    rounds = range(studies.rounds(digest))
    stored = [one for round in rounds for one in studies.attempts(digest, round)]
    return {(one.round, one.number): one.sites for one in stored}


def charges_of(rig: Rig, digest: str) -> list[tuple[int, str, int]]:
    """Charges of the ledger for a study: round, kind, micro-rho."""
    entries = rig.repository.ledger.entries()
    return [
        (one.round, one.kind.value, one.micro_rho)
        for one in entries
        if one.study == digest and one.kind.spends
    ]
