"""Published JSON Schemas of a plan and of a release's document: what is made fits them, and they list every
key of it. A key that was renamed or dropped is noticed here; so is one that was added, but not to the
schema."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from eigenveil import Simulation, simulate
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.prior import Prior, PriorSource, encode_axes
from eigenveil.study.radius import PublicNorm
from eigenveil.study.study import Missing, Scaling, Study, Trust
from tests.repo.tree import ROOT
from tests.support import a_column, a_study

OPTIONAL = {"attempts", "clipping", "prior"}  # masked rounds; a covariance with an error model; a prior


@cache
def schema(name: str) -> Any:
    return json.loads((ROOT / "docs" / f"{name}.schema.json").read_text())


@cache
def form() -> Any:
    from jsonschema import Draft202012Validator  # takes two seconds: collecting tests need not wait
    from referencing import Registry, Resource

    for name in ("plan", "release"):
        Draft202012Validator.check_schema(schema(name))
    plan = Resource.from_contents(schema("plan"))
    return Draft202012Validator(
        schema("release"), registry=Registry().with_resource("plan.schema.json", plan)
    )


def run(study: Study) -> Simulation:
    sites = study.federation.sites
    rows = {name: np.random.default_rng(i).normal(50, 10, size=(400, 3)) for i, name in enumerate(sites)}
    return simulate(study, rows, seed=1)


KNOWN = Prior(
    source=PriorSource.ROWS, sha256="ab" * 32, scaling=Scaling.BOUNDS, variances=(1.0,), level=0.5,
    axes=encode_axes(np.eye(3)[:1]),
)  # fmt: skip
STUDIES = {
    "plain": a_study(epsilon=4.0),
    "masked": a_study(
        sites=("north", "south", "west"),
        epsilon=4.0,
        trust=Trust.SECURE_AGGREGATION,
        colluding=1,
        spare_attempts=2,
    ),
    "norm": a_study(epsilon=4.0, radius=PublicNorm(norm=1.25)),
    "standard": a_study(epsilon=4.0, radius=0.8, scaling=Scaling.STANDARD),
    "filled": replace(
        a_study(epsilon=4.0),
        columns=tuple(a_column(f"c{i}", fill=50.0) for i in range(3)),
        missing=Missing.FILL,
        person_column="person",
    ),
    "hopeless": a_study(epsilon=0.2),
    "informed": a_study(epsilon=4.0, algorithm=Algorithm.REFINED_COV, scaling=Scaling.BOUNDS, prior=KNOWN),
}


def unlisted(form: Mapping[str, Any], value: Any, where: str = "") -> Iterator[str]:
    """Yield the keys of a value that its schema does not list, and the listed ones that it does not have."""
    if form.get("$ref"):
        yield from unlisted(schema("plan"), value, where)
        return
    for option in form.get("anyOf", ()):
        if isinstance(value, dict) and set(option.get("properties", ())) == value.keys():
            yield from unlisted(option, value, where)
    if "properties" in form and isinstance(value, dict):
        known = form["properties"]
        if where != ".guarantee":  # of a simulation with a seed it is one sentence
            yield from (f"{where}.{key}" for key in (value.keys() ^ known.keys()) - OPTIONAL)
        for key in value.keys() & known.keys():
            yield from unlisted(known[key], value[key], f"{where}.{key}")
    if "items" in form and isinstance(value, list):
        for item in value:
            yield from unlisted(form["items"], item, f"{where}[]")


@pytest.mark.parametrize("name", STUDIES)
def test_a_release_fits_its_schema_which_lists_every_key(name: str) -> None:
    document = run(STUDIES[name]).document
    errors = [error.message for error in form().iter_errors(document)]
    assert errors == []
    assert list(unlisted(schema("release"), document)) == []


def places(form: Mapping[str, Any], value: Any) -> Iterator[tuple[Any, str]]:
    """Yield each required key of a value, with the object that has it."""
    if form.get("$ref"):
        form = schema("plan")
    if isinstance(value, dict):
        yield from ((value, key) for key in form.get("required", ()) if key in value)
        for key, inner in form.get("properties", {}).items():
            yield from places(inner, value.get(key))
    elif isinstance(value, list) and value:
        yield from places(form.get("items", {}), value[0])


def test_a_document_without_a_required_key_or_with_another_type_does_not_fit() -> None:
    document = run(STUDIES["plain"]).document
    number = len(list(places(schema("release"), document)))
    assert number > 60
    for index in range(number):
        for planted in (None, {"an": ["object", "of", "no", "schema"]}):
            changed = copy.deepcopy(document)
            owner, key = list(places(schema("release"), changed))[index]
            if planted is None:
                del owner[key]
                assert not form().is_valid(changed), key
            elif not isinstance(owner[key], dict) and owner[key] is not None:
                owner[key] = planted
                assert not form().is_valid(changed), key


def test_keys_of_a_later_version_fit() -> None:
    document = run(STUDIES["plain"]).document
    for owner in (document, document["plan"], document["plan"]["study"], document["rounds"][0]):
        owner["of a later version"] = {"any": ["thing"]}
    assert form().is_valid(document)
