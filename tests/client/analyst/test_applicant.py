"""The applicant in an analyst's profile: written once, and in every study that does not state its own."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import eigenveil as package
from eigenveil.errors import Code
from eigenveil.study.applicant import LABELS, MOST_CHARACTERS, Applicant
from eigenveil.study.checks import plain_fields
from eigenveil.study.toml import draft_from_toml, parse_study, study_to_toml
from eigenveil_client.analyst.applicant import store_applicant, with_applicant
from eigenveil_client.analyst.profile import PROFILE, load_profile, stored_applicant
from eigenveil_client.analyst.python.study import study_from
from eigenveil_client.connection.proxy import ProxyRule
from tests.client.analyst.python.test_python import VIEW
from tests.client.analyst.python.test_python import site as listed_site
from tests.client.analyst.test_signing_key import profile
from tests.client.commands import eigenveil, ran
from tests.client.site.command_line import Typed
from tests.support import Capture, a_study, refused

OWN = Applicant(full_name="Dr. Ada", institution="Ulm", contact="ada@ulm.example")
OPEN = replace(VIEW, dictionary=None, sites=(listed_site("north"), listed_site("south")))
TEXTS = st.sampled_from(["", " ", "a", "Ulm"])
APPLICANTS = st.builds(Applicant, **dict.fromkeys(LABELS, TEXTS))


@pytest.fixture
def ada(tmp_path: Path) -> Path:
    return profile(tmp_path / "ada")


@given(APPLICANTS, APPLICANTS)
def test_what_a_study_states_itself_wins_text_by_text(own: Applicant, stated: Applicant) -> None:
    study = replace(a_study(), applicant=stated)
    draft = with_applicant(draft_from_toml(study_to_toml(study)), own)
    whole = draft.study()
    assert whole == parse_study(draft.text)
    assert replace(whole, applicant=stated) == study, "nothing else changes"
    for name in LABELS:
        mine, theirs = getattr(own, name), getattr(stated, name)
        assert getattr(whole.applicant, name) == (theirs if theirs.strip() else mine or theirs)


def test_a_study_of_the_connection_states_who_asks(ada: Path) -> None:
    store_applicant(ada, plain_fields(OWN))
    study = replace(a_study(sites=("north", "south")), applicant=Applicant(contact="bea@ulm.example"))
    draft = draft_from_toml(study_to_toml(study))
    with package.connect(ada, ethics_reference="2026-118") as federation:
        made = study_from(federation, OPEN, draft, Path(), federation.applicant)
        assert "Ulm" in repr(federation)
    stated = replace(OWN, ethics_reference="2026-118", contact="bea@ulm.example")
    assert (made.study.applicant, parse_study(made.resolved.text)) == (stated, made.study)
    assert stored_applicant(ada) == OWN, "a connection changes no profile"


@pytest.mark.parametrize("given", [
    {"institution": "two\nlines"}, {"contact": "x" * (MOST_CHARACTERS + 1)},
    {"institution": f"Ulm{' ' * 66}decide by: 2030-01-01"}, {"contact": "a\u3164\u2800 b"},
])  # fmt: skip
def test_a_text_that_could_mislead_is_refused_and_nothing_is_stored(ada: Path, given: dict[str, str]) -> None:
    with refused(Code.BAD_STUDY):
        package.connect(ada, **given)
    with refused(Code.BAD_STUDY):
        store_applicant(ada, given)
    assert not (ada / PROFILE).exists()


PROXY = '# through the firewall\nproxy = "http://proxy:3128"'


def test_the_rest_of_a_profile_stays_as_it_is(ada: Path) -> None:
    (ada / PROFILE).write_text(f"{PROXY}\n")
    store_applicant(ada, plain_fields(OWN))
    store_applicant(ada, {"institution": "Bonn", "contact": ""})
    assert (ada / PROFILE).read_text().startswith(f"{PROXY}\n\n[applicant]\n")
    assert stored_applicant(ada) == Applicant(full_name="Dr. Ada", institution="Bonn")
    assert load_profile(ada).proxy == ProxyRule(proxy="http://proxy:3128")
    store_applicant(ada, dict.fromkeys(LABELS, ""))
    assert (ada / PROFILE).read_text() == f"{PROXY}\n"


@pytest.mark.parametrize("text", [
    'applicant = {institution = "Ulm"}\n', '[applicant]\ninstitution = "Ulm"\n[applicant.more]\n',
])  # fmt: skip
def test_a_profile_that_cannot_be_changed_safely_is_not(ada: Path, text: str) -> None:
    (ada / PROFILE).write_text(text)
    with refused(Code.BAD_CONFIG):
        store_applicant(ada, {"institution": "Bonn"})
    assert (ada / PROFILE).read_text() == text


def test_commands_set_and_show_who_asks(ada: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    here: list[Any] = ["--profile", ada]
    assert eigenveil(["profile", "show", "--profile", str(ada)]) == 0
    assert "Nothing is stated" in capsys.readouterr().out
    code, value = ran(capsys, "profile", "set", "--full-name", "Dr. Ada", "--institution", "Ulm", *here)
    assert (code, value) == (0, plain_fields(Applicant(full_name="Dr. Ada", institution="Ulm")))
    assert ran(capsys, "profile", "show", *here)[1] == value
    assert ran(capsys, "profile", "set", *here)[0] == 2, "no prompt without a terminal"
    monkeypatch.setattr(sys, "stdin", Typed("\n\nada@ulm.example\n\n\n", terminal=True))
    assert eigenveil(["profile", "set", "--profile", str(ada)]) == 0
    assert stored_applicant(ada) == OWN, "Enter leaves a text as it is"
    assert "contact: ada@ulm.example" in capsys.readouterr().out


def test_resolve_shows_the_study_as_this_profile_submits_it(
    ada: Path, capsys: Capture, tmp_path: Path
) -> None:
    store_applicant(ada, plain_fields(OWN))
    file = tmp_path / "study.toml"
    file.write_text(study_to_toml(a_study()))
    assert eigenveil(["study", "resolve", str(file), "--profile", str(ada), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["applicant"] == plain_fields(OWN)
