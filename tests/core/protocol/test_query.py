"""The digest of a query, release or contribution changes with every field."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from eigenveil.aggregation import Contribution
from eigenveil.errors import Code, RequestError
from eigenveil.numerics.encoding import digest, frozen
from eigenveil.protocol.query import NoiseDistribution, flatten, is_same_query
from eigenveil.protocol.rounds import Release
from eigenveil.protocol.wire import query_from_proto, query_to_proto
from eigenveil.queries import Batch, Frame, Gradient, GradientNorms, Gram, SpanVotes
from eigenveil.queries.gradients import pass_key
from eigenveil.queries.papers.fingerprints import Subsamples
from tests.core.queries.kinds import every_query
from tests.core.queries.test_conformance import changed
from tests.support import DIGEST, a_field, a_query, changed_query, refused

RELEASE = Release(
    round=3,
    query="ab" * 32,
    values=frozen([1, -2, 3]),
    sigma=2.5,
    micro_rho=9,
    atto_delta=0,
    present=("a", "b"),
)
CONTRIBUTION = Contribution(
    plan_digest="ab" * 32, round=3, query="cd" * 32, site="north", values=frozen([1, -2, 3])
)


CHANGED: list[tuple[Release | Contribution, dict[str, Any]]] = [
    *[(RELEASE, change) for change in (
        {"round": 4}, {"query": "ac" * 32}, {"sigma": np.nextafter(2.5, 3)}, {"micro_rho": 10},
        {"present": ("b", "a")}, {"present": ("a",)}, {"present": ("ab",)}, {"values": frozen([1, -2, 4])},
        {"values": frozen([1, -2])}, {"values": frozen([1, -2, 3, 0])}, {"values": frozen([-2, 1, 3])},
    )],
    *[(CONTRIBUTION, change) for change in (
        {"plan_digest": "ac" * 32}, {"round": 4}, {"query": "ce" * 32}, {"site": "south"},
        {"values": frozen([1, -2, 2])}, {"values": frozen([])}, {"values": frozen([1, -2, 3, 0])},
    )],
]  # fmt: skip


@pytest.mark.parametrize(("one", "change"), CHANGED)
def test_a_changed_field_of_a_release_or_contribution_changes_its_digest(one: Any, change: Any) -> None:
    assert replace(one, **change).digest != one.digest
    assert replace(one).digest == one.digest


# The numbers that [P25] lets two machines round to either side, by one unit.
FLOATS_DECIDE = {
    "centre", "directions", "offset", "scales", "retained", "middles", "halves", "radius", "width",
}  # fmt: skip


def moved(value: Any, place: int, by: int) -> Any:
    """The number or flag, or the array with the number at `place`, changed by `by`."""
    if isinstance(value, np.ndarray):
        return value + by * (np.arange(value.size) == place).reshape(value.shape)
    return not value if isinstance(value, bool) else value + by


@pytest.mark.parametrize("by", [1, 2, -2])
@pytest.mark.parametrize("name", every_query())
def test_only_fields_computed_in_floats_may_differ_and_by_one_unit(name: str, by: int) -> None:
    query = every_query()[name]
    one = a_query(query)
    for path, value in flatten(query).items():
        field = path.rpartition(".")[2]
        if isinstance(value, np.ndarray | int) and path != "length":
            for place in range(np.size(value)):
                with suppress(RequestError):
                    other = a_query(changed(query, path, moved(value, place, by)))
                    assert is_same_query(one, other) is (field in FLOATS_DECIDE and by == 1), path
    laplace = {"distribution": NoiseDistribution.LAPLACE}
    for result in ({"round": 1}, {"micro_rho": 1001}, {"atto_delta": 1}, laplace):
        assert not is_same_query(one, changed_query(one, **result))
    assert not is_same_query(one, replace(one, plan_digest="ac" * 32))


@pytest.mark.parametrize(("by", "same"), [(2**10, True), (-(2**9), True), (2**12, False)])
def test_an_edge_beyond_the_precision_of_floats_may_differ_by_a_part_of_itself(by: int, same: bool) -> None:
    """The part is 2^-50 [P25]."""
    one, other = (a_query(GradientNorms(spec=a_field(2, 1), edges=frozen([2**60 + e]))) for e in (0, by))
    assert is_same_query(one, other) is same


def test_a_query_about_more_columns_differs() -> None:
    """Although every number of the one is in the other."""
    one, other = (a_query(Gram(centre=frozen([5] * d), radius=9)) for d in (1, 2))
    assert not is_same_query(one, other)


def test_another_frame_changes_the_digest() -> None:
    """By one unit as well: no machine rounds a frame otherwise. And each survives the trip."""
    middles, factors = frozen([0, 1, 2, 3]), frozen([2**20] * 4)
    frames = [
        None,
        Frame(middles=middles, factors=factors),
        Frame(middles=middles + 1, factors=factors),
        Frame(middles=middles, factors=factors + 1),
    ]
    requests = [changed_query(a_query(every_query()["gram"]), frame=frame) for frame in frames]
    assert len({round_query.digest for round_query in requests}) == len(requests)
    for one in requests:
        read = query_from_proto(query_to_proto(one))
        assert read.digest == one.digest
        assert [is_same_query(read, other) for other in requests] == [other is one for other in requests]
        assert [read.is_identical(other) for other in requests] == [other is one for other in requests]


def test_a_batch_belongs_to_its_round_and_to_a_pass_of_its_plan() -> None:
    batch = Batch(first_round=3, index=1, batches=4, key=pass_key(DIGEST, 3, 4))
    query = replace(Gradient(spec=a_field(4, 2), radius=2**27), batch=batch)
    assert a_query(query, round=4).digest
    others = (
        {"index": 2},
        {"batches": 5},
        {"key": pass_key("cd" * 32, 3, 4)},
        {"key": pass_key(DIGEST, 2, 4)},
    )
    for change in others:
        with refused(Code.OVERFLOW, "cannot query batch"):
            a_query(replace(query, batch=replace(batch, **change)), round=4)


def test_subsamples_are_seen_through_no_frame() -> None:
    subsamples = Subsamples(centre=frozen([0] * 4), rank=2, count=6, key=pass_key(DIGEST, 0, 6))
    frame = Frame(middles=frozen([0] * 4), factors=frozen([2**20] * 4))
    with refused(Code.OVERFLOW, "a query about subsamples has no frame"):
        changed_query(a_query(SpanVotes(subsamples=subsamples)), frame=frame)


def test_the_shape_of_a_matrix_counts() -> None:
    """The same bytes as 2 by 1 and, with another split over arrays, as 1 by 2."""
    assert digest("t", {}, (frozen([1, 2]), frozen([3]))) != digest("t", {}, (frozen([1]), frozen([2, 3])))
    assert digest("t", {}, (frozen([1]),)) != digest("u", {}, (frozen([1]),))
