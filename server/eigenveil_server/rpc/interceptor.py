"""Interceptor of all calls: authentication, authorisation and error replies [R1]. Deny by default: the table
of methods and roles is read from the .proto, and a method without a declared role is refused for every
caller."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, NoReturn, TypeVar

import grpc
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID
from google.protobuf.message import Message

from eigenveil.errors import Code, EigenveilError, InternalError, PeerError
from eigenveil.identity import Identity, Role, parse_identity
from eigenveil.signatures import UNREADABLE
from eigenveil_common import log
from eigenveil_common.rpc import CODE_KEY
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.front.message_quota import UnreadReplies
from eigenveil_server.front.quota import TLS13, ConnectionInfo
from eigenveil_server.pki.authority import fingerprint
from eigenveil_server.process import Clock, Fatal
from eigenveil_server.rpc.callers import Admissions, Calls
from eigenveil_server.rpc.sites import SiteSessions

CERTIFIED = {
    pb.CALLER_ROLE_SITE: Role.SITE,
    pb.CALLER_ROLE_ANALYST: Role.ANALYST,
    pb.CALLER_ROLE_OPERATOR: Role.OPERATOR,
}


def roles_of(service: str) -> Mapping[str, frozenset[pb.CallerRole.ValueType]]:
    """Return the roles that may call each method of a service, from the option `roles` in the .proto."""
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
CONNECTION_INFO: ContextVar[ConnectionInfo] = ContextVar("arrival")  # the connection
_ADMISSION: ContextVar[Callable[[], Awaitable[object]]] = ContextVar("admission")

Context = grpc.aio.ServicerContext[Any, Any]
DETAIL_LENGTH = 2000  # metadata is limited
Handler = Any  # grpc types its handlers by their four shapes; this module only wraps two of them
Q = TypeVar("Q")
A = TypeVar("A", bound=Message)
Admit = Callable[[str, ConnectionInfo], Awaitable[Callable[[], str]]]
FindConnection = Callable[[str], ConnectionInfo]  # the connection that gRPC knows by this name
MOST_PEM_BYTES = 16 * 1024


async def check_still_admitted() -> None:
    """Refuse a caller that lost admission after its call began; for calls that wait before they answer."""
    await _ADMISSION.get()()


@dataclass(eq=False)
class Interceptor(grpc.aio.ServerInterceptor):
    """Admit or refuse each call, and give every error its status, code and message."""

    _admit: Admit
    _find_connection: FindConnection
    _calls: Calls
    _fatal: Fatal
    _refused: Callable[[Code], None]
    _replies: UnreadReplies = field(default_factory=UnreadReplies)
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
            method = path.rsplit("/", 1)[-1]
            codecs = (handler.request_deserializer, handler.response_serializer)
            if handler.response_streaming:
                stream = self._stream(method, handler.unary_stream)
                self._guarded[path] = grpc.unary_stream_rpc_method_handler(stream, *codecs)
            else:
                unary = self._unary(method, handler.unary_unary)
                self._guarded[path] = grpc.unary_unary_rpc_method_handler(unary, *codecs)
        return self._guarded[path]

    def _unary(self, method: str, call: Callable[[Q, Context], Awaitable[A]]) -> Any:
        async def guarded(request: Q, context: Context) -> A:
            async with self._admitted(method, context) as caller:
                await self._replies.wait_to_read(method, caller)
                reply = await call(request, context)
                self._replies.add_unread(caller, reply.ByteSize())
            return reply

        return guarded

    def _stream(self, method: str, call: Callable[[Q, Context], AsyncIterator[A]]) -> Any:
        async def guarded(request: Q, context: Context) -> AsyncIterator[A]:
            async with self._admitted(method, context):
                async for answer in call(request, context):
                    yield answer

        return guarded

    @asynccontextmanager
    async def _admitted(self, method: str, context: Context) -> AsyncIterator[str]:
        """Admit and count a call until the end of the block, and yield its caller. Reply with any error."""
        try:
            info = self._find_connection(context.peer())
            CONNECTION_INFO.set(info)
            _ADMISSION.set(partial(self._admit, method, info))
            check = await self._admit(method, info)
            caller = check()
            with self._calls.one(caller, info.peer, check), info.call():
                yield caller
        except Exception as problem:  # noqa: BLE001 - each is logged and answered below
            await self._refuse(method, context, problem)

    async def _refuse(self, method: str, context: Context, problem: Exception) -> NoReturn:
        if not isinstance(problem, EigenveilError):
            log.logger.error("defect in %s", method, exc_info=problem)
            problem = InternalError(
                Code.BUG, f"an internal error stopped {method}; the coordinator's log has the details"
            )
        elif isinstance(problem, InternalError) and problem.code is Code.STORAGE:
            self._fatal(problem)
        elif isinstance(problem, PeerError):
            info = CONNECTION_INFO.get(None)
            who = {} if info is None else {"peer": info.client.name, "address": info.peer}
            about = {"method": method, "code": problem.code.value, "why": str(problem)}
            log.event("refused", logging.WARNING, **who, **about)
        self._refused(problem.code)
        await context.abort(
            grpc.StatusCode[problem.status],
            str(problem)[:DETAIL_LENGTH],
            trailing_metadata=((CODE_KEY, problem.code.value),),
        )
        raise AssertionError("abort does not return")


@dataclass(eq=False)
class Authenticator:
    """Identify callers by their connection."""

    _admissions: Admissions
    _sessions: SiteSessions
    _federation: str
    _clock: Clock

    def check_admitted(self, info: ConnectionInfo) -> None:
        """Check that the caller of a connection is still admitted, as of the last refresh."""
        self._admissions.latest.check(*self.identify(info.certificate, info.tls))

    async def admit(self, method: str, info: ConnectionInfo) -> Callable[[], str]:
        """Set CALLER and CERTIFICATE, or refuse, as of now. The returned check gives the caller's URI, or
        refuses, as of the last refresh. Raises PeerError: code `identity`; RequestError: code `not-ready`, a
        site that has not sent Hello on this connection."""
        identity, certificate_print = self.identify(info.certificate, info.tls)
        await self._admissions.refresh()
        unused = self._admissions.latest.check(identity, certificate_print)
        if identity.role not in ROLES.get(method, frozenset()):
            raise _refused(f"{method} is not allowed for a certificate of role {identity.role.value}")
        if identity.role is Role.SITE and method != "Hello":
            await self._sessions.check(identity, info.peer)
        if unused:
            # Once in a certificate's life and before any answer: the old certificate ends with this call.
            await self._admissions.mark_used(identity, certificate_print)
        CALLER.set(identity)
        CERTIFICATE.set(certificate_print)

        def check() -> str:
            self.check_admitted(info)
            return identity.uri

        return check

    def identify(self, certificate_pem: bytes, tls: str) -> tuple[Identity, str]:
        """Return the identity and the fingerprint of a certificate that TLS has verified. Raises PeerError:
        code `identity`; also for another version of TLS, and for no certificate."""
        if tls != TLS13:
            raise _refused("TLS 1.3 is required; use a client that offers it")
        if not certificate_pem:
            raise _refused("a client certificate is required; enrol first")
        identity, certificate_print, begins, ends = _read(certificate_pem)
        if identity.federation != self._federation:
            raise _refused(f"{identity.uri} does not belong to federation {self._federation}")
        if not begins <= self._clock() <= ends:
            raise _refused(f"the certificate of {identity.uri} is not valid now; enrol again")
        return identity, certificate_print


@lru_cache(maxsize=1024)
def _read(pem: bytes) -> tuple[Identity, str, float, float]:
    """Return identity, fingerprint and validity (in Unix ms) of a certificate that TLS has verified."""
    if len(pem) > MOST_PEM_BYTES:
        raise _refused("the certificate is larger than any that this coordinator issues; enrol again")
    try:
        certificate = x509.load_pem_x509_certificate(pem)
        names = list(certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
        usages = list(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
        issues = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
        subjects = [part.value for part in certificate.subject]
        key = certificate.public_key()
        begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    except UNREADABLE as problem:
        raise _refused("the certificate lacks a name or a usage, or cannot be read; enrol again") from problem
    if len(names) != 1 or not isinstance(names[0], x509.UniformResourceIdentifier):
        raise _refused("the certificate must have exactly one name, a URI; enrol again")
    if usages != [ExtendedKeyUsageOID.CLIENT_AUTH] or issues:
        raise _refused("the certificate is not for clients; enrol again")
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise _refused("the certificate's key is not a P-256 key; enrol again")
    identity = parse_identity(names[0].value)
    if subjects != [identity.name]:
        raise _refused("the certificate's subject differs from the name in its URI; enrol again")
    return identity, fingerprint(certificate), 1000 * begins.timestamp(), 1000 * ends.timestamp()


def identity_in_certificate(certificate: bytes) -> Identity | None:
    """Return the identity in a certificate that TLS has verified; None if it is not a client certificate."""
    try:
        return _read(certificate)[0]
    except PeerError:
        return None


def _refused(message: str) -> PeerError:
    return PeerError(Code.IDENTITY, message)


async def admit_uncertified(method: str, info: ConnectionInfo) -> Callable[[], str]:
    """Admit an enrolment over TLS 1.3, without a certificate."""
    if method not in UNCERTIFIED or info.tls != TLS13:
        raise _refused("this port serves only enrolment over TLS 1.3")
    return lambda: "anybody"
