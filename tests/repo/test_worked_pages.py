"""The pages of docs/derived: their code runs, prints what they say, and has its picture."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.repo.scripts import script
from tests.repo.tree import ROOT

LARGEST = 150_000  # bytes of a picture


def test_every_page_has_a_picture_and_every_picture_a_page() -> None:
    folder = ROOT / "docs" / "derived"
    pages = {page.stem for page in folder.glob("*.md")}
    assert pages == set(script("worked").PICTURES) == {picture.stem for picture in folder.glob("*.png")}
    for name in pages:
        assert f"]({name}.png)" in (folder / f"{name}.md").read_text()
        assert 1000 < (folder / f"{name}.png").stat().st_size < LARGEST


@pytest.mark.parametrize("name", script("worked").PICTURES)
def test_a_page_shows_what_its_code_prints_today(name: str) -> None:
    """`make docs` mends it."""
    page = ROOT / "docs" / "derived" / f"{name}.md"
    assert script("worked").worked(page)[0] == page.read_text()


def test_a_number_that_is_not_what_the_code_prints_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\nx = 2\n```\n\n```python\nprint(x + 1)\n```\n\n```text\n4\n```\n")
    assert script("worked").worked(page)[0] == page.read_text().replace("4\n", "3\n")
