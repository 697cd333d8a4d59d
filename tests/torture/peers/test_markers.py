"""The search finds a marker in every spelling; and the whole check, which takes a minute."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from eigenveil.study.algorithm import Algorithm
from eigenveil_client.demo.layout import demo_study, public_records
from tests.torture.peers.markers import Result, verdict
from tests.torture.peers.planted import found, plant, write_csv, write_parquet

STUDY = demo_study(2, Algorithm.GAUSS_COV, 2, 0.5)
PLANTED = plant(STUDY, public_records().values)


def test_there_are_two_hundred_and_each_is_one_of_a_kind() -> None:
    texts = [marker.text for marker in PLANTED.markers]
    assert len(texts) == len(set(texts)) == 200
    cells = [cell for row in PLANTED.rows for cell in row]
    assert all(text in cells for text in texts)
    assert min(len(needle) for marker in PLANTED.markers for needle in marker.needles) >= 8


def test_every_spelling_is_found_and_nothing_else(tmp_path: Path) -> None:
    noise = np.random.default_rng(1).bytes(2**14)
    clean = tmp_path / "clean"
    clean.write_bytes(noise)
    assert found(PLANTED.markers, [clean]) == []
    for marker in (PLANTED.markers[0], PLANTED.markers[-1]):
        for number, needle in enumerate(marker.needles):
            file = tmp_path / str(number)
            file.write_bytes(noise + needle + noise)
            assert found([marker], [file]) == [(marker, file)]


def test_both_kinds_of_files_hold_them(tmp_path: Path) -> None:
    write_csv(tmp_path / "a.csv", PLANTED, PLANTED.rows)
    write_parquet(tmp_path / "a.parquet", PLANTED, PLANTED.rows)
    assert len(found(PLANTED.markers, [tmp_path / "a.csv"])) == 200
    assert len(found(PLANTED.markers, [tmp_path / "a.parquet"])) > 100


def test_a_hit_a_core_dump_a_blind_search_or_an_idle_run_does_not_pass() -> None:
    good = {
        "markers": 200, "files": 1, "size": 1, "hits": [], "control": 200, "dumps": [], "released": True,
        "missing": [],
    }  # fmt: skip
    assert verdict(Result(**good)).passed  # type: ignore[arg-type]
    for bad in (
        {"hits": ["x in y"]},
        {"control": 199},
        {"dumps": ["hospital-1"]},
        {"released": False},
        {"missing": ["x"]},
    ):
        assert not verdict(Result(**(good | bad))).passed  # type: ignore[arg-type]
