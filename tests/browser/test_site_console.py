"""A data-protection officer at the site's page, in a real browser, from the printed link on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Page

from eigenveil_client.site.commands.console.program import OWNER, application
from eigenveil_client.site.state.received_plans import ConsentStatus
from eigenveil_common.web.serving import LOOPBACK, listening_socket, page_server
from tests.browser.pages import Opened, no_serious_axe, printed, shot
from tests.client.site.commands.console.rig import Rig, rigged

NAME = "Dr. Berta Klug"


@contextmanager
def serving(rig: Rig) -> Iterator[str]:
    """The program on a real socket, as the command runs it; the link that it prints."""
    with listening_socket(LOOPBACK, 0) as bound:
        port: int = bound.getsockname()[1]
        app, gate = application(rig.config_file, port, base="/below")
        made = page_server(app, http="h11")
        thread = threading.Thread(target=made.run, kwargs={"sockets": [bound]})
        thread.start()
        try:
            yield f"http://{LOOPBACK}:{port}{gate.link(OWNER)}"
        finally:
            made.should_exit = True
            thread.join()


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return rigged(tmp_path)


def enter(page: Page, link: str) -> str:
    page.goto(link)
    page.wait_for_url("**/")
    return page.url.rstrip("/")


def decide(page: Page, button: str) -> None:
    page.get_by_role("link", name=button).first.click()
    page.get_by_label("Your name").fill(NAME)
    page.locator("form button").click()


@pytest.mark.parametrize("scripts", [True, False])
def test_an_officer_reads_agrees_and_withdraws(rig: Rig, opened: Opened, scripts: bool) -> None:
    with serving(rig) as link:
        page = opened(scripts=scripts)
        enter(page, link)
        page.get_by_role("link", name="Read kidney-values and decide").click()
        assert "What leaves this site" in page.inner_text("main")
        decide(page, "Agree")
        assert NAME in page.inner_text("main")
        assert rig.seen().status is ConsentStatus.ACCEPTED
        rig.answer()
        page.get_by_role("link", name="What left").click()
        page.get_by_role("link", name="Compute again").click()
        assert "the very numbers that left" in page.inner_text("main")
        page.goto(f"{page.url.split('/sent')[0]}/studies/{rig.plan.digest}")
        decide(page, "Withdraw")
        assert rig.seen().status is ConsentStatus.WITHDRAWN


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("language", ["en", "de"])
def test_every_page_can_be_read_by_everybody(rig: Rig, opened: Opened, language: str, dark: bool) -> None:
    """By a screen reader, in the dark, on a phone, on paper: and nothing is wider than the screen."""
    look = f"{language}-{'dark' if dark else 'light'}"
    with serving(rig) as link:
        wide = opened(dark=dark)
        base = enter(wide, link)
        phone = opened(dark=dark, phone=True, storage_state=wide.context.storage_state())
        study = f"{base}/studies/{rig.plan.digest}"
        wide.goto(f"{base}/?lang={language}")
        for page, device in ((wide, "wide"), (phone, "phone")):
            for name, path in _pages(base, study):
                page.goto(path)
                no_serious_axe(page)
                shot(page, f"site-{name}-{look}-{device}")
                assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
        wide.goto(f"{study}/sheet")
        printed(wide, f"site-sheet-{look}")


def _pages(base: str, study: str) -> list[tuple[str, str]]:
    rest = [(name, f"{base}/{name}") for name in ("sent", "columns", "budget", "connection")]
    acts = [(name, f"{study}/{name}") for name in ("sheet", "approve", "decline")]
    return [("studies", f"{base}/"), ("study", study), *acts, *rest, ("nothing", f"{base}/nowhere")]


def test_the_whole_page_can_be_used_by_keyboard(rig: Rig, opened: Opened) -> None:
    with serving(rig) as link:
        page = opened()
        base = enter(page, link)
        page.goto(f"{base}/studies/{rig.plan.digest}/approve")
        page.get_by_label("Your name").focus()
        page.keyboard.type(NAME)
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        page.wait_for_url(f"**/studies/{rig.plan.digest}")
        assert rig.seen().status is ConsentStatus.ACCEPTED


def test_a_form_of_another_page_changes_nothing(rig: Rig, opened: Opened) -> None:
    """A page of another origin posts with the officer's browser: the cookie does not go with it."""
    with serving(rig) as link:
        page = opened()
        base = enter(page, link)
        action = f"{base}/studies/{rig.plan.digest}/decline"
        page.goto("about:blank")
        page.set_content(
            f'<html lang="en"><title>t</title><form method="post" action="{action}">'
            '<input name="by" value="x"><input name="reason" value="purpose"></form></html>'
        )
        with page.expect_navigation():
            page.evaluate("document.forms[0].submit()")
        assert rig.seen().status is ConsentStatus.PENDING
