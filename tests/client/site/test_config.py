"""site.toml: the example holds every key with its default, and nothing strange is accepted."""

from __future__ import annotations

import tomllib
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from typing import Any

import pytest

from eigenveil.errors import Code, RequestError
from eigenveil.planning.choose import make_plan
from eigenveil.study.toml import parse_study
from eigenveil_client.records.recoding.rule import FROM, ColumnRule
from eigenveil_client.site import config
from eigenveil_client.site.config import SiteConfig, statement_of
from eigenveil_client.site.policy import Policy
from eigenveil_client.site.policy_sections import QualityRules
from eigenveil_common.config import keys
from tests.support import refused

EXAMPLE = Path(__file__).parents[3] / "deploy" / "config" / "site.example.toml"
# as in study.example.toml; the comments say the defaults
NOT_THE_DEFAULT = {
    "person_column": "patient",
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
    rooms = (loaded, policy, policy.quality, policy.secrecy, loaded.proxy_rule)
    return next(getattr(space, name) for space in rooms if hasattr(space, name))


def test_what_some_editors_write_before_the_first_character_means_nothing(tmp_path: Path) -> None:
    (tmp_path / "site.toml").write_text(f"\ufeff{EXAMPLE.read_text()}")
    assert config.load(tmp_path / "site.toml").name == config.load(EXAMPLE).name
    study = EXAMPLE.with_name("study.example.toml").read_text()
    assert parse_study(f"\ufeff{study}") == parse_study(study)


def test_the_example_shows_every_key_and_its_default() -> None:
    assert set(tomllib.loads(EXAMPLE.read_text())) == keys(SiteConfig).keys()
    loaded = config.load(EXAMPLE)
    for name, declared in keys(SiteConfig).items():
        if declared.default is not MISSING and name != "column":
            assert value(loaded, name) == NOT_THE_DEFAULT.get(name, declared.default)
    assert loaded.records.files == (EXAMPLE.parent / "records.csv",)


def test_the_example_shows_every_key_of_a_column() -> None:
    shown = {key for rule in tomllib.loads(EXAMPLE.read_text())["column"].values() for key in rule}
    assert shown == {FROM, *(one.name for one in fields(ColumnRule))} - {"name", "source"}
    assert config.load(EXAMPLE).column


def test_the_example_site_agrees_to_the_example_study() -> None:
    study = parse_study(EXAMPLE.with_name("study.example.toml").read_text())
    config.load(EXAMPLE).policy.require(make_plan(study, federation="f", submission="s"), now=0)


def test_what_init_writes_says_the_same_as_the_example(tmp_path: Path) -> None:
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


@pytest.mark.parametrize(
    ("line", "message"),
    [
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
        ('person_column = "p"\n[column.p]\nfactor = 2', "[column.p]: what names a person"),
    ],
)
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


@pytest.mark.parametrize(
    ("lines", "offered"),
    [
        ("", None),
        ("offers = []", None),
        ('columns = ["age", "bmi"]', None),
        ('offers = ["age"]', ("age",)),
        ('offers = ["age"]\ncolumns = ["age", "bmi"]', ("age",)),
        ('offers = ["*"]\ncolumns = ["age", "bmi"]', ("age", "bmi")),
        ('offers = ["*"]', None),
        ('offers = ["age"]\ncolumns = ["*"]', ("age",)),
    ],
)
def test_it_offers_what_it_says_and_no_more_than_it_allows(tmp_path: Path, lines: str, offered: Any) -> None:
    text = statement_of(loaded(tmp_path, lines))
    assert (text.columns, text.needs_approval, text.thresholds) == (offered, True, asdict(QualityRules()))


def test_it_says_that_a_person_decides(tmp_path: Path) -> None:
    assert not statement_of(loaded(tmp_path, 'approval = "auto"')).needs_approval


def test_what_it_cannot_mean_is_refused_when_it_is_configured(tmp_path: Path) -> None:
    with refused(Code.BAD_CONFIG, "offers: weight not allowed by columns"):
        loaded(tmp_path, 'offers = ["age", "weight"]\ncolumns = ["age"]')
    for names in (["a\\u001b"], ["x" * 201], [f"{i:0>150}" for i in range(1000)]):
        listed = ", ".join(f'"{name}"' for name in names)
        with refused(Code.BAD_CONFIG, "offers: "):
            statement_of(loaded(tmp_path, f"offers = [{listed}]"))
