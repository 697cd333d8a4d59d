"""The one place every call passes: who calls, may they, and how errors leave [R1].

Deny by default: the table of calls and roles is what the .proto declares, and a method that declares
nobody serves nobody.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, NoReturn, TypeVar

import grpc
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID
from google.protobuf.message import Message

from eigenveil.certificates import UNREADABLE
from eigenveil.errors import Code, EigenveilError, InternalError, PeerError
from eigenveil.identity import Identity, Role, parse_identity
from eigenveil_common import log
from eigenveil_common.rpc import CODE_KEY
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.clock import Clock
from eigenveil_server.fatal import Fatal
from eigenveil_server.front.admission import TLS13, Arrival
from eigenveil_server.front.replies import Replies
from eigenveil_server.pki.authority import fingerprint
from eigenveil_server.rpc.admissions import Admissions
from eigenveil_server.rpc.calls import Calls
from eigenveil_server.rpc.site_sessions import SiteSessions

CERTIFIED = {
    pb.CALLER_ROLE_SITE: Role.SITE,
    pb.CALLER_ROLE_ANALYST: Role.ANALYST,
    pb.CALLER_ROLE_OPERATOR: Role.OPERATOR,
}


def roles_of(service: str) -> Mapping[str, frozenset[pb.CallerRole.ValueType]]:
    """Who may make which call of a service, as the option `roles` of its methods says."""
    methods = pb.DESCRIPTOR.services_by_name[service].methods
    return {method.name: frozenset(method.GetOptions().Extensions[pb.roles]) for method in methods}


ROLES: Mapping[str, frozenset[Role]] = {
    method: frozenset(CERTIFIED[role] for role in roles if role in CERTIFIED)
    for method, roles in roles_of("Coordinator").items()
}
UNCERTIFIED = frozenset(
    method for method, roles in roles_of("Enrolment").items() if pb.CALLER_ROLE_UNCERTIFIED in roles
)
CALLER: ContextVar[Identity] = ContextVar("caller")
CERTIFICATE: ContextVar[str] = ContextVar("certificate", default="")  # its fingerprint
ARRIVAL: ContextVar[Arrival] = ContextVar("arrival")  # the connection
_ADMISSION: ContextVar[Callable[[], Awaitable[object]]] = ContextVar("admission")

Context = grpc.aio.ServicerContext[Any, Any]
DETAIL_LENGTH = 2000  # metadata is limited
Handler = Any  # grpc types its handlers by their four shapes; this module only wraps two of them
Q = TypeVar("Q")
A = TypeVar("A", bound=Message)
Admit = Callable[[str, Arrival], Awaitable[Callable[[], str]]]
Whence = Callable[[str], Arrival]  # the connection that gRPC knows by this name
MOST_PEM_BYTES = 16 * 1024


async def still_admitted() -> None:
    """Refuse a caller who was shut out after this call began; for calls that wait before they tell.

    Raises:
        PeerError: code `identity`.
    """
    await _ADMISSION.get()()


@dataclass(eq=False)
class Interceptor(grpc.aio.ServerInterceptor):
    """Admits or refuses each call, then gives every error its status, code and sentence."""

    _admit: Admit
    _whence: Whence
    _calls: Calls
    _fatal: Fatal
    _refused: Callable[[Code], None]
    _replies: Replies = field(default_factory=Replies)
    _guarded: dict[str, Handler] = field(default_factory=dict)  # of each method, made at its first call

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        path = str(handler_call_details.method)
        if path not in self._guarded:
            handler = await continuation(handler_call_details)
            if handler is None:
                return None
            self._guarded[path] = self._guard(path.rsplit("/", 1)[-1], handler)
        return self._guarded[path]

    def _guard(self, method: str, handler: Handler) -> Handler:
        shape = {
            "request_deserializer": handler.request_deserializer,
            "response_serializer": handler.response_serializer,
        }
        if handler.response_streaming:
            return grpc.unary_stream_rpc_method_handler(self._stream(method, handler.unary_stream), **shape)
        return grpc.unary_unary_rpc_method_handler(self._unary(method, handler.unary_unary), **shape)

    def _unary(self, method: str, call: Callable[[Q, Context], Awaitable[A]]) -> Any:
        async def guarded(request: Q, context: Context) -> A:
            try:
                arrival, caller, check = await self._admitted(method, context)
                with self._calls.one(caller, arrival.peer, check), arrival.call():
                    await self._replies.turn(method, caller)
                    reply = await call(request, context)
                    self._replies.owe(caller, reply.ByteSize())
                    return reply
            except Exception as problem:  # noqa: BLE001 - each is logged and answered below
                await self._refuse(method, context, problem)

        return guarded

    def _stream(self, method: str, call: Callable[[Q, Context], AsyncIterator[A]]) -> Any:
        async def guarded(request: Q, context: Context) -> AsyncIterator[A]:
            try:
                arrival, caller, check = await self._admitted(method, context)
                with self._calls.one(caller, arrival.peer, check), arrival.call():
                    async for answer in call(request, context):
                        yield answer
            except Exception as problem:  # noqa: BLE001 - each is logged and answered below
                await self._refuse(method, context, problem)

        return guarded

    async def _admitted(self, method: str, context: Context) -> tuple[Arrival, str, Callable[[], str]]:
        """The connection, whose it is, and what looks again."""
        arrival = self._whence(context.peer())
        ARRIVAL.set(arrival)
        _ADMISSION.set(partial(self._admit, method, arrival))
        check = await self._admit(method, arrival)
        return arrival, check(), check

    async def _refuse(self, method: str, context: Context, problem: Exception) -> NoReturn:
        if not isinstance(problem, EigenveilError):
            log.logger.error("defect in %s", method, exc_info=problem)
            problem = InternalError(
                Code.BUG, f"a defect stopped {method}; the coordinator's log has the detail"
            )
        elif isinstance(problem, InternalError) and problem.code is Code.STORAGE:
            self._fatal(problem)
        elif isinstance(problem, PeerError):
            arrival = ARRIVAL.get(None)
            who = {} if arrival is None else {"peer": arrival.guest.name, "address": arrival.peer}
            about = {"method": method, "code": problem.code.value, "why": str(problem)}
            log.event("refused", logging.WARNING, **who, **about)
        self._refused(problem.code)
        await context.abort(
            grpc.StatusCode[problem.status],
            str(problem)[:DETAIL_LENGTH],
            trailing_metadata=((CODE_KEY, problem.code.value),),
        )
        raise AssertionError("abort does not return")


class Peers:
    """Decides from the connection alone who calls."""

    def __init__(self, admissions: Admissions, sessions: SiteSessions, federation: str, clock: Clock) -> None:
        self._admissions = admissions
        self._sessions = sessions
        self._federation = federation
        self._clock = clock

    def stays(self, arrival: Arrival) -> None:
        """Insist that its caller might still be admitted to something, as of the last look.

        Raises:
            PeerError: code `identity`.
        """
        self._admissions.latest.check(*self.certified(arrival.certificate, arrival.tls))

    async def admit(self, method: str, arrival: Arrival) -> Callable[[], str]:
        """Set CALLER and CERTIFICATE, or refuse, as of now; what says the caller's URI, or refuses, as of the
        last look.

        Raises:
            PeerError: code `identity`.
            RequestError: code `not-ready`, a site that has not said Hello on this connection.
        """
        identity, print = self.certified(arrival.certificate, arrival.tls)
        await self._admissions.refresh()
        unused = self._admissions.latest.check(identity, print)
        if identity.role not in ROLES.get(method, frozenset()):
            raise _refused(f"{method} is not for a certificate of role {identity.role.value}")
        if identity.role is Role.SITE and method != "Hello":
            await self._sessions.check(identity, arrival.peer)
        if unused:
            # Before anything is answered, once in a certificate's life: the old one ends with this very call.
            await self._admissions.take_up(identity, print)
        CALLER.set(identity)
        CERTIFICATE.set(print)

        def check() -> str:
            self.stays(arrival)
            return identity.uri

        return check

    def certified(self, certificate_pem: bytes, tls: str) -> tuple[Identity, str]:
        """Whom a certificate that TLS has verified names, and its fingerprint.

        Raises:
            PeerError: code `identity`; also for another version of TLS, and for no certificate.
        """
        if tls != TLS13:
            raise _refused("TLS 1.3 is required; use a client that offers it")
        if not certificate_pem:
            raise _refused("a client certificate is required; enrol first")
        identity, print, begins, ends = _read(certificate_pem)
        if identity.federation != self._federation:
            raise _refused(f"{identity.uri} does not belong to federation {self._federation}")
        if not begins <= self._clock() <= ends:
            raise _refused(f"the certificate of {identity.uri} is not valid now; enrol again")
        return identity, print


@lru_cache(maxsize=1024)
def _read(pem: bytes) -> tuple[Identity, str, float, float]:
    """A certificate's only name, its fingerprint, and from when to when it is valid (Unix milliseconds); the
    TLS layer has verified the signature."""
    if len(pem) > MOST_PEM_BYTES:
        raise _refused("the certificate is far larger than any that was issued here; enrol again")
    try:
        certificate = x509.load_pem_x509_certificate(pem)
        names = list(certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
        usages = list(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
        issues = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
        subjects = [part.value for part in certificate.subject]
        key = certificate.public_key()
        begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    except UNREADABLE as problem:
        raise _refused("the certificate lacks a name or a usage; enrol again") from problem
    if len(names) != 1 or not isinstance(names[0], x509.UniformResourceIdentifier):
        raise _refused("the certificate must carry exactly one name, a URI; enrol again")
    if usages != [ExtendedKeyUsageOID.CLIENT_AUTH] or issues:
        raise _refused("the certificate is not for clients; enrol again")
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise _refused("the certificate's key is not of P-256; enrol again")
    identity = parse_identity(names[0].value)
    if subjects != [identity.name]:
        raise _refused("the certificate's subject is not the name that its URI states; enrol again")
    return identity, fingerprint(certificate), 1000 * begins.timestamp(), 1000 * ends.timestamp()


def named(certificate: bytes) -> Identity | None:
    """Whom a certificate names that TLS has verified; None if it is none for clients of a federation."""
    try:
        return _read(certificate)[0]
    except PeerError:
        return None


def _refused(message: str) -> PeerError:
    return PeerError(Code.IDENTITY, message)


async def anybody(method: str, arrival: Arrival) -> Callable[[], str]:
    """Admission to the enrolment listener: TLS 1.3, and no certificate."""
    if method not in UNCERTIFIED or arrival.tls != TLS13:
        raise _refused("only enrolment over TLS 1.3 is served here")
    return lambda: "anybody"
