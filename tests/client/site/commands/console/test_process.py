"""The console as a process, its sentences about risk, and its catalogues of translations."""

from __future__ import annotations

import html
import io
import re
import signal
import subprocess
import tomllib
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from babel.messages.catalog import Catalog, Message
from babel.messages.extract import extract_from_dir
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po

from eigenveil_client.demo.processes import command_line
from eigenveil_client.site import inference_risk
from eigenveil_client.site.commands.console.program import HERE
from eigenveil_common.web.pages import COMMON_FOLDER, DOMAIN
from tests.client.site.command_line import site
from tests.client.site.commands.console.rig import rigged
from tests.client.site.commands.console.test_console import REFUSED, STUDIES, changed, shown_text
from tests.repo.tree import ROOT


def status(url: str, cookie: str = "") -> int:
    try:
        query = urllib.request.Request(url, headers={"Cookie": cookie})
        with urllib.request.urlopen(query, timeout=20) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as refused:
        return refused.code


def test_the_printed_link_opens_once_and_ctrl_c_ends_it_without_a_word_of_the_link(tmp_path: Path) -> None:
    words = [*command_line("eigenveil-site"), "console", "--config", str(rigged(tmp_path).config_file)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            message = [process.stdout.readline() for _ in range(2)]
            found = re.search(r"(http://127\.0\.0\.1:\d+)(/\S+)/enter/\S+", message[1])
            assert found is not None, message
            with urllib.request.urlopen(found[0], timeout=20) as entered:
                cookie = entered.headers["set-cookie"]
            assert f"Path={found[2]}/;" in cookie  # it goes to no other port of this address
            assert status(found[0]) == 401
            assert status(f"{found[1]}{found[2]}/", cookie.partition(";")[0]) == 200
            assert status(f"{found[1]}/", cookie.partition(";")[0]) == 404
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=30)
        finally:
            process.kill()
    assert (process.returncode, errors) == (0, "")


@pytest.mark.parametrize("name", STUDIES)
def test_every_page_with_a_decision_has_every_sentence_in_every_language(tmp_path: Path, name: str) -> None:
    rig, plan = rigged(tmp_path), changed(name)
    rig.receive(plan)
    sentences = inference_risk.inference_risk_of(plan).sentences
    for language in ("en", "de"):
        browser = rig.browser(language)
        for page in ("", "/sheet", *(() if name in REFUSED else ("/approve",))):
            shown = html.unescape(browser.get(f"/studies/{plan.digest}{page}").text)
            assert [one.text for one in sentences if shown_text(one, language) not in shown] == []
    message = " ".join(site(rig.config_file, "explain", plan.digest[:12]).out.split())
    assert all(" ".join(one.english.split()) in message for one in sentences)


PLACE = re.compile(r"%\(\w+\)s|%%|%\w|</?\w+[^>]*>|[\w-]+\.toml|eigenveil-site[ \w-]*")
KEYWORDS = {
    "_": None, "gettext": None, "mark": None, "ngettext": (1, 2), "plural": (1, 2), "pgettext": ((1, "c"), 2),
}  # fmt: skip
FILES = sorted((HERE / "locale").glob(f"*/LC_MESSAGES/{DOMAIN}.po"))


def texts() -> set[tuple[str | None, str]]:
    forms = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["babel"]["mappings"]
    methods = [(one["pattern"], one["method"]) for one in forms]
    options = {
        one["pattern"]: {k: v for k, v in one.items() if k not in ("pattern", "method")} for one in forms
    }
    found = set()
    for folder in (COMMON_FOLDER, HERE.parent.parent, ROOT / "core/eigenveil/queries"):
        for _, _, message, _, context in extract_from_dir(folder, methods, options, KEYWORDS):
            found.add((context, message if isinstance(message, str) else message[0]))
    return found


def catalogue(path: Path) -> Catalog:
    with path.open("rb") as file:
        return read_po(file, abort_invalid=True)


def first(message: Message) -> str:
    return message.id if isinstance(message.id, str) else message.id[0]


def forms(message: Message) -> list[tuple[str, str]]:
    if isinstance(message.id, str):
        return [(message.id, str(message.string))]
    return list(zip(message.id, message.string or (), strict=True))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.parent.parent.name)
def test_a_catalogue_has_every_text_once_and_no_other(path: Path) -> None:
    assert {(message.context, first(message)) for message in catalogue(path) if message.id} == texts()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.parent.parent.name)
def test_every_text_is_translated_with_the_same_places_and_marks(path: Path) -> None:
    for message in catalogue(path):
        if not message.id:
            continue
        assert not message.fuzzy, message.id
        for english, translated in forms(message):
            assert translated.strip(), english
            if english != "%Y-%m-%d" and not english.startswith("%Y"):
                assert sorted(PLACE.findall(translated)) == sorted(PLACE.findall(english)), english


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.parent.parent.name)
def test_the_installed_catalogue_is_the_compiled_one(path: Path) -> None:
    made = io.BytesIO()
    write_mo(made, catalogue(path))
    assert made.getvalue() == path.with_suffix(".mo").read_bytes()
