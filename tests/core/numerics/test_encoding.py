"""Canonical JSON is the same bytes whoever writes it: every digest and signature rests on that."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import rfc8785
from hypothesis import example, given
from hypothesis import strategies as st

from eigenveil.errors import Code
from eigenveil.numerics.encoding import EXACT, MAX_NESTING, IntArray, add_noise, canonical, frozen, parse_json
from tests.support import refused

TEXT = st.text(st.characters(codec="utf-8"))
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | TEXT | st.text('\x00\x1f\x7f"\\/\n ab')
VALUES = st.recursive(LEAVES, lambda some: st.lists(some) | st.dictionaries(TEXT, some) | st.tuples(some))


def written(write: Any, value: Any) -> bytes | str:
    """Bytes of `write`, or "refused"."""
    try:
        return bytes(write(value))
    except rfc8785.CanonicalizationError:
        return "refused"


@given(VALUES)
@example({"b": 1, "a": [True, None, EXACT - 1, 1 - EXACT, "\x7f"], "A": {"\n": "\u2028"}})
@example([EXACT])
@example([-EXACT])
@example({"\U0001f600": 1, "\ufb33": 2})
@example(1e21)
@example({"delta": 1e-6, "most": 2.0**53, "least": -0.0, "inner": [9999999999999998.0, 1e16, 1e-4, 9.9e-5]})
@example(["\ud800"])
def test_canonical_json_equals_the_reference_encoder(value: Any) -> None:
    assert written(canonical, value) == written(rfc8785.dumps, value)


def test_the_reference_encoder_writes_unusual_values_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A document of a thousand columns with one small delta is written by compiled code all the same."""
    document: Any = {"columns": [{"name": f"x{i} µmol", "lower": -0.5 * i} for i in range(1000)]}
    document["delta"] = 1e-6
    whole, dumps, seen = rfc8785.dumps(document), rfc8785.dumps, list[Any]()

    def reference(value: Any) -> bytes:
        seen.append(value)
        return dumps(value)

    monkeypatch.setattr(rfc8785, "dumps", reference)
    assert (canonical(document), seen) == (whole, [1e-6])


def test_a_noised_sum_is_written_over_its_noise_where_that_is_the_callers_own() -> None:
    total, own, remaining = frozen([3, 4]), np.array([1, -2]), frozen([1, -2])
    assert add_noise(total, remaining).tolist() == [4, 2]
    assert remaining.tolist() == [1, -2]
    assert add_noise(total, own) is own
    assert (own.tolist(), own.flags.writeable, total.tolist()) == ([4, 2], False, [3, 4])


@pytest.mark.parametrize(
    "noise", [np.zeros((3, 2), dtype=np.int64), np.zeros(1, dtype=np.int64), np.zeros(2)]
)
def test_noise_of_another_shape_or_type_is_refused(noise: IntArray) -> None:
    """numpy would repeat the shorter one, and rows beyond the first AT_ONCE would be noise alone."""
    with refused(Code.BUG, "shape or type"):
        add_noise(frozen([3, 4]), noise)


@pytest.mark.parametrize("dispatch", ["[", '{"a":'])
def test_json_is_read_to_a_depth_that_does_not_depend_on_the_caller(dispatch: str) -> None:
    closing = "]" if dispatch == "[" else "}"
    deepest = dispatch * (MAX_NESTING - 1) + "[1]" + closing * (MAX_NESTING - 1)
    assert parse_json(deepest) == json.loads(deepest)
    for depth in (MAX_NESTING, 100_000):
        with pytest.raises(ValueError, match="nests too deep"):
            parse_json(dispatch * depth + "[1]" + closing * depth)


@pytest.mark.parametrize("bad", [[0.5], [1.0], [float("nan")], ["1"], [True]])
def test_numbers_of_an_answer_are_integers_by_type(bad: list[Any]) -> None:
    with pytest.raises(TypeError, match="integers are required"):
        frozen(bad)
