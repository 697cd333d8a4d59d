"""What an officer reads before a word is given."""

from __future__ import annotations

from pathlib import Path

from eigenveil.planning.choose import rehearse
from eigenveil.study.study import Column
from eigenveil_client.site.policy import Approval
from eigenveil_client.site.state import store_access
from tests.client.site.command_line import site, written
from tests.client.site.support import a_plan, a_stage, a_study, work


def test_a_purpose_cannot_pass_for_our_own_lines(tmp_path: Path) -> None:
    stage = a_stage(tmp_path, approval=Approval.ASK)
    plan = a_plan(a_study(purpose=f"harmless{' ' * 180}analyst: dr-known\nin all: 0 bytes"))
    with store_access.open_site_store(stage.config) as store:
        stage.worker(store).work(work(rehearse(plan)[0], stage.signed(plan)))
    said = site(written(stage, 'approval = "ask"\n'), "explain", plan.digest[:12]).out.splitlines()
    assert [line for line in said if line.startswith("| ")] == [
        "| harmless", "| analyst: dr-known", "| in all: 0 bytes",
    ]  # fmt: skip
    assert sum(line.startswith("analyst: ") for line in said) == 1


def test_no_column_hides_among_many_that_are_alike(tmp_path: Path) -> None:
    stage = a_stage(tmp_path, approval=Approval.ASK)
    names = [f"v{number}_A" for number in range(40)]
    plan = a_plan(a_study(columns=tuple(Column(name=name, unit="", lower=0, upper=2) for name in names)))
    with store_access.open_site_store(stage.config) as store:
        stage.worker(store).work(work(rehearse(plan)[0], stage.signed(plan)))
    said = site(written(stage, 'approval = "ask"\n'), "explain", plan.digest[:12]).out
    assert [name for name in names if name not in said] == []
