"""What the check damages and when it fails, and the whole of it at a hundredth of its size."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from tests.torture.records.asker import Came, Taken
from tests.torture.records.damage import BITES, damage, kinds, make_damaged, make_good
from tests.torture.records.damaged_records import (
    FEWEST,
    LATE_SECONDS,
    MOST_GROWTH,
    Found,
    order,
    verdict,
)
from tests.torture.records.site_daemons import Served


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_every_kind_has_its_turn_and_those_that_bite_are_among_them() -> None:
    assert {kind for kind, _ in order(len(kinds()))} == set(kinds())
    assert BITES.keys() <= set(kinds())
    numbers = Counter(kind for kind, _ in order(FEWEST * len(kinds())))
    assert all(numbers[kind] >= len(bites) for kind, bites in BITES.items() if kind != "records.zarr")


@pytest.mark.parametrize("kind", ["records.csv", "records.bed", "records"])
def test_damage_follows_from_its_number_and_changes_files(kind: str, tmp_path: Path) -> None:
    made = []
    for name in ("one", "other"):
        make_damaged(tmp_path / name, kind, 5)
        made.append(contents(tmp_path / name))
    assert made[0] == made[1]
    make_good(tmp_path / "good", kind)
    good, changed = contents(tmp_path / "good"), 0
    for number in range(40):
        make_good(tmp_path / "good", kind)
        damage(tmp_path / "good", random.Random(number))
        changed += contents(tmp_path / "good") != good
    assert changed > 30


def taken(asker: int = 0, server: int = 0, seconds: float = 0.0, changed: bool = False) -> Taken:
    return Taken(asker=asker, server=server, seconds=(seconds,), changed=changed)


@pytest.mark.parametrize(
    ("second", "came", "growth", "fault"),
    [
        (taken(), Came(outcome="read"), 0, ""),
        (taken(asker=MOST_GROWTH + 1), Came(outcome="read"), 0, "memory grew"),
        (taken(server=MOST_GROWTH + 1), Came(outcome="read"), 0, "memory grew"),
        (taken(), Came(outcome="read"), MOST_GROWTH + 1, "memory grew"),
        (taken(seconds=LATE_SECONDS), Came(outcome="read"), 0, "answers took"),
        (taken(changed=True), Came(outcome="read"), 0, "an answer changed"),
        (taken(), Came(outcome="surprise", fault="a.csv: KeyError"), 0, "KeyError"),
    ],
)
def test_one_thing_that_is_wrong_fails_the_check(second: Taken, came: Came, growth: int, fault: str) -> None:
    found = Found()
    found.count("records.csv", came)
    for _ in range(200):
        found.look(taken())
        found.look(second)
    line = verdict(found, [Served(kind="records.csv", growth=growth)])
    assert (line.passed, fault in line.detail) == (not fault, True)
