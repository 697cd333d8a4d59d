"""A study that a hospital's settings do not allow is refused before a person there is asked [R23]."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from eigenveil.accounting.budget import NoiseRule
from eigenveil.dictionary.directory import SiteStatement
from eigenveil.identity import Role
from eigenveil_client.analyst.client import Analyst
from eigenveil_client.analyst.python.connect import ConnectedFederation
from eigenveil_client.connection.identity import StoredIdentity
from eigenveil_client.site.policy import Approval
from eigenveil_client.site.state.rollback import RollbackGuard
from eigenveil_client.site.state.store import SiteStore
from tests.integration.running_site import config_of, enrolled, running_site
from tests.integration.test_dictionary import run, stated
from tests.server.rig import made, serving, study_toml

__all__ = ["run"]  # a fixture
DISCLOSED: dict[str, Any] = {"disclose_settings": True, "approval": Approval.MANUAL}
SINGLE_PASS: dict[str, Any] = DISCLOSED | {"algorithms": ("dp-pca-single-pass",), "noise": NoiseRule.ANY}


async def seen(ada: StoredIdentity, fits: Callable[[SiteStatement], bool]) -> None:
    """Wait until the coordinator has a statement that fits."""
    async with Analyst(ada) as analyst:
        while not all(one.statement and fits(one.statement) for one in (await analyst.federation()).sites):
            await asyncio.sleep(0.05)


def waiting(identity: Path) -> list[str]:
    config = config_of(identity)
    with closing(SiteStore(config.state, config.policy.budget, RollbackGuard(config.identity))) as store:
        return [one.plan for one in store.studies.all()]


def readiness_in_python(profile: Path, file: Path) -> list[bool]:
    with ConnectedFederation(profile) as federation:
        return [one.ready for one in federation.readiness(federation.study(file))]


async def test_an_analyst_is_told_the_site_and_the_setting_and_nobody_is_asked(
    tmp_path: Path, run: Callable[..., Any]
) -> None:
    file = tmp_path / "study.toml"
    file.write_text(study_toml(sites=("anna",)))
    async with serving(made(tmp_path / "c")) as rig:
        anna = await enrolled(rig, tmp_path / "anna")
        ada = await enrolled(rig, tmp_path / "ada", "ada", Role.ANALYST)
        async with running_site(anna.folder, person_column="patient", **DISCLOSED):
            await stated(ada)
            for verb in (("explain",), ("submit", "--yes")):
                code, problem = await run("study", *verb, file)
                assert code != 0
                assert "anna: person_column ('patient' at the site, none in the study)" in problem["message"]
            for words in (("sites", "--study", file), ("plan", file, "--sites")):
                code, found = await run(*words)
                assert code == 0, found
                (row,) = found["readiness"]
                assert (code, row["ready"], row["failed"][0]["rule"]) == (0, False, "person_column")
            code, text = await run("sites", "--study", file, as_json=False)
            assert (code, "person_column ('patient' at the site" in text) == (0, True)
            assert await asyncio.to_thread(readiness_in_python, tmp_path / "ada", file) == [False]
            assert waiting(anna.folder) == []
            file.write_text(file.read_text().replace("[records]", '[records]\nperson_column = "patient"'))
            code, _ = await run("study", "submit", "--yes", file)
            assert code == 0
            while not waiting(anna.folder):  # now a person is asked
                await asyncio.sleep(0.05)


async def test_the_papers_scheme_is_planned_for_what_sites_allow_or_told_what_it_needs(
    tmp_path: Path, run: Callable[..., Any]
) -> None:
    file = tmp_path / "study.toml"
    toml = study_toml(sites=("anna",), algorithm="dp-pca-single-pass", components=1, epsilon=4.0)
    file.write_text(toml.replace("[records]", "[records]\nexpected_records = 300000"))
    async with serving(made(tmp_path / "c")) as rig:
        anna = await enrolled(rig, tmp_path / "anna")
        ada = await enrolled(rig, tmp_path / "ada", "ada", Role.ANALYST)
        async with running_site(anna.folder, minimum_records=20, **SINGLE_PASS):
            await stated(ada)
            code, problem = await run("study", "submit", "--yes", file)
            assert code != 0
            assert "anna: minimum_records 20 (this study needs 300, by" in problem["message"]
        async with running_site(anna.folder, minimum_records=300, **SINGLE_PASS):
            await seen(ada, lambda one: one.limits is not None and one.limits.minimum_records == 300)
            code, result = await run("study", "submit", "--yes", file)
            assert code == 0, result
            assert "batches: 15 instead of 50" in result["overrides"][0]
            while not waiting(anna.folder):  # its rules allow it
                await asyncio.sleep(0.05)
