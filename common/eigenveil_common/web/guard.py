"""What holds for every request before a page sees it: headers, host, origin, size.

A page may load its own style, script and pictures and nothing else; nobody frames it; nothing is kept by
the browser. A name that is not ours is refused, or a page of elsewhere could reach us by renaming itself.
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
    # With no-referrer a browser would send our own forms with `Origin: null`.
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Headed:
    """`app`, with `HEADERS` on whatever it answers; a header of its own stays."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def headed(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self.app(scope, receive, headed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Origins:
    """By which scheme and names (with their ports, if not the scheme's own) browsers reach us."""

    scheme: str
    hosts: frozenset[str]

    def check(self, scope: Scope) -> None:
        """Insist that a request is meant for us, and a change comes from a page of ours.

        Raises:
            HTTPException: 421 another host, 403 another origin, 415 no form.
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
    """`receive`, which refuses a body of more than `MOST_BYTES`, announced or not."""
    announced = Headers(scope=scope).get("content-length", "0")
    if not announced.isdecimal() or int(announced) > MOST_BYTES:
        raise HTTPException(413)
    taken = 0

    async def counted() -> Message:
        nonlocal taken
        message = await receive()
        taken += len(message.get("body", b""))
        if taken > MOST_BYTES:
            raise HTTPException(413)
        return message

    return counted


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Guarded:
    """`app` behind `origins` and the limit of a body; what is refused becomes a page where `app` sits."""

    app: ASGIApp
    origins: Origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise HTTPException(400)
        self.origins.check(scope)
        await self.app(scope, limited(scope, receive), send)
