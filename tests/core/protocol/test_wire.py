"""Every kind of query is read back from its message with its digest, and malformed messages are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eigenveil.errors import Code, EigenveilError
from eigenveil.numerics.encoding import from_bytes, to_bytes
from eigenveil.protocol.wire import query_from_proto, query_to_proto
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.support import a_query, every_query, refused


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20))
def test_integers_survive_as_bytes(values: list[int]) -> None:
    data = to_bytes(np.array(values, dtype=np.int64))
    assert data == b"".join(v.to_bytes(8, "little", signed=True) for v in values)
    assert from_bytes(data, (len(values),)).tolist() == values


def message(name: str) -> pb.Query:
    return query_to_proto(a_query(every_query()[name]))


def cut(data: bytes) -> bytes:
    return data[:-3]


ARRAYS: list[tuple[str, Callable[[pb.Query], tuple[Any, str]]]] = [
    ("row-norms", lambda m: (m.row_norms, "centre")),
    ("row-norms", lambda m: (m.row_norms, "edges")),
    ("clipped-sum", lambda m: (m.clipped_sum, "centre")),
    ("squared-norm-sum", lambda m: (m.squared_norm_sum, "centre")),
    ("gram", lambda m: (m.gram, "centre")),
    ("gradient-norms", lambda m: (m.gradient_norms.spec.directions, "values")),
    ("gradient-norms", lambda m: (m.gradient_norms, "edges")),
    ("gradient", lambda m: (m.gradient.spec, "centre")),
    ("gradient", lambda m: (m.gradient.spec.directions, "values")),
    ("gradient", lambda m: (m.gradient.spec.offset, "values")),
    ("cross-norms", lambda m: (m.cross_norms, "edges")),
    ("cross-norms", lambda m: (m.cross_norms.spec, "retained")),
    ("cross-covariance", lambda m: (m.cross_covariance.spec.directions, "values")),
    ("cross-covariance", lambda m: (m.cross_covariance.spec, "scales")),
]


@pytest.mark.parametrize(("name", "where"), ARRAYS)
@pytest.mark.parametrize("garbled", [cut, lambda data: data[:-8] + b"\x80" * 8, lambda data: b""])
def test_a_truncated_or_garbled_array_is_refused(
    name: str, where: Callable[[pb.Query], tuple[Any, str]], garbled: Callable[[bytes], bytes]
) -> None:
    """Half an integer, an integer far outside the limits, nothing at all."""
    sent = message(name)
    holder, key = where(sent)
    setattr(holder, key, garbled(getattr(holder, key)))
    with pytest.raises(EigenveilError) as caught:
        query_from_proto(sent)
    assert caught.value.code in (Code.PROTOCOL, Code.BAD_CONTRIBUTION, Code.OVERFLOW)


@pytest.mark.parametrize("columns", [0, 1, 3, 2**32 - 1])
def test_a_wrong_number_of_columns_is_refused(columns: int) -> None:
    sent = message("gradient")
    sent.gradient.spec.directions.columns = columns
    with pytest.raises(EigenveilError):
        query_from_proto(sent)


@pytest.mark.parametrize(("name", "part"), [("gradient", "spec"), ("cross-norms", "spec")])
def test_a_query_without_a_required_field_is_refused(name: str, part: str) -> None:
    sent = message(name)
    getattr(sent, name.replace("-", "_")).ClearField(part)
    with refused(Code.PROTOCOL, f"has no field {part}"):
        query_from_proto(sent)
