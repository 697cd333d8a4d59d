"""Queries on the wire: every kind survives the trip with its digest, and nothing malformed arrives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from eigenveil.errors import Code, EigenveilError
from eigenveil.numerics.encoding import from_bytes, to_bytes
from eigenveil.protocol.query import RoundQuery
from eigenveil.protocol.wire import query_from_proto, query_to_proto
from eigenveil.queries import (
    NAMES,
    ClippedSum,
    CoordinateClippedSum,
    CoordinateHistograms,
    Count,
    CrossCovariance,
    CrossNorms,
    CrossSpec,
    EigenvalueVotes,
    Eigenvectors,
    Gradient,
    GradientNorms,
    GradientSpec,
    Gram,
    RadiusSearch,
    RowNorms,
    Spectrum,
    SquaredNormSum,
)
from eigenveil.queries.limits import row_norm_limit
from eigenveil.study.grid import S
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.support import a_query, every_query, refused

KINDS = [
    Count,
    RowNorms,
    ClippedSum,
    SquaredNormSum,
    Gram,
    GradientNorms,
    Gradient,
    EigenvalueVotes,
    CoordinateHistograms,
    CoordinateClippedSum,
]
KINDS += [Spectrum, Eigenvectors, RadiusSearch, CrossNorms, CrossCovariance]


def array(draw: st.DrawFn, low: int, high: int, *shape: int) -> Any:
    """Integers of [low, high]. Shape: shape."""
    size = int(np.prod(shape))
    values = draw(st.lists(st.integers(low, high), min_size=size, max_size=size))
    return np.array(values, dtype=np.int64).reshape(shape)


@st.composite
def queries(draw: st.DrawFn, kind: type[Any]) -> RoundQuery:
    """Any query of one kind."""
    d = draw(st.integers(1, 6))
    alone = kind in (
        EigenvalueVotes,
        CoordinateHistograms,
        CoordinateClippedSum,
    )  # these know one direction and no pull
    k = 1 if alone else draw(st.integers(1, d))
    centre = array(draw, -S, S, d)
    field = GradientSpec(
        centre=centre,
        directions=array(draw, -(2**20), 2**20, d, k),
        offset=array(draw, 0, 0, d, k) if alone else array(draw, -(2**14), 2**14, d, k),
        shift=draw(st.integers(0, 60)),
    )
    p = draw(st.integers(k, d))
    beside = CrossSpec(
        centre=centre,
        directions=np.diag(array(draw, -(2**20), 2**20, d))[draw(st.permutations(range(d))), :p],
        scales=array(draw, 1, 2**10, k),
        kept=array(draw, 0, 2**10, p - k),
        shift=field.shift,
    )
    top = 2**31 - 1 if kind in (RowNorms, RadiusSearch) else 2**62 - 1
    edges = np.array(sorted(draw(st.sets(st.integers(1, top), min_size=1, max_size=20))))
    parts = {
        "centre": centre,
        "spec": beside if kind in (CrossNorms, CrossCovariance) else field,
        "edges": edges,
        "limits": array(draw, 0, 2**41, len(edges)),
        "records": draw(st.integers(1, 2**41)),
        "count": draw(st.integers(1, d)),
        "subsets": draw(st.integers(1, 2**20)),
        "width": draw(st.integers(1, 2**52)),
        "half": draw(st.integers(1, 128)),
        "middles": array(draw, -(2**60), 2**60, d),
        "halves": array(draw, 1, 2**29, d),
        "radius": draw(st.integers(1, 2**29 if kind in (Gradient, CrossCovariance) else row_norm_limit(d))),
    }
    wanted = {name: part for name, part in parts.items() if name in {field.name for field in fields(kind)}}
    return RoundQuery(
        plan_digest=draw(st.binary(min_size=32, max_size=32)).hex(),
        round=draw(st.integers(0, 2**32 - 1)),
        query=kind(**wanted),
        micro_rho=draw(st.integers(1, 2**53 - 1)),
    )


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: NAMES[kind])
@given(data=st.data())
def test_a_query_survives_the_trip(kind: type[Any], data: st.DataObject) -> None:
    query = data.draw(queries(kind))
    sent = query_to_proto(query).SerializeToString()
    received = query_from_proto(pb.Query.FromString(sent))
    assert type(received.query) is kind
    assert received.digest == query.digest
    assert (received.round, received.micro_rho, received.plan_digest) == (
        query.round, query.micro_rho, query.plan_digest,
    )  # fmt: skip


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
    ("energy", lambda m: (m.energy, "centre")),
    ("gram", lambda m: (m.gram, "centre")),
    ("gradient-norms", lambda m: (m.gradient_norms.spec.directions, "values")),
    ("gradient-norms", lambda m: (m.gradient_norms, "edges")),
    ("gradient", lambda m: (m.gradient.spec, "centre")),
    ("gradient", lambda m: (m.gradient.spec.directions, "values")),
    ("gradient", lambda m: (m.gradient.spec.offset, "values")),
    ("cross-norms", lambda m: (m.cross_norms, "edges")),
    ("cross-norms", lambda m: (m.cross_norms.spec, "kept")),
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
def test_a_query_without_a_part_that_it_needs_is_refused(name: str, part: str) -> None:
    sent = message(name)
    getattr(sent, name.replace("-", "_")).ClearField(part)
    with refused(Code.PROTOCOL, f"has no field {part}"):
        query_from_proto(sent)




@given(st.binary(max_size=200))
def test_no_bytes_make_anything_but_a_query_or_our_error(data: bytes) -> None:
    try:
        parsed = pb.Query.FromString(data)
    except DecodeError:
        return
    try:
        query = query_from_proto(parsed)
    except EigenveilError:
        return
    assert len(query.digest) == 64
