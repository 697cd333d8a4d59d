"""A release's report as people read it: wide, on a phone, in the dark, printed, and by a screen reader."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page

from eigenveil.reporting.report import render
from tests.browser.pages import Opened, no_serious_axe, printed, shot
from tests.core.test_released import simulation


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    path: Path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(render(simulation(), public_key="ab" * 32))
    return path.as_uri()


def shown(page: Page) -> list[str]:
    """The addresses of the pictures that the page shows, all of them loaded."""
    found: list[tuple[str, int]] = page.evaluate(
        "[...document.images].map(one => [one.currentSrc, one.naturalWidth])"
    )
    assert all(width > 0 for _, width in found)
    return [address for address, _ in found]


def test_a_page_that_a_screen_reader_cannot_read_is_found(opened: Opened) -> None:
    page = opened()
    page.set_content('<html lang="en"><title>t</title><main><h1>t</h1><img src="data:,"></main></html>')
    with pytest.raises(AssertionError, match="image-alt"):
        no_serious_axe(page)


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("phone", [False, True])
def test_it_is_read_by_everybody_wherever_they_are(
    opened: Opened, report: str, *, dark: bool, phone: bool
) -> None:
    page = opened(dark=dark, phone=phone, scripts=True)
    page.goto(report)
    for more in page.locator("summary").all():
        more.click()
    no_serious_axe(page)
    wide = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
    assert wide <= 0, "the page is to be read without moving it sideways"
    assert len(shown(page)) == 5
    shot(page, f"report-{'phone' if phone else 'wide'}-{'dark' if dark else 'light'}")


def test_a_phone_has_pictures_of_its_own(opened: Opened, report: str) -> None:
    seen = []
    for phone in (False, True):
        page = opened(phone=phone)
        page.goto(report)
        seen.append(set(shown(page)))
    assert not seen[0] & seen[1]


def test_it_is_printed_whole(opened: Opened, report: str) -> None:
    """Text folded on a screen is on paper, and no picture is cut in two."""
    page = opened(scripts=True)
    page.goto(report)
    page.emulate_media(media="print")
    assert printed(page, "report").stat().st_size > 0
    assert page.evaluate("getComputedStyle(document.querySelector('figure')).breakInside") == "avoid"
    hidden = page.evaluate(
        "[...document.querySelectorAll('details table')].filter(one => !one.checkVisibility()).length"
    )
    assert hidden == 0
