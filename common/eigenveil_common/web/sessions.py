"""Sessions of people in a browser, one-time links that open them, and checks of every request. A session's
token is in a cookie that scripts cannot read and other sites cannot send; the server stores its digest.
Unknown host names are refused, which prevents DNS rebinding."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

IDLE_SECONDS = 30 * 60.0
LIFETIME_SECONDS = 8 * 3600.0
LINK_SECONDS = 10 * 60.0
MOST_SESSIONS_PER_OWNER = 50  # sessions of one person, whose browser may refuse cookies
MOST_SESSIONS = 1000  # sessions in all; beyond it the one that was idle for longest ends


@dataclass(slots=True, kw_only=True, eq=False)
class BrowserSession:
    """Session of one person in one browser. Its forms carry `csrf`, its cookie carries `token`."""

    owner: str
    opened: float
    last_used: float
    language: str = ""
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    csrf: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)


@dataclass(eq=False)
class Sessions:
    """Sessions of one server; `clock` is monotonic, in seconds."""

    _clock: Callable[[], float] = time.monotonic
    _open: dict[bytes, BrowserSession] = field(default_factory=dict)
    _links: dict[bytes, tuple[str, float]] = field(default_factory=dict)

    def link(self, owner: str) -> str:
        """Return a new secret that opens one session of `owner`, once and within `LINK_SECONDS`."""
        made = secrets.token_urlsafe(32)
        self._links[_digest(made)] = (owner, self._clock() + LINK_SECONDS)
        return made

    def enter(self, link: str) -> BrowserSession | None:
        """Return a new session for `link`; None if the link was used, has expired or is unknown."""
        owner, ends = self._links.pop(_digest(link), ("", 0.0))
        return self.open(owner) if self._clock() < ends else None

    def open(self, owner: str) -> BrowserSession:
        now = self._clock()
        self._open = {key: one for key, one in self._open.items() if self._in_time(one)}
        of_owner = [key for key, one in self._open.items() if one.owner == owner]
        if len(of_owner) >= MOST_SESSIONS_PER_OWNER or len(self._open) >= MOST_SESSIONS:
            crowded = of_owner if len(of_owner) >= MOST_SESSIONS_PER_OWNER else self._open
            del self._open[min(crowded, key=lambda key: self._open[key].last_used)]
        made = BrowserSession(owner=owner, opened=now, last_used=now)
        self._open[_digest(made.token)] = made
        return made

    def find(self, token: str) -> BrowserSession | None:
        """Return the session of a cookie and renew its idle time; None if it has ended or is unknown."""
        found = self._open.get(_digest(token))
        if found is None or not self._in_time(found):
            self._open.pop(_digest(token), None)
            return None
        found.last_used = self._clock()
        return found

    def is_open(self, session: BrowserSession) -> bool:
        """Return True if the session has not ended; this does not renew its idle time."""
        return _digest(session.token) in self._open and self._in_time(session)

    def close(self, session: BrowserSession) -> None:
        self._open.pop(_digest(session.token), None)

    def _in_time(self, session: BrowserSession) -> bool:
        now = self._clock()
        return now - session.last_used < IDLE_SECONDS and now - session.opened < LIFETIME_SECONDS


def _digest(secret: str) -> bytes:
    """Return the digest of a secret for lookup, which has no timing leak of the secret."""
    return hashlib.sha256(secret.encode()).digest()


SAFE = frozenset({"GET", "HEAD"})
FORM = "application/x-www-form-urlencoded"
MOST_BYTES = 1 << 20
POLICY = (
    "default-src 'none'; style-src 'self'; img-src 'self' data:; script-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    # With no-referrer a browser sends forms with `Origin: null`.
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SecurityHeaders:
    """Middleware that adds `HEADERS` to every response; the response's own headers take precedence."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self.app(scope, receive, send_with_headers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Origins:
    """Scheme and host names of the server; host names include a non-default port."""

    scheme: str
    hosts: frozenset[str]

    def check(self, scope: Scope) -> None:
        """Check that a request names our host, and that a change comes from one of our pages."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if headers.getlist("host") != [host] or host not in self.hosts:
            raise HTTPException(421)
        if scope["method"] in SAFE:
            return
        if headers.get("origin") != f"{self.scheme}://{host}":
            raise HTTPException(403)
        if headers.get("sec-fetch-site", "same-origin") != "same-origin":
            raise HTTPException(403)
        if headers.get("content-type", "").partition(";")[0].strip().lower() != FORM:
            raise HTTPException(415)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RequestGuard:
    """Middleware that checks origins and the size of the body (`MOST_BYTES`) before `app`."""

    app: ASGIApp
    origins: Origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise HTTPException(400)
        self.origins.check(scope)
        announced = Headers(scope=scope).get("content-length", "0")
        if not announced.isdecimal() or int(announced) > MOST_BYTES:
            raise HTTPException(413)
        received = 0

        async def limited_receive() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > MOST_BYTES:
                raise HTTPException(413)
            return message

        await self.app(scope, limited_receive, send)
