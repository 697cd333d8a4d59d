"""Equal columns are stored as one table with a list of names."""

from __future__ import annotations

import json

import numpy as np
import pytest

from eigenveil.errors import PeerError, RequestError
from eigenveil.numerics.encoding import canonical
from eigenveil.protocol.plan import plan_for, plan_from_json
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.study import Column
from eigenveil.study.toml import (
    column_tables,
    parse_study,
    single_tables,
    study_digest,
    study_from_dict,
    study_to_dict,
    study_to_toml,
)
from tests.support import a_study


def some_columns(seed: int) -> tuple[Column, ...]:
    """Runs of columns that are alike, of lengths about that from which on they are one table."""
    generator, made = np.random.default_rng(seed), []
    for run, length in enumerate(generator.integers(1, 40, 6)):
        unit, fill = f"u{generator.integers(2)}", (None, 1.0)[generator.integers(2)]
        made += [Column(name=f"c{run}_{i}", unit=unit, lower=0, upper=2, fill=fill) for i in range(length)]
    return tuple(made)


@pytest.mark.parametrize("seed", range(20))
def test_a_study_is_read_back_from_text_and_plan_for_any_grouping_of_columns(seed: int) -> None:
    study = a_study(columns=some_columns(seed), components=1)
    assert parse_study(study_to_toml(study)) == study
    single = study_to_dict(study) | {"columns": list(single_tables(column_tables(study.columns)))}
    assert [table["name"] for table in single["columns"]] == [column.name for column in study.columns]
    assert study_digest(study_from_dict(single)) == study_digest(study)
    plan = plan_for(study, Algorithm.DP_PCA, federation="f", submission="s")
    assert plan_from_json(plan.to_json()).study == study


def test_a_plan_with_equal_columns_listed_singly_is_not_canonical() -> None:
    columns = tuple(Column(name=f"c{i}", unit="", lower=0, upper=1) for i in range(50))
    study = a_study(columns=columns, components=1)
    message = json.loads(plan_for(study, Algorithm.DP_PCA, federation="f", submission="s").to_json())
    message["study"]["columns"] = list(single_tables(message["study"]["columns"]))
    with pytest.raises(PeerError, match="canonical"):
        plan_from_json(canonical(message))


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"names": []}, "at least one"),
        ({"names": "rs1"}, "a list"),
        ({"names": ["a"], "name": "b"}, "both name and names"),
        ({"names": ["a", " "]}, "needs a name"),
        ({"names": ["a", "b\n"]}, "printable"),
        ({"names": ["a", "a"]}, "twice"),
        ({"names": ["a"], "colour": "red"}, "unknown key colour"),
        ({"names": ["a"], "upper": None}, "upper"),
    ],
)
def test_names_that_are_none_are_refused(table: dict[str, object], words: str) -> None:
    whole = {"unit": "", "lower": 0, "upper": 1} | table
    message = study_to_dict(a_study()) | {"columns": [whole], "components": 1}
    with pytest.raises(RequestError, match=words):
        study_from_dict(message)
