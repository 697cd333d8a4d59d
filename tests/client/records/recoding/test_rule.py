"""[column.NAME] of site.toml: what cannot be meant is refused when it is read."""

from __future__ import annotations

import sys
import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eigenveil.errors import Code, RequestError
from eigenveil_client.records.recoding import rule
from eigenveil_client.records.recoding.rule import ColumnRule, conversion, digest, rules
from tests.support import Patch


def stated(text: str) -> tuple[ColumnRule, ...]:
    return rules(tomllib.loads(text)["column"])


@pytest.mark.parametrize(("keys", "message"), [
    ("form = 'b'", r"\[column.a\]: unknown key form"),
    ("from = 3", r"\[column.a\]: source = 3 must be a text"),
    ("factor = 0", "factor must be finite and not 0"),
    ("factor = nan", "factor must be finite and not 0"),
    ("factor = 2\nunits = ['g/L', 'g/dL']", "units exclude factor and offset"),
    ("units = ['g/L']", "units must be two"),
    ("units = ['g/L', 'mmol/L']", "cannot convert 'g/L' to 'mmol/L'. State factor and offset, or molar_mass"),
    ("units = ['g/L', '1/uL']", "cannot convert"),
    ("units = ['g/L', '(g/L']", "cannot convert"),
    ("units = ['', '']", "units: state both"),
    ("units = ['g/L', 'kg']\nmolar_mass = 3", "cannot convert 'g/L' to 'kg'. State factor and offset$"),
    ("molar_mass = 3", "molar_mass needs units"),
    ("decimal = ';'", "decimal must be"),
    ("decimal = ','\nthousands = ','", "different marks"),
    ("censored = 'twice'", "censored = 'twice' is unknown; choose one of"),
    ("missing = ['-999', '-999.0']", "missing: a code is repeated"),
    ("missing = [' x']", "missing: ' x' has blanks around it"),
    ("values = {x = 'y'}", "values must map words to numbers"),
    ("values = {NA = 1}", "values: 'NA' means missing"),
    ("values = {x = 1}\nfactor = 2", "values and factor exclude each other"),
    ("levels = ['x', 'y', 'x']", "levels: a code is repeated"),
    ("levels = ['x']\nyears_since = 'b'", "levels and years_since exclude each other"),
    ("dates = '%Y'", "dates is the form of the dates of years_since and by"),
    ("rows = 'first'", "need by, the name of a date column"),
    ("rows = 'mean'\nby = 'b'", "Other rows have no by"),
    ("rows = 'count'\ndecimal = ','", "rows = count and decimal exclude each other"),
    ("rows = 'median'", "rows = 'median' is unknown"),
    ("rows = 'mean'\n[column.'b=x']\n[column.b]\nlevels = ['x']", "two rules define b=x"),
])  # fmt: skip
def test_a_rule_that_cannot_be_meant_is_refused(keys: str, message: str) -> None:
    with pytest.raises(RequestError, match=message) as caught:
        stated(f"[column.a]\n{keys}\n")
    assert caught.value.code is Code.BAD_CONFIG


def test_without_pint_units_name_their_extra(monkeypatch: Patch) -> None:
    monkeypatch.setitem(sys.modules, "pint", None)
    rule.conversion.cache_clear()
    rule._registry.cache_clear()
    with pytest.raises(RequestError, match=r"eigenveil\[sources\]"):
        stated("[column.a]\nunits = ['g/L', 'g/dL']\n")
    assert stated("[column.a]\nfactor = 2\n")


@pytest.mark.parametrize(("given", "wanted", "mass", "pairs"), [
    ("mmol/L", "mg/dL", 386.65, {1.0: 38.665, 0.0: 0.0}),
    ("mg/dL", "mmol/L", 386.65, {38.665: 1.0}),
    ("degC", "degF", None, {37.0: 98.6, 0.0: 32.0}),
    ("kPa", "mm[Hg]", None, {16.0: 120.0098692}),
    ("10*9/L", "10*3/uL", None, {250.0: 250.0}),
    ("Cel", "[degF]", None, {37.0: 98.6}),
    ("m[IU]/L", "u[IU]/mL", None, {2.5: 2.5}),
    ("mL/min/{1.73_m2}", "mL/s/{1.73_m2}", None, {90.0: 1.5}),
    ("g/cm2", "kg/m2", None, {1.0: 10.0}),
    ("%", "1", None, {5.0: 0.05}),
    ("/min", "/s", None, {60.0: 1.0}),
    ("umol/L", "mg/dL", 113.12, {88.4: 0.99998}),
])  # fmt: skip
def test_units_are_converted(given: str, wanted: str, mass: float | None, pairs: dict[float, float]) -> None:
    factor, offset = rule.conversion(given, wanted, mass)
    for value, other in pairs.items():
        assert value * factor + offset == pytest.approx(other, rel=1e-6, abs=1e-12)


CHANGES: list[dict[str, Any]] = [
    {"name": "b"}, {"source": "c"}, {"missing": ("1",)}, {"decimal": ","}, {"factor": 2.0}, {"offset": 1.0},
    {"levels": ("x",)}, {"levels": ("x", "y")}, {"values": (("x", 1.0),)}, {"values": (("x", 2.0),)},
]  # fmt: skip


@given(st.sampled_from(CHANGES), st.sampled_from(CHANGES))
def test_other_rules_have_another_digest(one: dict[str, Any], two: dict[str, Any]) -> None:
    left, right = (ColumnRule(**{"name": "a", **changes}) for changes in (one, two))
    assert (digest((left,)) == digest((right,))) == (left == right)


pytest.importorskip("pint")


@pytest.mark.parametrize("unit", [
    "m**9**9**9", "10**9**9*m", "m^9^9", "(10**99)**99 m", "2**(9**9) m", "10**999 m", "10**99_9 m",
    "1e999999999 m", "10⁹⁹⁹⁹⁹⁹⁹⁹⁹ m", "9" * 31 + " m", "m*" * 60 + "m",
])  # fmt: skip
def test_a_power_of_a_power_is_refused_before_it_is_computed(unit: str) -> None:
    with pytest.raises(RequestError, match="units: cannot convert") as refused:
        conversion(unit, "m", None)
    assert refused.value.code is Code.BAD_CONFIG
    assert "power" in str(refused.value.__cause__)
