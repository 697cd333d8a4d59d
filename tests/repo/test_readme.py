"""README begins with the two commands that do all the set-up, and its picture is of today's program."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from eigenveil.reporting.document import signed_release
from eigenveil.reporting.verify import load_release
from tests.repo.scripts import script
from tests.repo.tree import ROOT
from tests.support import analyst_key

README = (ROOT / "README.md").read_text()
COMMAND = re.compile(r"^    ([a-z][\w./ -]*?)(?: +#.*)?$", re.MULTILINE)


def faults(readme: str) -> list[str]:
    """Return what a newcomer would miss, one sentence each."""
    first, named = COMMAND.findall(readme)[:2], (ROOT / "Makefile").read_text()
    found = [
        f"command {i + 1} is not {c}" for i, c in enumerate(("make demo", "make test")) if c not in first
    ]
    shown = {command.split()[1] for command in COMMAND.findall(readme) if command.startswith("make ")}
    shown |= set(re.findall(r"`make ([a-z-]+)", readme))
    return found + [f"make {name} does not exist" for name in sorted(shown) if f"\n{name}:" not in named]


def test_the_first_two_commands_run_the_main_job_and_the_tests() -> None:
    assert faults(README) == []
    assert re.search(r"^make test$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)


@pytest.mark.parametrize("command", ["make demo", "make test"])
def test_a_readme_without_one_of_both_commands_is_found(command: str) -> None:
    assert faults(re.sub(rf"^    {command}\b.*\n", "", README, flags=re.MULTILINE)) != []
    assert faults(README.replace("`make docs`", "`make dcos`")) == ["make dcos does not exist"]


def test_what_the_readme_installs_reads_every_source() -> None:
    (extras,) = re.findall(r"pip install '\.\[(.*?)\]'", README)
    assert "sources" in extras.split(",")


def test_the_picture_is_of_the_report_that_todays_program_writes() -> None:
    assert script("draw_report").stale() == ""


def test_a_picture_of_another_page_or_of_another_plan_is_found(tmp_path: Path) -> None:
    report = script("draw_report")
    picture, release = tmp_path / "report.png", tmp_path / "report.zip"
    shutil.copy(report.PICTURE, picture)
    signed = load_release(report.RELEASE.read_bytes())
    key, changed = analyst_key("anybody"), signed.document | {"plan_digest": "0" * 64}
    public = key.public_key().public_bytes_raw()
    release.write_bytes(signed_release(changed, signed.result, sign=key.sign, public_key=public))
    assert "another plan" in report.stale(picture, release)
    fields = PngInfo()
    fields.add_text(report.FIELD, report.digest(report.page().replace("noised count", "count")))
    with Image.open(picture) as image:
        image.save(picture, pnginfo=fields)
    assert "the page differs" in report.stale(picture)
