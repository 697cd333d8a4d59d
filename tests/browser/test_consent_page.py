"""The consent page: what an officer needs is on a first screen of 1280 by 800, and all of it by keyboard."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path

import pytest
from playwright.sync_api import Page

from eigenveil.study.applicant import MOST_CHARACTERS, Applicant
from eigenveil_client.site.state.received_plans import ConsentStatus
from eigenveil_client.site.state.store_access import open_site_store
from tests.browser.pages import Opened, no_axe_findings, shot
from tests.browser.test_site_console import NAME, enter, serving
from tests.client.site.commands.console.rig import ASKS, COLUMNS, Rig, rigged, stated_plan

SCREEN = {"width": 1280, "height": 800}
LONG = Applicant(
    **{one.name: f"{one.name} {'of Anytown ' * 50}"[:MOST_CHARACTERS] for one in fields(Applicant)}
)
BUTTONS = {"en": ("Agree", "Decline"), "de": ("Zustimmen", "Ablehnen")}
DAY = {"en": "2099-01-31", "de": "31.01.2099"}


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return rigged(tmp_path)


@contextmanager
def consent_page(
    rig: Rig, opened: Opened, language: str = "en", applicant: Applicant = ASKS
) -> Iterator[Page]:
    """The page of a study that waits until the last day that it states."""
    rig.plan = stated_plan(applicant, decide_by="2099-01-31")
    rig.receive(rig.plan)
    with serving(rig) as link:
        page = opened(
            viewport=SCREEN, reduced_motion="reduce"
        )  # else focus is tested in the middle of a scroll
        base = enter(page, link)
        page.goto(f"{base}/studies/{rig.plan.digest}?lang={language}")
        yield page


def bottom(page: Page, text: str) -> float:
    """The lower end of what shows a text, in pixels from the top of the page."""
    box = page.locator("main").get_by_text(text).first.bounding_box()
    assert box is not None, text
    return box["y"] + box["height"]


@pytest.mark.parametrize("applicant", [ASKS, LONG], ids=["usual", "long"])
@pytest.mark.parametrize("language", ["en", "de"])
def test_first_screen_has_both_buttons_and_what_a_decision_needs(
    rig: Rig, opened: Opened, language: str, applicant: Applicant
) -> None:
    with consent_page(rig, opened, language, applicant) as page:
        needed = [getattr(applicant, one.name)[:20] for one in fields(Applicant)]
        needed += [", ".join(COLUMNS), "Epsilon 1 ", DAY[language], "hospital-d"]
        assert max(bottom(page, text) for text in needed) <= SCREEN["height"]
        for name in BUTTONS[language]:
            box = page.get_by_role("link", name=name, exact=True).bounding_box()
            assert box is not None
            assert box["y"] + box["height"] <= SCREEN["height"]
            assert min(box["width"], box["height"]) >= 24  # the least size of a target, WCAG 2.5.8
        assert page.locator("time").first.get_attribute("datetime") == "2099-01-31"
        assert page.locator("details[open]").count() == 0
        if applicant is ASKS:
            shot(page, f"consent-{language}")


@pytest.mark.parametrize("language", ["en", "de"])
def test_page_has_no_axe_finding_folded_or_open(rig: Rig, opened: Opened, language: str) -> None:
    with consent_page(rig, opened, language) as page:
        no_axe_findings(page)
        for fold in page.locator("summary").all():
            fold.click()
        assert page.locator("details[open]").count() == page.locator("details").count() > 5
        no_axe_findings(page)
        page.set_viewport_size({"width": 390, "height": 844})
        no_axe_findings(page)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def focused(page: Page) -> str:
    """The text of what has the focus, which must be seen to have it and be on the screen."""
    seen = page.evaluate(
        """() => {
            const one = document.activeElement, look = getComputedStyle(one);
            const box = one.getBoundingClientRect();
            const there = box.top >= -1 && box.bottom <= innerHeight + 1;  // browsers scroll by whole pixels
            return [one.innerText, look.outlineStyle, parseFloat(look.outlineWidth), there]; }"""
    )
    assert seen[1] == "solid", seen
    assert seen[2] >= 2, seen
    assert seen[3], seen
    return str(seen[0])


def tab_to(page: Page, text: str) -> None:
    for _ in range(40):
        page.keyboard.press("Tab")
        if focused(page) == text:
            return
    raise AssertionError(f"{text} is not reached by Tab")


def test_officer_agrees_by_keyboard_alone(rig: Rig, opened: Opened) -> None:
    with consent_page(rig, opened) as page:
        tab_to(page, "Agree")
        page.keyboard.press("Enter")
        page.wait_for_url("**/approve")
        no_axe_findings(page)
        for _ in range(40):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.id") == "by":
                break
        page.keyboard.type(NAME)
        page.keyboard.press("Enter")
        page.wait_for_url(f"**/studies/{rig.plan.digest}")
        assert NAME in page.inner_text("main")
        assert rig.seen().status is ConsentStatus.ACCEPTED


def test_every_fold_opens_and_closes_by_keyboard(rig: Rig, opened: Opened) -> None:
    with consent_page(rig, opened) as page:
        for fold in page.locator("summary").all():
            tab_to(page, fold.inner_text())
            page.keyboard.press("Enter")
            assert page.locator("details[open]").count() == 1
            assert len(page.locator("details[open] > div").inner_text()) > 50
            page.keyboard.press("Space")
            assert page.locator("details[open]").count() == 0


def test_link_to_a_folded_part_opens_it(rig: Rig, opened: Opened) -> None:
    with consent_page(rig, opened) as page:
        page.get_by_role("link", name="Sender not confirmed here").click()
        page.locator("details[open]").wait_for()
        assert "The study is not signed" in page.locator("details[open]").inner_text()


def test_list_shows_a_study_that_another_site_declined_as_ended_here(rig: Rig, opened: Opened) -> None:
    with consent_page(rig, opened) as page:
        with open_site_store(rig.stage.config) as store:
            store.end(rig.plan.digest)
        page.get_by_role("link", name="All studies").click()
        ended = page.get_by_role("region", name="Ended before anything left this site")
        assert "ada" in ended.inner_text()
        assert page.get_by_role("region", name="Declined by the rules").count() == 0
        no_axe_findings(page)
