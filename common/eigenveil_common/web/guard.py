"""Checks of every request before a page handles it: headers, host, origin and size.

A page may load only its own style, script and images, cannot be framed, and is not cached. Unknown host names
are refused, which prevents DNS rebinding.
"""

from __future__ import annotations

from dataclasses import dataclass

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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
        """Check that a request names our host, and that a change comes from one of our pages.

        Raises:
            HTTPException: 421 another host, 403 another origin, 415 not a form.
        """
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


def limited(scope: Scope, receive: Receive) -> Receive:
    """Return `receive` with a limit of `MOST_BYTES` on the body."""
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

    return limited_receive


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RequestGuard:
    """Middleware that checks origins and the size of the body before `app`."""

    app: ASGIApp
    origins: Origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise HTTPException(400)
        self.origins.check(scope)
        await self.app(scope, limited(scope, receive), send)
