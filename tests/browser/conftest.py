"""Pages as people open them: a real Chromium, driven by Playwright. `make browser` runs these alone."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from tests.browser.pages import Opened


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert chromium, "these tests need Chromium; on Debian and Ubuntu: sudo apt install chromium"
    with sync_playwright() as playwright:
        # Whoever tests as root cannot have the sandbox; the pages are our own.
        started = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def opened(browser: Browser) -> Iterator[Opened]:
    """Opens a page in a context of its own (`dark`, `phone`, `scripts`, and what a Playwright context takes).
    What a page complains of in its console, such as a policy it breaks, fails the test."""
    contexts: list[BrowserContext] = []
    complaints: list[str] = []

    def open_page(*, dark: bool = False, phone: bool = False, scripts: bool = True, **more: Any) -> Page:
        size = {"width": 390, "height": 844} if phone else {"width": 1200, "height": 900}
        look = {"viewport": size, "color_scheme": "dark" if dark else "light"}
        context = browser.new_context(**(look | {"java_script_enabled": scripts} | more))
        context.set_default_timeout(20_000)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text) if _complains(message) else None)
        page.on("pageerror", lambda problem: complaints.append(str(problem)))
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []


def _complains(message: Any) -> bool:
    """An error, but for answers that a test asked for: 403 or 404 is Chromium's error too."""
    return message.type == "error" and "Failed to load resource" not in message.text
