"""The tools of these tests find what they are for."""

from __future__ import annotations

import pytest

from tests.browser.pages import Opened, no_serious_axe


def test_a_page_that_hides_from_a_screen_reader_is_found(opened: Opened) -> None:
    page = opened()
    page.set_content('<html lang="en"><title>t</title><main><h1>t</h1><img src="data:,"></main></html>')
    with pytest.raises(AssertionError, match="image-alt"):
        no_serious_axe(page)
