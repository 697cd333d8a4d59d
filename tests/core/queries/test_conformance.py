"""[P1] [P28] [P29] What every kind of query must pass, so that a new kind needs one row of cases. Sensitivity
by record and replay, in exact integers: for every additive kind and both relations, at least `PAIRS`
neighbour pairs. The largest change stays within the declared sensitivity, and within 1 % of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from eigenveil import queries as q
from eigenveil.accounting.zcdp import Neighbours
from eigenveil.errors import RequestError
from eigenveil.numerics.encoding import frozen
from eigenveil.protocol import query as protocol_query
from eigenveil.protocol.query import flatten
from eigenveil.protocol.wire import query_from_proto, query_to_proto
from eigenveil.queries.contract import describe_grid
from eigenveil.reporting.presentation import sent_kind_label
from eigenveil.site.record_view import to_grid
from eigenveil.site.site import Site
from eigenveil.study.grid import S
from eigenveil.study.study import Column
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.core.queries import kinds
from tests.core.queries.kinds import CASES, PAIRS, QUERIES, SUMS, covariance_queries, every_query
from tests.core.queries.kinds import centre_of as centre_at
from tests.core.recorder import plan_of, query_of, released
from tests.core.records import contributions, hostile_rows, judged, site_answer
from tests.core.specification import Setting
from tests.support import FixedNoise, a_study, changed_query, random_rows

# Groups of records answer these, not each record: test_single_pass and test_subspaces.
OF_GROUPS = {"eigenvalue-votes", "block-ranks"}
each_query = pytest.mark.parametrize("name", QUERIES)


def test_every_kind_of_query_has_an_example_and_every_sum_over_records_has_cases() -> None:
    assert {q.NAMES[type(query)] for query in QUERIES.values()} == set(q.KINDS)
    assert {name.partition(",")[0] for name in CASES} == {
        q.NAMES[type(query)] for query in SUMS.values()
    } - OF_GROUPS


@pytest.mark.parametrize("kind", CASES)
def test_an_answer_about_hostile_records_is_that_of_the_reference(kind: str) -> None:
    """Records at and next to radii and edges, which random ones hardly ever meet."""
    for case in CASES[kind]():
        rows = case.rows[:120]
        assert site_answer(rows, case.query).tolist() == kinds.answer(rows.tolist(), case.query)


@pytest.mark.parametrize("kind", CASES)
def test_no_neighbour_pair_exceeds_the_declared_sensitivity_and_one_reaches_it(kind: str) -> None:
    answered = [(case.query, contributions(case)) for case in CASES[kind]()]
    for neighbours in Neighbours:
        found = judged(answered, neighbours)
        assert found.pairs >= PAIRS
        assert found.worst <= 1
        if (kind, neighbours) != ("count", Neighbours.REPLACE_ONE):
            assert found.worst >= 0.99**2


def test_a_count_moves_by_its_claim_where_the_new_record_is_incomplete() -> None:
    rows = random_rows(10, 2)
    moved = Site(rows).answer(q.Count()) - Site(rows[:-1]).answer(q.Count())
    assert moved**2 == q.Count().l2_squared(Neighbours.REPLACE_ONE)


@pytest.mark.parametrize("name", every_query())
def test_a_record_adds_its_own_answer_whatever_else_is_there(name: str) -> None:
    """answer(data + record) - answer(data) = answer(record), for data of each hostile sort."""
    query = every_query()[name]
    everything = hostile_rows(400, centre_at(4, "random"), S, 3)
    for size in (0, 1, 17, 399):
        record, data = everything[size : size + 1], everything[:size]
        more = site_answer(everything[: size + 1], query) - site_answer(data, query)
        assert more.tolist() == site_answer(record, query).tolist()


@pytest.mark.parametrize("name", covariance_queries())
def test_an_exact_sum_is_that_of_the_reference(name: str) -> None:
    query, rows = covariance_queries()[name], random_rows(50, 4)
    assert Site(rows, chunk=7).answer(query).tolist() == kinds.answer(rows.tolist(), query)


@each_query
def test_a_query_is_read_back_from_the_wire_with_its_digest(name: str) -> None:
    s = Setting(adds=True, sites=1, micro_rho=7, atto_delta=9)
    round_query = query_of(plan_of(Neighbours.ADD_REMOVE, 1), QUERIES[name], s)
    received = query_from_proto(pb.Query.FromString(query_to_proto(round_query).SerializeToString()))
    assert (type(received.query), received.digest) == (type(round_query.query), round_query.digest)
    assert received.is_identical(round_query)


def changed(query: Any, path: str, value: Any) -> Any:
    """The same query but for one field, by its dotted name."""
    name, _, rest = path.partition(".")
    return replace(query, **{name: changed(getattr(query, name), rest, value) if rest else value})


def numbers(query: Any) -> dict[str, Any]:
    """Every number and array of integers by its dotted name."""
    found = {path: value for path, value in flatten(query).items() if path != "length"}  # which follows
    return {
        path: value for path, value in found.items() if isinstance(value, np.ndarray) or type(value) is int
    }


ANY_INTEGER = {"key", "fingerprint"}  # 64 random bits, and a hash


@each_query
def test_a_number_beyond_every_limit_is_refused(name: str) -> None:
    query = QUERIES[name]
    for path, value in numbers(query).items():
        if path.rpartition(".")[2] in ANY_INTEGER or not np.size(value):
            continue
        for number in (2**62, -(2**62)):
            absurd = frozen(np.full_like(value, number)) if isinstance(value, np.ndarray) else number
            with pytest.raises(RequestError):
                changed(query, path, absurd)


@pytest.mark.parametrize(("name", "path"), [("cross-norms", "spec.retained"), ("preimage", "voting_sites")])
def test_a_refusal_names_the_field_of_the_query(name: str, path: str) -> None:
    absurd = frozen(np.full_like(numbers(QUERIES[name])[path], 2**62))
    with pytest.raises(RequestError, match=path.rpartition(".")[2]):
        changed(QUERIES[name], path, absurd)


@each_query
def test_every_number_counts_in_the_digest(name: str) -> None:
    s = Setting(adds=True, sites=1, micro_rho=7, atto_delta=9)
    round_query = query_of(plan_of(Neighbours.ADD_REMOVE, 1), QUERIES[name], s)
    for path, value in numbers(round_query.query).items():
        if path.startswith("batch.") or not np.size(value):
            continue  # a batch is bound to its round and plan
        for by in (1, -1):
            try:
                other = changed_query(round_query, query=changed(round_query.query, path, value + by))
            except RequestError:
                continue
            assert other.digest != round_query.digest, path
            assert not other.is_identical(round_query)


@each_query
def test_every_number_of_an_answer_has_a_label_and_a_unit(name: str) -> None:
    query = QUERIES[name]
    centre, d = q.centre_of(query), q.columns_of(query) or 1
    study = a_study(columns=tuple(Column(name=f"c{i}", unit="kg", lower=0.0, upper=1.0) for i in range(d)))
    described = query.describe(study)
    assert query.meaning
    assert query.lay_meaning
    assert described.unit
    assert len(described.labels) == query.length
    assert len(described.factors) == len(described.names)
    assert len(described.factors) in (0, query.length)
    assert len(describe_grid(study, centre, described.radius)["columns"]) == d


@each_query
def test_a_kind_is_said_to_get_noise_if_its_release_is_the_answer_plus_noise(name: str) -> None:
    """The release of an answer, with the same integer as noise everywhere, against what a hospital reads."""
    query, noise, s = (
        QUERIES[name],
        FixedNoise(),
        Setting(adds=False, sites=1, micro_rho=1000, atto_delta=10**9),
    )
    plan = plan_of(Neighbours.REPLACE_ONE, 1)
    round_query = query_of(plan, query, s)
    total = Site(random_rows(9, q.columns_of(query) or 1)).answer(round_query.query)
    noised = np.array_equal(released(plan, round_query, noise, total).values, total + noise.draws)
    label = sent_kind_label(q.NAMES[type(query)], masked=False)
    if isinstance(query, q.AdditiveQuery):
        assert noised
        assert label == f"{query.label} (the coordinator adds noise)"
        assert (
            sent_kind_label(q.NAMES[type(query)], masked=True) == f"{query.label} (masked, with noise inside)"
        )
    else:
        assert label == query.label
        assert "released" in label
        assert ("released with noise" in label) == noised


@each_query
def test_an_assumed_release_is_one_that_a_release_could_hold(name: str) -> None:
    for records in (0, 17, 10**9):
        values = QUERIES[name].assumed_release(records)
        assert (values.shape, values.dtype) == ((q.released_length(QUERIES[name]),), np.dtype(np.int64))


def test_sums_and_products_are_in_the_units_of_their_columns() -> None:
    """Of two records that no radius clips, away from the centre by (1, 1) and (2, -1)."""
    study = a_study(columns=tuple(Column(name=n, unit=u, lower=0.0, upper=8.0) for n, u in ("ag", "bm")))
    site_rows = Site(to_grid(np.array([[5.0, 7.0], [6.0, 5.0]]), study))
    centre, radius = np.array([0, S // 2]), 3 * S
    for query, expected, names in (
        (q.ClippedSum(centre=centre, radius=radius), [3.0, 0.0], ("g", "m")),
        (q.Gram(centre=centre, radius=radius), [5.0, 2.0, -1.0], ("g x g", "m x m", "g x m")),
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
