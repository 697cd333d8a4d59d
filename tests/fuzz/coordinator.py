"""Everything that a coordinator is sent: through its gate, its decoders and its real handlers.

Only the transport and the pace of lists are left out, for speed: the handlers are those that gRPC would be
given, with the gate around them, certificates that were issued, a store on disk and studies under way. A
method that is added to the protocol is tried without a word here."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn
from unittest import mock

import grpc
import numpy as np
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from google.protobuf.message import Message

from eigenveil.errors import Code, EigenveilError, error
from eigenveil.identity import Role
from eigenveil.planning.choose import make_plan
from eigenveil.protocol.query import RoundQuery
from eigenveil.study.toml import parse_study
from eigenveil_common.rpc import CODE_KEY
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server import daemon
from eigenveil_server.front.quota import ConnectionInfo, GatewayClient
from eigenveil_server.pki.authority import new_key
from eigenveil_server.rpc import responses
from eigenveil_server.rpc.interceptor import ROLES
from tests.fuzz.hunt import ChangedMeaning, Kind
from tests.fuzz.mutations import mutate_message
from tests.server.rig import FEDERATION, SITES, Client, Rig, answering, made, request_for, serving, study_toml
from tests.support import a_hello, signed_by_analyst

# Slow ones less often: these plan, or wait, or verify a signature.
WEIGHTS = {
    "SubmitStudy": 0.05, "ExplainStudy": 0.05, "WatchStudy": 0.3, "Enrol": 0.3, "Renew": 0.3, "NextWork": 0.5,
}  # fmt: skip
ANY_DIGEST = bytes(range(32))
CALLERS = dict.fromkeys(SITES, Role.SITE) | {"ada": Role.ANALYST, "eve": Role.ANALYST, "otto": Role.OPERATOR}


class Defects(logging.Handler):
    """The exceptions that a daemon caught, logged and survived: each is a bug all the same."""

    def __init__(self) -> None:
        super().__init__()
        self.last: BaseException | None = None

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self.last = record.exc_info[1]


class Call:
    """The half of a call that the gate and handlers see: who calls, by certificate, and how to refuse."""

    def __init__(self, certificate: bytes) -> None:
        self._certificate = certificate

    def peer(self) -> str:
        """The certificate, in place of gRPC's name of the connection."""
        return self._certificate.decode()

    async def abort(self, status: grpc.StatusCode, details: str, trailing_metadata: Any = ()) -> NoReturn:
        raise error(Code(dict(trailing_metadata)[CODE_KEY]), details)


class Recorded:
    """Takes what a daemon gives to gRPC's server: its gate, and each method's decoder and handler."""

    def __init__(self, *interceptors: Any, **limits: object) -> None:
        (self.gate,) = interceptors
        self.handlers: dict[str, Any] = {}

    def add_generic_rpc_handlers(self, handlers: object) -> None: ...

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Any]) -> None:
        """Remember the first service's handlers; the other's are there to be refused."""
        if not self.handlers:
            self.handlers |= handlers


@asynccontextmanager
async def coordinator_kinds(folder: Path) -> AsyncIterator[dict[str, Kind]]:
    """Every method of the coordinator, with a study at its first round, one cancelled and one released."""
    defects, logger = Defects(), logging.getLogger("eigenveil")
    logger.addHandler(defects)
    logger.propagate = False
    try:
        with mock.patch.object(responses, "BURST", 1e12):  # a caller waits for its lists otherwise
            async with serving(made(folder, long_poll_seconds=0.001)) as rig:
                stored = {name: await rig.credentials(role, name) for name, role in CALLERS.items()}
                seeds = await _seeds({name: rig.connect(one) for name, one in stored.items()})
                yield {
                    name: Kind(
                        seeds=tuple(message.SerializeToString() for message in seeds.get(name, ())) or (b"",),
                        mutate=mutate_message,
                        feed=partial(_feed, handler, Call(stored[_caller(name)].certificate), defects),
                        weight=WEIGHTS.get(name, 1.0),
                    )
                    for name, handler in (await _handlers(rig)).items()
                }
    finally:
        logger.removeHandler(defects)
        logger.propagate = True


