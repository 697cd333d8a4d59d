"""Site rules: which plans a site forbids, which studies are refused, and what each analyst sees."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eigenveil.dictionary.directory import Directory, SiteStatement
from eigenveil.dictionary.readiness import readiness
from eigenveil.dictionary.site_rules import ANY, StatedRules
from eigenveil.errors import RequestError
from eigenveil.planning.choose import make_plan
from eigenveil.protocol.plan import Plan
from eigenveil.study.study import Federation, Trust
from tests.support import a_study

SITES = ("anna", "bert", "carl")
OPEN = StatedRules(
    analysts=(ANY,), algorithms=("gauss-cov",), noise="any", max_epsilon_per_study=9.0, max_delta=0.1,
    trust=("central", "secure-aggregation"), colluding=1, minimum_sites=2,
)  # fmt: skip
CLOSED = replace(OPEN, analysts=("eve",))


def a_plan(analyst: str = "ada", **federation: object) -> Plan:
    settings = {"sites": SITES, "quorum": 2} | federation
    study = replace(a_study(), federation=Federation(**settings))  # type: ignore[arg-type]
    return make_plan(study, federation="fed", submission="one", analyst=analyst)


def directory(**sites: StatedRules | None) -> Directory:
    result = {
        name: None
        if rules is None
        else SiteStatement(
            needs_approval=False, max_missing=1, max_unreadable=1, max_out_of_bounds=1, study_rules=rules
        )
        for name, rules in (dict.fromkeys(SITES) | sites).items()
    }
    return Directory(federation="fed", sites=result, columns=None, approval_seconds=0.0)


def failed(plan: Plan, rules: StatedRules) -> list[str]:
    (anna, *_) = readiness(plan, directory(anna=rules))
    return [verdict.rule for verdict in anna.failed]


@pytest.mark.parametrize(
    ("rule", "changes"),
    [
        ("analysts", {"analysts": ()}),
        ("algorithms", {"algorithms": ("dp-pca",)}),
        ("max_epsilon_per_study", {"max_epsilon_per_study": 1e-3}),
        ("max_delta", {"max_delta": 1e-12}),
        ("trust", {"trust": (Trust.SECURE_AGGREGATION.value,)}),
    ],
)
def test_each_stated_rule_forbids(rule: str, changes: dict[str, object]) -> None:
    rules = replace(OPEN, **changes)  # type: ignore[arg-type]
    assert failed(a_plan(), rules) == [rule]


def test_rules_visible_to_an_analyst_name_no_other_analyst() -> None:
    rules = replace(OPEN, analysts=("eve", "ada"))
    assert rules.visible_to("ada").analysts == ("ada",)
    assert rules.visible_to("mallory").analysts == ()
    assert OPEN.visible_to("mallory").analysts == (ANY,)
    for analyst in ("ada", "eve", "mallory"):  # and foresees the same for itself
        plan = a_plan(analyst)
        assert failed(plan, rules) == failed(plan, rules.visible_to(analyst))


def test_a_site_statement_shown_to_an_analyst_omits_other_analysts() -> None:
    stated = directory(anna=replace(OPEN, analysts=("eve", "ada"))).sites["anna"]
    assert stated is not None
    for analyst, result in (("ada", ("ada",)), ("mallory", ())):
        seen = stated.visible_to(analyst)
        assert seen.study_rules is not None
        assert seen.study_rules.analysts == result
        assert replace(seen, study_rules=stated.study_rules) == stated, "and nothing else is changed"


@pytest.mark.parametrize(
    "changes",
    [
        {"analysts": ("a\x1b",)},
        {"max_delta": float("nan")},
        {"max_epsilon_per_study": 0.0},
        {"colluding": -1},
    ],
)
def test_invalid_site_rules_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(RequestError):
        replace(OPEN, **changes)  # type: ignore[arg-type]
