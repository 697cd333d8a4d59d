"""What an officer sees of the columns: what is odd about each, and a picture, in the terminal alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from eigenveil_client.site import config as site_config
from eigenveil_client.site.commands.column_profiles import LOCAL_ONLY_NOTE, profile_columns
from tests.client.site.command_line import site, written
from tests.client.site.support import Stage

HEIGHTS = [150 + n % 40 for n in range(60)]


def odd(stage: Stage, header: str, cells: list[object], more: str = "") -> str:
    """What `check` finds odd in a column of that header."""
    lines = (f'"{cell}"' for cell in cells)
    stage.records.write_text("\n".join([f'"{header}"', *lines]) + "\n")
    (found,) = profile_columns(site_config.load(written(stage, more)))
    return "; ".join(found.odd)


@pytest.mark.parametrize(
    ("header", "cells", "said"),
    [
        ("body_height", HEIGHTS, ""),
        ("body_height", [one / 100 for one in HEIGHTS], "looks like another unit"),
        ("body_height", [*HEIGHTS, *[-9] * 7], "looks like a code for a missing value: -9 (7 persons)"),
        ("anything", [*HEIGHTS, *[9999] * 7], "looks like a code for a missing value: 9999 (7 persons)"),
        ("anything", [*HEIGHTS, *range(990, 1010)], ""),  # far, but nobody shares a value
        ("anything", [7] * 30, "is constant"),
        ("anything", ["north", "south"] * 30, "has no values"),
        ("anything", [*HEIGHTS, "x"], "1 cells cannot be read and count as missing"),
        ("body_height [m]", [one / 100 for one in HEIGHTS], "is in m, and in cm in the dictionary"),
    ],
)
def test_odd_column_is_described(stage: Stage, header: str, cells: list[object], said: str) -> None:
    found = odd(stage, header, cells)
    assert said in found
    assert bool(said) == bool(found)


def test_only_columns_that_studies_may_use_are_shown_and_nobody_is_named(stage: Stage) -> None:
    rows = [f"p{n},{one},{n % 5}" for n, one in enumerate(HEIGHTS)]
    stage.records.write_text("\n".join(["patient,body_height,secret", *rows]) + "\n")
    path = written(stage, 'person_column = "patient"\ncolumns = ["body_height"]\n')
    assert [one.seen.name for one in profile_columns(site_config.load(path))] == ["body_height"]
    told = site(path, "check").out
    assert LOCAL_ONLY_NOTE in " ".join(told.split())
    assert "p7" not in told


def test_a_dictionary_that_is_not_there_fails_the_check(stage: Stage) -> None:
    path = written(stage, 'dictionary = "nowhere.toml"\n')
    ran = site(path, "check", "--json")
    (failed,) = [row for row in ran.json["checks"] if row["check"] == "columns"]
    assert failed["level"] == "fail"
    assert Path("nowhere.toml").name in failed["text"]
    assert ran.code == 4
