"""site.toml and a site's rules: each key has its default, each rule refuses what it should, by name."""

from __future__ import annotations

import tomllib
from dataclasses import MISSING, asdict
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from eigenveil.accounting import gaussian, zcdp
from eigenveil.accounting.budget import NoiseRule
from eigenveil.dictionary import site_rules
from eigenveil.dictionary.site_rules import ANY
from eigenveil.errors import Code, RequestError, error
from eigenveil.planning.choose import make_plan
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.applicant import Applicant
from eigenveil.study.study import Federation, Trust
from eigenveil.study.toml import parse_study
from eigenveil_client.site import config
from eigenveil_client.site.config import SiteConfig, statement_of
from eigenveil_client.site.daemon.decisions import refusal_of
from eigenveil_client.site.policy import Policy
from eigenveil_client.site.policy_sections import KNOWN, QualityRules, TrustRules, Year
from eigenveil_client.site.roster import peers
from eigenveil_common.config import keys
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.client.site.support import SITE, a_plan, a_study
from tests.support import refused

EXAMPLE = Path(__file__).parents[3] / "deploy" / "config" / "site.example.toml"
# as in study.example.toml; the comments say the defaults
NOT_THE_DEFAULT = {
    "person_column": "patient",
    "disclose_settings": True,
    "proxy": "http://proxy.hospital.example:3128",
    "proxy_credentials": EXAMPLE.with_name("proxy.credentials"),
    "dictionary": EXAMPLE.with_name("dictionary.toml"),
    "metrics_file": Path("/var/lib/node_exporter/textfile/eigenveil-site.prom"),
}
ADDED_BY_HAND = {  # init leaves them out
    "proxy", "proxy_credentials", "log_format", "metrics_file", "column", "offers", "dictionary", "notify",
    "engine",
}  # fmt: skip
PATIENTS = Policy(person_column="patient")


def value(loaded: SiteConfig, name: str) -> object:
    policy = loaded.policy
    rooms = (loaded, policy, policy.quality, policy.lines, policy.secrecy, loaded.proxy_rule)
    return next(getattr(space, name) for space in rooms if hasattr(space, name))


def test_the_example_shows_every_key_and_its_default() -> None:
    assert set(tomllib.loads(EXAMPLE.read_text())) == keys(SiteConfig).keys()
    loaded = config.load(EXAMPLE)
    for name, declared in keys(SiteConfig).items():
        if declared.default is not MISSING and name != "column":
            assert value(loaded, name) == NOT_THE_DEFAULT.get(name, declared.default)
    assert loaded.records.files == (EXAMPLE.parent / "records.csv",)


def test_the_example_site_agrees_to_the_example_study() -> None:
    study = parse_study(EXAMPLE.with_name("study.example.toml").read_text())
    config.load(EXAMPLE).policy.require(make_plan(study, federation="f", submission="s"), now=0)


def test_init_writes_the_values_of_the_example(tmp_path: Path) -> None:
    path = config.create(tmp_path, name="hospital-a", records=tmp_path / "records.csv", policy=PATIENTS)
    written, example = config.load(path), config.load(EXAMPLE)
    assert set(tomllib.loads(path.read_text())) == keys(SiteConfig).keys() - ADDED_BY_HAND
    assert (written.name, written.policy) == (example.name, example.policy)
    assert written.records.files == (tmp_path / "records.csv",)


def test_init_refuses_to_overwrite_and_leaves_nothing_bad_behind(tmp_path: Path) -> None:
    records = tmp_path / 'odd " name\\.csv'
    path = config.create(tmp_path, name="a", records=records, policy=PATIENTS)
    assert config.load(path).records.files == (records,)
    with refused(Code.CONFLICT):
        config.create(tmp_path, name="a", records=records, policy=PATIENTS)
    other = tmp_path / "other"
    with pytest.raises(RequestError, match="name = 'Upper'"):
        config.create(other, name="Upper", records=records, policy=PATIENTS)
    assert not (other / "site.toml").exists()


