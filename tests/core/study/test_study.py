"""Invalid studies are refused by the name of the field, and valid ones are read back as written."""

from __future__ import annotations

import copy
import json
import math
from dataclasses import replace
from functools import partial, reduce
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eigenveil.accounting.zcdp import MAX_EPSILON
from eigenveil.errors import Code, RequestError
from eigenveil.protocol.plan import plan_from_json
from eigenveil.queries.limits import least_row_radius
from eigenveil.site.record_view import to_grid
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.grid import S
from eigenveil.study.radius import PublicNorm
from eigenveil.study.study import (
    MAX_COLUMNS,
    MAX_RECORDS,
    Federation,
    Scaling,
    Trust,
)
from eigenveil.study.toml import parse_study, study_from_dict, study_to_dict, study_to_toml
from tests.support import a_column, a_plan, a_study, refused
from tests.vectors.make import a_vector_plan

NAN, INF = math.nan, math.inf

TEXT = """
name = "wards"
components = 1
[privacy]
epsilon = 1.0
delta = 1e-6
[federation]
sites = ["north", "south"]
[[columns]]
name = "age"
unit = "year"
lower = 0
upper = 100
[[columns]]
name = "pulse"
unit = "1/min"
lower = 30
upper = 220.5
"""


def base() -> dict[str, Any]:
    return copy.deepcopy(study_to_dict(parse_study(TEXT)))


def with_value(path: str, value: Any) -> dict[str, Any]:
    """`base` with the value at "section.key" or "columns.0.key" replaced."""
    data = base()
    *route, last = path.split(".")
    place: Any = data
    for step in route:
        place = place[int(step)] if step.isdigit() else place[step]
    place[last] = value
    return data


RADII: list[Any] = [0.0, 1, 1.5, -0.2, NAN, INF, "auto", True, []]

# (where, value, words of the message)
BAD_VALUES: list[tuple[str, Any, tuple[str, ...]]] = [
    *[("privacy.epsilon", v, ("epsilon", "above 0")) for v in (0, -1.0, NAN, INF, -INF, 2 * MAX_EPSILON)],
    ("privacy.epsilon", 10**400, ("epsilon", "64-bit")),
    *[("privacy.delta", v, ("delta", "between 0 and 1")) for v in (1, 1.0, -0.1, 2, NAN, INF)],
    *[("columns.0.lower", v, ("'age'", "finite")) for v in (NAN, INF, -INF)],
    *[("columns.0.upper", v, ("'age'", "finite")) for v in (NAN, INF, -INF)],
    ("columns.0.lower", 101.0, ("'age'", "below upper bound")),
    ("columns.0.lower", 100.0, ("'age'", "cannot vary", "leave out")),
    ("columns.0.lower", 100.0 - 1e-13, ("'age'", "too close")),
    ("columns.0.name", "  ", ("column", "name")),
    *[("columns.0.name", v, ("needs a name", "is none")) for v in ("*", " *")],
    ("columns.0.name", "pulse", ("twice", "pulse")),
    ("columns.0.name", "a" * 201, ("column's name", "200")),
    ("columns.0.name", "age\x1b[8m", ("printable", "\\x1b[8m")),
    ("columns.0.unit", "mmol\u202e", ("unit", "printable", "\\u202e")),
    ("purpose", "harmless\x1b[2J", ("purpose", "printable")),
    ("purpose", "a" * 4001, ("purpose", "4000")),
    ("records.person_column", "id\r", ("person_column", "printable")),
    ("columns.0.fill", 100.5, ("'age'", "fill", "within")),
    ("columns.0.fill", NAN, ("'age'", "fill")),
    ("records.missing", "fill", ("'age'", "fill value")),
    ("components", 3, ("components = 3", "2 columns")),
    ("components", 0, ("components = 0", "between 1")),
    ("components", -1, ("components",)),
    *[("privacy.radius", v, ("radius", "quantile")) for v in RADII],
    ("privacy.radius", 10**400, ("radius", "64-bit")),
    *[("privacy.radius", {"norm": v}, ("norm", "above 0")) for v in (0, -1.0, NAN, INF)],
    *[("privacy.radius", {"norm": v}, ("norm", "must be a number")) for v in (True, "1", None, [1.0])],
    ("privacy.radius", {"norm": 10**400}, ("norm", "64-bit")),
    ("privacy.radius", {}, ("radius", "has no norm")),
    ("privacy.radius", {"norm": 1.0, "unit": "mm"}, ("radius", "unknown key unit")),
    *[("privacy.max_sites_per_person", v, ("max_sites_per_person",)) for v in (0, -1, 1001, 10**30)],
    *[("records.grid_steps", v, ("power of two", "4096")) for v in (0, -4, 3, 8192)],
    *[("records.max_records", v, ("max_records",)) for v in (0, -5, MAX_RECORDS + 1, 10**30)],
    *[("records.expected_records", v, ("expected_records",)) for v in (0, MAX_RECORDS + 1)],
    ("records.person_column", "age", ("person_column", "measurement")),
    ("name", "Wards", ("study name", "lower-case")),
    ("name", "a" * 64, ("study name", "63")),
    ("name", "", ("study name",)),
    ("federation.sites", [], ("must invite 1 to",)),
    ("federation.sites", ["north", "north"], ("twice",)),
    ("federation.sites", ["North Ward"], ("North Ward", "lower-case")),
    ("federation.required", ["west"], ("west", "not among")),
    *[("federation.quorum", v, ("quorum", "2 invited")) for v in (0, 3, -1)],
    *[("federation.deadline_seconds", v, ("deadline_seconds",)) for v in (0, -1, NAN, INF, 604801)],
    *[("federation.minimum_cohort", v, ("minimum_cohort",)) for v in (0, -3, 10**30)],
    ("algorithm", "magic", ("magic", "gauss-cov", "dp-pca")),
    ("privacy.neighbours", "both", ("both", "add-remove")),
    ("records.scaling", [], ("scaling", "bounds")),
    ("columns", [], ("must have 1 to", str(MAX_COLUMNS))),
    ("columns", "age", ("array of tables",)),
    ("columns", ["age"], ("array of tables",)),
    ("privacy", 3, ("[privacy] must be a table",)),
    ("federation", [], ("[federation] must be a table",)),
    ("federation.sites", [1, 2], ("sites", "names")),
]  # fmt: skip


