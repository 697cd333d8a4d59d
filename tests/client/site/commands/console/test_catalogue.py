"""Every text of the pages is in every catalogue, and says the same things of the same values."""

from __future__ import annotations

import io
import re
import tomllib
from pathlib import Path

import pytest
from babel.messages.catalog import Catalog, Message
from babel.messages.extract import extract_from_dir
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po

from eigenveil_client.site.commands.console.program import HERE
from eigenveil_common.web.pages import COMMON_FOLDER, DOMAIN
from tests.repo.tree import ROOT

PLACE = re.compile(r"%\(\w+\)s|%%|%\w|</?\w+[^>]*>|[\w-]+\.toml|eigenveil-site[ \w-]*")
KEYWORDS = {
    "_": None, "gettext": None, "mark": None, "ngettext": (1, 2), "plural": (1, 2), "pgettext": ((1, "c"), 2),
}  # fmt: skip
FILES = sorted((HERE / "locale").glob(f"*/LC_MESSAGES/{DOMAIN}.po"))


def texts() -> set[tuple[str | None, str]]:
    """What the code and the templates say, with its context."""
    said = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["babel"]["mappings"]
    methods = [(one["pattern"], one["method"]) for one in said]
    options = {
        one["pattern"]: {k: v for k, v in one.items() if k not in ("pattern", "method")} for one in said
    }
    found = set()
    for folder in (COMMON_FOLDER, HERE.parent.parent):
        for _, _, message, _, context in extract_from_dir(folder, methods, options, KEYWORDS):
            found.add((context, message if isinstance(message, str) else message[0]))
    return found


def catalogue(path: Path) -> Catalog:
    with path.open("rb") as file:
        return read_po(file, abort_invalid=True)


def first(message: Message) -> str:
    return message.id if isinstance(message.id, str) else message.id[0]


def said(message: Message) -> list[tuple[str, str]]:
    """Each form of a message beside its translation."""
    if isinstance(message.id, str):
        return [(message.id, str(message.string))]
    return list(zip(message.id, message.string or (), strict=True))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.parent.parent.name)
def test_a_catalogue_has_every_text_once_and_no_other(path: Path) -> None:
    stored = {(message.context, first(message)) for message in catalogue(path) if message.id}
    assert stored == texts()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.parent.parent.name)
def test_every_text_is_translated_with_the_same_places_and_marks(path: Path) -> None:
    for message in catalogue(path):
        if not message.id:
            continue
        assert not message.fuzzy, message.id
        for english, translated in said(message):
            assert translated.strip(), english
            if english != "%Y-%m-%d" and not english.startswith("%Y"):
                assert sorted(PLACE.findall(translated)) == sorted(PLACE.findall(english)), english


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.parent.parent.name)
def test_what_is_installed_is_what_the_catalogue_says(path: Path) -> None:
    made = io.BytesIO()
    write_mo(made, catalogue(path))
    assert made.getvalue() == path.with_suffix(".mo").read_bytes()
