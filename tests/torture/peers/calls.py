"""Every call by every kind of caller, and every identifier in the hands of somebody else.

The table is generated from the descriptors: a method or a role that is added to the protocol is tried
without a word here. A cell is right if the handler is entered exactly when the .proto says so, and is
undefined if the call ends in any other way than an answer or a declared error."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import grpc
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message_factory import GetMessageClass

from eigenveil.errors import Code, EigenveilError
from eigenveil.identity import Role
from eigenveil.numerics.encoding import frozen
from eigenveil_common.rpc import OPTIONS, error_from
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.rpc.listeners import Enrolment
from eigenveil_server.rpc.service import Service
from tests.server.rig import Client, Rig, made, refusal, serving, study_toml

CERTIFIED = {
    "site": pb.CALLER_ROLE_SITE, "another site": pb.CALLER_ROLE_SITE, "analyst": pb.CALLER_ROLE_ANALYST,
    "another analyst": pb.CALLER_ROLE_ANALYST, "operator": pb.CALLER_ROLE_OPERATOR,
}  # fmt: skip
DENIED = {"denied site": Role.SITE, "denied analyst": Role.ANALYST, "denied operator": Role.OPERATOR}
NO_CERTIFICATE = "nobody"
SECONDS = 20.0
SERVICES = {"Coordinator": Service, "Enrolment": Enrolment}
NEVER = {Code.BUG, Code.STORAGE}


@dataclass(slots=True)
class Table:
    """Cells so far: their number, and those that are wrong."""

    cells: int = 0
    allowed: int = 0
    strangers_ids: int = 0
    faults: list[str] = field(default_factory=list)


def methods() -> list[MethodDescriptor]:
    return [m for service in pb.DESCRIPTOR.services_by_name.values() for m in service.methods]


def declared(method: MethodDescriptor) -> frozenset[int]:
    return frozenset(method.GetOptions().Extensions[pb.roles])


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """Count in every coordinator that begins to serve within."""
    entries: Counter[str] = Counter()
    with muted(), ExitStack() as patches:
        for service, servicer in SERVICES.items():
            for method in pb.DESCRIPTOR.services_by_name[service].methods:
                handler = _counting(entries, method.name, getattr(servicer, method.name))
                patches.enter_context(mock.patch.object(servicer, method.name, handler))
        yield entries


@contextmanager
def muted() -> Iterator[None]:
    """The log says nothing on standard error for a while; handlers that somebody added still hear it."""
    handler, logger = logging.NullHandler(), logging.getLogger("eigenveil")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def _counting(entries: Counter[str], name: str, handler: Callable[..., Any]) -> Callable[..., Any]:
    def entered(servicer: object, request: object, context: object) -> Any:
        entries[name] += 1
        return handler(servicer, request, context)

    return entered


async def outcome(channel: grpc.aio.Channel, method: MethodDescriptor) -> Code | None:
    """Make a call with an empty request; the code of its refusal."""
    path = f"/{method.containing_service.full_name}/{method.name}"
    request = GetMessageClass(method.input_type)()
    shape: dict[str, Any] = {
        "request_serializer": type(request).SerializeToString,
        "response_deserializer": GetMessageClass(method.output_type).FromString,
    }
    try:
        if method.server_streaming:
            async for _ in channel.unary_stream(path, **shape)(request, timeout=SECONDS):
                break
        else:
            await channel.unary_unary(path, **shape)(request, timeout=SECONDS)
    except grpc.aio.AioRpcError as problem:
        return error_from(problem).code
    return None


async def cell(
    table: Table,
    entries: Counter[str],
    channel: grpc.aio.Channel,
    method: MethodDescriptor,
    who: str,
    may: bool,
) -> None:
    before = entries.total()
    code = await outcome(channel, method)
    entered = entries.total() - before
    table.cells += 1
    table.allowed += may
    denied_sites = code in (Code.IDENTITY, Code.UNREACHABLE, Code.PROTOCOL) and not entered
    if code in NEVER or (may and (entered != 1 or code is Code.IDENTITY)) or (not may and not denied_sites):
        message = "an answer" if code is None else code.value
        table.faults.append(f"{method.name} by {who}: {message}, handler entered {entered} times")


def _role(number: pb.CallerRole.ValueType) -> Role:
    return Role[pb.CallerRole.Name(number).removeprefix("CALLER_ROLE_")]


async def everybody(rig: Rig) -> dict[str, Client]:
    names = zip(CERTIFIED, ("anna", "bert", "ada", "eve", "olga"), strict=True)
    callers = {who: await rig.client(_role(CERTIFIED[who]), name) for who, name in names}
    for who, role in DENIED.items():
        callers[who] = await rig.client(role, "dora")
        rig.daemon.registry.deny(role, "dora")
    return callers


async def fill(rig: Rig, table: Table, entries: Counter[str], callers: dict[str, Client]) -> None:
    no_one = grpc.ssl_channel_credentials(rig.ca)
    main, enrol = f"127.0.0.1:{rig.ports.port}", f"127.0.0.1:{rig.ports.enrol_port}"
    for method in methods():
        roles, main_service = declared(method), method.containing_service.name == "Coordinator"
        if not roles or pb.CALLER_ROLE_UNSPECIFIED in roles:
            table.faults.append(f"{method.name} declares no role")
        for who, client in callers.items():
            may = main_service and CERTIFIED.get(who) in roles
            await cell(table, entries, client.channel, method, who, may)
        for address in (main, enrol):
            may = address == enrol and not main_service and pb.CALLER_ROLE_UNCERTIFIED in roles
            async with grpc.aio.secure_channel(address, no_one, options=OPTIONS) as channel:
                await cell(table, entries, channel, method, f"{NO_CERTIFICATE} at {address}", may)


async def strangers(table: Table, callers: dict[str, Client]) -> None:
    """Objects of one caller, named by another of the same role."""
    anna, bert, ada, eve = (callers[who] for who in CERTIFIED if who != "operator")
    digest = await ada.submit(study_toml(sites=("anna",)))
    query = await anna.query()
    answer = anna.contribution(query, frozen([60]))
    upload = (await anna.open_upload(answer)).upload
    plan = bytes.fromhex(digest)
    decline = pb.DeclineRequest(plan_digest=plan, round=query.round, reason=pb.DECLINE_REASON_POLICY)
    attempts: dict[str, Awaitable[Any]] = {
        "a contribution to a round of another site": bert.stub.Contribute(answer),
        "its own contribution, uninvited": bert.stub.Contribute(bert.contribution(query, frozen([60]))),
        "an upload for another site": bert.open_upload(answer),
        "a chunk of another's upload": bert.stub.PutChunk(
            pb.PutChunkRequest(upload=upload, index=0, data=answer.values)
        ),
        "a commit of another's upload": bert.stub.Commit(pb.CommitRequest(upload=upload)),
        "a refusal for another site": bert.stub.Decline(decline),
        "a release of others' study": bert.stub.GetRelease(pb.GetReleaseRequest(plan_digest=plan)),
        "a cancellation of another's study": eve.stub.CancelStudy(pb.CancelStudyRequest(plan_digest=plan)),
    }
    for what, attempt in attempts.items():
        table.strangers_ids += 1
        try:
            refused: EigenveilError = await refusal(attempt)
        except AssertionError:
            table.faults.append(f"{what} was taken")
        else:
            if refused.code in NEVER:
                table.faults.append(f"{what} ended as {refused.code.value}")
    found = await bert.work()
    if found is not None:
        table.faults.append("a site is offered a round that it is not invited to")
    if (await anna.contribute(query, frozen([60]))).repeated:
        table.faults.append("what a stranger sent was counted")


async def examine(folder: Path) -> Table:
    table = Table()
    with counted() as entries:
        async with serving(made(folder, long_poll_seconds=0.05)) as rig:
            callers = await everybody(rig)
            await fill(rig, table, entries, callers)
            await strangers(table, callers)
    return table


async def run(folder: Path, scale: float) -> tuple[list[str], str]:
    """All cells at any scale: it takes seconds."""
    table = await examine(folder / "c")
    known = {number for number in pb.CallerRole.values() if number}
    unused = known - frozenset().union(*(declared(method) for method in methods()))
    faults = [*table.faults, *(f"no caller is a {pb.CallerRole.Name(one)}" for one in sorted(unused))]
    return faults, (
        f"{table.cells} cells of {len(methods())} methods, {table.allowed} allowed, none undefined; "
        f"{table.strangers_ids} foreign identifiers refused"
    )
