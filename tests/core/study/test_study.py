"""What a study refuses, with which words, and that what it accepts survives being written down."""

from __future__ import annotations

import copy
import json
import math
from functools import partial, reduce
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from eigenveil.accounting.zcdp import MAX_EPSILON, MICRO, Neighbours, delta_at
from eigenveil.errors import Code, RequestError
from eigenveil.protocol.plan import plan_from_json
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.radius import PublicNorm, Radius
from eigenveil.study.study import (
    MAX_COLUMNS,
    MAX_RECORDS,
    Column,
    Federation,
    Missing,
    Scaling,
    Study,
    Trust,
)
from eigenveil.study.toml import parse_study, study_from_dict, study_to_dict
from tests.support import a_plan, a_study, refused
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from eigenveil.errors import Code
from eigenveil.queries.limits import least_row_radius
from eigenveil.site.record_view import to_grid
from eigenveil.study.algorithm import PROPERTIES, Algorithm
from eigenveil.study.grid import S
from eigenveil.study.radius import PublicNorm
from eigenveil.study.study import Scaling
from tests.support import a_column, a_plan, a_study, refused
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
    columns_from,
    parse_study,
    single_tables,
    study_digest,
    study_from_dict,
    study_to_dict,
    study_to_toml,
)
from tests.support import a_study

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
    """The nested mapping of a full study."""
    return copy.deepcopy(study_to_dict(parse_study(TEXT)))


def with_value(path: str, value: Any) -> dict[str, Any]:
    """`base` with the value at "section.key" or "columns.0.key" replaced."""
    data = base()
    *way, last = path.split(".")
    place: Any = data
    for step in way:
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
def test_a_bad_value_is_refused_with_telling_words(path: str, value: Any, words: tuple[str, ...]) -> None:
    with refused(Code.BAD_STUDY, *words):
        study_from_dict(with_value(path, value))