def _caller(method: str) -> str:
    """Permitted caller of the method: an invited site, or an analyst. Methods that change or show a study are
    called by its owner, and the others by an analyst who owns none."""
    roles = ROLES.get(method, frozenset({Role.SITE}))
    if Role.SITE in roles:
        return {"Decline": "bert", "PutChunk": "carl"}.get(method, "anna")
    if Role.ANALYST in roles:
        return "ada" if method in ("CancelStudy", "GetRelease") else "eve"
    return "otto"


async def _handlers(rig: Rig) -> dict[str, Any]:
    with mock.patch.object(daemon, "registered_methods_server", Recorded):
        servers: list[Any] = [rig.daemon._main_server(), rig.daemon._enrol_server()]
    for server in servers:
        server.gate._find_connection = _connection_info
    return {
        name: await _guarded(server.gate, name, handler)
        for server in servers
        for name, handler in server.handlers.items()
    }


def _connection_info(peer: str) -> ConnectionInfo:
    client = GatewayClient(name="anybody", role=None)
    return ConnectionInfo(peer="127.0.0.1:1", certificate=peer.encode(), client=client)


async def _guarded(gate: Any, name: str, handler: Any) -> Any:
    async def continuation(details: grpc.HandlerCallDetails) -> Any:
        return handler

    return await gate.intercept_service(
        continuation, SimpleNamespace(method=f"/eigenveil.v1/{name}", invocation_metadata=())
    )


async def _feed(handler: Any, call: Call, defects: Defects, data: bytes) -> None:
    message = handler.request_deserializer(data)
    check_round_trip(message)
    defects.last = None
    try:
        # In a task of its own, as gRPC has it: a call is over, and its reply is taken, when that ends.
        await asyncio.create_task(_answered(handler, message, call))
    except EigenveilError as problem:
        if problem.code is Code.BUG and defects.last is not None:
            raise defects.last from None
        raise


async def _answered(handler: Any, message: Message, call: Call) -> None:
    if handler.response_streaming:
        async for answer in handler.unary_stream(message, call):
            answer.SerializeToString()
    else:
        handler.response_serializer(await handler.unary_unary(message, call))


def check_round_trip(message: Message) -> None:
    """Insist that a message survives being written and read again."""
    if type(message).FromString(message.SerializeToString()) != message:
        raise ChangedMeaning(type(message).__name__)


async def _seeds(clients: Mapping[str, Client]) -> dict[str, list[Message]]:
    ada = clients["ada"]
    async with answering({name: clients[name] for name in SITES}), asyncio.timeout(60):
        released = await ada.submit(study_toml(name="released"), "released")
        watch = pb.WatchStudyRequest(plan_digest=bytes.fromhex(released))
        assert [event async for event in ada.stub.WatchStudy(watch)][-1].state == pb.STUDY_STATE_RELEASED
    open_study = await ada.submit(study_toml(deadline_seconds=86_400.0, quorum=1), "open")
    over = await ada.submit(study_toml(name="over"), "over")
    await ada.stub.CancelStudy(pb.CancelStudyRequest(plan_digest=bytes.fromhex(over)))
    query = await _query(clients["anna"])
    assert query.plan_digest == open_study
    ends = bytes.fromhex(over), bytes.fromhex(released)
    return await _about_rounds(clients, query) | _about_studies(query, *ends) | _about_keys()


async def _query(site: Client) -> RoundQuery:
    async with asyncio.timeout(60):
        return await site.query()


