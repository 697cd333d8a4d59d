"""Sessions, forms, headers and error pages of every web program."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from eigenveil.errors import Code, InternalError, RequestError
from eigenveil_common.web import serving
from eigenveil_common.web.application import LinkGate, PageGateway, application
from eigenveil_common.web.pages import Languages, Pages
from eigenveil_common.web.sessions import (
    IDLE_SECONDS,
    LIFETIME_SECONDS,
    LINK_SECONDS,
    MOST_BYTES,
    Origins,
    Sessions,
)
from tests.common.web.asgi import HOST, Browser
from tests.support import Patch

PAGE = """{% extends "base.html" %}{% import "forms.html" as forms %}{% block main %}
<h1>{{ text }}</h1><form method="post">{{ forms.secret(csrf) }}</form>{% endblock %}"""
HOSTILE = "<script>alert(1)</script>"


class Rig:
    """A program with a page, a form and two pages that fail, and a clock that is moved by hand."""

    def __init__(self, folder: Path) -> None:
        (folder / "page.html").write_text(PAGE)
        self.now = 0.0
        self.changes: list[str] = []
        pages = Pages(folder, program="Trial", languages=Languages())
        origins = Origins(scheme="http", hosts=frozenset({HOST}))
        self.gateway = PageGateway(
            pages=pages, sessions=Sessions(lambda: self.now), origins=origins, cookie="trial"
        )
        self.gate = LinkGate(gateway=self.gateway)

        async def page(request: Request) -> Response:
            return pages.render(request, "page.html", text=request.query_params.get("text", ""))

        async def change(request: Request) -> Response:
            self.changes.append(str((await request.form())["text"]))
            return Response("done")

        async def fail(request: Request) -> Response:
            if request.path_params["how"] == "asked":
                raise RequestError(Code.CONFLICT, HOSTILE)
            if request.path_params["how"] == "disk":
                raise InternalError(Code.STORAGE, "cannot write /secret/place")
            raise ValueError("a record's value")

        self.app = application(
            [Route("/", page), Route("/change", change, methods=["POST"]), Route("/fail/{how}", fail)],
            gateway=self.gateway, gate=self.gate, public_routes=[self.gate.entrance()],
        )  # fmt: skip

    def entered(self) -> Browser:
        browser = Browser(app=self.app)
        assert browser.get(self.gate.link("officer")).status == 200
        return browser


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


@pytest.mark.parametrize(("method", "headers"), [
    ("HEAD", {}),
    ("GET", {"sec_purpose": "prefetch;prerender"}),
    ("GET", {"purpose": "prefetch"}),
    ("GET", {"x_moz": "prefetch"}),
    ("GET", {"x_purpose": "preview"}),
])  # fmt: skip
def test_a_link_that_was_only_looked_at_still_opens(
    rig: Rig, method: str, headers: dict[str, str | None]
) -> None:
    link, browser = rig.gate.link("officer"), Browser(app=rig.app)
    answer = browser.request(method, link, b"", headers)
    assert (answer.status, browser.cookies) == (503, {})
    assert browser.get(link).status == 200
    assert browser.get("/").status == 200


def test_a_link_opens_one_session_and_no_second(rig: Rig) -> None:
    link = rig.gate.link("officer")
    first, second = Browser(app=rig.app), Browser(app=rig.app)
    assert (first.get("/").status, first.get(link).status, first.get("/").status) == (401, 200, 200)
    assert (second.get(link).status, second.get("/").status) == (401, 401)


def test_an_expired_link_opens_no_session(rig: Rig) -> None:
    link = rig.gate.link("officer")
    rig.now += LINK_SECONDS
    assert Browser(app=rig.app).get(link).status == 401


def test_a_session_ends_when_idle_and_after_its_lifetime(rig: Rig) -> None:
    idle, busy = rig.entered(), rig.entered()
    while rig.now + IDLE_SECONDS / 2 < LIFETIME_SECONDS:
        assert busy.get("/").status == 200
        rig.now += IDLE_SECONDS / 2
    assert (idle.get("/").status, busy.get("/").status) == (401, 200)
    rig.now += IDLE_SECONDS / 2
    ended = busy.get("/")
    assert ended.status == 401
    assert "Open it again" in ended.text


def test_the_cookie_is_for_no_script_and_no_other_site(rig: Rig) -> None:
    text = Browser(app=rig.app).get(rig.gate.link("officer")).header("set-cookie").lower()
    assert "httponly" in text
    assert "samesite=strict" in text


def test_a_form_counts_with_its_own_session_s_secret_alone(rig: Rig) -> None:
    mine, other = rig.entered(), rig.entered()
    for wrong in ({}, {"csrf": ""}, {"csrf": other.csrf("/")}, {"csrf": "\u00e9"}):
        assert mine.post("/change", wrong | {"text": "no"}).status == 403
    assert mine.post("/change", {"csrf": mine.csrf("/"), "text": "yes"}).status == 200
    assert rig.changes == ["yes"]


@pytest.mark.parametrize(("headers", "status"), [
    ({"origin": None}, 403),
    ({"origin": "null"}, 403),
    ({"origin": "http://elsewhere.example"}, 403),
    ({"origin": "https://127.0.0.1:8000"}, 403),
    ({"origin": "http://127.0.0.1:9000"}, 403),
    ({"sec_fetch_site": "cross-site"}, 403),
    ({"sec_fetch_site": "same-site"}, 403),
    ({"content_type": "text/plain"}, 415),
    ({"content_type": "multipart/form-data; boundary=x"}, 415),
    ({"host": "elsewhere.example"}, 421),
    ({"host": "127.0.0.1"}, 421),
    ({"host": None}, 421),
    ({"content_length": str(MOST_BYTES + 1)}, 413),
    ({"content_length": "-1"}, 413),
])  # fmt: skip
def test_a_form_of_another_origin_or_too_long_is_refused(
    rig: Rig, headers: dict[str, str | None], status: int
) -> None:
    browser = rig.entered()
    form = {"csrf": browser.csrf("/"), "text": "no"}
    assert (browser.post("/change", form, **headers).status, rig.changes) == (status, [])


def test_a_body_longer_than_its_content_length_is_refused(rig: Rig) -> None:
    browser = rig.entered()
    form = {"csrf": browser.csrf("/"), "text": "x" * MOST_BYTES}
    assert (browser.post("/change", form, content_length="10").status, rig.changes) == (413, [])


def test_every_answer_forbids_frames_other_origins_and_caching(rig: Rig) -> None:
    browser = rig.entered()
    for path in ("/", "/nowhere", "/fail/bug", "/static/site.css"):
        answer = browser.get(path)
        rules = {one.strip() for one in answer.header("content-security-policy").split(";")}
        assert {
            "default-src 'none'",
            "script-src 'self'",
            "frame-ancestors 'none'",
            "base-uri 'none'",
        } <= rules
        assert not any("unsafe" in rule or "*" in rule for rule in rules)
        assert answer.header("x-content-type-options") == "nosniff"
        assert answer.header("cache-control") == "no-store"


def test_typed_text_is_escaped(rig: Rig) -> None:
    browser = rig.entered()
    for path in (f"/?text={HOSTILE}", "/fail/asked"):
        text = browser.get(path).text
        assert HOSTILE not in text
        assert "&lt;script&gt;alert(1)" in text


@pytest.mark.parametrize("how", ["bug", "disk"])
def test_a_failure_page_shows_no_internals(rig: Rig, how: str) -> None:
    answer = rig.entered().get(f"/fail/{how}")
    assert answer.status == 500
    for inside in ("secret", "record", "Traceback", "Error", ".py"):
        assert inside not in answer.text


@pytest.mark.parametrize("path", [
    "/static/../application.py", "/static/..%2fapplication.py", "/static/", "/static//etc/passwd",
    "/static/%00",
])  # fmt: skip
def test_no_file_but_the_pages_own_is_served(rig: Rig, path: str) -> None:
    browser = rig.entered()
    assert (browser.get("/static/site.css").status, browser.get(path).status) == (200, 404)


def test_an_unknown_path_does_not_reveal_the_base_path(tmp_path: Path) -> None:
    base = "/only-the-link-says-this"
    pages = Pages(tmp_path, program="Trial", languages=Languages(), base=base)
    origins = Origins(scheme="http", hosts=frozenset({HOST}))
    gateway = PageGateway(pages=pages, sessions=Sessions(), origins=origins, cookie="trial")
    gate = LinkGate(gateway=gateway)
    browser = Browser(app=application([], gateway=gateway, gate=gate, public_routes=[gate.entrance()]))
    for path in ("/", "/favicon.ico", "/static/site.css", f"{base}x/", base):
        for host in (HOST, "elsewhere.example"):
            answer = browser.get(path, host=host)
            assert answer.status == 404
            assert base not in f"{answer.headers}{answer.text}"
    assert browser.get(f"{base}/static/site.css").status == 200


# Event streams.


def read(pieces: list[str], lives: list[bool], wait: bool = False) -> tuple[list[str], int]:
    """Everything that is sent, and how many pieces were made for it. `lives` is what is answered in turn."""
    made = 0

    async def source() -> AsyncIterator[str]:
        nonlocal made
        for piece in pieces:
            made += 1
            yield piece
        if wait:
            await asyncio.Event().wait()

    async def run() -> list[str]:
        answers = iter(lives)
        response = serving.event_stream(source(), lambda: next(answers, False))
        return [str(one) async for one in response.body_iterator]

    return asyncio.run(run()), made


def test_a_piece_of_many_lines_arrives_as_one_message() -> None:
    sent, _ = read(['<p id="a">\n1</p>'], [True] * 4)
    assert sent[1:] == ['data: <p id="a">\ndata: 1</p>\n\n']


def test_a_stream_ends_with_its_session_and_what_was_made_for_it_is_not_sent() -> None:
    sent, made = read(["<p>1</p>", "<p>2</p>", "<p>3</p>"], [True, True, True, False])
    assert sent[1:] == ["data: <p>1</p>\n\n"]
    assert made <= 2


def test_an_idle_stream_checks_its_session(monkeypatch: Patch) -> None:
    monkeypatch.setattr(serving, "BEAT_SECONDS", 0.001)
    sent, _ = read([], [True, True], wait=True)
    assert sent[1:] == [": still here\n\n"] * 2


async def test_an_event_is_rendered_only_after_the_previous_one_was_read() -> None:
    made = 0

    async def source() -> AsyncIterator[str]:
        nonlocal made
        while True:
            made += 1
            yield "<p>x</p>"

    body = serving.event_stream(source(), lambda: True).body_iterator
    for _ in range(3):
        await anext(aiter(body))
    await asyncio.sleep(0.01)
    assert made <= 3