@pytest.mark.parametrize(("line", "message"), [
    ("colums = []", "site.toml: unknown key colums"),
    ("minimum_records = 0", "minimum_records must be at least 1"),
    ("maximum_records = 19", "maximum_records must lie between minimum_records and"),
    ("minimum_records_per_batch = 19", "minimum_records_per_batch must be at least 20"),
    ("sites_per_person = 0", "sites_per_person must lie between"),
    ("person_column = 7", "person_column = 7 must be a text"),
    ("max_delta = 2.0", "max_delta"),
    ('algorithms = ["best"]', "best unknown"),
    ("columns = 3", "columns = 3 must be a list of names"),
    ('approval = "maybe"', 'approval = \'maybe\' is unknown; choose one of: "manual", "auto"'),
    ('approval_ends = "soon"', "approval_ends = 'soon' must be a day"),
    ('year = "leap"', "year = 'leap' is unknown; choose one of"),
    ('log_format = "xml"', "log_format = 'xml' is unknown"),
    ("column = ['a']", "column must be tables [column.NAME]"),
    ('person_column = "p"\n[column.p]\nfactor = 2', "[column.p]: a rule cannot name the person column"),
    ('person_column = "p"\n[column.p]\nfrom = "PatNr"', 'write [records] person = "PatNr" instead'),
])  # fmt: skip
def test_a_bad_value_is_refused_when_it_is_read(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "site.toml"
    path.write_text(f'name = "a"\nrecords = "r.csv"\nidentity = "i"\nstate = "s.db"\n{line}\n')
    with refused(Code.BAD_CONFIG, message, str(path)):
        config.load(path)


HEAD = 'name = "a"\nrecords = "none.csv"\nidentity = "i"\nstate = "s.db"\n'


def loaded(folder: Path, lines: str) -> config.SiteConfig:
    path = folder / "site.toml"
    path.write_text(HEAD + lines)
    return config.load(path)


@pytest.mark.parametrize(("lines", "offered"), [
    ("", None),
    ("offers = []", None),
    ('columns = ["age", "bmi"]', None),
    ('offers = ["age"]', ("age",)),
    ('offers = ["age"]\ncolumns = ["age", "bmi"]', ("age",)),
    ('offers = ["*"]\ncolumns = ["age", "bmi"]', ("age", "bmi")),
    ('offers = ["*"]', None),
    ('offers = ["age"]\ncolumns = ["*"]', ("age",)),
])  # fmt: skip
def test_offers_stay_within_the_allowed_columns(tmp_path: Path, lines: str, offered: Any) -> None:
    text = statement_of(loaded(tmp_path, lines))
    assert (text.columns, text.needs_approval, text.thresholds) == (offered, True, asdict(QualityRules()))


def test_what_it_cannot_mean_is_refused_when_it_is_configured(tmp_path: Path) -> None:
    with refused(Code.BAD_CONFIG, "offers: weight not allowed by columns"):
        loaded(tmp_path, 'offers = ["age", "weight"]\ncolumns = ["age"]')
    for names in (["a\\u001b"], ["x" * 201], [f"{i:0>150}" for i in range(1000)]):
        listed = ", ".join(f'"{name}"' for name in names)
        with refused(Code.BAD_CONFIG, "offers: "):
            statement_of(loaded(tmp_path, f"offers = [{listed}]"))


NOW = 1_800_000_000  # 15 January 2027


def a_policy(**changes: object) -> Policy:
    values: dict[str, object] = {
        "max_columns_per_record": 1.0, "max_epsilon_per_study": 2.0, "minimum_records": 30,
        "maximum_records": 50_000, "analysts": (ANY,),
    }  # fmt: skip
    return Policy(**(values | changes))  # type: ignore[arg-type]


def test_a_plan_within_the_rules_passes_all_of_them() -> None:
    policy = a_policy(columns=("a", "b", "c", "d"))
    policy.require(a_plan(), NOW)
    assert all(verdict.passed for verdict in policy.verdicts(a_plan(), NOW))
    assert {verdict.rule for verdict in policy.verdicts(a_plan(), NOW)} <= keys(Policy).keys()


def test_a_decline_may_name_every_rule() -> None:
    both = a_policy(secrecy=TrustRules(trust=KNOWN))
    verdicts = both.verdicts(a_plan(a_study(**MASKED)), NOW)
    assert {one.rule for one in verdicts} | {peers.RULE, "memory_mib"} == site_rules.RULES


OJA = {"algorithm": Algorithm.PRIVATE_OJA, "batches": 20, "expected_records": 10**9}
PATIENT: dict[str, object] = {"person_column": "patient"}
COHORT: dict[str, object] = {"federation": Federation(sites=(SITE,), minimum_cohort=31)}
ASKED: dict[str, object] = {"required_applicant": ("institution", "ethics_reference")}
RULES: list[tuple[str, dict[str, object], dict[str, object], str]] = [
    ("columns", {"columns": ("a", "c")}, {}, "columns not allowed: b"),
    ("analysts", {"analysts": ()}, {}, 'allowed: none; to allow it, write in site.toml: analysts = ["ada"]'),
    ("analysts", {"analysts": ("eve",)}, {}, 'write in site.toml: analysts = ["eve", "ada"]'),
    ("approval_ends", {"approval_ends": date(2027, 1, 14)}, {}, "the approval ended on 2027-01-14 (UTC)"),
    ("max_columns_per_record", {"max_columns_per_record": 0.09}, {}, "3 columns; at most 2.7: 0.09 "),
    ("algorithms", {"algorithms": ("dp-pca",)}, {}, "gauss-cov; allowed: dp-pca"),
    ("max_epsilon_per_study", {}, {"epsilon": 2.5}, "epsilon 2.5; at most 2"),
    ("max_delta", {}, {"delta": 1e-4}, "delta 0.0001; at most 1e-05"),
    ("minimum_records", {}, COHORT, "minimum_cohort 31; at most 30: lower it in the study, or raise"),
    ("maximum_records", {}, {"max_records": 49_999}, "max_records 49999; at least 50000: raise it in the"),
    ("minimum_records_per_batch", {"algorithms": ("private-oja",), "minimum_records": 399}, OJA,
     "20 batches of 399 records; at least 20 in each: lower batches in the study"),
    ("person_column", {}, {"person_column": "diagnosis"},
     "in the study column 'diagnosis' names the person, at the site every row is another person"),
    ("person_column", PATIENT, {},
     "in the study every row is another person, at the site column 'patient' names the person"),
    ("person_column", PATIENT | {"columns": ("a", "b", "c")}, {"person_column": "Patient"}, "be equal"),
    ("sites_per_person", {"sites_per_person": 3}, {"max_sites_per_person": 2}, "2; at least 3: raise it"),
    ("required_applicant", ASKED, {}, "not stated about who asks: institution, ethics approval; state it in"),
    ("required_applicant", ASKED, {"applicant": Applicant(institution="Ulm", ethics_reference=" ")},
     "not stated about who asks: ethics approval; state it"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "policy", "study", "words"), RULES)
def test_rule_refuses(rule: str, policy: dict[str, object], study: dict[str, object], words: str) -> None:
    plan, rules = a_plan(a_study(**study)), a_policy(**policy)
    assert [verdict.rule for verdict in rules.verdicts(plan, NOW) if not verdict.passed] == [rule]
    with refused(Code.POLICY, "forbids", words):
        rules.require(plan, NOW)


MASKED = {"trust": Trust.SECURE_AGGREGATION, "federation": Federation(sites=(SITE, "b", "c"), quorum=2)}


TRUST_RULES: list[tuple[str, dict[str, object], dict[str, object], str]] = [
    ("trust", {"trust": ("secure-aggregation",)}, {}, "numbers; allowed: secure-aggregation; state trust"),
    ("trust", {"trust": ("central",)}, MASKED, "allowed: central; state trust"),
    ("colluding", {"colluding": 2}, MASKED, "the study's colluding 1; at least 2: raise it in the study"),
    ("minimum_sites", {"minimum_sites": 3}, MASKED, "the study's quorum 2; at least 3: raise it"),
]


@pytest.mark.parametrize(("rule", "limits", "study", "words"), TRUST_RULES)
def test_trust_rule_refuses(rule: str, limits: dict[str, Any], study: dict[str, Any], words: str) -> None:
    plan = a_plan(a_study(**study))
    a_policy().require(plan, NOW)
    both = a_policy(secrecy=TrustRules(trust=KNOWN))
    strict = a_policy(secrecy=TrustRules(**{"trust": KNOWN} | limits))
    with refused(Code.POLICY, "forbids", f"({rule}: ", words):
        strict.require(plan, NOW)
    assert len(strict.verdicts(plan, NOW)) == len(both.verdicts(a_plan(), NOW)) + 2 * bool(study)


@pytest.mark.parametrize("changes", [{"trust": ("nobody",)}, {"colluding": 0}, {"minimum_sites": 1}])
def test_invalid_trust_rules_are_refused(changes: dict[str, Any]) -> None:
    with refused(Code.BAD_CONFIG):
        TrustRules(**changes)


def test_a_study_that_states_what_the_site_requires_about_who_asks_passes() -> None:
    stated = Applicant(institution="Ulm", ethics_reference="2026-118")
    a_policy(**ASKED).require(a_plan(a_study(applicant=stated)), NOW)


def test_the_limits_of_the_site_and_of_the_study_may_be_equal() -> None:
    federation = Federation(sites=(SITE,), minimum_cohort=30)
    study = a_study(
        federation=federation, max_records=50_000, person_column="patient", max_sites_per_person=2
    )
    a_policy(person_column="patient", sites_per_person=2).require(a_plan(study), NOW)


def test_the_last_day_of_the_approval_is_a_whole_day() -> None:
    last = a_policy(approval_ends=date(2027, 1, 15))
    midnight = 1_800_057_600
    last.require(a_plan(), midnight - 1)
    with pytest.raises(RequestError, match="approval_ends"):
        last.require(a_plan(), midnight)


def test_a_year_is_365_days_or_begins_on_the_first_of_january() -> None:
    assert (Year.ROLLING.began(NOW), Year.CALENDAR.began(NOW)) == (NOW - 365 * 86_400, 1_798_761_600)
    assert a_policy().yearly is None
    limit = a_policy(max_epsilon_per_year=2.0).yearly
    assert limit is not None
    assert limit.budget.mixed.micro_rho == zcdp.micro_rho_for(2.0, 1e-6)
    assert limit.budget.limit(gaussian=True).micro_rho == gaussian.micro_rho_for(2.0, 1e-6)


def test_record_counts_are_checked_and_not_reported() -> None:
    policy = a_policy(minimum_records=30, maximum_records=10_000)
    policy.require_record_count(30)
    policy.require_record_count(10_000)
    for records, code in [(29, Code.TOO_FEW_RECORDS), (10_001, Code.TOO_MANY_RECORDS)]:
        with pytest.raises(RequestError) as caught:
            policy.require_record_count(records)
        assert caught.value.code is code
        assert str(records) not in str(caught.value)


def test_a_budget_is_counted_in_mu_only_where_no_other_noise_is_ever_admitted() -> None:
    """By its own key, not by what is asked: a listed algorithm that has other noise, and delta = 0 with one
    that has not, are refused unless the site says `any`; then the smaller limit of zCDP holds for all."""
    pure = a_plan(a_study(algorithm=Algorithm.GAUSS_COV, delta=0.0))
    policy, open_policy = a_policy(), a_policy(noise=NoiseRule.ANY)
    assert policy.budget.mixed == open_policy.budget.mixed
    assert policy.budget.mixed.micro_rho == zcdp.micro_rho_for(10.0, 1e-6)
    assert policy.budget.limit(gaussian=True).micro_rho == gaussian.micro_rho_for(10.0, 1e-6)
    assert open_policy.budget.gaussian is None
    policy.require(a_plan(), NOW)
    open_policy.require(pure, NOW)
    with pytest.raises(RequestError, match="noise: other noise, at delta 0"):
        policy.require(pure, NOW)
    with pytest.raises(RequestError, match=r'adaptive-cov need noise = "any"'):
        a_policy(algorithms=("gauss-cov", "adaptive-cov"))


@pytest.mark.parametrize(
    "changes",
    [
        {"algorithms": ()}, {"algorithms": ("oja",)}, {"minimum_records": 0},
        {"max_delta": 0.0}, {"max_delta": 1.0}, {"budget_delta": float("nan")},
        {"max_epsilon_per_study": float("inf")}, {"max_epsilon_per_study": float("nan")},
        {"budget_epsilon": -1.0}, {"maximum_records": 29}, {"maximum_records": 2**31 + 1},
        {"max_epsilon_per_year": 0.0}, {"max_columns_per_record": float("nan")},
        {"sites_per_person": 0}, {"sites_per_person": 1001}, {"required_applicant": ("phone",)},
    ],
)  # fmt: skip
def test_values_that_cannot_be_meant_are_refused(changes: dict[str, object]) -> None:
    with refused(Code.BAD_CONFIG):
        a_policy(**changes)


@pytest.mark.parametrize("epsilon", [1e7, 1e-3])
@pytest.mark.parametrize("name", ["budget_epsilon", "max_epsilon_per_year"])
def test_a_total_that_is_no_budget_is_refused_before_any_study(name: str, epsilon: float) -> None:
    with pytest.raises(RequestError, match="epsilon"):
        a_policy(**{name: epsilon})


def test_every_error_has_a_reason() -> None:
    reasons = {code: refusal_of(error(code, "x"), "ab" * 32, 0).reason for code in Code}
    assert pb.DECLINE_REASON_UNSPECIFIED not in reasons.values()
    assert reasons[Code.POLICY] == pb.DECLINE_REASON_POLICY
    assert reasons[Code.BUDGET] == pb.DECLINE_REASON_BUDGET
    for code in (Code.TOO_FEW_RECORDS, Code.TOO_MANY_RECORDS, Code.BAD_DATA, Code.BUG):
        assert reasons[code] == pb.DECLINE_REASON_FAILURE, "what may depend on records is one word"
    assert reasons[Code.IDENTITY] == pb.DECLINE_REASON_PROTOCOL
    assert reasons[Code.BUG] == pb.DECLINE_REASON_FAILURE
