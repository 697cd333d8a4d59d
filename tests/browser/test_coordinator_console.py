"""The coordinator's console as an analyst and an operator use it, each with a certificate in the browser."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

import pytest
from playwright.sync_api import Page, expect

from eigenveil.dictionary.dictionary import Dictionary, DictionaryColumn
from eigenveil.identity import Role
from tests.browser.pages import Opened, no_serious_axe, shot
from tests.server.console.visits import Visits, visited
from tests.server.rig import Credentials, answering, study_toml

T = TypeVar("T")
expect.set_options(timeout=30_000)  # the first plan waits for a process that plans
MEASURED = {
    "glucose": ("glucose in the blood, fasting", "mg/dL", 20.0, 600.0),
    "sodium": ("sodium in the serum", "mmol/L", 100.0, 180.0),
    "potassium": ("potassium in the serum", "mmol/L", 1.0, 10.0),
    "creatinine": ("creatinine in the serum", "mg/dL", 0.1, 15.0),
    "age": ("age at admission", "a", 0.0, 120.0),
}
PURPOSE = "Which laboratory values vary together in patients with chronic kidney disease."


class Running:
    """A coordinator with a console, on a thread, whose sites answer while `answers` is entered."""

    def __init__(self, folder: Path) -> None:
        self.loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._ready: Future[Visits] = Future()
        self._thread = threading.Thread(target=self._run, args=(folder,))
        self._thread.start()
        self.visits = self._ready.result(60)
        self.sites = self.do(self.visits.rig.sites())
        self.origin = f"https://127.0.0.1:{self.visits.port}"

    def _run(self, folder: Path) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_until_complete(self._serve(folder))

    async def _serve(self, folder: Path) -> None:
        columns = tuple(
            DictionaryColumn(name=name, meaning=meaning, unit=unit, lower=low, upper=high, source="known")
            for name, (meaning, unit, low, high) in MEASURED.items()
        )
        try:
            async with visited(folder, Dictionary(name="laboratory", version=1, columns=columns)) as visits:
                self._ready.set_result(visits)
                await self._stop.wait()
        except BaseException as problem:
            if not self._ready.done():
                self._ready.set_exception(problem)
            raise

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Result of `work`, run on the coordinator's loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(60)

    def enrolled(self, role: Role, name: str) -> Credentials:
        return self.do(self.visits.rig.credentials(role, name, lift_denial=True))

    def begin_answering(self, columns: int) -> Any:
        async def serve() -> None:
            async with answering(self.sites, columns=columns):
                await asyncio.Event().wait()

        return asyncio.run_coroutine_threadsafe(serve(), self.loop)

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(30)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    made = Running(tmp_path_factory.mktemp("console") / "c")
    yield made
    made.stop()


async def submitted(visits: Visits, stored: Credentials, name: str) -> str:
    text = study_toml(name=name, columns=2, components=1, deadline_seconds=600.0)
    text = text.replace('"c0"', '"glucose"').replace('"c1"', '"sodium"')
    return await sent(visits, stored, text, name)


async def sent(visits: Visits, stored: Credentials, text: str, submission: str) -> str:
    return await visits.rig.connect(stored).submit(text, submission, agreed=False)


def visit(running: Running, opened: Opened, stored: Credentials, **more: Any) -> Page:
    certificate = {"origin": running.origin, "cert": stored.certificate, "key": stored.key}
    page = opened(
        ignore_https_errors=True, client_certificates=[certificate], base_url=running.origin, **more
    )
    page.set_default_timeout(90_000)  # what is submitted is planned, and a report drawn, in other processes
    return page


def fill(page: Page, name: str) -> None:
    page.goto("/submit")
    for column in ("glucose", "sodium", "creatinine"):
        page.get_by_role("checkbox", name=column).check()
    page.get_by_label("Name").fill(name)
    page.get_by_label("Purpose").fill(PURPOSE)
    page.get_by_label("Epsilon").fill("0.5")


def submit_draft(running: Running, page: Page, stored: Credentials) -> None:
    """Make the study file of the form, download it, run the command beside it, and open the study's page."""
    page.get_by_role("button", name="Make the study file").click()
    draft = page.locator("#draft")
    expect(draft).to_contain_text("nothing is submitted yet")
    _, _, submission = draft.locator("pre").inner_text().strip().rpartition(" --submission ")
    with page.expect_download() as download:
        draft.get_by_role("button", name="Download").click()
    text = download.value.path().read_text()
    page.goto(f"/studies/{running.do(sent(running.visits, stored, text, submission))}")