async def _about_rounds(clients: Mapping[str, Client], round_query: RoundQuery) -> dict[str, list[Message]]:
    answer = clients["anna"].contribution(round_query, np.array([60], dtype=np.int64))
    plan = answer.plan_digest
    dispatch = pb.OpenUploadRequest(
        plan_digest=plan, round=round_query.round, query_digest=answer.query_digest, total_bytes=8,
        contribution_digest=answer.contribution_digest,
    )  # fmt: skip
    uploads = {name: (await clients[name].stub.OpenUpload(dispatch)).upload for name in ("anna", "carl")}
    await clients["anna"].stub.PutChunk(pb.PutChunkRequest(upload=uploads["anna"], data=answer.values))
    decline = pb.DeclineRequest(
        plan_digest=plan, round=round_query.round, reason=pb.DECLINE_REASON_POLICY, rule="columns"
    )
    many = [pb.Answered(plan_digest=plan, round=round) for round in range(40)]
    return {
        "Hello": [
            a_hello(software="eigenveil-site"),
            a_hello(statement=pb.SiteStatement(columns_stated=True, columns=["age"])),
        ],
        "NextWork": [
            pb.NextWorkRequest(),
            pb.NextWorkRequest(known_plans=[plan, ANY_DIGEST], answered=[pb.Answered(plan_digest=plan)]),
            pb.NextWorkRequest(known_plans=[plan] * 40, answered=many),
        ],
        "Contribute": [
            answer,
            pb.ContributeRequest(plan_digest=plan, values=bytes(800)),
            pb.ContributeRequest(values=answer.values, next=pb.NextWorkRequest(known_plans=[plan])),
        ],
        "OpenUpload": [dispatch],
        "PutChunk": [pb.PutChunkRequest(upload=uploads["carl"], data=answer.values)],
        "Commit": [pb.CommitRequest(upload=uploads["anna"])],
        "Decline": [decline],
        "GetStudyKeys": [pb.GetStudyKeysRequest(plan_digest=plan, digests=[ANY_DIGEST])],
    }


def _signed(text: str) -> pb.SubmitStudyRequest:
    plan = make_plan(
        parse_study(text), federation=FEDERATION, submission="mine", analyst=_caller("SubmitStudy")
    )
    signed = signed_by_analyst(plan).to_proto()
    return pb.SubmitStudyRequest(study_toml=text, submission="mine", authorization=signed)


def _about_studies(round_query: RoundQuery, over: bytes, released: bytes) -> dict[str, list[Message]]:
    plan = bytes.fromhex(round_query.plan_digest)
    texts = [study_toml(epsilon=3.0), study_toml(columns=2, algorithm="auto", components=1)]
    return {
        "SubmitStudy": [_signed(text) for text in texts],
        "ExplainStudy": [pb.ExplainStudyRequest(study_toml=text, submission="mine") for text in texts],
        "ListStudies": [pb.ListStudiesRequest()],
        "ListSites": [pb.ListSitesRequest(after="anna")],
        "GetDictionary": [pb.GetDictionaryRequest()],
        "WatchStudy": [pb.WatchStudyRequest(plan_digest=over, after_sequence=1)],
        "CancelStudy": [pb.CancelStudyRequest(plan_digest=over)],  # the one under way goes on
        "GetRelease": [
            pb.GetReleaseRequest(plan_digest=digest, offset=5) for digest in (plan, over, released)
        ],
        "GetRound": [pb.GetRoundRequest(plan_digest=digest, round=1) for digest in (plan, released)],
    }


def _about_keys() -> dict[str, list[Message]]:
    others = (
        ec.generate_private_key(ec.SECP521R1()),
        rsa.generate_private_key(public_exponent=65537, key_size=2048),
    )
    requests = [request_for(new_key()), *map(request_for, others), _edwards_request()]
    return {
        "Enrol": [pb.EnrolRequest(token="unknown", csr_der=request) for request in requests],
        "Renew": [pb.RenewRequest(csr_der=request) for request in requests],
    }


def _edwards_request() -> bytes:
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    request = builder.sign(ed25519.Ed25519PrivateKey.generate(), None)
    return request.public_bytes(serialization.Encoding.DER)
