"""A study from arguments is the study that a file of the same words is; what cannot be meant is told."""

from __future__ import annotations

import tomllib
from typing import Any

import numpy as np
import pandas
import pytest

from eigenveil import Column, PublicNorm, RequestError
from eigenveil.dictionary.directory import SiteStatement
from eigenveil.dictionary.study_files import FIELDS, complete
from eigenveil.study.study import Study
from eigenveil.study.toml import parse_study
from eigenveil_client.analyst.federation import FederationView, ListedSite, shipped
from eigenveil_client.analyst.python.study import draft_of
from eigenveil_common.examples import example


def site(name: str, *offered: str) -> ListedSite:
    stated = SiteStatement(
        columns=offered, needs_approval=False, max_missing=1, max_unreadable=1, max_out_of_bounds=1
    )
    return ListedSite(name=name, statement=stated if offered else None, seen=None)


VIEW = FederationView(
    name="here",
    sites=(site("north", "age", "bmi"), site("silent"), site("south", "age")),
    dictionary=shipped(),
    approval_seconds=1e6,
    start_seconds=0,
)


def made(**choices: Any) -> Study:
    """The study of these choices, as it would be sent."""
    return complete(draft_of(choices, VIEW), shipped()).study()


def test_every_key_of_a_study_file_is_a_choice_and_nothing_else() -> None:
    said = tomllib.loads(example("study"))
    keys = {key for key, value in said.items() if not isinstance(value, dict)}
    keys |= {key for value in said.values() if isinstance(value, dict) for key in value}
    assert keys | {"bounds", "dictionary"} >= set(FIELDS) >= keys


def test_only_sites_that_do_not_lack_a_column_are_asked() -> None:
    assert made(columns=["age", "bmi"]).federation.sites == ("north", "silent")
    assert made(columns=["age"], components=1).federation.sites == ("north", "silent", "south")
    assert made(columns=["age", "bmi"], sites=["south"]).federation.sites == ("south",)


def test_bounds_are_the_dictionarys_where_nothing_else_is_said() -> None:
    theirs = {column.name: column for column in shipped().usable().values()}
    study = made(columns=["age", "bmi"], bounds={"bmi": (12, 50)})
    assert study.columns[0] == theirs["age"]
    assert (study.columns[1].lower, study.columns[1].upper) == (12, 50)
    assert study.columns[1].unit == theirs["bmi"].unit


def test_numbers_and_names_may_come_from_numpy_and_pandas() -> None:
    names = pandas.DataFrame({"age": [1], "bmi": [2]}).columns
    study = made(columns=names, epsilon=np.float64(0.5), components=np.int64(1), radius=PublicNorm(norm=1.0))
    assert (study.epsilon, study.components, study.radius) == (0.5, 1, PublicNorm(norm=1.0))


def test_columns_that_say_all_themselves_need_no_dictionary() -> None:
    own = [Column(name=name, unit="u", lower=0, upper=1) for name in ("x", "y")]
    draft = draft_of({"columns": own, "sites": ["north"]}, VIEW)
    assert draft.study() == parse_study(draft.text)
    assert draft.study().columns == tuple(own)


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"columns": []}, "must be a list"),
        ({"columns": "age"}, "must be a list"),
        ({"columns": ["age"], "quorom": 1}, "did you mean 'quorum'"),
        ({"columns": ["age"], "bounds": {"bmi": (0, 1)}}, "not in this study"),
        ({"columns": ["age"], "bounds": {"age": (0, 1, 2)}}, "must be a pair"),
        ({"columns": ["age"], "bounds": {"age": "01"}}, "bounds"),
        ({"columns": ["age"], "quorum": object()}, "not a valid value in a study"),
        ({"columns": ["creatinine", "age"]}, None),
    ],
)
def test_what_cannot_be_meant_is_refused(choices: dict[str, Any], message: str | None) -> None:
    if message is None:  # the silent site may have it
        assert made(**choices).federation.sites == ("silent",)
        return
    with pytest.raises(RequestError, match=message):
        made(**choices, components=1)