@pytest.mark.parametrize(("path", "value", "words"), BAD_VALUES)
def test_a_bad_value_is_refused_by_name(path: str, value: Any, words: tuple[str, ...]) -> None:
    with refused(Code.BAD_STUDY, *words):
        study_from_dict(with_value(path, value))


TEXTS = ["name", "purpose", "records.person_column", "columns.0.name", "columns.0.unit"]
COUNTS = ["components", "privacy.max_sites_per_person", "federation.quorum", "federation.minimum_cohort"]
NUMBERS = ["privacy.epsilon", "privacy.delta", "columns.0.lower", "columns.0.fill"]
NUMBERS += ["federation.deadline_seconds"]
WRONG_TYPES: list[tuple[str, Any]] = [
    *product(TEXTS, [5, ["x"]]),
    *product(COUNTS, [True, 1.5, "1"]),
    *product(NUMBERS, [True, "1"]),
    ("records.max_records", 1e3),
    *product(["records.centring"], [1, "yes"]),
    *product(["federation.sites"], ["north", {"a": 1}]),
]


@pytest.mark.parametrize(("path", "value"), WRONG_TYPES)
def test_a_wrong_type_is_refused_by_the_name_of_its_key(path: str, value: Any) -> None:
    with refused(Code.BAD_STUDY, path.rsplit(".", 1)[-1], "must be"):
        study_from_dict(with_value(path, value))


@pytest.mark.parametrize(
    "path", ["extra", "privacy.extra", "records.extra", "federation.extra", "columns.1.extra"]
)
def test_an_unknown_key_is_refused_at_every_level(path: str) -> None:
    with refused(Code.BAD_STUDY, "unknown key", "extra", "known:"):
        study_from_dict(with_value(path, 1))


MISSING = ["name", "components", "privacy.epsilon", "privacy.delta", "federation.sites"]
MISSING += [f"columns.0.{key}" for key in ("name", "unit", "lower", "upper")]


@pytest.mark.parametrize("path", MISSING)
def test_a_missing_key_is_named_and_bounds_are_called_public(path: str) -> None:
    data: Any = with_value(path, None)
    *route, last = path.split(".")
    del reduce(lambda place, step: place[int(step) if step.isdigit() else step], route, data)[last]
    with pytest.raises(RequestError, match=f"has no {last}") as caught:
        study_from_dict(data)
    assert ("never taken from the data" in str(caught.value)) is (last in ("lower", "upper"))


@pytest.mark.parametrize(
    "text", ["", "name = ", "= 3", "[privacy", "name = 'a'\nname = 'b'", "\x00", "x = 1" + "0" * 5000]
)
def test_a_text_that_is_no_study_is_refused(text: str) -> None:
    with refused(Code.BAD_STUDY):
        parse_study(text)


def test_spare_attempts_that_no_round_can_use_are_warned_of() -> None:
    sites = ("anna", "bert", "carl")
    tried = partial(a_study, trust=Trust.SECURE_AGGREGATION, spare_attempts=2)
    all_needed, fewer = Federation(sites=sites), Federation(sites=sites, quorum=2)
    (warning,) = tried(federation=all_needed).warnings()
    assert "spare_attempts = 2 has no effect" in warning
    assert tried(federation=fewer).warnings() == ()
    assert "state a quorum below 3 and more spare_attempts" in all_needed.further_attempts
    assert "quorum" not in fewer.further_attempts
    for colluding, words in {0: "at least 1", 2: "of the 2 sites that a round needs"}.items():
        with refused(Code.BAD_STUDY, words):
            tried(federation=fewer, colluding=colluding)


