"""A plan is canonical, within its privacy guarantee, and refused if its sums could overflow."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np
import pytest

from eigenveil.errors import Code, EigenveilError, PeerError
from eigenveil.numerics.encoding import canonical
from eigenveil.planning.choose import rehearse
from eigenveil.protocol.plan import PLAN_VERSION, plan_from_json, plan_to_dict, planned_study
from eigenveil.queries.gradients import pass_key
from eigenveil.reporting.explain import explain
from eigenveil.site.batches import assign_batches
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.grid import ROW_BITS, S
from tests.support import a_plan, refused


def written(**changes: Any) -> bytes:
    """Canonical JSON of a plan with top-level keys changed."""
    return canonical(plan_to_dict(a_plan()) | changes)


BY_PARTS = (Algorithm.PRIVATE_OJA, Algorithm.DP_PCA_SINGLE_PASS)


@pytest.mark.parametrize("algorithm", BY_PARTS)
def test_a_plan_with_batches_of_too_few_records_is_refused(algorithm: Algorithm) -> None:
    """400 batches of 400 records left 143 records alone in their part."""
    with refused(Code.BAD_STUDY, "state at most 10 batches"):
        a_plan(algorithm=algorithm, batches=400, expected_records=400)
    plan = plan_to_dict(a_plan(algorithm=algorithm, batches=10, expected_records=400))
    for changed in ({"batches": 11}, {"records": plan["study"]["records"] | {"expected_records": 399}}):
        with refused(Code.BAD_STUDY, "fewer than 20 each"):
            plan_from_json(canonical(plan | {"study": plan["study"] | changed}))


@pytest.mark.parametrize("algorithm", BY_PARTS)
@pytest.mark.parametrize("expected", [60, 569, 3000, 10**6])
@pytest.mark.parametrize("sites", [("a",), ("a", "b", "c")])
def test_default_batches_hold_enough_records(
    algorithm: Algorithm, expected: int, sites: tuple[str, ...]
) -> None:
    plan = a_plan(algorithm=algorithm, expected_records=expected, sites=sites)
    rows = np.random.default_rng(expected).integers(-S, S, (min(expected, 3000) // len(sites), 2))
    assert expected / (plan.batches * len(sites)) >= 20
    dealt = assign_batches(rows.astype(np.int16), plan.batches, pass_key(plan.digest, 2, plan.batches))
    assert np.bincount(dealt, minlength=plan.batches).min() >= 2


@pytest.mark.parametrize(
    ("changes", "code", "word"),
    [
        *[({"micro_rho": cost}, Code.BAD_STUDY, "micro") for cost in (0, -1, 1.5, True, "1", None)],
        *[({"federation": name}, Code.BAD_STUDY, "federation") for name in (5, None)],
        ({"submission": ["x"]}, Code.BAD_STUDY, "submission"),
        *[({"version": number}, Code.VERSION, "not supported") for number in (PLAN_VERSION + 1, 0, "1")],
        ({"row_bits": ROW_BITS + 1}, Code.VERSION, "not supported"),
    ],
)
def test_a_plan_with_an_invalid_field_is_refused(changes: dict[str, Any], code: Code, word: str) -> None:
    with refused(code, word):
        plan_from_json(written(**changes))


GOOD = written()
VERSION_FIELD = f'"version":{PLAN_VERSION}'.encode()


@pytest.mark.parametrize(
    "data",
    [
        GOOD + b"\n",
        GOOD.replace(b":", b": ", 1),
        json.dumps(dict(reversed(json.loads(GOOD).items()))).encode(),
        GOOD.replace(b'"lower":0', b'"lower":0.0', 1),
        GOOD.replace(VERSION_FIELD, VERSION_FIELD + b"," + VERSION_FIELD, 1),
        re.sub(rb'("revision":\d+)', rb"\1.0", GOOD),
        GOOD.replace(VERSION_FIELD, b'"zzz":1,' + VERSION_FIELD, 1),
        GOOD.replace(b"tiny", b"tin\\u0079", 1),
    ],
)
def test_bytes_that_are_not_canonical_are_refused(data: bytes) -> None:
    """One plan has one spelling: its digest is of the bytes that are signed and sent."""
    assert data != GOOD
    with refused(Code.PROTOCOL, "canonical"):
        plan_from_json(data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        GOOD[:-1],
        b"\xff\xfe",
        b"[" * 100_000,
        GOOD.replace(b'"unit":"year"', b'"unit":"\\ud800"', 1),
        written(algorithm=5),
        written(study=None),
        written(algorithm="magic"),
    ],
)
def test_bytes_that_are_no_plan_are_refused_as_the_peers_fault(data: bytes) -> None:
    with pytest.raises(EigenveilError) as caught:
        plan_from_json(data)
    assert isinstance(caught.value, PeerError) or caught.value.code is Code.BAD_STUDY


# A key of a later version: anywhere but in the table of a column, which later versions leave as it is.
LATER: tuple[tuple[str, ...], ...] = (
    ("horizon",), ("study", "horizon"), ("study", "records", "horizon"), ("study", "applicant", "horizon"),
)  # fmt: skip


def with_key(path: tuple[str, ...], value: Any, **changes: Any) -> bytes:
    plan = json.loads(written(**changes))
    reduce(lambda table, key: table[key], path[:-1], plan)[path[-1]] = value
    return canonical(plan)


@pytest.mark.parametrize("value", [1, None, {}, {"years": [1, 2]}])
@pytest.mark.parametrize("path", LATER)
def test_an_unknown_key_that_is_not_required_is_kept_in_the_digest_and_changes_nothing_else(
    path: tuple[str, ...], value: Any
) -> None:
    plan, data = a_plan(), with_key(path, value)
    read = plan_from_json(data)
    assert (read.to_json(), read.digest != plan.digest) == (data, True)
    assert replace(read, unknown={}) == plan
    assert read.unknown_keys == (".".join(path),)
    assert read.unknown_keys[0] in explain(read)["warnings"][-1]
    assert [replace(one, plan_digest=plan.digest).digest for one in rehearse(read)] == [
        one.digest for one in rehearse(plan)
    ]
    assert planned_study(json.loads(data)) == plan.study


@pytest.mark.parametrize("required", [["study.horizon"], ["version"], "x", {"a": 1}])
def test_an_unknown_key_that_is_required_is_refused(required: Any) -> None:
    with refused(Code.VERSION, "requires what this version does not know"):
        plan_from_json(with_key(LATER[1], 1, required=required))


@pytest.mark.parametrize("path", [("study", "columns", "horizon"), ("study", "name", "horizon")])
def test_an_unknown_key_where_none_may_be_is_refused(path: tuple[str, ...]) -> None:
    plan = json.loads(written())
    plan["study"][path[1]] = (
        [{**plan["study"]["columns"][0], "horizon": 1}] if "columns" in path else {"a": 1}
    )
    with refused(Code.BAD_STUDY):
        plan_from_json(canonical(plan))


def test_sums_that_could_overflow_are_refused_when_planning() -> None:
    """4 S^2 d n < 2^62 for d a perfect square: exactly at the limit, over all sites together."""
    most = 2**62 // (4 * S**2 * 64)
    assert a_plan(d=64, sites=("a",), max_records=most - 1).most_records == most - 1
    for sites, records in ((("a",), most), (("a", "b"), most // 2)):
        allowed = (most - 1) // len(sites)
        with refused(Code.OVERFLOW, f"lower max_records to at most {allowed}"):
            a_plan(d=64, sites=sites, max_records=records)
        assert a_plan(d=64, sites=sites, max_records=allowed).study.max_records == allowed
