"""The first day of ten hospitals: from a join file to a green check in two commands, with no file edited."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from eigenveil.dictionary.dictionary import Dictionary
from eigenveil.identity import Role
from eigenveil_client.site import config as site_config
from eigenveil_client.site.config import SiteConfig, dictionary_in_force, site_dictionary, statement_of
from tests.client.site.command_line import site
from tests.client.site.mapping.hospitals import OF_FILES, ExportingHospital, omop
from tests.common.storage.cluster import Cluster
from tests.integration.running_site import invited
from tests.integration.test_dictionary import publish
from tests.server.rig import made, serving
from tests.support import Patch

ALL = (*(one.__name__ for one in OF_FILES), "omop")
UNCLEAR = ("record_id", "ID")  # names of identifiers that need not be a person's
PROPOSED = 0.95  # least share of true columns
CLOSE = 1e-3  # of a factor


def built(name: str, folder: Path, server: Callable[[], Cluster]) -> ExportingHospital:
    for one in OF_FILES:
        if one.__name__ == name:
            return one(folder)
    return omop(server().database())


def mapped(config: SiteConfig, header: str) -> set[tuple[str, float]]:
    """Columns of the dictionary, without levels, and factors that site.toml makes of a column."""
    return {(rule.name.partition("=")[0], rule.linear[0]) for rule in config.column if rule.header == header}


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
async def test_two_commands_lead_from_a_join_file_to_a_green_check(
    name: str, tmp_path: Path, monkeypatch: Patch, request: pytest.FixtureRequest
) -> None:
    hospital = built(name, tmp_path, lambda: request.getfixturevalue("server"))
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.chdir(folder)
    stated = ("--person", hospital.person) if hospital.person in UNCLEAR else ()
    async with serving(made(tmp_path / "c")) as rig:
        await publish(rig, tmp_path, site_dictionary(None))
        join = invited(rig, tmp_path / "anna.join", "anna")
        first = await asyncio.to_thread(
            site, None, "init", *hospital.words, *stated, "--join", join, "--accept"
        )
        assert first.code == 0, first.out
    text = (folder / "site.toml").read_text()
    again = await asyncio.to_thread(site, None, "init", *hospital.words, *stated, "--accept")
    assert (again.code, (folder / "site.toml").read_text()) == (0, text), again.err
    second = await asyncio.to_thread(site, None, "check", "--json")
    assert (second.code, second.json["ok"]) == (0, True), second.out
    levels = {one["check"]: one for one in second.json["checks"] if one["level"] != "ok"}
    assert set(levels) <= {"analysts", "analysts' keys"}, json.dumps(levels, indent=1)
    config = site_config.load(folder / "site.toml")
    assert config.records.person == hospital.person
    assert (dictionary_in_force(config), config.dictionary) == (site_dictionary(None), None)
    assert statement_of(config).columns is None
    found = {header: mapped(config, header) for header in {rule.header for rule in config.column}}
    wrong = {
        header: meant for header, meant in found.items()
        if not all(_is_true(hospital, header, *one) for one in meant)
    }  # fmt: skip
    assert wrong == {}
    missed = [
        header for header, (column, _) in hospital.truth.items()
        if header not in found and f'--set "{header}={column}' not in text
    ]  # fmt: skip
    assert len(missed) <= (1 - PROPOSED) * len(hospital.truth), missed
    assert config.policy.minimum_records < 300 <= config.policy.maximum_records


def sugar(name: str) -> Dictionary:
    """A dictionary of glucose alone, called otherwise; as `zeta` without its code."""
    (glucose,) = (one for one in site_dictionary(None).columns if one.name == "glucose")
    found = replace(glucose, name=name, loinc=None if name == "zeta" else glucose.loinc)
    return Dictionary(name="own", version=1, columns=(found,))


async def enrolled(
    tmp_path: Path, monkeypatch: Patch, published: Dictionary | None
) -> tuple[int, SiteConfig]:
    """The code of `init` for a file with a column of its own, and what it left."""
    rows = "".join(f"P{i};{60 + i % 60};{i % 7}\n" for i in range(300))
    (tmp_path / "records.csv").write_text(f"PatNr;Glukose (mg/dl);Mueller_Hans\n{rows}")
    monkeypatch.chdir(tmp_path)
    async with serving(made(tmp_path / "c")) as rig:
        if published is not None:
            await publish(rig, tmp_path, published)
        join = invited(rig, tmp_path / "anna.join", "anna")
        ran = await asyncio.to_thread(site, None, "init", "records.csv", "--join", join)
    return ran.code, site_config.load(tmp_path / "site.toml")


async def test_own_columns_are_allowed_and_not_stated_where_no_dictionary_is_published(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    code, config = await enrolled(tmp_path, monkeypatch, None)
    assert (code, config.policy.columns) == (0, ("glucose", "Mueller_Hans"))
    assert statement_of(config).columns is None


@pytest.mark.parametrize(
    ("name", "code", "columns"), [("patient", 4, ("glucose",)), ("sugar", 0, ("sugar",)), ("zeta", 0, ())]
)
async def test_a_published_dictionary_allows_and_states_no_other_column(
    name: str, code: int, columns: tuple[str, ...], tmp_path: Path, monkeypatch: Patch
) -> None:
    """One that makes an invalid file leaves the first one, one that fits nothing allows nothing."""
    left, config = await enrolled(tmp_path, monkeypatch, sugar(name))
    assert (left, config.policy.columns, config.offers) == (code, columns, ())


async def test_init_goes_on_after_a_used_token_and_needs_no_join_file_once_enrolled(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    """The file of the first attempt is written anew for the federation's dictionary; an edited one is not,
    but reported as it is."""
    (tmp_path / "records.csv").write_text(
        "PatNr;Glukose (mg/dl)\n" + "".join(f"P{i};{60 + i}\n" for i in range(99))
    )
    monkeypatch.chdir(tmp_path)
    async with serving(made(tmp_path / "c")) as rig:
        await publish(rig, tmp_path, sugar("sugar"))
        used, join = (invited(rig, tmp_path / f"{name}.join", "anna") for name in ("used", "new"))
        first = await asyncio.to_thread(site, None, "init", "records.csv", "--join", used)
        assert (first.code, "to go on: eigenveil-site init records.csv --join FILE" in first.err) == (
            20,
            True,
        )
        second = await asyncio.to_thread(site, None, "init", "records.csv", "--join", join, "--json")
        assert (second.code, second.json["columns"]) == (0, ["sugar"]), second.err
        join.unlink()
        text = (tmp_path / "site.toml").read_text() + "# own words\n"
        (tmp_path / "site.toml").write_text(text)
        third = await asyncio.to_thread(site, None, "init", "records.csv", "--join", join, "--json")
        assert third.json == second.json
        assert (tmp_path / "site.toml").read_text() == text
        await asyncio.to_thread(site, None, "map", "--set", "Glukose (mg/dl)=sugar:mmol/L")
        fourth = await asyncio.to_thread(site, None, "init", "records.csv", "--json")
        (row,) = fourth.json["mapped"]
        assert (row["unit"], row["factor"] > 18) == ("mmol/L", True)
        for role, name in ((Role.SITE, "bob"), (Role.ANALYST, "anna")):
            other = invited(rig, tmp_path / f"{name}.join", name, role)
            ran = await asyncio.to_thread(site, None, "init", "records.csv", "--join", other)
            assert (ran.code, f"is for the {role.value} {name}, and" in ran.err) == (9, True), ran.err
        (tmp_path / "site.toml").write_text(text.replace('name = "anna"', 'name = "bob"'))
        ran = await asyncio.to_thread(site, None, "init", "records.csv")
        assert (ran.code, "correct one" in ran.err) == (4, True), ran.err


@pytest.mark.parametrize(
    ("name", "command"), [("sugar", "--set 'Glukose (mg/dl)=sugar'"), ("zeta", "--remove glucose")]
)
async def test_init_warns_of_a_mapping_that_the_published_dictionary_does_not_have(
    name: str, command: str, tmp_path: Path, monkeypatch: Patch
) -> None:
    """The file that goes on has one of the usual dictionary, and an edit; a join file of another site is
    refused before its token is used."""
    (tmp_path / "records.csv").write_text(
        "PatNr;Glukose (mg/dl)\n" + "".join(f"P{i};{60 + i}\n" for i in range(99))
    )
    monkeypatch.chdir(tmp_path)
    published = sugar(name)
    assert site(None, "init", "records.csv", "--name", "anna").code == 0
    text = (tmp_path / "site.toml").read_text() + "# own words\n"
    (tmp_path / "site.toml").write_text(text)
    async with serving(made(tmp_path / "c")) as rig:
        await publish(rig, tmp_path, published)
        bob, anna = (invited(rig, tmp_path / f"{one}.join", one) for one in ("bob", "anna"))
        other = await asyncio.to_thread(site, None, "init", "records.csv", "--join", bob)
        assert (other.code, "names the site anna" in other.err) == (9, True), other.err
        ran = await asyncio.to_thread(site, None, "init", "records.csv", "--join", anna)
    assert (ran.code, "mapped columns (1): Glukose (mg/dl) -> glucose" in ran.out) == (0, True), ran.err
    assert f"has no column glucose (Glukose (mg/dl)). Run: eigenveil-site map {command}" in ran.err
    assert (tmp_path / "site.toml").read_text() == text


def _is_true(hospital: ExportingHospital, header: str, column: str, factor: float) -> bool:
    known = hospital.truth.get(header)
    return known is not None and known[0] == column and abs(factor / known[1] - 1) < CLOSE
