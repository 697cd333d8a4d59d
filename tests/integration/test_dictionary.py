"""From a dictionary to a study in one command, and what is told before anything is sent [R22] [R23]."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from eigenveil.dictionary.dictionary import Dictionary, DictionaryColumn
from eigenveil.dictionary.directory import SiteStatement
from eigenveil.dictionary.formats import dictionary_to_toml, sign_dictionary
from eigenveil.errors import Code, EigenveilError
from eigenveil.identity import Role
from eigenveil.study.toml import parse_study
from eigenveil_client.analyst.client import Analyst
from eigenveil_client.analyst.federation import FederationView, ListedSite
from eigenveil_client.connection.identity import StoredIdentity, load_identity
from eigenveil_client.connection.session_start import accept_dictionary, stored_dictionary
from eigenveil_client.site.policy import Approval
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.client.commands import eigenveil
from tests.integration.running_site import COLUMNS, enrolled, running_site
from tests.server.process import command
from tests.server.rig import FEDERATION, Rig, made, serving, study_toml

Capture = pytest.CaptureFixture[str]
OWN = Dictionary(
    name="own",
    version=1,
    columns=tuple(
        DictionaryColumn(name=name, meaning="a [b]measure[/b]", unit="u", lower=0, upper=10, source="known")
        for name in (*COLUMNS, "creatinine")
    ),
)


@pytest.fixture
def run(capfd: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Any]:
    """`eigenveil WORDS` as ada: the exit code, and the last JSON object or all that was said."""
    monkeypatch.setenv("EIGENVEIL_PROFILE", str(tmp_path / "ada"))
    monkeypatch.setenv("COLUMNS", "200")

    async def one(*words: object, as_json: bool = True) -> tuple[int, Any]:
        result = [str(word) for word in words] + (["--json"] if as_json else [])
        code = await asyncio.to_thread(eigenveil, result)
        output = capfd.readouterr()
        return code, json.loads(output.out.strip().splitlines()[-1]) if as_json else output.out + output.err

    return one


async def publish(rig: Rig, folder: Path, dictionary: Dictionary) -> None:
    (folder / "own.toml").write_text(dictionary_to_toml(dictionary))
    config = str(rig.config.files.folder / "coordinator.toml")
    code, _, output = await asyncio.to_thread(
        command, "dictionary", "publish", str(folder / "own.toml"), "--config", config
    )
    assert code == 0, output


async def stated(ada: StoredIdentity) -> FederationView:
    async with Analyst(ada) as analyst:
        while True:
            view = await analyst.federation()
            if all(site.statement is not None for site in view.sites):
                return view
            await asyncio.sleep(0.05)


async def test_from_a_dictionary_to_a_study_in_one_command(tmp_path: Path, run: Callable[..., Any]) -> None:
    file = tmp_path / "study.toml"

    async with serving(made(tmp_path / "c")) as rig:
        anna = await enrolled(rig, tmp_path / "anna")
        ada = await enrolled(rig, tmp_path / "ada", "ada", Role.ANALYST)
        code, problem = await run("columns")
        assert (code, "published no dictionary" in problem["message"]) == (8, True)
        await publish(rig, tmp_path, OWN)
        async with running_site(anna.folder, offers=COLUMNS):
            view = await stated(ada)
            (site,) = view.sites
            assert site.offers == COLUMNS
            assert view.dictionary == OWN == stored_dictionary(ada)
            while stored_dictionary(anna) != OWN:  # the site keeps it as well, for its own people
                await asyncio.sleep(0.05)
            code, result = await run("sites")
            assert result["sites"][0]["stated"]["thresholds"] == site.statement.thresholds  # type: ignore[union-attr]
            code, result = await run("columns")
            offered = {row["name"]: row["offered"][row["name"]] for row in result["columns"]}
            assert offered == {name: ["anna"] for name in COLUMNS} | {"creatinine": []}
            code, output = await run("columns", as_json=False)
            assert (code, "a [b]measure[/b]" in output) == (0, True)

            code, result = await run("study", "new", "--columns", "c0,c1,c2", "--out", file)
            assert (code, result["sites"], result["warnings"]) == (0, ["anna"], [])
            code, whole = await run("study", "resolve", file, as_json=False)
            assert [column.upper for column in parse_study(whole).columns] == [10.0] * 3
            text = file.read_text()
            file.write_text(text.replace('"c0",', '{name = "c0", upper = 9},'))
            code, result = await run("study", "explain", file)
            assert (code, result["overrides"]) == (0, ["c0: bounds 0 to 9, in the dictionary 0 to 10"])
            assert (await run("plan", file))[1]["overrides"] == result["overrides"]
            code, result = await run("study", "submit", "--yes", file)
            assert (code, len(result["overrides"])) == (0, 1)


async def test_missing_sites_and_columns_are_reported_before_submission(
    tmp_path: Path, run: Callable[..., Any]
) -> None:
    file = tmp_path / "study.toml"

    async with serving(made(tmp_path / "c", approval_hours=0.0)) as rig:
        anna = await enrolled(rig, tmp_path / "anna")
        ada = await enrolled(rig, tmp_path / "ada", "ada", Role.ANALYST)
        await publish(rig, tmp_path, OWN)
        async with running_site(anna.folder, offers=COLUMNS, approval=Approval.MANUAL):
            await stated(ada)
            code, _ = await run(
                "study", "new", "--columns", "c0", "--components", 1, "--sites", "anna", "--out", file
            )
            assert (code, "deadline_seconds = 3600" in file.read_text()) == (0, True)
            changes = {
                '"c0"': ('"creatinin"', "'creatinin' (did you mean 'creatinine'?)"),
                '"c1"': ('"creatinine"', "anna does not offer 'creatinine'"),
                "'anna'": ("'ana'", "not enrolled in test-fed: ana (did you mean 'anna'?)"),
                "deadline_seconds = 3600": ("", "at anna a person decides"),
            }
            text = study_toml(columns=2, components=1, sites=("anna",), deadline_seconds=3600)
            text = text[: text.index("[[columns]]")].replace("[privacy]", 'columns = ["c0", "c1"]\n[privacy]')
            with mock.patch.multiple(Analyst, submit=None, explain=None):  # nothing is sent
                for old, (new, message) in changes.items():
                    file.write_text(text.replace(old, new))
                    for verb in (("explain",), ("submit", "--yes")):
                        code, problem = await run("study", *verb, file)
                        assert (code, message in problem["message"]) == (2, True), problem
            assert rig.daemon.runtime.repository.studies.all() == []
            file.write_text(text.replace('"c1"', '"creatinine"'))
            for words in (("sites", "--study", file), ("plan", file, "--sites")):
                code, result = await run(*words)
                assert (code, result["readiness"][0]["columns_text"]) == (0, "no column 'creatinine'")
                assert not result["readiness"][0]["ready"]
            file.write_text(text)
            assert (await run("study", "submit", "--yes", file))[0] == 0


async def test_a_dictionary_never_goes_back(tmp_path: Path) -> None:
    """Not at an analyst, whatever the coordinator shows: older, other, unsigned or none."""

    async with serving(made(tmp_path / "c")) as rig:
        ada = await enrolled(rig, tmp_path / "ada", "ada", Role.ANALYST)
        sign = rig.daemon.runtime.keys.release.sign

    def sent(dictionary: Dictionary, federation: str = FEDERATION) -> pb.GetDictionaryResponse:
        signed = sign_dictionary(dictionary, federation, sign)
        return pb.GetDictionaryResponse(
            dictionary=pb.SignedDictionary(signed_json=signed.signed_json, signature=signed.signature)
        )

    nothing = pb.GetDictionaryResponse()
    assert (accept_dictionary(ada, nothing), stored_dictionary(ada)) == (None, None)
    second = replace(OWN, version=2)
    for _ in range(2):
        assert accept_dictionary(ada, sent(second)) == second
    broken = sent(replace(OWN, version=3))
    broken.dictionary.signature = bytes(64)
    for bad, code in (
        (sent(OWN), Code.PROTOCOL),
        (sent(replace(second, about="another")), Code.PROTOCOL),
        (nothing, Code.PROTOCOL),
        (broken, Code.IDENTITY),
        (sent(replace(OWN, version=3), "other-fed"), Code.IDENTITY),
    ):
        with pytest.raises(EigenveilError) as caught:
            accept_dictionary(ada, bad)
        assert caught.value.code is code
        assert stored_dictionary(load_identity(ada.folder)) == second
    assert accept_dictionary(ada, sent(replace(OWN, version=5))) == replace(OWN, version=5)
    (ada.folder / "dictionary.json").write_text("{")
    assert stored_dictionary(ada) is None


def test_what_a_site_wrote_is_shown_as_it_is_written(capfd: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Marks of the library that draws tables are text like any other."""
    from eigenveil_client.analyst.python.connect import column_table, site_table
    from eigenveil_common.command import console

    monkeypatch.setattr(console, "_width", 200)
    marks = "[red]x[/red] [link=http://a]"
    output = SiteStatement(
        columns=(OWN.columns[0].name,), needs_approval=False, max_missing=1, max_unreadable=1,
        max_out_of_bounds=1,
    )  # fmt: skip
    site = ListedSite(name=marks, statement=output, seen=None)
    view = FederationView(name="fed", sites=(site,), dictionary=OWN, approval_seconds=0.0, start_seconds=0.0)
    console.print(column_table(OWN, view), site_table(view))
    assert capfd.readouterr().out.count(marks) == 2
