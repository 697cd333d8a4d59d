"""Check of a page, and pictures of it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

SHOTS = Path(os.environ.get("BROWSER_SHOTS", "build/browser"))
Opened = Callable[..., Page]


def no_serious_axe(page: Page) -> None:
    found = Axe().run(page).response["violations"]
    grave = [
        f"{each['id']} ({each['impact']}): {each['help']}: {[node['target'] for node in each['nodes']][:5]}"
        for each in found
        if each["impact"] in ("serious", "critical")
    ]
    assert not grave, f"{page.url}: {grave}"


RULES = {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}


def no_axe_findings(page: Page) -> None:
    """No violation of WCAG 2.2 AA or of axe's best practices, however small."""
    found = Axe().run(page, options={"runOnly": RULES}).response["violations"]
    assert not found, [(one["id"], [node["target"] for node in one["nodes"]][:5]) for one in found]


def shot(page: Page, name: str) -> Path:
    """A picture of the whole page as `NAME.png`, where BROWSER_SHOTS says."""
    SHOTS.mkdir(parents=True, exist_ok=True)
    path = SHOTS / f"{name}.png"
    page.screenshot(path=path, full_page=True)
    return path


def printed(page: Page, name: str) -> Path:
    """The page as it is printed: `NAME.pdf`."""
    SHOTS.mkdir(parents=True, exist_ok=True)
    path = SHOTS / f"{name}.pdf"
    page.pdf(path=path, format="A4", print_background=False)
    return path
