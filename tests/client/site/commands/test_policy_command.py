"""What a site allows is shown as it is applied: every key, and no other."""

from __future__ import annotations

from dataclasses import fields

from eigenveil_client.site import config as site_config
from eigenveil_client.site.policy import Policy
from tests.client.site.command_line import site, written
from tests.client.site.support import Stage

STATED = """\
approval = "ask"
approval_ends = "2027-12-31"
analysts = ["ada", "[red]bob"]
max_epsilon_per_study = 2.5
max_epsilon_per_year = inf
"""


def test_every_key_is_shown_with_its_value_and_whether_it_was_changed(stage: Stage) -> None:
    ran = site(written(stage, STATED), "policy", "--json")
    shown = {rule["key"]: rule for rule in ran.json["rules"]}
    assert ran.code == 0
    assert list(shown) == [one.name for one in fields(Policy)]
    assert all(rule["meaning"] for rule in shown.values())
    changed = {name: rule["value"] for name, rule in shown.items() if not rule["default"]}
    assert changed == {
        "approval": "ask",
        "approval_ends": "2027-12-31",
        "analysts": ["ada", "[red]bob"],
        "max_epsilon_per_study": 2.5,
    }
    assert shown["max_epsilon_per_year"]["value"] == "inf"


def test_what_is_shown_can_be_written_into_a_site_toml_and_means_the_same(stage: Stage) -> None:
    path = written(stage, STATED)
    said = {rule["key"]: rule["value"] for rule in site(path, "policy", "--json").json["rules"]}
    lines = [f"{key} = {value if value == 'inf' else repr(value)}" for key, value in said.items()]
    assert site_config.load(written(stage, "\n".join(lines))).policy == site_config.load(path).policy


def test_a_person_reads_a_line_a_key(stage: Stage) -> None:
    lines = [line.rstrip() for line in site(written(stage, STATED), "policy").out.splitlines()]
    for one in fields(Policy):
        (line,) = [line for line in lines if line.split()[:1] == [one.name]]
        assert line.endswith(one.metadata["about"])
    assert any("ada, [red]bob" in line and " no " in line for line in lines)
