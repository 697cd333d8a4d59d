"""What every kind of query says of itself is there, fits its answer, and is right where a number says so."""

from __future__ import annotations

import numpy as np
import pytest

from eigenveil.accounting.zcdp import Neighbours
from eigenveil.protocol import query as protocol_query
from eigenveil.protocol.query import flatten
from eigenveil.protocol.wire import query_from_proto, query_to_proto
from eigenveil.queries import ClippedSum, Gram, centre_of, columns_of, released_length
from eigenveil.queries.contract import describe_grid
from eigenveil.site.record_view import to_grid
from eigenveil.site.site import Site
from eigenveil.study.grid import S
from eigenveil.study.study import Column
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.core.recorder import QUERIES, plan_of, query_of
from tests.core.specification import Setting
from tests.support import a_study


@pytest.mark.parametrize("name", QUERIES)
def test_every_number_of_an_answer_has_a_label_and_a_unit(name: str) -> None:
    query = QUERIES[name]
    centre, d = centre_of(query), columns_of(query) or 1
    study = a_study(columns=tuple(Column(name=f"c{i}", unit="kg", lower=0.0, upper=1.0) for i in range(d)))
    described = query.describe(study)
    assert query.meaning
    assert described.unit
    assert len(described.labels) == query.length
    assert len(described.factors) == len(described.names)
    assert len(described.factors) in (0, query.length)
    assert len(describe_grid(study, centre, described.radius)["columns"]) == d


@pytest.mark.parametrize("name", QUERIES)
def test_every_query_survives_the_trip_with_its_digest(name: str) -> None:
    s = Setting(adds=True, sites=1, micro_rho=7, atto_delta=9)
    asked = query_of(plan_of(Neighbours.ADD_REMOVE, 1), QUERIES[name], s)
    received = query_from_proto(pb.Query.FromString(query_to_proto(asked).SerializeToString()))
    assert (type(received.query), received.digest) == (type(asked.query), asked.digest)
    assert received.is_identical(asked)


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize("records", [0, 17, 10**9])
def test_an_imagined_release_is_one_that_a_release_could_hold(name: str, records: int) -> None:
    values = QUERIES[name].assumed_release(records)
    assert (values.shape, values.dtype) == ((released_length(QUERIES[name]),), np.dtype(np.int64))


def test_sums_and_products_are_in_the_units_of_their_columns() -> None:
    """Of two records that no radius clips, away from the centre by (1, 1) and (2, -1)."""
    study = a_study(columns=tuple(Column(name=n, unit=u, lower=0.0, upper=8.0) for n, u in ("ag", "bm")))
    site_rows = Site(to_grid(np.array([[5.0, 7.0], [6.0, 5.0]]), study))
    centre, radius = np.array([0, S // 2]), 3 * S
    for query, expected, names in (
        (ClippedSum(centre=centre, radius=radius), [3.0, 0.0], ("g", "m")),
        (Gram(centre=centre, radius=radius), [5.0, 2.0, -1.0], ("g x g", "m x m", "g x m")),
    ):
        unit = query.describe(study)
        np.testing.assert_allclose(site_rows.answer(query) * np.array(unit.factors), expected, atol=1e-2)
        assert unit.names == names
        columns = describe_grid(study, query.centre, unit.radius)["columns"]
        assert [column["centre"] for column in columns] == pytest.approx([4.0, 6.0])


def test_what_floats_decide_are_fields_that_queries_have() -> None:
    """Found when `pull` became `offset`: under a name that nothing has, no rounding is forgiven."""
    fields = {name.rpartition(".")[2] for query in QUERIES.values() for name in flatten(query)}
    assert fields >= protocol_query.ROUNDED_FIELDS | {protocol_query.EDGE_FIELD}
