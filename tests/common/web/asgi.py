"""A test browser that calls an application as a server would, and stores cookies."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from starlette.types import ASGIApp, Message

HOST = "127.0.0.1:8000"


@dataclass(frozen=True, kw_only=True)
class Answer:
    status: int
    headers: list[tuple[str, str]]
    text: str

    def header(self, name: str) -> str:
        return next((value for key, value in self.headers if key == name), "")


@dataclass(kw_only=True)
class Browser:
    """One person's browser at `app`. A header of None is left out."""

    app: ASGIApp
    cookies: dict[str, str] = field(default_factory=dict)

    def get(self, path: str, **headers: str | None) -> Answer:
        return self.request("GET", path, b"", headers)

    def post(self, path: str, form: dict[str, str], **headers: str | None) -> Answer:
        sent: dict[str, str | None] = {
            "origin": f"http://{HOST}",
            "content_type": "application/x-www-form-urlencoded",
        }
        return self.request("POST", path, urlencode(form).encode(), sent | headers)

    def csrf(self, path: str) -> str:
        found = re.search(r'name="csrf" value="([^"]+)"', self.get(path).text)
        assert found is not None
        return found[1]

    def request(self, method: str, path: str, body: bytes, headers: dict[str, str | None]) -> Answer:
        path, _, query = path.partition("?")
        sent = {"host": HOST, "content_length": str(len(body))} | headers
        if self.cookies:
            sent["cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method,
            "scheme": "http", "path": path, "raw_path": path.encode(), "query_string": query.encode(),
            "root_path": "", "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8000),
            "headers": [(n.replace("_", "-").encode(), v.encode()) for n, v in sent.items() if v is not None],
        }  # fmt: skip
        answer = asyncio.run(_call(self.app, scope, body))
        for name, value in answer.headers:
            if name == "set-cookie":
                key, _, rest = value.partition("=")
                self.cookies[key] = rest.partition(";")[0]
        return answer


async def _call(app: ASGIApp, scope: dict[str, Any], body: bytes) -> Answer:
    statement: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        statement.append(message)

    await app(scope, receive, send)
    text = b"".join(one.get("body", b"") for one in statement[1:]).decode()
    headers = [(name.decode(), value.decode()) for name, value in statement[0]["headers"]]
    return Answer(status=statement[0]["status"], headers=headers, text=text)
