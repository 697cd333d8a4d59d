"""Inputs that once did what no input may do; each is tried again for ever."""

from __future__ import annotations

from pathlib import Path

from eigenveil.errors import Code
from tests.fuzz.coordinator import coordinator_kinds
from tests.fuzz.hunt import FOUND, HIDDEN, Kind, outcome
from tests.fuzz.parsers import parser_kinds
from tests.fuzz.site import site_kinds

FILES = sorted(FOUND.glob("*.bin"))


async def _again(kinds: dict[str, Kind]) -> dict[str, str]:
    named = {file.name: kinds[file.name.split("-")[0]] for file in FILES if file.name.split("-")[0] in kinds}
    words = {name: await outcome(kind, (FOUND / name).read_bytes()) for name, kind in named.items()}
    return {name: seen or word for name, (word, seen) in words.items()}


async def test_what_was_found_once_is_refused_by_a_declared_error(tmp_path: Path) -> None:
    tried = await _again(parser_kinds(tmp_path / "parsers"))
    with site_kinds(tmp_path / "site") as kinds:
        tried |= await _again(kinds)
    async with coordinator_kinds(tmp_path / "coordinator") as kinds:
        tried |= await _again(kinds)
    assert set(tried) == {file.name for file in FILES}, "a file is named after its kind"
    codes = {"undecodable", *(code.value for code in Code if code not in HIDDEN)}
    assert {name: seen for name, seen in tried.items() if seen not in codes} == {}