def test_an_analyst_drafts_a_study_watches_it_live_and_opens_the_report(
    running: Running, opened: Opened
) -> None:
    stored = running.enrolled(Role.ANALYST, "ada")
    page = visit(running, opened, stored)
    fill(page, "kidney-values")
    prediction = page.locator("#prediction")
    expect(prediction).to_contain_text("Further studies like this one")
    page.get_by_label("Epsilon").fill("0.25")
    expect(prediction).to_contain_text("epsilon 0.25")
    page.get_by_label("Components").fill("7")
    expect(prediction).to_contain_text("must lie between 1 and the 3 columns")
    page.get_by_label("Components").fill("2")
    page.get_by_label("Epsilon").fill("0.5")
    expect(prediction).to_contain_text("epsilon 0.5")
    no_serious_axe(page)
    shot(page, "coordinator-submit")
    page.get_by_role("button", name="Make the study file").click()
    expect(page.locator("#draft")).to_be_in_viewport()
    no_serious_axe(page)
    shot(page, "coordinator-draft")
    submit_draft(running, page, stored)
    expect(page.get_by_role("heading", name="kidney-values")).to_be_visible()
    expect(page.locator("#progress")).to_contain_text("Waiting for: anna, bert, carl")
    no_serious_axe(page)
    shot(page, "coordinator-study")
    sites = running.begin_answering(3)
    # Nobody loads the page again.
    expect(page.get_by_role("link", name="Open the report")).to_be_visible(timeout=30_000)
    sites.cancel()
    page.get_by_role("link", name="Reload to see the result").click()
    expect(page.get_by_role("heading", name="Result")).to_be_visible()
    no_serious_axe(page)
    shot(page, "coordinator-released")
    page.get_by_role("link", name="Open the report").click()
    expect(page.get_by_role("heading", name="kidney-values")).to_be_visible(timeout=60_000)
    assert page.locator("figure img").count() >= 2
    assert page.evaluate("self.origin") == "null", "the report is of no origin"


def test_an_operator_denies_a_certificate_and_its_open_page_hears_no_more(
    running: Running, opened: Opened
) -> None:
    analyst = visit(running, opened, running.enrolled(Role.ANALYST, "mallory"))
    analyst.goto("/")
    operator = visit(running, opened, running.enrolled(Role.OPERATOR, "olga"))
    operator.goto("/people")
    operator.get_by_role("link", name="Deny analyst mallory").click()
    expect(operator.get_by_label("Reason")).to_be_visible()
    no_serious_axe(operator)
    shot(operator, "coordinator-deny")
    operator.get_by_label("Reason").fill("left the hospital")
    operator.get_by_role("button", name="Deny mallory").click()
    expect(operator.get_by_role("row", name="mallory")).to_contain_text("denied")
    answer = analyst.goto("/")
    assert answer is not None
    assert answer.status == 403
    operator.goto("/audit")
    expect(operator.get_by_text("by operator/olga: left the hospital")).to_be_visible()


def test_all_but_live_updates_works_without_scripts(running: Running, opened: Opened) -> None:
    stored = running.enrolled(Role.ANALYST, "plain")
    page = visit(running, opened, stored, scripts=False)
    page.goto("/submit")
    page.get_by_label("Search in").fill("kidney")
    page.get_by_role("button", name="Search").click()
    expect(page.get_by_text("No column matches the search")).to_be_visible()
    page.get_by_label("Search in").fill("serum")
    page.get_by_role("button", name="Search").click()
    for column in ("sodium", "potassium"):
        page.get_by_role("checkbox", name=column).check()
    page.get_by_label("Name").fill("without-scripts")
    page.get_by_label("Components").fill("1")
    page.get_by_role("button", name="Predict").click()
    expect(page.locator("#prediction")).to_contain_text("Expected accuracy")
    submit_draft(running, page, stored)
    page.get_by_role("link", name="reload").click()
    page.get_by_text("Cancel this study").click()
    page.get_by_role("button", name="Cancel without-scripts").click()
    expect(page.locator("#progress")).to_contain_text("cancelled")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_page_reads_well(running: Running, opened: Opened, dark: bool) -> None:
    stored = {
        "analyst": running.enrolled(Role.ANALYST, "reader"),
        "operator": running.enrolled(Role.OPERATOR, "reader"),
    }
    digest = running.do(submitted(running.visits, stored["analyst"], "dark-hours" if dark else "day-hours"))
    paths = {
        "analyst": ("/", "/studies", f"/studies/{digest}", "/budget", "/submit", "/people"),
        "operator": (
            "/",
            f"/studies/{digest}",
            "/people",
            "/people/site/anna/deny",
            "/refusals",
            "/audit",
            "/nowhere",
        ),
    }
    for role, listed in paths.items():
        page = visit(running, opened, stored[role], dark=dark)
        for path in listed:
            page.goto(path)
            no_serious_axe(page)
    page.goto("/")
    shot(page, f"coordinator-overview-{'dark' if dark else 'light'}")
    if dark:
        return
    page.emulate_media(media="print")
    shot(page, "coordinator-overview-print")
    phone = visit(running, opened, stored["operator"], phone=True)
    phone.goto("/")
    wide = phone.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide <= 0, "a page is no wider than a phone"
    shot(phone, "coordinator-overview-phone")


def test_pages_are_used_by_keyboard(running: Running, opened: Opened) -> None:
    page = visit(running, opened, running.enrolled(Role.OPERATOR, "keys"))
    page.goto("/")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
