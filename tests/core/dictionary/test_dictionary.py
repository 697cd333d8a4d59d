"""A dictionary is read back as written, is valid, and fits its schema."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from eigenveil.dictionary.dictionary import ColumnType, Dictionary, DictionaryColumn
from eigenveil.dictionary.formats import (
    DICTIONARY_SIGNED,
    TO_FILL,
    SignedDictionary,
    dictionary_digest,
    dictionary_from_dict,
    dictionary_schema,
    dictionary_to_dict,
    dictionary_to_toml,
    parse_dictionary,
    sign_dictionary,
)
from eigenveil.errors import Code, RequestError
from eigenveil.numerics.encoding import canonical
from tests.repo.tree import ROOT
from tests.support import refused

SHIPPED = (ROOT / "deploy" / "config" / "dictionary.example.toml").read_text()
KEY = Ed25519PrivateKey.from_private_bytes(bytes(32))
PUBLIC = KEY.public_key().public_bytes_raw()

texts = st.text(st.characters(categories=("L", "N", "P", "Sc")), max_size=12)
names = texts.map(lambda text: f"a {text}")
numbers = st.floats(-1e6, 1e6).map(lambda value: round(value, 3))


@st.composite
def columns(draw: st.DrawFn, name: str) -> DictionaryColumn:
    message: dict[str, Any] = {"name": name, "meaning": draw(texts), "source": draw(names)}
    if draw(st.booleans()):
        levels = tuple(draw(st.lists(names, min_size=1, max_size=3, unique=True)))
        return DictionaryColumn(type=ColumnType.CATEGORY, levels=levels, lower=0, upper=1, **message)
    low, inner, outer, high = sorted(draw(st.lists(numbers, min_size=4, max_size=4, unique=True)))
    message |= {
        "unit": draw(texts),
        "lower": low,
        "upper": high,
        "type": draw(st.sampled_from(["number", "integer"])),
    }
    if draw(st.booleans()):
        message |= {"plausible_lower": inner, "plausible_upper": outer, "fill": inner, "loinc": "2093-3"}
    return DictionaryColumn(**message)


@st.composite
def dictionaries(draw: st.DrawFn) -> Dictionary:
    chosen = draw(st.lists(names, min_size=1, max_size=4, unique=True))
    made = tuple(draw(columns(name)) for name in chosen)
    version = draw(st.integers(1, 2**31))
    return Dictionary(name="d", version=version, columns=made, about=draw(texts))


@cache
def form() -> Any:
    from jsonschema import Draft202012Validator  # takes two seconds: collecting tests need not wait

    Draft202012Validator.check_schema(dictionary_schema())
    return Draft202012Validator(dictionary_schema())


@given(dictionaries())
def test_a_dictionary_is_read_back_as_written_and_fits_its_schema(dictionary: Dictionary) -> None:
    assert parse_dictionary(dictionary_to_toml(dictionary)) == dictionary
    result = dictionary_to_dict(dictionary)
    assert dictionary_from_dict(json.loads(canonical(result))) == dictionary
    assert form().is_valid(json.loads(canonical(result)))


def test_the_published_schema_is_the_one_that_the_code_makes_and_the_shipped_dictionary_fits_it() -> None:
    published = json.loads((ROOT / "docs" / "dictionary.schema.json").read_text())
    assert published == dictionary_schema()
    assert form().is_valid(tomllib.loads(SHIPPED))
    shipped = parse_dictionary(SHIPPED)
    assert len(shipped.columns) >= 60
    assert all(one.levels or one.plausible_lower is not None for one in shipped.columns)


AGE = {"name": "age", "meaning": "", "lower": 0, "upper": 120, "source": "known"}
BAD_FORM: list[dict[str, Any]] = [
    {"name": ""}, {"name": "x" * 201}, {"name": 7}, {"meaning": "m" * 501}, {"lower": "0"}, {"upper": None},
    {"upper": TO_FILL}, {"unit": 3}, {"source": ""}, {"type": "date"}, {"type": "category"},
    {"levels": ["a"]},
    {"type": "category", "levels": [], "upper": 1}, {"type": "category", "levels": ["a", "a"], "upper": 1},
    {"loinc": "2093"}, {"loinc": "x-1"}, {"plausible_lower": 3}, {"bounds": [0, 1]}, {"fill": "none"},
]  # fmt: skip
BAD_MEANING: list[dict[str, Any]] = [
    {"lower": 120}, {"lower": 121}, {"upper": float("inf")}, {"lower": float("nan")}, {"fill": -1},
    {"plausible_lower": -1, "plausible_upper": 5}, {"plausible_lower": 5, "plausible_upper": 5},
    {"loinc": "2093-4"}, {"name": "*"}, {"name": "a\u202eb"}, {"meaning": "a\x1b[2J"}, {"unit": "a\nb"},
    {"source": "  "},
    {"type": "category", "levels": ["a"]}, {"type": "category", "levels": ["a"], "upper": 1, "unit": "kg"},
]  # fmt: skip


@pytest.mark.parametrize("change", BAD_FORM + BAD_MEANING, ids=str)
def test_an_invalid_column_is_refused_and_a_malformed_one_by_the_schema_as_well(
    change: dict[str, Any],
) -> None:
    message = {"name": "d", "version": 1, "columns": [AGE | change]}
    with pytest.raises(RequestError) as caught:
        dictionary_from_dict(message)
    assert caught.value.code is Code.BAD_STUDY
    assert form().is_valid(message) == (change in BAD_MEANING) or TO_FILL in change.values()


@pytest.mark.parametrize(
    "change",
    [{"version": 0}, {"version": 1.5}, {"name": "A b"}, {"columns": []}, {"colums": []}, {"about": "\x07"}],
    ids=str,
)  # fmt: skip
def test_an_invalid_dictionary_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(RequestError):
        dictionary_from_dict({"name": "d", "version": 1, "columns": [AGE]} | change)


def test_no_two_columns_have_one_name_not_even_as_a_level() -> None:
    sex = AGE | {"name": "sex", "type": "category", "levels": ["f"], "upper": 1}
    for other in (sex, AGE | {"name": "sex"}, AGE | {"name": "sex=f"}):
        with refused(Code.BAD_STUDY, "columns named twice: sex"):
            dictionary_from_dict({"name": "d", "version": 1, "columns": [sex, other]})


@given(dictionaries(), st.data())
def test_a_dictionary_is_believed_under_its_own_key_and_federation_alone(
    one: Dictionary, data: st.DataObject
) -> None:
    signed = sign_dictionary(one, "north", KEY.sign)
    assert signed.check_federation(PUBLIC, "north") == one
    with refused(Code.IDENTITY):
        signed.check_federation(PUBLIC, "south")
    with refused(Code.IDENTITY):
        signed.check_federation(Ed25519PrivateKey.generate().public_key().public_bytes_raw(), "north")
    place = data.draw(st.integers(0, len(signed.signed_json) - 1))
    changed = (
        signed.signed_json[:place] + bytes([signed.signed_json[place] ^ 1]) + signed.signed_json[place + 1 :]
    )
    with refused(Code.IDENTITY, "not signed"):
        SignedDictionary(signed_json=changed, signature=signed.signature).check_federation(PUBLIC, "north")


@pytest.mark.parametrize(
    "message", [b"", b"[]", b"{}", b'{"federation":"north","dictionary":{}}', b"[" * 100_000]
)
def test_a_signed_text_that_is_no_dictionary_is_refused(message: bytes) -> None:
    signed = SignedDictionary(signed_json=message, signature=KEY.sign(DICTIONARY_SIGNED + message))
    with refused(Code.PROTOCOL):
        signed.check_federation(PUBLIC, "north")


def test_a_dictionary_beyond_a_message_is_neither_signed_nor_read() -> None:
    rows = [AGE | {"name": f"c{i}", "meaning": "m" * 500, "source": "s" * 500} for i in range(1500)]
    large = dictionary_from_dict({"name": "d", "version": 1, "columns": rows})
    with refused(Code.BAD_STUDY, "shorten its texts"):
        sign_dictionary(large, "north", KEY.sign)
    with refused(Code.PROTOCOL, "too long"):
        SignedDictionary(signed_json=bytes(2**20 + 1), signature=b"").check_federation(PUBLIC, "north")


@given(dictionaries())
def test_a_digest_covers_all_fields_of_a_dictionary(one: Dictionary) -> None:
    first, *rest = one.columns
    others = [
        replace(one, version=one.version % 2**31 + 1),
        replace(one, columns=(replace(first, meaning=f"{first.meaning}."), *rest)),
        replace(one, columns=(replace(first, source=f"{first.source}."), *rest)),
    ]
    assert len({dictionary_digest(made) for made in (one, *others)}) == len(others) + 1
