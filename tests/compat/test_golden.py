"""Files of every earlier version open, continue, verify and are extended by this one: a change of a frozen
format, name or order fails here. `make golden` made them."""

from __future__ import annotations

import hashlib
import json
import shutil
import tarfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eigenveil import simulation
from eigenveil.numerics.encoding import canonical
from eigenveil.protocol.plan import plan_from_json
from eigenveil.reporting.release_file import read_archive, write_archive
from eigenveil.reporting.report import render
from eigenveil.reporting.verify import load_release, verify_release
from eigenveil_client.demo.federation import COORDINATOR, free_ports
from eigenveil_client.demo.layout import DemoLayout
from tests.compat.golden import (
    FEDERATION,
    FINISHED,
    KEY,
    MADE,
    NAMES,
    RELEASES,
    RUNNING,
    WAITING,
    approve,
    small_release,
)
from tests.compat.names import KINDS
from tests.compat.parties import HERE, SITES, Parties, parties, until

VERSIONS = sorted(path.parent for path in HERE.glob(f"*/{MADE}"))
assert VERSIONS, "make golden"
EACH = pytest.mark.parametrize("version", VERSIONS, ids=lambda path: path.name)
PUBLIC = KEY.public_key().public_bytes_raw()


# By spare_attempts (core/decisions/0044); a study that states one attempt, as 1.0 writes it, is still read.
REPLACED = {"study.toml privacy.attempts", "eigenveil simulate --attempts"}


def made(version: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((version / MADE).read_text())
    return found


@EACH
@pytest.mark.parametrize("kind", KINDS)
def test_every_name_of_an_earlier_version_is_still_there(version: Path, kind: str) -> None:
    earlier = json.loads((version / NAMES).read_text())[kind]
    assert len(earlier) > 15
    gone = set(earlier) - {str(name) for name in KINDS[kind]()}
    assert gone <= REPLACED


@EACH
def test_releases_of_every_algorithm_verify_and_are_the_same_bytes_again(
    version: Path, unpainted: None
) -> None:
    same_again(version)


@pytest.mark.slow
@EACH
def test_reports_of_every_algorithm_are_drawn(version: Path) -> None:
    same_again(version)


def same_again(version: Path) -> None:
    for name, digest in made(version)["releases"].items():
        data = (version / RELEASES / f"{name}.zip").read_bytes()
        assert hashlib.sha256(data).hexdigest() == digest
        assert write_archive(read_archive(data)) == data
        release = load_release(data)
        verify_release(release, PUBLIC)
        plan = plan_from_json(canonical(release.document["plan"]))
        assert plan.digest == release.document["plan_digest"], name
        assert "<html" in render(release)[:200], name


@EACH
def test_an_earlier_revision_gives_the_results_of_its_releases(
    version: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of algorithms that have a later revision, on the records and the seed of the golden release."""
    for name in made(version)["releases"]:
        earlier = load_release((version / RELEASES / f"{name}.zip").read_bytes())
        plan = plan_from_json(canonical(earlier.document["plan"]))
        if plan.revision == plan.algorithm.properties.revision:
            continue
        with monkeypatch.context() as patch:
            patch.setattr(simulation, "make_plan", lambda *_, plan=plan, **__: plan)
            again = load_release(small_release(plan.study))
        assert again.document["plan_digest"] == plan.digest
        assert costs(again.document) == costs(earlier.document), name
        assert np.allclose(again.result.components, earlier.result.components, rtol=0, atol=1e-6)
        assert again.result.predicted_sin_angle == pytest.approx(earlier.result.predicted_sin_angle, rel=1e-6)


def costs(document: dict[str, Any]) -> list[tuple[str, int]]:
    """Kind and charge of each round."""
    return [(one["kind"], one["micro_rho"]) for one in document["rounds"]]


def copied(version: Path, folder: Path) -> tuple[DemoLayout, dict[str, str]]:
    """The federation of a version at another place with other ports, and its studies."""
    about = made(version)
    with tarfile.open(version / FEDERATION) as archive:
        archive.extractall(folder, filter="tar")
    changes = dict(zip(map(str, about["ports"]), map(str, free_ports()), strict=True))
    for path in folder.rglob("*"):
        if path.suffix in (".toml", ".json") and "backup" not in path.parts:
            text = changed = path.read_text()
            for old, new in {about["root"]: str(folder), **changes}.items():
                changed = changed.replace(old, new)
            if changed != text:
                path.write_text(changed)
    layout = DemoLayout(folder)
    layout.logs.mkdir()
    return layout, about["studies"]


def upgrade(found: Parties) -> None:
    for name in (COORDINATOR, *SITES):
        found.command(name, "upgrade")


@EACH
def test_a_federation_goes_on_where_it_was_killed(version: Path, tmp_path: Path) -> None:
    layout, studies = copied(version, tmp_path / "federation")
    offset = made(version)["at"] - time.time()
    with parties(layout, offset) as found:
        upgrade(found)
        before = found.charges()
        found.serve(COORDINATOR)
        assert {name: row["state"] for name, row in found.studies().items()} == {
            **dict.fromkeys(FINISHED, "released"), **dict.fromkeys((*RUNNING, WAITING), "running"),
        }  # fmt: skip
        found.serve(*SITES)
        approve(found, studies[WAITING])
        until(lambda: found.studies()[WAITING]["starts"], "the agreement of all")
        found.restart_later()
        rows = found.until_ended(*RUNNING, WAITING)
        assert {row["state"] for row in rows.values()} == {"released"}
        for name, study in studies.items():
            out = tmp_path / name
            found.command("analyst", "study", "result", study, "--out", out)
            found.command("analyst", "study", "log", study, "--out", out / "rounds.json")
            found.command("analyst", "verify", out / "release.zip", "--log", out / "rounds.json")
        for name in FINISHED:
            published = (layout.root / name / "release.zip").read_bytes()
            assert (tmp_path / name / "release.zip").read_bytes() == published, "the same release for ever"
        for site in SITES:
            found.command(site, "ledger", "verify", "--release", tmp_path / WAITING / "release.zip")
            found.command(site, "egress", "verify")
        after = found.charges()
        for party, charges in after.items():
            assert {study: charges[study] for study in before[party] if study not in running(studies)} == {
                study: cost for study, cost in before[party].items() if study not in running(studies)
            }
            assert charges == after[COORDINATOR], f"{party} and the coordinator agree"


def running(studies: dict[str, str]) -> set[str]:
    return {studies[name] for name in RUNNING}


@EACH
def test_a_backup_of_an_earlier_version_is_restored(version: Path, tmp_path: Path) -> None:
    layout, _ = copied(version, tmp_path / "federation")
    source = layout.root / "backup"
    shutil.rmtree(layout.coordinator)
    with parties(layout, made(version)["at"] - time.time()) as found:
        done = found.run(
            COORDINATOR, "restore", "--from", source, "--dir", layout.coordinator, with_config=False
        )
        assert done.returncode == 0, done.stderr
