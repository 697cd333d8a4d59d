"""Visits to a console: real TLS with real certificates, on threads beside the coordinator's loop."""

from __future__ import annotations

import asyncio
import http.client
import re
import ssl
import tempfile
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from eigenveil.dictionary.dictionary import Dictionary, DictionaryColumn
from eigenveil.dictionary.formats import sign_dictionary
from eigenveil.identity import Role
from eigenveil_server.config import Config, ConsoleConfig
from eigenveil_server.storage import directory
from tests.server.rig import Credentials, Rig, made, serving

COLUMNS = 4
CSRF = re.compile(r'name="csrf" value="([^"]+)"')
SUBMISSION = re.compile(r'name="submission" value="([^"]+)"')


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def csrf(self) -> str:
        found = CSRF.search(self.text)
        assert found is not None, self.text
        return found[1]

    @property
    def submission(self) -> str:
        found = SUBMISSION.search(self.text)
        assert found is not None, self.text
        return found[1]


def tls(ca: bytes, stored: Credentials | None) -> ssl.SSLContext:
    """Trusts the federation, and shows a certificate if there is one."""
    context = ssl.create_default_context(cadata=ca.decode())
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if stored is not None:
        with tempfile.NamedTemporaryFile() as file:
            file.write(stored.key + stored.certificate)
            file.flush()
            context.load_cert_chain(file.name)
    return context


@dataclass(slots=True, kw_only=True)
class Browser:
    """One person's: keeps its cookie, and says whence its forms come."""

    port: int
    context: ssl.SSLContext
    whence: str | None = None  # the address that it calls from
    cookie: str = ""
    more: dict[str, str] = field(default_factory=dict)

    def connection(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(
            "127.0.0.1",
            self.port,
            context=self.context,
            timeout=120,
            source_address=None if self.whence is None else (self.whence, 0),
        )

    def request(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        sent = {"Host": f"127.0.0.1:{self.port}", **self.more, **(headers or {})}
        if self.cookie and "Cookie" not in sent:
            sent["Cookie"] = self.cookie
        connection = self.connection()
        try:
            connection.request(method, path, body, {key: value for key, value in sent.items() if value})
            found = connection.getresponse()
            endless = found.headers.get_content_type() == "text/event-stream"
            text = "" if endless else found.read().decode(errors="surrogateescape")
        finally:
            connection.close()
        if made := found.headers.get("set-cookie"):
            self.cookie = made.split(";")[0]
        return Answer(status=found.status, headers=dict(found.headers.items()), text=text)

    async def get(self, path: str, **headers: str) -> Answer:
        return await asyncio.to_thread(self.request, "GET", path, None, headers)

    async def post(
        self, path: str, fields: Iterable[tuple[str, str]], headers: Mapping[str, str] | None = None
    ) -> Answer:
        sent = {
            "Origin": f"https://127.0.0.1:{self.port}",
            "Content-Type": "application/x-www-form-urlencoded",
            **(headers or {}),
        }
        return await asyncio.to_thread(self.request, "POST", path, urlencode(list(fields)).encode(), sent)

    async def send(self, page: str, path: str, **fields: str) -> Answer:
        """Open a page with a form, then send the form."""
        shown = await self.get(page)
        return await self.post(path, [("csrf", shown.csrf), *fields.items()])


@dataclass(frozen=True, slots=True, kw_only=True)
class Visits:
    rig: Rig
    port: int

    def browser(self, stored: Credentials | None, **more: Any) -> Browser:
        return Browser(port=self.port, context=tls(self.rig.ca, stored), **more)

    async def visitor(self, role: Role, name: str) -> Browser:
        return self.browser(await self.rig.credentials(role, name))


def a_dictionary(*names: str, meaning: str = "") -> Dictionary:
    columns = tuple(
        DictionaryColumn(name=name, meaning=meaning, lower=-1.0, upper=1.0, source="known")
        for name in names or (f"c{index}" for index in range(COLUMNS))
    )
    return Dictionary(name="small", version=1, columns=columns)


@asynccontextmanager
async def visited(
    folder: Path, dictionary: Dictionary | None = None, settings: Mapping[str, Any] | None = None, **more: Any
) -> AsyncIterator[Visits]:
    """A coordinator with a console, and a dictionary that is published."""
    config: Config = made(folder, console=ConsoleConfig(listen="127.0.0.1:0", **(settings or {})), **more)
    async with serving(config) as rig:
        published = dictionary or a_dictionary()
        signed = sign_dictionary(published, config.federation, rig.daemon.runtime.keys.release.sign)
        with rig.repository.store.writer.transaction() as change:
            directory.publish(change, published, signed, 0)
        assert rig.ports.console_port is not None
        yield Visits(rig=rig, port=rig.ports.console_port)
