"""Who visits: a certificate of the federation, or the word of a proxy that is trusted. Never both.

Neither is believed for longer than one request: before each, whoever may call is looked up anew.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from starlette.requests import Request

from eigenveil.errors import Code, PeerError
from eigenveil.identity import Identity, Role
from eigenveil_server.clock import Clock
from eigenveil_server.config import Console
from eigenveil_server.rpc.admissions import Admissions
from eigenveil_server.rpc.interceptor import Peers


@dataclass(frozen=True, slots=True, kw_only=True)
class Visitor:
    """`check` raises PeerError once its bearer was shut out. `begins` is the fingerprint of a renewed
    certificate that was never shown before."""

    identity: Identity
    check: Callable[[], object]
    begins: str = ""

    @property
    def name(self) -> str:
        """Role and name, as the operator types them."""
        return f"{self.identity.role.value}/{self.identity.name}"

    @property
    def operates(self) -> bool:
        return self.identity.role is Role.OPERATOR


@dataclass(frozen=True, slots=True)
class Certified:
    """Whoever shows a certificate; TLS has verified who issued it."""

    _peers: Peers
    _admissions: Admissions

    def __call__(self, request: Request) -> Visitor:
        """Raises: PeerError, code `identity`."""
        shown, tls = request.state.certificate, request.state.tls
        identity, print = self._peers.certified(shown, tls)
        unused = self._admissions.latest.check(identity, print)

        def check() -> None:
            self._admissions.latest.check(*self._peers.certified(shown, tls))

        return Visitor(identity=identity, check=check, begins=print if unused else "")


@dataclass(frozen=True, slots=True)
class Proxied:
    """Whoever a listed proxy names in its header. Whoever else connects is refused, whatever they say."""

    _console: Console
    _admissions: Admissions
    _federation: str
    _clock: Clock

    def __call__(self, request: Request) -> Visitor:
        """Raises: PeerError, code `identity`."""
        address = request.client.host if request.client is not None else ""
        if address not in self._console.trusted_proxies:
            raise _refused(f"{address} is not one of trusted_proxies")
        names = request.headers.getlist(self._console.trusted_header)
        who = dict(self._console.people).get(names[0]) if len(names) == 1 else None
        if who is None:
            raise _refused(f"the proxy's {self._console.trusted_header} names nobody of [console.people]")
        role, _, name = who.partition("/")
        identity = Identity(federation=self._federation, role=Role(role), name=name)

        def check() -> None:
            self._admissions.latest.check_enrolled(identity, self._clock())

        check()
        return Visitor(identity=identity, check=check)


Visitors = Certified | Proxied


def _refused(message: str) -> PeerError:
    return PeerError(Code.IDENTITY, message)