@pytest.mark.parametrize("delta", [1e-4, 1e-5, 0.5])
def test_a_large_delta_is_warned_of_but_allowed(delta: float) -> None:
    (warning,) = a_study(delta=delta, expected_records=10_000).warnings()
    assert "delta" in warning
    assert "1.0e-05" in warning
    assert a_study(delta=delta / 100, expected_records=1000).warnings() == () or delta == 0.5


def test_too_many_columns_are_refused() -> None:
    with refused(Code.BAD_STUDY, str(MAX_COLUMNS)):
        a_study(d=MAX_COLUMNS + 1)
    assert a_study(d=MAX_COLUMNS).dimension == MAX_COLUMNS


def test_a_round_goes_on_with_the_required_sites_and_the_quorum() -> None:
    federation = Federation(sites=("a", "b", "c"), required=("a",), quorum=2)
    federation.check_present(("a", "c"))
    with refused(Code.STUDY_FAILED, "required", "a", "nothing was charged"):
        federation.check_present(("b", "c"))
    with refused(Code.STUDY_FAILED, "2", "nothing was charged"):
        federation.check_present(("a",))


FULL = a_vector_plan().study  # no field of which has its default


@pytest.mark.parametrize(
    "changes",
    [
        {}, {"epsilon": 0.1 + 0.2, "delta": 1e-12, "grid_steps": 64, "max_sites_per_person": 1000},
        {"radius": PublicNorm(norm=1.25), "scaling": Scaling.NONE},
        {"radius": None, "scaling": Scaling.STANDARD, "centring": True, "purpose": "'\"\\ é"},
        {"algorithm": Algorithm.PRIVATE_OJA, "batches": 7},
        {"trust": Trust.SECURE_AGGREGATION, "spare_attempts": 2, "colluding": 1, "max_sites_per_person": 1,
         "federation": Federation(sites=("a", "b", "c"), quorum=2, deadline_seconds=0.1)},
    ],
)  # fmt: skip
def test_a_study_survives_being_written_down(changes: dict[str, Any]) -> None:
    """As a mapping, as JSON text, and as the canonical bytes of its plan."""
    study = replace(FULL, **changes)
    assert study_from_dict(study_to_dict(study)) == study
    assert parse_study(study_to_toml(study)) == study
    assert study_from_dict(json.loads(json.dumps(study_to_dict(study)))) == study
    plan = a_plan(study)
    again = plan_from_json(plan.to_json())
    assert again == plan
    assert again.digest == plan.digest


# Public norms of the records.


HALVES = [60.0, 5.0, 0.5]
COLUMNS = tuple(a_column(f"x{i}", -half, half) for i, half in enumerate(HALVES))


@pytest.mark.parametrize("scaling", [Scaling.BOUNDS, Scaling.NONE])
@given(factor=st.floats(0.5, 2.0))
def test_only_a_norm_that_clips_no_record_is_warned_of(scaling: Scaling, factor: float) -> None:
    """The longest record there can be lies in a corner of the public bounds."""
    plain = a_study(columns=COLUMNS, scaling=scaling, components=1)
    corner = float(np.linalg.norm(to_grid(np.array([HALVES]), plain)[0].astype(float))) / S
    study = a_study(columns=COLUMNS, scaling=scaling, components=1, radius=PublicNorm(norm=corner * factor))
    idle = any("has no effect" in sentence for sentence in study.warnings())
    if abs(factor - 1) > 0.001:  # about a grid step
        assert idle == (factor > 1)
    assert not plain.warnings()


@pytest.mark.parametrize("d", [1, 3, 40])
def test_a_norm_below_the_public_floor_is_refused_at_planning(d: int) -> None:
    columns, floor = tuple(a_column(f"x{i}") for i in range(d)), least_row_radius(d) / S
    a_plan(columns=columns, components=1, radius=PublicNorm(norm=floor))
    with refused(Code.BAD_STUDY, "below the minimum"):
        a_plan(columns=columns, components=1, radius=PublicNorm(norm=np.nextafter(floor, 0)))


@pytest.mark.parametrize("algorithm", [a for a in Algorithm if not a.properties.clips_rows])
def test_an_algorithm_without_row_clipping_takes_no_norm(algorithm: Algorithm) -> None:
    with refused(Code.BAD_STUDY, "takes no public norm"):
        a_plan(algorithm=algorithm, sites=("north",), radius=PublicNorm(norm=1.0))
