"""Signed submissions are confirmed, stored until their signatures end, and used again. [R31]"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import click
import pytest

from eigenveil.errors import Code
from eigenveil.study.toml import draft_from_toml, study_digest, study_to_toml
from eigenveil_client.analyst import federation, studies
from eigenveil_client.analyst.client import Analyst
from eigenveil_client.analyst.proposal import (
    SUBMISSIONS_FILE,
    SignedSubmission,
    signed_submissions,
    store_submission,
)
from eigenveil_client.analyst.python.study import FederatedStudy
from tests.support import a_study, refused

STUDY = a_study()
NEVER = 2**40  # when a signature ends here, beyond every clock


def signed(submission: str, expires: int = NEVER, study: str = study_digest(STUDY)) -> SignedSubmission:
    return SignedSubmission(submission=submission, study=study, expires=expires)


def test_an_id_is_stored_until_its_latest_signature_ends_and_no_longer(tmp_path: Path) -> None:
    assert signed_submissions(tmp_path, 0) == ()
    for one in (signed("a", 20), signed("b", 10), signed("a", 15), signed("c", 30)):
        store_submission(tmp_path, one, 5)
    assert signed_submissions(tmp_path, 9) == (signed("b", 10), signed("a", 20), signed("c", 30))
    assert signed_submissions(tmp_path, 10) == (signed("a", 20), signed("c", 30))
    store_submission(tmp_path, signed("d", 50), 25)
    assert '"a"' not in (tmp_path / SUBMISSIONS_FILE).read_text(), "what has ended is dropped"


def test_ids_that_are_stored_at_once_are_all_stored(tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: store_submission(tmp_path, signed(f"s{number}"), 0), range(12)))
    assert {one.submission for one in signed_submissions(tmp_path, 0)} == {f"s{n}" for n in range(12)}


@pytest.mark.parametrize(
    "damaged",
    [
        "", "{", "[]", "{}", '{"submissions": [1]}', '{"submissions": [{"submission": "a"}]}',
        '{"submissions": [{"submission": "a", "study": "b", "expires": "c"}]}',
    ],
)  # fmt: skip
def test_a_damaged_submission_file_is_refused_and_not_replaced(tmp_path: Path, damaged: str) -> None:
    (tmp_path / SUBMISSIONS_FILE).write_text(damaged)
    (tmp_path / SUBMISSIONS_FILE).chmod(0o600)
    with refused(Code.BAD_CONFIG, SUBMISSIONS_FILE, "is damaged", "may still run"):
        signed_submissions(tmp_path, 0)
    with refused(Code.BAD_CONFIG):
        store_submission(tmp_path, signed("a"), 0)
    assert (tmp_path / SUBMISSIONS_FILE).read_text() == damaged


class Listing(Analyst):
    def __init__(self, folder: Path, *listed: str) -> None:
        self._identity: Any = SimpleNamespace(folder=folder)
        self._rows: Any = [SimpleNamespace(submission=one) for one in listed]

    async def studies(self) -> Any:
        return self._rows

    @property
    def chosen(self) -> str:
        return asyncio.run(self.submission_id(STUDY))


def test_a_study_that_was_signed_and_is_not_listed_is_submitted_under_the_same_id(tmp_path: Path) -> None:
    store_submission(tmp_path, signed("other", study="of another study"), 0)
    store_submission(tmp_path, signed("ended", 1), 0)
    assert Listing(tmp_path).chosen not in ("other", "ended")
    store_submission(tmp_path, signed("lost"), 0)
    assert (Listing(tmp_path).chosen, Listing(tmp_path, "others").chosen) == ("lost", "lost")


def test_a_study_that_is_listed_or_meant_anew_gets_a_new_id(tmp_path: Path) -> None:
    store_submission(tmp_path, signed("lost"), 0)
    assert Listing(tmp_path, "lost").chosen != "lost"
    coordinator: Any = SimpleNamespace(call=lambda work: asyncio.run(work(Listing(tmp_path))))
    whole = draft_from_toml(study_to_toml(STUDY))
    study = FederatedStudy(coordinator=coordinator, toml=whole.text, resolved=whole, study=STUDY, approval={})
    assert study.submission_id() == "lost"
    assert study.submission_id(again=True) != "lost"


DRAFT = (
    'name = "pilot"\ncomponents = 1\ndictionary = "{}"\ncolumns = ["age"]\n'
    "privacy = {{epsilon = 1.0, delta = 1e-6}}\nfederation = {{sites = ['north']}}\n"
)


@pytest.mark.parametrize("answer", [True, False])
def test_a_signature_needs_a_confirmation(answer: bool) -> None:
    result: list[str] = []
    outcome = nullcontext() if answer else refused(Code.CONFLICT, "not signed and not submitted")
    with mock.patch.object(click, "confirm", return_value=answer) as confirm, outcome:
        studies.signature_prompt(result, yes=False)("You sign it")
    assert (result, confirm.call_count) == (["You sign it"], 1)


@pytest.mark.parametrize(("terminal", "as_json"), [(False, False), (True, True), (False, True)])
def test_without_a_terminal_a_signature_needs_yes(terminal: bool, as_json: bool) -> None:
    with mock.patch("sys.stdin") as stdin:
        stdin.isatty.return_value = terminal
        studies.check_can_sign(yes=True, as_json=as_json)
        with pytest.raises(click.UsageError, match="add --yes"):
            studies.check_can_sign(yes=False, as_json=as_json)
        stdin.isatty.return_value = True
        studies.check_can_sign(yes=False, as_json=False)


def test_bounds_of_the_federation_s_dictionary_are_the_coordinator_s(tmp_path: Path) -> None:
    shipped = federation.shipped()
    with mock.patch.object(federation, "find_dictionary", return_value=shipped):
        for named, message in ((federation.FEDERATION, True), (shipped.name, False)):
            source = federation.resolve_study(draft_from_toml(DRAFT.format(named)), tmp_path, None).source
            assert f"{shipped.name}, version {shipped.version}" in source
            assert ("as its coordinator sent" in source) is message
