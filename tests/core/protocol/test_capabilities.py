"""A plan is made at the versions that all its sites have, and a site that is too old is named. [R33]"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eigenveil.errors import Code
from eigenveil.planning.choose import make_plan
from eigenveil.protocol.capabilities import (
    MOST_BYTES,
    OWN,
    Capabilities,
    capabilities_from_dict,
    capabilities_from_proto,
    check_versions,
    common_versions,
)
from eigenveil.protocol.plan import PLAN_VERSION, PLAN_VERSION_MIN, plan_from_json
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.checks import plain_fields
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.support import a_study, refused

NAME = Algorithm.GAUSS_COV.value
NEWEST = Algorithm.GAUSS_COV.properties.revision
SITES = ("anna", "bert", "carl")


def having(low: int, high: int, *revisions: int, software: str = "eigenveil 9") -> Capabilities:
    return Capabilities(software=software, plan_min=low, plan_max=high, revisions={NAME: revisions})


def test_what_this_program_states_is_read_back_and_fits_its_own_plans() -> None:
    assert capabilities_from_proto(OWN.to_proto()) == OWN
    assert capabilities_from_dict(plain_fields(OWN)) == OWN
    assert OWN.to_proto().ByteSize() < MOST_BYTES / 2
    plan = make_plan(a_study(algorithm=Algorithm.GAUSS_COV), sites=[OWN, OWN])
    assert (OWN.lacking(plan), plan.version) == ("", PLAN_VERSION)
    assert plan_from_json(plan.to_json()) == plan


VERSIONS = st.tuples(st.integers(1, 9), st.integers(0, 1)).map(lambda one: (one[0], sum(one)))
REVISIONS = st.lists(st.integers(1, 4), min_size=1, max_size=2, unique=True)
ANY = st.builds(lambda versions, revisions: having(*versions, *revisions), VERSIONS, REVISIONS)


@given(ANY, st.lists(ANY, max_size=5))
def test_the_common_versions_are_the_highest_that_all_have_who_have_any(
    own: Capabilities, sites: list[Capabilities]
) -> None:
    found = common_versions(Algorithm.GAUSS_COV, sites, own)
    able = [one for one in sites if set(_versions(one)) & set(_versions(own))]
    everywhere = set(_versions(own)).intersection(*map(_versions, able))
    assert found["version"] == max(everywhere, default=found["version"])
    assert found["version"] in _versions(own) or not everywhere
    mine = set(own.revisions[NAME])
    shared = mine.intersection(*(mine & set(one.revisions[NAME]) or mine for one in able))
    assert found["revision"] == max(shared or mine)


@pytest.mark.parametrize("newest", range(PLAN_VERSION_MIN, PLAN_VERSION + 1))
def test_a_study_with_a_later_key_waits_for_the_sites_that_cannot_read_it(newest: int) -> None:
    """It is planned at the version of its keys, and without them at the version of all sites."""
    sites: Mapping[str, Any] = {"anna": replace(OWN, plan_max=newest), "bert": OWN, "carl": OWN}
    study = a_study(sites=SITES, algorithm=Algorithm.GAUSS_COV)
    plan = make_plan(study, sites=sites.values())
    assert (plan.version, check_versions(plan, sites)) == (newest, [])
    later = replace(study.federation, decide_by="2027-01-31", quorum=2)
    keyed = make_plan(replace(study, federation=later), sites=sites.values())
    assert (keyed.version, len(check_versions(keyed, sites))) == (8, int(newest < 8))
    with refused(Code.BAD_STUDY, "keys of plans from version 8 on"):
        replace(keyed, version=7)


def test_a_plan_of_an_earlier_version_has_the_bytes_of_that_version() -> None:
    plan = replace(make_plan(a_study(algorithm=Algorithm.GAUSS_COV)), version=7)
    assert b"decide_by" not in plan.to_json()
    assert plan_from_json(plan.to_json()) == plan
    assert b'"decide_by":""' in replace(plan, version=8).to_json()


def _versions(one: Capabilities) -> range:
    return range(one.plan_min, one.plan_max + 1)


@pytest.mark.parametrize(
    ("known", "words"),
    [
        (having(PLAN_VERSION - 2, PLAN_VERSION - 1, 2), "reads plans of versions"),
        (having(PLAN_VERSION + 1, PLAN_VERSION + 2, 2), "reads plans of versions"),
        (having(PLAN_VERSION, PLAN_VERSION, 1), f"has no revision {NEWEST} of gauss-cov"),
        (replace(OWN, revisions={}), f"has no revision {NEWEST} of gauss-cov"),
    ],
)
def test_a_site_that_cannot_run_a_plan_is_named_before_anything_is_stored(
    known: Capabilities, words: str
) -> None:
    sites: Mapping[str, Any] = {"anna": known, "bert": OWN}  # carl has never called
    for changes in ({}, {"quorum": 2, "required": ("anna",)}):
        with refused(Code.VERSION, f"anna ({known.software}) {words}", "nothing was submitted"):
            check_versions(_plan(**changes), sites)
    (warning,) = check_versions(_plan(quorum=2), sites)
    assert "anna" in warning
    assert "until they are upgraded" in warning
    assert check_versions(_plan(), {"bert": OWN}) == []


def _plan(**federation: Any) -> Any:
    study = a_study(sites=SITES, algorithm=Algorithm.GAUSS_COV)
    return make_plan(replace(study, federation=replace(study.federation, **federation)))


@pytest.mark.parametrize(
    "message",
    [
        pb.Capabilities(),
        pb.Capabilities(plan_min=1, plan_max=2**31),
        pb.Capabilities(plan_min=1, plan_max=1, software="a\nb"),
        pb.Capabilities(plan_min=1, plan_max=1, software="x" * 300),
        pb.Capabilities(plan_min=1, plan_max=1, algorithms=[pb.AlgorithmRevisions(name="\x1b")]),
        pb.Capabilities(plan_min=1, plan_max=1, algorithms=[pb.AlgorithmRevisions(name="a", revisions=[0])]),
        pb.Capabilities(
            plan_min=1, plan_max=1, algorithms=[pb.AlgorithmRevisions(name="a", revisions=range(1, 9000))]
        ),
    ],
)
def test_versions_that_no_program_states_are_refused(message: pb.Capabilities) -> None:
    with refused(Code.PROTOCOL):
        capabilities_from_proto(message)
