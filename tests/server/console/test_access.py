"""Access to pages: certificates, roles, sessions, names, forms; deny by default."""

from __future__ import annotations

import asyncio
import http.client
import ssl
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from starlette.routing import Route

from eigenveil.errors import Code
from eigenveil.identity import Role
from eigenveil_common.web.sessions import LIFETIME_SECONDS, MOST_BYTES, MOST_SESSIONS, Sessions
from eigenveil_server.config import ConsoleConfig
from eigenveil_server.console.access import ADMITTED, BURST
from eigenveil_server.console.federation_pages import FederationPages, SubmissionPages
from eigenveil_server.console.study_pages import StudyPages
from eigenveil_server.pki.authority import Authority, new_key
from tests.server.console.visits import Visits, visited
from tests.support import refused

HANDSHAKE = (ssl.SSLError, ConnectionError, http.client.RemoteDisconnected)
ABSENT = "0" * 64
PAGES: list[Any] = [FederationPages, StudyPages, SubmissionPages]


def every_route() -> list[Route]:
    none: Any = None
    made_up = object.__new__(StudyPages)  # its routes need none of what its pages do
    return [
        route for one in (FederationPages(none), made_up, SubmissionPages(none)) for route in one.routes()
    ]


def test_every_path_that_is_answered_is_in_the_table_with_roles_that_can_enrol() -> None:
    paths = {route.path for route in every_route()}
    assert paths == set(ADMITTED)
    assert all(roles and roles <= {Role.ANALYST, Role.OPERATOR} for roles in ADMITTED.values())


async def test_no_page_opens_for_a_role_that_is_not_listed(visits: Visits) -> None:
    """Every path with every method, for each of the three roles: what the table does not say is refused."""
    browsers = {role: await visits.visitor(role, role.value) for role in (Role.ANALYST, Role.OPERATOR)}
    browsers[Role.SITE] = await visits.visitor(Role.SITE, "anna")
    for role, browser in browsers.items():
        await browser.get("/")  # for the cookie of a session
        for route in every_route():
            path = route.path.format(digest=ABSENT, role="analyst", name="nobody")
            for method in sorted((route.methods or set()) - {"HEAD"}):
                form = [("csrf", "of nobody")]
                query = browser.get(path) if method == "GET" else browser.post(path, form)
                status = (await query).status
                if role not in ADMITTED[route.path] or method == "POST":
                    assert status == 403, (role, method, path)
                else:
                    assert status in (200, 404), (role, method, path)


async def test_no_certificate_and_another_authoritys_get_no_page(visits: Visits) -> None:
    other = Authority.create("test-fed", datetime.now(UTC), new_key())
    for credentials in (None, visits.rig.forged(other, role=Role.OPERATOR, name="olga")):
        with pytest.raises(HANDSHAKE):
            await visits.browser(credentials).get("/")
    unknown = visits.browser(visits.rig.forged(role=Role.OPERATOR, name="olga"))
    assert (await unknown.get("/")).status == 403  # of our authority, and not in the registry
    elsewhere = visits.browser(visits.rig.forged(role=Role.OPERATOR, name="olga", federation="other-fed"))
    assert (await elsewhere.get("/")).status == 403


async def test_tls_1_2_is_refused(visits: Visits) -> None:
    browser = await visits.visitor(Role.OPERATOR, "olga")
    browser.context.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(HANDSHAKE):
        await browser.get("/")


async def test_a_denial_counts_at_once_on_a_connection_that_is_open(visits: Visits) -> None:
    analyst, operator = await people(visits)
    connection = analyst.connection()
    assert await asyncio.to_thread(status_on, connection, visits.port) == 200
    own, path = "/people/operator/olga/deny", "/people/analyst/ada/deny"
    listed = (await operator.get("/people")).text
    assert (own in listed, path in listed) == (False, True)
    csrf = (await operator.get(path)).csrf
    assert (await operator.post(own, [("csrf", csrf), ("why", "a slip")])).status == 409, "not oneself"
    assert (await operator.send(path, path, why="left the hospital")).status == 303
    assert await asyncio.to_thread(status_on, connection, visits.port) == 403
    connection.close()
    assert "by operator/olga: left the hospital" in (await operator.get("/audit")).text
    result = await analyst.get("/")
    assert "is on the deny-list; ask the coordinator&#39;s operator" in result.text
    assert "did not come from a page" not in result.text
    again = await visits.visitor(Role.OPERATOR, "olga")
    result = await operator.get("/")
    assert (result.status, (await again.get("/")).status) == (403, 200)
    assert "was replaced by a later one; use that one" in result.text


def status_on(connection: http.client.HTTPConnection, port: int) -> int:
    connection.request("GET", "/", headers={"Host": f"127.0.0.1:{port}"})
    answer = connection.getresponse()
    answer.read()
    return answer.status


async def people(visits: Visits) -> Any:
    return await visits.visitor(Role.ANALYST, "ada"), await visits.visitor(Role.OPERATOR, "olga")


async def test_a_certificate_of_the_next_authority_is_taken_without_a_restart(visits: Visits) -> None:
    from eigenveil_server.pki import rotation

    old = await visits.visitor(Role.OPERATOR, "olga")
    await asyncio.to_thread(rotation.rotate, visits.rig.config)
    await asyncio.to_thread(rotation.switch, visits.rig.config, anyway=True)
    visits.rig.daemon.runtime.keys.authorities.refresh()
    new = await visits.visitor(Role.OPERATOR, "oskar")
    for browser in (old, new):
        browser.context.load_verify_locations(cadata=visits.rig.ca.decode())
        assert (await browser.get("/")).status == 200
    await asyncio.to_thread(rotation.retire, visits.rig.config, anyway=True)
    visits.rig.daemon.runtime.keys.authorities.refresh()
    assert (await new.get("/")).status == 200
    with pytest.raises(HANDSHAKE):
        await old.get("/")


