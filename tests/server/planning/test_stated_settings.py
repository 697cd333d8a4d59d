"""Studies that do not fit the stated settings of sites are told at submission, before a person is asked."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from eigenveil.dictionary.directory import SiteStatement
from eigenveil.errors import Code
from eigenveil.identity import Role
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.core.dictionary.test_admission import stated
from tests.server.rig import Client, Rig, made, refusal, serving, study_toml
from tests.server.rpc.test_directory import state
from tests.support import limits, submitted


def own(**changes: Any) -> SiteStatement:
    return replace(stated(), limits=limits(**changes))


async def explained(ada: Client, toml: str, submission: str = "") -> dict[str, Any]:
    answer = await ada.stub.ExplainStudy(pb.ExplainStudyRequest(study_toml=toml, submission=submission))
    return dict(json.loads(answer.explanation_json))


def stored(rig: Rig) -> list[str]:
    return [one.name for one in rig.repository.studies.all()]


async def test_a_study_that_a_setting_forbids_is_refused_or_warned_about_and_never_waits(
    tmp_path: Path,
) -> None:
    async with serving(made(tmp_path / "c")) as rig:
        sites, ada = await rig.sites(), await rig.client(Role.ANALYST, "ada")
        await state(sites["anna"], own(person_column="patient"))
        await state(sites["bert"], own())
        why = "anna: person_column ('patient' at the site, none in the study)"
        for toml in (study_toml(), study_toml(quorum=2, required=["anna"])):
            for call in (
                ada.submit(toml),
                ada.stub.ExplainStudy(pb.ExplainStudyRequest(study_toml=toml)),
            ):
                refused = await refusal(call)
                assert (refused.code, why in str(refused)) == (Code.POLICY, True)
        assert stored(rig) == []
        few = study_toml(quorum=2)
        found = await explained(ada, few)
        assert [one["ready"] for one in found["readiness"]] == [False, True, True]
        assert found["readiness"][0]["failed"][0]["rule"] == "person_column"
        assert [one["settings"] for one in found["readiness"]] == ["stated", "stated", "not stated"]
        answer = await submitted(ada.stub, few, "few")
        assert any(why in warning for warning in answer.warnings)
        assert stored(rig) == ["small"]


async def test_records_that_do_not_fit_into_memory_are_told_before_they_are_loaded(tmp_path: Path) -> None:
    async with serving(made(tmp_path / "c")) as rig:
        sites, ada = await rig.sites(), await rig.client(Role.ANALYST, "ada")
        shown = await state(sites["anna"], own(minimum_records=1000, memory_mib=1))
        oja = study_toml(columns=8, algorithm="private-oja", components=1)
        refused = await refusal(ada.submit(oja))
        assert "anna: memory_mib 1 (this study needs 2, by maximum_records)" in str(refused)
        await state(sites["anna"], own(minimum_records=1000), shown)
        await ada.submit(oja)


async def test_a_setting_that_changes_after_the_plan_counts_as_it_is_now(tmp_path: Path) -> None:
    async with serving(made(tmp_path / "c")) as rig:
        sites, ada = await rig.sites(), await rig.client(Role.ANALYST, "ada")
        shown = await state(sites["anna"], own())
        assert (await explained(ada, study_toml(), "one"))["readiness"][0]["ready"]
        shown = await state(sites["anna"], own(sites_per_person=2), shown)
        assert "anna: sites_per_person 2" in str(await refusal(ada.submit(study_toml(), "one")))
        await state(sites["anna"], stated(), shown)  # as a site of 1.0 does
        await ada.submit(study_toml(), "one")
