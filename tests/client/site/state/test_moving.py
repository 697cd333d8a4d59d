"""A site moves to another machine: its ledgers go on there, and nothing is answered here any more."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from eigenveil.aggregation import Contribution
from eigenveil.errors import Code
from eigenveil.planning.choose import rehearse
from eigenveil.protocol.plan import Plan
from eigenveil_client.connection.identity import load_identity
from eigenveil_client.site import config as site_config
from eigenveil_client.site.engine.engine import make_engine
from eigenveil_client.site.state import moving
from eigenveil_client.site.state.store_access import exclusive_lock, open_site_store
from tests.client.site.command_line import site, written
from tests.client.site.support import Driven, Stage, a_plan, killed_at, work
from tests.support import refused

PLAN, LATER = a_plan(), a_plan(submission="later")


def answers(config: Path, stage: Stage, plan: Plan, round: int = 0) -> object:
    loaded = site_config.load(config)
    with open_site_store(loaded) as store:
        identity = load_identity(loaded.identity)
        worker = Driven(identity, loaded.policy, store, make_engine(loaded))
        return worker.work(work(rehearse(plan)[round], stage.signed(plan)))


@pytest.fixture
def config(stage: Stage) -> Path:
    path = written(stage)
    first = answers(path, stage, PLAN)
    assert isinstance(first, Contribution)
    return path


def test_a_site_goes_on_where_it_moved_to_and_not_here(stage: Stage, config: Path, tmp_path: Path) -> None:
    out, new = tmp_path / "out", tmp_path / "new"
    before = site(config, "ledger", "show", "--json").json
    moved = site(config, "move-out", "--out", out, "--json")
    assert (moved.code, moved.json["rows"]) == (0, len(before["entries"]))
    assert all(path.stat().st_mode & 0o077 == 0 for path in [out, *out.rglob("*")])
    for command in (("ledger", "show"), ("serve",), ("studies",)):
        assert site(config, *command).code == Code.CONFLICT.exit_code
    with refused(Code.CONFLICT, "moved to another machine", "delete"):
        answers(config, stage, LATER)
    arrived = site(None, "move-in", "--from", out, "--dir", new, "--json")
    assert (arrived.code, arrived.json["name"]) == (0, "hospital-a")
    there = new / "site.toml"
    there.write_text(there.read_text().replace(stage.records.name, str(stage.records)))
    assert site(there, "ledger", "show", "--json").json["entries"] == before["entries"]
    again = answers(there, stage, PLAN)
    assert isinstance(again, Contribution)
    assert site(there, "ledger", "show", "--json").json["entries"] == before["entries"], "the same answer"
    assert isinstance(answers(there, stage, LATER), Contribution)
    assert site(there, "egress", "verify").code == 0


@pytest.mark.parametrize("point", ["move-written", "move-marked", "folder-replacing"])
def test_a_move_that_is_interrupted_is_repeated(
    stage: Stage, config: Path, tmp_path: Path, point: str
) -> None:
    loaded, out = site_config.load(config), tmp_path / "out"
    with killed_at(point):
        moving.move_out(config, loaded, out)
    assert not out.exists()
    with refused(Code.CONFLICT, "add --again"):
        moving.move_out(config, loaded, tmp_path / "again")
    manifest = moving.move_out(config, loaded, tmp_path / "again", again=True)
    assert moving.move_in(tmp_path / "again", tmp_path / "new")[0] == manifest


def test_a_folder_that_was_changed_is_refused(stage: Stage, config: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    moving.move_out(config, site_config.load(config), out)
    for name in ("state.db", "egress.key", "identity/ledger.json", "site.toml", "manifest.json"):
        copy = tmp_path / f"changed-{Path(name).name}"
        shutil.copytree(out, copy)
        data = bytearray((copy / name).read_bytes())
        data[len(data) // 2] ^= 1
        (copy / name).write_bytes(data)
        with refused(Code.BAD_CONFIG):
            moving.move_in(copy, tmp_path / "new")
        assert not (tmp_path / "new").exists()


def test_a_running_daemon_and_an_existing_folder_stop_a_move(
    stage: Stage, config: Path, tmp_path: Path
) -> None:
    loaded, out = site_config.load(config), tmp_path / "out"
    with exclusive_lock(loaded.state), refused(Code.CONFLICT, "stop it first"):
        moving.move_out(config, loaded, out)
    (out / "something").mkdir(parents=True)
    with refused(Code.CONFLICT, "exists already"):
        moving.move_out(config, loaded, out)
    assert isinstance(answers(config, stage, LATER), Contribution), "it is still here"