async def test_a_form_needs_its_session_its_secret_and_a_page_of_ours(visits: Visits) -> None:
    _, operator = await people(visits)
    await visits.visitor(Role.ANALYST, "abel")
    path, why = "/people/analyst/abel/deny", ("why", "tests")
    csrf = ("csrf", (await operator.get(path)).csrf)
    stranger = await visits.visitor(Role.OPERATOR, "oskar")
    other = ("csrf", (await stranger.get(path)).csrf)
    assert (await operator.post(path, [why, other])).status == 403
    assert (await operator.post(path, [why, csrf], {"Origin": "https://elsewhere.example"})).status == 403
    stolen = {"Cookie": operator.cookie}
    assert (await stranger.post(path, [why, csrf], stolen)).status == 401, "another's session"
    assert "denied" not in (await operator.get("/people")).text
    assert (await operator.post(path, [why, csrf])).status == 303


def test_a_browser_without_cookies_closes_no_session_of_others() -> None:
    sessions = Sessions()
    remaining = sessions.open("olga")
    for _ in range(2 * MOST_SESSIONS):
        latest = sessions.open("mallory")
    assert sessions.find(remaining.token) is remaining
    assert sessions.find(latest.token) is latest


async def test_an_ended_session_sends_no_form_and_looks_on(
    visits: Visits, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, operator = await people(visits)
    path = "/people/analyst/ada/deny"
    csrf = (await operator.get(path)).csrf
    monkeypatch.setattr("eigenveil_common.web.sessions.LIFETIME_SECONDS", -LIFETIME_SECONDS)
    answer = await operator.post(path, [("csrf", csrf), ("why", "tests")])
    assert answer.status == 401
    monkeypatch.undo()
    assert (await operator.send(path, path, why="tests")).status == 303


async def test_a_name_that_is_not_ours_and_a_path_out_of_the_files_lead_nowhere(visits: Visits) -> None:
    _, operator = await people(visits)
    for host in ("evil.example", f"evil.example:{visits.port}", "127.0.0.1:1"):
        assert (await operator.get("/", Host=host)).status == 421, host
    assert (await operator.get("/", Host=f"localhost:{visits.port}")).status == 200
    for path in ("/static/%2e%2e%2faccess.py", "/studies/..%2f..%2fstate.db", f"/studies/{'A' * 64}"):
        assert (await operator.get(path)).status == 404, path


async def test_too_large_and_too_many_requests_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eigenveil_server.console.access.RATE", 1e-9)  # a busy machine is too slow for it
    async with visited(tmp_path / "c") as visits:
        analyst, operator = await people(visits)
        form = await analyst.get("/submit")
        large = [("csrf", form.csrf), ("purpose", "x" * MOST_BYTES)]
        with suppress(*HANDSHAKE):  # told while it was still sending, and gone
            assert (await analyst.post("/submit", large)).status == 413
        connection = operator.connection()
        found = [await asyncio.to_thread(status_on, connection, visits.port) for _ in range(int(BURST) + 2)]
        connection.close()
        assert 429 in found
        assert (await analyst.get("/")).status == 200, "nobody else is held back"


PROXY = {
    "trusted_header": "X-Forwarded-User",
    "trusted_proxies": ("127.0.0.2",),
    "people": (("ada@example.org", "analyst/ada"), ("olga@example.org", "operator/olga")),
}


async def test_only_a_listed_proxy_names_the_visitor(tmp_path: Path) -> None:
    """The header from anywhere else is refused, also beside a certificate that is good."""
    async with visited(tmp_path / "c", settings=PROXY) as visits:
        stored = await visits.rig.credentials(Role.OPERATOR, "olga")
        name = {"X-Forwarded-User": "olga@example.org"}
        proxy = visits.browser(None, whence="127.0.0.2")
        assert (await proxy.get("/people", **name)).status == 200
        for credentials, headers in ((None, name), (stored, name), (stored, {})):
            with pytest.raises(HANDSHAKE):
                await visits.browser(credentials).get("/people", **headers)
        assert (await proxy.get("/people")).status == 403, "it names nobody"
        for who in ("", "mallory@example.org", "operator/olga", "olga@example.org, ada@example.org"):
            assert (await proxy.get("/people", **{"X-Forwarded-User": who})).status == 403, who
        unenrolled = {"X-Forwarded-User": "ada@example.org"}
        assert (await proxy.get("/studies", **unenrolled)).status == 403
        await visits.rig.credentials(Role.ANALYST, "ada")
        assert (await proxy.get("/studies", **unenrolled)).status == 200
        assert (await proxy.get("/people", **unenrolled)).status == 403
        visits.rig.daemon.registry.deny(Role.ANALYST, "ada")
        assert (await proxy.get("/studies", **unenrolled)).status == 403


@pytest.mark.parametrize(
    "values",
    [
        {"trusted_header": "X-User"},
        {"trusted_proxies": ("127.0.0.1",)},
        {"people": (("ada", "analyst/ada"),)},
        {"trusted_header": "X-User", "trusted_proxies": ("127.0.0.1",)},
        {"trusted_header": "X User", "trusted_proxies": ("::1",), "people": (("ada", "analyst/ada"),)},
        {"trusted_header": "X-User", "trusted_proxies": ("proxy",), "people": (("ada", "analyst/ada"),)},
        {"hosts": ("a b",)},
        {"listen": "7445"},
    ],
)
def test_a_console_that_knows_its_visitors_by_halves_is_refused(values: dict[str, Any]) -> None:
    with refused(Code.BAD_CONFIG):
        ConsoleConfig(**values)
