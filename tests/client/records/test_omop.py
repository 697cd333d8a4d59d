"""One hospital's measurements, wherever they lie, are the same records to the last bit."""

from __future__ import annotations

from pathlib import Path

import pytest

from eigenveil_client.records.records import read
from tests.client.records import omop
from tests.common.storage.cluster import Cluster


@pytest.mark.parametrize(
    ("persons", "rows"),
    [(300, 6_000), pytest.param(50_000, 1_000_000, marks=[pytest.mark.slow, pytest.mark.timeout(600)])],
)
def test_a_database_a_text_and_a_workbook_give_the_same_grid(
    server: Cluster, tmp_path: Path, persons: int, rows: int
) -> None:
    hospital, url = omop.Hospital(persons=persons, rows=rows), server.database()
    hospital.database(url)
    found = [read(said, omop.study()) for said in hospital.places(tmp_path, url).values()]
    assert {one.rows.tobytes() for one in found} == {found[0].rows.tobytes()}
    assert {one.persons for one in found} == {len(found[0].rows)} == {persons}
    assert all(len(set(column)) > 9 for column in found[0].rows.T.tolist())
