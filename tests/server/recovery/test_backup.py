"""A backup while serving, and a coordinator made from it, which waits for its sites."""

from __future__ import annotations

import asyncio
import json
import shutil
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from eigenveil.errors import Code
from eigenveil.identity import Role
from eigenveil_common.config import load
from eigenveil_common.doctor import Level
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.admin.doctor import coordinator_checks
from eigenveil_server.config import Config
from eigenveil_server.pki.authority import new_key
from tests.server.process import command
from tests.server.rig import Client, Rig, answering, made, refusal, request_for, serving, study_toml
from tests.support import a_hello

Spoil = Callable[[Path], object]
DOCTOR = a_hello()
HELLO = a_hello(next_generation=bytes(32))


def restored(folder: Path) -> Config:
    return replace(load(folder / "coordinator.toml", Config), long_poll_seconds=5.0)


async def study(rig: Rig, name: str) -> bytes:
    """Run a study over all sites; its release."""
    sites, ada = await rig.sites(), await rig.client(Role.ANALYST, "ada")
    for site in sites.values():
        await site.stub.Hello(HELLO)
    while rig.rows("SELECT * FROM awaited_checkpoints"):
        await asyncio.sleep(0.01)
    async with answering(sites):
        digest = await ada.submit(study_toml(name=name), name)
        events = await ada.events(digest)
        assert events[-1].state == pb.STUDY_STATE_RELEASED
        return await ada.release(digest)


def command_output(*arguments: str) -> dict[str, object]:
    code, out, err = command(*arguments, "--json")
    assert code == 0, err
    found: dict[str, object] = json.loads(out)
    return found


async def test_a_backup_while_serving_is_a_coordinator_again(tmp_path: Path) -> None:
    config, out, new = made(tmp_path / "c"), tmp_path / "b", tmp_path / "new" / "c"
    toml = str(tmp_path / "c" / "coordinator.toml")
    async with serving(config) as rig:
        release = await study(rig, "one")
        unused = rig.token(Role.SITE, "dora")
        found = await asyncio.to_thread(command_output, "backup", "--config", toml, "--out", str(out))
        assert found["rows"] == len(rig.repository.ledger.charges()) + 2
    for path in (out, *out.iterdir()):
        assert not stat.S_IMODE(path.stat().st_mode) & 0o077
    found = command_output("restore", "--from", str(out), "--dir", str(new))
    assert found["awaited_checkpoints"] == ["anna", "bert", "carl"]
    (check,) = [one for one in coordinator_checks(new / "coordinator.toml") if one.about == "checkpoints"]
    assert (check.level, "anna, bert, carl" in check.text) == (Level.WARN, True)
    async with serving(restored(new)) as rig:
        refused = await refusal(rig.enrol(unused, request_for(new_key())))
        assert "unknown" in str(refused), "it may have been used since the backup"
        ada = await rig.client(Role.ANALYST, "ada")
        problem = await refusal(ada.submit(study_toml(name="early"), "early"))
        assert problem.code is Code.NOT_READY
        assert "anna, bert, carl" in str(problem)
        studies = (await ada.stub.ListStudies(pb.ListStudiesRequest())).studies
        assert await ada.release(studies[0].plan_digest.hex()) == release
        await study(rig, "two")


async def queried(site: Client, digest: str) -> int:
    """Poll as a site that agrees and has its records; the round of the query that comes at last."""
    plan = bytes.fromhex(digest)
    known = pb.NextWorkRequest(known_plans=[plan], agreed=[pb.Agreed(plan_digest=plan)])
    while not (found := await site.stub.NextWork(known)).HasField("query"):
        assert not found.ended
    assert not found.ended
    return found.query.round


async def test_a_study_under_way_goes_on_only_when_every_site_is_there(tmp_path: Path) -> None:
    config, out, new = made(tmp_path / "c"), tmp_path / "b", tmp_path / "new"
    async with serving(config) as rig:
        await rig.sites()
        digest = await (await rig.client(Role.ANALYST, "ada")).submit(study_toml())
        toml = str(tmp_path / "c" / "coordinator.toml")
        await asyncio.to_thread(command_output, "backup", "--config", toml, "--out", str(out))
    command_output("restore", "--from", str(out), "--dir", str(new), "--without", "carl")
    toml = str(new / "coordinator.toml")
    async with serving(restored(new)) as rig:
        sites = await rig.sites()
        await sites["carl"].stub.Hello(HELLO)
        await sites["anna"].stub.Hello(HELLO)
        polls = [asyncio.ensure_future(queried(site, digest)) for site in sites.values()]
        await sites["bert"].stub.Hello(DOCTOR)  # it has no ledger to show
        assert command_output("checkpoints", "--config", toml)["awaited_checkpoints"] == ["bert"]
        await asyncio.sleep(1.2)  # more than twice the pause between two looks
        assert not any(poll.done() for poll in polls), "no round, and no study is said to have ended"
        assert (
            command_output("checkpoints", "--config", toml, "--without", "bert")["awaited_checkpoints"] == []
        )
        assert await asyncio.gather(*polls) == [0, 0, 0]


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    made(tmp_path / "c")
    command_output(
        "backup", "--config", str(tmp_path / "c" / "coordinator.toml"), "--out", str(tmp_path / "b")
    )
    return tmp_path / "b"


def replaced(folder: Path, old: str, new: str) -> None:
    path = folder / "manifest.json"
    path.write_text(path.read_text().replace(old, new))


def test_nothing_is_overwritten(tmp_path: Path, backup: Path) -> None:
    toml = str(tmp_path / "c" / "coordinator.toml")
    for arguments in (
        ("backup", "--config", toml, "--out", str(backup)),
        ("restore", "--from", str(backup), "--dir", str(tmp_path / "c")),
    ):
        code, _, err = command(*arguments)
        assert code == 9
        assert "nothing was overwritten" in err.replace("\n", " ")
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize(
    "spoil",
    [
        lambda folder: (folder / "release.key").write_bytes(b"x" * 31),
        lambda folder: (folder / "ca.key").unlink(),
        lambda folder: replaced(folder, '"ca.key"', '"../ca.key"'),
        lambda folder: (folder / "manifest.json").write_text("[]"),
        lambda folder: replaced(folder, '"rows": 0', '"rows": 1'),
        lambda folder: replaced(folder, '"format": "eigenveil-backup/', '"format": "'),
        shutil.rmtree,
    ],
    ids=["short key", "no key", "path outside", "no manifest", "other ledger", "no format", "nothing"],
)
def test_what_is_no_whole_backup_is_refused(tmp_path: Path, backup: Path, spoil: Spoil) -> None:
    spoil(backup)
    code, _, _ = command("restore", "--from", str(backup), "--dir", str(tmp_path / "new"))
    assert code == 4
    assert not (tmp_path / "new").exists()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_who_is_gone_must_have_been_a_site(tmp_path: Path, backup: Path) -> None:
    new = str(tmp_path / "new")
    assert command("restore", "--from", str(backup), "--dir", new, "--without", "nobody")[0] == 8
    command_output("restore", "--from", str(backup), "--dir", new)
    toml = str(tmp_path / "new" / "coordinator.toml")
    assert command("checkpoints", "--config", toml, "--without", "nobody")[0] == 8


def test_a_database_on_a_server_is_left_to_its_own_tools(tmp_path: Path, backup: Path) -> None:
    toml = tmp_path / "c" / "coordinator.toml"
    toml.write_text(toml.read_text() + 'database = "postgresql:///eigenveil"\n')
    code, _, err = command("backup", "--config", str(toml), "--out", str(tmp_path / "x"))
    assert code == 4
    assert "pg_dump" in err