WRONG_TYPES: list[tuple[str, Any]] = [
    *[("components", v) for v in (True, 1.0, "1", None, [1])],
    *[("name", v) for v in (5, True, None)],
    *[("purpose", v) for v in (5, ["x"])],
    *[("privacy.epsilon", v) for v in (True, "1", None, [1.0])],
    *[("privacy.delta", v) for v in (False, "1e-6")],
    *[("privacy.max_sites_per_person", v) for v in (True, 1.0, "1")],
    *[("records.max_records", v) for v in (True, 1e3)],
    *[("records.centring", v) for v in (1, "yes", 0.0)],
    *[("records.person_column", v) for v in (3, ["id"])],
    *[("columns.0.lower", v) for v in (True, "0", None, [0])],
    *[("columns.0.fill", v) for v in (True, "0")],
    *[("columns.0.name", v) for v in (5, None)],
    *[("columns.0.unit", v) for v in (5, True)],
    *[("federation.sites", v) for v in ("north", {"a": 1}, 3)],
    *[("federation.quorum", v) for v in (True, 1.0, "1")],
    *[("federation.deadline_seconds", v) for v in (True, "60")],
    *[("federation.minimum_cohort", v) for v in (True, 20.0)],
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
def test_a_missing_key_is_named_and_bounds_are_said_to_be_public(path: str) -> None:
    data: Any = with_value(path, None)
    *way, last = path.split(".")
    del reduce(lambda place, step: place[int(step) if step.isdigit() else step], way, data)[last]
    with pytest.raises(RequestError, match=f"has no {last}") as caught:
        study_from_dict(data)
    assert ("never taken from the data" in str(caught.value)) is (last in ("lower", "upper"))


@pytest.mark.parametrize(
    "text", ["", "name = ", "= 3", "[privacy", "name = 'a'\nname = 'b'", "\x00", "x = 1" + "0" * 5000]
)
def test_a_text_that_is_no_study_is_refused(text: str) -> None:
    with refused(Code.BAD_STUDY):
        parse_study(text)


def test_attempts_that_no_round_can_use_are_warned_of() -> None:
    sites = ("anna", "bert", "carl")
    tried = partial(a_study, trust=Trust.SECURE_AGGREGATION, attempts=2)
    all_needed, fewer = Federation(sites=sites), Federation(sites=sites, quorum=2)
    (warning,) = tried(federation=all_needed).warnings()
    assert "attempts = 2 has no effect" in warning
    assert tried(federation=fewer).warnings() == ()
    assert "state a quorum below 3 and more attempts" in all_needed.further_attempts
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


names = st.from_regex(r"[a-z0-9][a-z0-9-]{0,20}", fullmatch=True)
texts = st.text(st.characters(exclude_categories=["C", "Z"], include_characters=" "), max_size=20)


@st.composite
def a_random_column(draw: st.DrawFn, name: str) -> Column:
    low = draw(st.floats(-1e9, 1e9))
    high = low + draw(st.floats(10, 1e9))
    return Column(name=name, unit=draw(texts), lower=low, upper=high, fill=draw(st.sampled_from([low, high])))


@st.composite
def studies(draw: st.DrawFn) -> Study:
    """Every field at something else than its default, somewhere."""
    columns = draw(st.lists(texts.filter(lambda t: bool(t.strip())), min_size=1, max_size=4, unique=True))
    sites = tuple(draw(st.lists(names, min_size=1, max_size=4, unique=True)))
    scaling = draw(st.sampled_from(Scaling))
    standard = scaling is Scaling.STANDARD
    radii: list[st.SearchStrategy[Radius]] = [st.none(), st.floats(0.01, 1)]
    if not standard:
        radii.append(st.builds(PublicNorm, norm=st.floats(0.2, 1e9)))
    return Study(
        name=draw(names),
        purpose=draw(texts),
        columns=tuple(draw(a_random_column(name)) for name in columns),
        epsilon=draw(st.floats(0.01, 100)),
        delta=draw(st.floats(1e-12, 0.1)),
        components=draw(st.integers(1, len(columns))),
        algorithm=draw(st.sampled_from([Algorithm.GAUSS_COV, Algorithm.DP_PCA])),
        neighbours=draw(st.sampled_from(Neighbours)),
        max_sites_per_person=draw(st.integers(1, 1000)),
        missing=draw(st.sampled_from(Missing)),
        person_column=draw(st.one_of(st.none(), st.just("person id is not a column"))),
        centring=standard or draw(st.booleans()),
        scaling=scaling,
        radius=draw(st.one_of(*radii)),
        grid_steps=2 ** draw(st.integers(0, 12)),
        max_records=draw(st.integers(1, 2**24)),
        expected_records=draw(st.integers(1, 2**24)),
        federation=Federation(
            sites=sites,
            required=tuple(draw(st.lists(st.sampled_from(sites), unique=True))),
            quorum=draw(st.one_of(st.none(), st.integers(1, len(sites)))),
            deadline_seconds=draw(st.floats(0.1, 604800)),
            minimum_cohort=draw(st.integers(1, 1000)),
        ),
    )


@given(studies())
def test_a_study_survives_being_written_down(study: Study) -> None:
    """As a mapping, as JSON text, and as the canonical bytes of its plan."""
    assert study_from_dict(study_to_dict(study)) == study
    assert study_from_dict(json.loads(json.dumps(study_to_dict(study)))) == study
    assume(delta_at(1 / MICRO, study.epsilon) <= study.delta)
    plan = a_plan(study)
    again = plan_from_json(plan.to_json())
    assert again == plan
    assert again.digest == plan.digest


# What a study may state of its records' length, and the sentence about a norm that says nothing.


HALVES = [60.0, 5.0, 0.5]
COLUMNS = tuple(a_column(f"x{i}", -half, half) for i, half in enumerate(HALVES))


@pytest.mark.parametrize("scaling", [Scaling.BOUNDS, Scaling.NONE])
@given(factor=st.floats(0.5, 2.0))
def test_a_norm_that_shortens_no_record_is_called_idle_and_no_other(scaling: Scaling, factor: float) -> None:
    """The longest record there can be lies in a corner of the public bounds."""
    plain = a_study(columns=COLUMNS, scaling=scaling, components=1)
    corner = float(np.linalg.norm(to_grid(np.array([HALVES]), plain)[0].astype(float))) / S
    study = a_study(columns=COLUMNS, scaling=scaling, components=1, radius=PublicNorm(norm=corner * factor))
    idle = any("has no effect" in sentence for sentence in study.warnings())
    if abs(factor - 1) > 0.001:  # about a grid step
        assert idle == (factor > 1)
    assert not plain.warnings()


@pytest.mark.parametrize("d", [1, 3, 40])
def test_a_norm_below_the_public_floor_is_refused_before_anything_is_asked(d: int) -> None:
    columns, floor = tuple(a_column(f"x{i}") for i in range(d)), least_row_radius(d) / S
    a_plan(columns=columns, components=1, radius=PublicNorm(norm=floor))
    with refused(Code.BAD_STUDY, "below the minimum"):
        a_plan(columns=columns, components=1, radius=PublicNorm(norm=np.nextafter(floor, 0)))


@pytest.mark.parametrize("algorithm", [a for a in PROPERTIES if not PROPERTIES[a].clips_rows])
def test_what_shortens_no_row_takes_no_norm(algorithm: Algorithm) -> None:
    with refused(Code.BAD_STUDY, "takes no public norm"):
        a_plan(algorithm=algorithm, sites=("north",), radius=PublicNorm(norm=1.0))


# Columns that are alike but for their names: one table, the same study.


def some_columns(seed: int) -> tuple[Column, ...]:
    """Runs of columns that are alike, of lengths about that from which on they are one table."""
    generator, made = np.random.default_rng(seed), []
    for run, length in enumerate(generator.integers(1, 40, 6)):
        unit, fill = f"u{generator.integers(2)}", (None, 1.0)[generator.integers(2)]
        made += [Column(name=f"c{run}_{i}", unit=unit, lower=0, upper=2, fill=fill) for i in range(length)]
    return tuple(made)


@pytest.mark.parametrize("seed", range(20))
def test_a_study_is_what_its_text_and_its_plan_say_however_its_columns_are_written(seed: int) -> None:
    study = a_study(columns=some_columns(seed), components=1)
    assert columns_from(column_tables(study.columns)) == study.columns
    assert parse_study(study_to_toml(study)) == study
    single = study_to_dict(study) | {"columns": list(single_tables(column_tables(study.columns)))}
    assert [table["name"] for table in single["columns"]] == [column.name for column in study.columns]
    assert study_digest(study_from_dict(single)) == study_digest(study)
    plan = plan_for(study, Algorithm.DP_PCA, federation="f", submission="s")
    assert plan_from_json(plan.to_json()).study == study


def test_twenty_thousand_variants_are_a_name_each_and_a_line_about_them() -> None:
    columns = tuple(Column(name=f"rs{i}_A", unit="alleles", lower=0, upper=2) for i in range(20_000))
    names = sum(len(column.name) + len('"",') for column in columns)
    assert len(canonical(column_tables(columns))) < names + 100


def test_a_plan_that_writes_alike_columns_one_by_one_is_not_canonical() -> None:
    columns = tuple(Column(name=f"c{i}", unit="", lower=0, upper=1) for i in range(50))
    study = a_study(columns=columns, components=1)
    said = json.loads(plan_for(study, Algorithm.DP_PCA, federation="f", submission="s").to_json())
    said["study"]["columns"] = list(single_tables(said["study"]["columns"]))
    with pytest.raises(PeerError, match="canonical"):
        plan_from_json(canonical(said))


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"names": []}, "at least one"),
        ({"names": "rs1"}, "a list"),
        ({"names": ["a", 1]}, "a list"),
        ({"names": [["a"]]}, "a list"),
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
    said = study_to_dict(a_study()) | {"columns": [whole], "components": 1}
    with pytest.raises(RequestError, match=words):
        study_from_dict(said)
