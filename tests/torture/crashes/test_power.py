"""The simulated disk loses what it should, and the two halves of check 2 in small."""

from __future__ import annotations

from pathlib import Path
from random import Random
from unittest import mock

import pytest

from eigenveil_client.site.state.outgoing import Outgoing
from tests.torture.crashes.power import MODES, Mode, judge, judge_site
from tests.torture.crashes.vfs import SECTOR, Content, Disk, Truncate, Write


def test_what_is_synced_survives_every_cut() -> None:
    content = Content()
    content.pending += [Write(0, b"a" * 700), Write(600, b"b" * 100), Truncate(650)]
    content.sync()
    for seed in range(50):
        assert content.survived(Random(seed)) == b"a" * 600 + b"b" * 50


def test_what_is_not_synced_survives_or_not_torn_and_in_any_order() -> None:
    content = Content(durable=bytearray(b"-" * 2 * SECTOR))
    content.pending += [Write(0, b"a" * 2 * SECTOR), Write(0, b"b" * 2 * SECTOR)]
    seen = {
        tuple(chr(data[place]) for place in (0, SECTOR))
        for data in (content.survived(Random(seed)) for seed in range(500))
    }
    assert seen == {(one, two) for one in "-ab" for two in "-ab"}


def test_a_gap_holds_zeros_or_rubbish() -> None:
    content = Content(pending=[Write(0, b"a" * SECTOR), Write(SECTOR, b"b")])
    found = {content.survived(Random(seed)) for seed in range(300)}
    assert bytes(SECTOR) + b"b" in found
    assert len(found) > 5


def test_names_are_certain_only_with_their_folder() -> None:
    disk = Disk()
    remaining, _ = disk.content("kept", exists=False)
    remaining.sync()
    disk.sync_folder()
    disk.content("new", exists=False)
    disk.remove("kept")
    assert {tuple(sorted(disk.survived(Random(seed)))) for seed in range(100)} == {
        (), ("kept",), ("new",), ("kept", "new"),
    }  # fmt: skip
    disk.sync_folder()
    assert set(disk.survived(Random(1))) == {"new"}


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES, ids=str)
def test_power_cuts(mode: Mode) -> None:
    good, figures = judge(mode, 0.05, seed=7)
    assert good, figures


@pytest.mark.slow
@pytest.mark.parametrize("mode", [MODES[0], MODES[2]], ids=str)
def test_power_cuts_of_a_masked_site(mode: Mode) -> None:
    good, figures = judge_site(mode, 0.01, seed=7)
    assert good, figures


def test_an_answer_that_leaves_before_it_is_stored_is_found() -> None:
    with mock.patch.object(Outgoing, "masked"):
        good, figures = judge_site(MODES[0], 0.0)
    assert not good, figures


def test_files_of_an_earlier_life_are_certain(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"old")
    disk = Disk()
    disk.load(tmp_path)
    assert disk.survived(Random(0)) == {str(tmp_path / "x"): b"old"}
