"""A real coordinator on loopback and small clients with real certificates."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn
from unittest import mock

import grpc
import numpy as np
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from eigenveil.aggregation import Contribution
from eigenveil.dictionary.directory import Directory
from eigenveil.errors import EigenveilError, InternalError
from eigenveil.identity import Identity, Role
from eigenveil.numerics.encoding import FloatArray, IntArray, to_bytes
from eigenveil.protocol.plan import Plan, plan_from_json
from eigenveil.protocol.query import RoundQuery
from eigenveil.protocol.wire import query_from_proto
from eigenveil.site.record_view import to_grid
from eigenveil.site.site import Site
from eigenveil.study.checks import plain_fields
from eigenveil_common.rpc import CHUNK_BYTES, INLINE_BYTES, OPTIONS, error_from
from eigenveil_common.storage.database import Row
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_proto.v1.eigenveil_pb2_grpc import CoordinatorStub, EnrolmentStub
from eigenveil_server.admin.setup import create
from eigenveil_server.config import Config
from eigenveil_server.daemon import Daemon, Ports
from eigenveil_server.front import gateway
from eigenveil_server.pki.authority import Authority, key_to_pem, new_key, pem
from eigenveil_server.pki.authority_files import Authorities
from eigenveil_server.process import as_datetime, unix_ms
from eigenveil_server.storage.repository import Repository
from eigenveil_server.storage.submissions import PlanSummary, SubmissionQuota
from eigenveil_server.studies.runtime import Poll
from tests.support import a_hello, submitted

if TYPE_CHECKING:
    from eigenveil_proto.v1.eigenveil_pb2_grpc import CoordinatorAsyncStub

FEDERATION = "test-fed"
SITES = ("anna", "bert", "carl")
HOUR = 3_600_000
DEADLINE = 20.0  # of a round, in seconds


def study_toml(
    *,
    name: str = "small",
    columns: int = 4,
    components: int = 2,
    epsilon: float = 1.0,
    algorithm: str = "gauss-cov",
    sites: tuple[str, ...] = SITES,
    **federation: Any,
) -> str:
    """A study of `columns` columns between -1 and 1."""
    settings = {"sites": list(sites), "deadline_seconds": DEADLINE, "minimum_cohort": 5, **federation}
    lines = [
        f'name = "{name}"',
        f'algorithm = "{algorithm}"',
        f"components = {components}",
        "[privacy]",
        f"epsilon = {epsilon}",
        "delta = 1e-6",
        "[records]",
        "max_records = 100000",
        "[federation]",
        *(f"{key} = {value!r}" for key, value in settings.items()),
    ]
    for index in range(columns):
        lines += ["[[columns]]", f'name = "c{index}"', 'unit = ""', "lower = -1.0", "upper = 1.0"]
    return "\n".join(lines)


def a_directory(sites: Iterable[str] = SITES, **changes: Any) -> dict[str, Any]:
    """Directory for the planner of a federation whose sites state nothing."""
    values = {"federation": FEDERATION, "columns": None, "approval_seconds": 3600.0}
    return plain_fields(Directory(sites=dict.fromkeys(sites), **(values | changes)))


def records(rows: int, columns: int, seed: int) -> FloatArray:
    return np.random.default_rng(seed).uniform(-1, 1, (rows, columns))


@dataclass(slots=True, kw_only=True)
class Client:
    name: str
    stub: CoordinatorAsyncStub
    channel: grpc.aio.Channel
    daemon: Daemon | None = None  # None: it is another process
    known: list[bytes] = field(default_factory=list)
    answered: list[pb.Answered] = field(default_factory=list)
    plans: dict[str, Plan] = field(default_factory=dict)
    ended: dict[str, int] = field(default_factory=dict)

    def request(self) -> pb.NextWorkRequest:
        """A question for work that agrees to every plan."""
        agreed = [pb.Agreed(plan_digest=plan) for plan in self.known]
        return pb.NextWorkRequest(known_plans=self.known, answered=self.answered, agreed=agreed)

    async def work(self) -> RoundQuery | None:
        return self.receive(await self.stub.NextWork(self.request()))

    def receive(self, found: pb.NextWorkResponse) -> RoundQuery | None:
        if found.HasField("plan"):
            plan = plan_from_json(found.plan.plan_json)
            self.plans[plan.digest] = plan
            self.known.append(bytes.fromhex(plan.digest))
        for end in found.ended:
            self.ended[end.plan_digest.hex()] = end.state
            self.known.remove(end.plan_digest)
        return query_from_proto(found.query) if found.HasField("query") else None

    async def query(self) -> RoundQuery:
        while (query := await self.work()) is None:
            pass
        return query

    def contribution(
        self, round_query: RoundQuery, values: IntArray, attempt: str = ""
    ) -> pb.ContributeRequest:
        """The message that says `values`, masked for that attempt."""
        text = Contribution(
            plan_digest=round_query.plan_digest, round=round_query.round, query=round_query.digest,
            site=self.name,
            values=values, attempt=attempt,
        )  # fmt: skip
        return pb.ContributeRequest(
            plan_digest=bytes.fromhex(round_query.plan_digest), round=round_query.round,
            query_digest=bytes.fromhex(round_query.digest), values=to_bytes(values),
            contribution_digest=bytes.fromhex(text.digest), attempt_digest=bytes.fromhex(attempt),
        )  # fmt: skip

    async def contribute(self, round_query: RoundQuery, values: IntArray) -> pb.ContributeResponse:
        message = self.contribution(round_query, values)
        if len(message.values) <= INLINE_BYTES:
            done = await self.stub.Contribute(message)
        else:
            done = await self.upload(message)
        # The latest round of each plan, as a site does: the coordinator reads them at every call.
        self.answered = [one for one in self.answered if one.plan_digest != message.plan_digest]
        self.answered.append(pb.Answered(plan_digest=message.plan_digest, round=round_query.round))
        return done

    async def open_upload(self, message: pb.ContributeRequest) -> pb.OpenUploadResponse:
        return await self.stub.OpenUpload(
            pb.OpenUploadRequest(
                plan_digest=message.plan_digest, round=message.round, query_digest=message.query_digest,
                total_bytes=len(message.values), contribution_digest=message.contribution_digest,
                attempt_digest=message.attempt_digest,
            )
        )  # fmt: skip

    async def upload(self, message: pb.ContributeRequest) -> pb.ContributeResponse:
        """Send every chunk that is not there yet, then commit."""
        opened = await self.open_upload(message)
        for index, start in enumerate(range(0, len(message.values), CHUNK_BYTES)):
            if index not in opened.received_chunks:
                data = message.values[start : start + CHUNK_BYTES]
                await self.stub.PutChunk(pb.PutChunkRequest(upload=opened.upload, index=index, data=data))
        return await self.stub.Commit(pb.CommitRequest(upload=opened.upload))

    async def serve(self, values: FloatArray) -> None:
        """Answer every round with these records, until cancelled."""
        sites: dict[str, Site] = {}
        while True:
            round_query = await self.work()
            if round_query is None:
                continue
            digest = round_query.plan_digest
            if digest not in sites:
                sites[digest] = Site(to_grid(values, self.plans[digest].study))
            await self.contribute(
                round_query, await asyncio.to_thread(sites[digest].answer, round_query.query)
            )

    async def submit(self, toml: str, submission: str = "one", *, agreed: bool = True) -> str:
        """Submit a study; its digest. Every site agrees at once, unless a test is about that."""
        digest = (await submitted(self.stub, toml, submission)).plan_digest.hex()
        poll = Poll(
            known={digest: 0}, answered=frozenset(), awaiting_approval=frozenset(), agreed={digest: False}
        )
        if agreed and self.daemon is not None:
            for site in SITES:
                await self.daemon.engine.receive(site, poll)
        return digest

    async def events(self, digest: str, after: int = 0) -> list[pb.StudyEvent]:
        request = pb.WatchStudyRequest(plan_digest=bytes.fromhex(digest), after_sequence=after)
        return [event async for event in self.stub.WatchStudy(request)]

    async def release(self, digest: str) -> bytes:
        request = pb.GetReleaseRequest(plan_digest=bytes.fromhex(digest))
        return (await self.stub.GetRelease(request)).release


Sites = Mapping[str, Client]


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    name: str
    key: bytes
    certificate: bytes
    ca: bytes


def connected(stored: Credentials, port: object, daemon: Daemon | None = None) -> Client:
    """A client with a connection of its own."""
    credentials = grpc.ssl_channel_credentials(stored.ca, stored.key, stored.certificate)
    options = (*OPTIONS, ("grpc.use_local_subchannel_pool", 1))
    channel = grpc.aio.secure_channel(f"127.0.0.1:{port}", credentials, options=options)
    return Client(name=stored.name, daemon=daemon, stub=CoordinatorStub(channel), channel=channel)


def request_for(key: Any, name: str = "whatever") -> bytes:
    """A certificate request (DER) that asks for far too much."""
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    request = x509.SubjectAlternativeName([x509.UniformResourceIdentifier("eigenveil://x/analyst/root")])
    builder = x509.CertificateSigningRequestBuilder().subject_name(subject)
    builder = builder.add_extension(request, critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.DER)


@dataclass(slots=True, kw_only=True)
class Rig:
    """A serving coordinator and how to reach it."""

    config: Config
    daemon: Daemon
    ports: Ports
    clients: list[Client] = field(default_factory=list)

    @property
    def ca(self) -> bytes:
        return self.config.files.ca.read_bytes()

    @property
    def list_json(self) -> str:
        """The list of authorities in force, as a join file carries it."""
        return Authorities(self.config.files).current_list.to_json().decode()

    @property
    def repository(self) -> Repository:
        return self.daemon.runtime.repository

    def rows(self, statement: str) -> list[Row]:
        return self.repository.store.reader.rows(statement)

    def token(self, role: Role, name: str, valid_ms: int = HOUR, **options: Any) -> str:
        return self.daemon.registry.new_token(role, name, valid_ms, **options)

    async def enrol(self, token: str, csr: bytes) -> pb.EnrolResponse:
        address = f"127.0.0.1:{self.ports.enrol_port}"
        async with grpc.aio.secure_channel(
            address, grpc.ssl_channel_credentials(self.ca), options=OPTIONS
        ) as channel:
            return await EnrolmentStub(channel).Enrol(pb.EnrolRequest(token=token, csr_der=csr))

    async def credentials(self, role: Role, name: str, **options: Any) -> Credentials:
        key = new_key()
        answer = await self.enrol(self.token(role, name, **options), request_for(key))
        return Credentials(name=name, key=key_to_pem(key), certificate=answer.certificate_pem, ca=self.ca)

    def connect(self, stored: Credentials) -> Client:
        self.clients.append(connected(stored, self.ports.port, self.daemon))
        return self.clients[-1]

    async def client(self, role: Role, name: str, **options: bool) -> Client:
        return self.connect(await self.credentials(role, name, **options))

    async def sites(self) -> Sites:
        return {name: await self.client(Role.SITE, name) for name in SITES}

    def forged(self, authority: Authority | None = None, **changes: Any) -> Credentials:
        """A certificate that was not issued by enrolment."""
        key = new_key()
        authority = authority or self.daemon.runtime.keys.authority
        identity = Identity(
            federation=changes.get("federation", FEDERATION),
            role=changes.get("role", Role.SITE),
            name=changes.get("name", "anna"),
        )
        certificate = authority.issue(
            identity,
            key.public_key(),
            now=as_datetime(changes.get("now", unix_ms())),
            days=changes.get("days", 1.0),
            hosts=changes.get("hosts", ()),
        )
        return Credentials(name=identity.name, key=key_to_pem(key), certificate=pem(certificate), ca=self.ca)


def no_fatal(problem: InternalError) -> NoReturn:
    """In tests a storage failure is an error like any other."""
    raise problem


UNLIMITED = SubmissionQuota(studies=10**6, bytes=2**40)
SUMMARY = PlanSummary(content=bytes(32), atto_delta=0, epsilon=1.0)


def made(folder: Path, **changes: Any) -> Config:
    """A new federation in `folder`, with ports that the system chooses."""
    values: dict[str, Any] = {"budget_epsilon": 10.0, "budget_delta": 1e-6}
    create(
        folder, federation=FEDERATION, host="127.0.0.1", port=0, enrol_port=0,
        **{**values, **{key: value for key, value in changes.items() if key in values}},
    )  # fmt: skip
    settings = {**values, "long_poll_seconds": 5.0, **changes}
    return Config(federation=FEDERATION, state=folder, port=0, enrol_port=0, **settings)


@asynccontextmanager
async def serving(config: Config, **arguments: Any) -> AsyncIterator[Rig]:
    daemon = Daemon(config, **{"fatal": no_fatal, **arguments})
    rig = Rig(config=config, daemon=daemon, ports=await daemon.start())
    try:
        with mock.patch.object(
            gateway, "CLOSE_SECONDS", 0.1
        ):  # of TLS: callers of tests leave without a word
            yield rig
    finally:
        for client in rig.clients:
            await client.channel.close()
        await daemon.stop()


@asynccontextmanager
async def answering(
    clients: Mapping[str, Client], columns: int = 4, rows: int = 60, widths: Sequence[float] = (1.0,)
) -> AsyncIterator[None]:
    tasks = [
        asyncio.create_task(client.serve(records(rows, columns, seed) * np.array(widths)))
        for seed, client in enumerate(clients.values())
    ]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def refusal(call: Any) -> EigenveilError:
    try:
        await call
    except grpc.aio.AioRpcError as problem:
        return error_from(problem)
    raise AssertionError("the call was not refused")


async def uncertified_hello(rig: Rig, port: int) -> pb.HelloResponse:
    credentials = grpc.ssl_channel_credentials(rig.ca)
    async with grpc.aio.secure_channel(f"127.0.0.1:{port}", credentials) as channel:
        return await CoordinatorStub(channel).Hello(a_hello())
