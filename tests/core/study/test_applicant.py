"""The person who is responsible for a study is named in it, signed, and shown to all who decide."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eigenveil import parse_study
from eigenveil.errors import Code
from eigenveil.reporting.explain import explain
from eigenveil.study.applicant import LABELS, MOST_CHARACTERS, NOT_STATED, Applicant
from eigenveil.study.toml import study_from_dict, study_to_dict, study_to_toml
from eigenveil_client.analyst.display import explanation_text
from tests.support import a_plan, a_study, refused

STATED = {name: f"the {label}, § 1" for name, label in LABELS.items()}


def test_every_stated_text_is_in_the_plan_and_in_each_view() -> None:
    study = replace(a_study(), applicant=Applicant(**STATED))
    plan = a_plan(study)
    assert plan.digest != a_plan(a_study()).digest
    assert parse_study(study_to_toml(study)) == study_from_dict(study_to_dict(study)) == study
    assert explain(plan)["applicant"] == study.applicant.stated
    text = explanation_text(explain(plan))
    assert all(f"{label}: {STATED[name]}" in text for name, label in LABELS.items())


def test_what_is_not_stated_is_empty() -> None:
    assert (a_study().applicant, NOT_STATED.stated, NOT_STATED.text) == (NOT_STATED, {}, "")
    one = Applicant(contact="ada@example.org")
    assert one.text == "contact: ada@example.org"


@pytest.mark.parametrize("text", ["two\nlines", "\x1b[31m", "x" * (MOST_CHARACTERS + 1), 5])
@pytest.mark.parametrize("name", LABELS)
def test_a_text_that_could_mislead_is_refused(name: str, text: object) -> None:
    with refused(Code.BAD_STUDY):
        Applicant(**{name: text})  # type: ignore[arg-type]


@pytest.mark.parametrize(("text", "says"), [
    ("\u3164", False), ("\u2800", False), ("\u115f\uffa0 -", False), ("", False), ("7", True), ("Жук", True),
])  # fmt: skip
def test_a_text_without_a_letter_or_a_digit_states_nothing(text: str, says: bool) -> None:
    assert Applicant(contact=text).missing(["contact"]) == (() if says else ("contact",))


def test_a_run_of_blanks_is_refused_in_a_new_text_and_read_in_a_stored_one() -> None:
    stored = replace(a_study(), applicant=Applicant(institution="Ulm   x", contact="Dr.  Ada"))
    assert parse_study(study_to_toml(stored)) == stored
    with refused(Code.BAD_STUDY, "institution", "blanks"):
        stored.applicant.check_blanks()
    replace(stored.applicant, institution="").check_blanks()


def test_an_unknown_key_of_the_table_is_refused_in_a_study_file() -> None:
    text = study_to_toml(a_study()).replace("[applicant]", '[applicant]\ninstitute = "x"')
    with refused(Code.BAD_STUDY, "institute"):
        parse_study(text)
