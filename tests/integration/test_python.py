"""A federation of three sites driven from Python alone: `eigenveil.connect()` and what it gives."""

from __future__ import annotations

import _thread
import json
import logging
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import eigenveil
from eigenveil import EigenveilError, load_release
from eigenveil.errors import Code
from eigenveil_client.analyst import client
from eigenveil_client.analyst.python.connect import ConnectedFederation
from eigenveil_client.demo.federation import COORDINATOR
from eigenveil_client.demo.processes import command_line
from tests.integration.stage import SITES, Stage

COLUMNS = ["radius", "texture", "area"]
LAST = SITES[-1]


@pytest.fixture
def federation(published: Stage) -> Iterator[ConnectedFederation]:
    with eigenveil.connect(published.layout.analyst) as connected:
        yield connected


@contextmanager
def refused(code: Code, message: str | None = None) -> Iterator[None]:
    with pytest.raises(EigenveilError, match=message) as raised:
        yield
    assert raised.value.code is code


@contextmanager
def without(stage: Stage, *names: str) -> Iterator[None]:
    """While a site or the coordinator is down."""
    for name in names:
        stage.federation.kill(name)
    try:
        yield
    finally:
        for name in names:
            stage.federation.restart(name)


def test_from_nothing_to_a_result_without_an_event_loop_in_sight(
    federation: ConnectedFederation, published: Stage, tmp_path: Path
) -> None:
    assert [site.name for site in federation.sites] == list(SITES)
    assert {*COLUMNS} < {column.name for column in federation.columns}
    before = federation.budget
    study = federation.study(
        columns=COLUMNS, epsilon=0.4, components=1, name="from-python", bounds={"area": (0, 3000)}
    )
    plan, response = study.plan(), study.explain()
    assert response.left == before.studies_left(plan.cost)
    assert "area: bounds 0 to 3000" in str(study)
    (tmp_path / "study.toml").write_text(study.toml)
    for source in (tmp_path / "study.toml", study.study):
        assert federation.study(source).study == study.study
    with refused(Code.BAD_STUDY, "Leave out epsilon"):
        federation.study(study.study, epsilon=2)

    run = study.submit()
    run.wait()
    assert run.status.state == "released"
    assert run.status.spent == pytest.approx(1, abs=0.05)
    assert run.result.public_key == published.analyst.authorities.release_key
    assert run.result.components.shape == (1, 3)
    assert load_release(run.fetch()).document == run.result.document
    assert federation.budget.left.micro_rho == before.left.micro_rho - round(
        run.status.spent * plan.cost.micro_rho
    )
    with eigenveil.connect(published.layout.analyst) as later:
        again = later.run(run.digest[:8])
        assert np.array_equal(again.result.components, run.result.components)
        assert [event["state"] for event in again.events()][-1] == "released"
        frame = later.studies.to_dataframe()
        assert frame[frame["name"] == "from-python"]["state"].tolist() == ["released"]
    for shown in (federation, federation.sites, federation.columns, before, study, plan, response, run):
        html = shown._repr_html_()
        assert html.startswith('<div class="eigenveil">')
        assert not any(word in html + repr(shown) for word in ("micro-rho", "zCDP"))


def test_an_identical_study_is_charged_again_only_with_again(
    federation: ConnectedFederation,
) -> None:
    study = federation.study(columns=COLUMNS, epsilon=0.2, components=1)
    first = study.submit()
    first.wait()
    with refused(Code.CONFLICT, f"{first.short}.*epsilon of 0.2"):
        study.submit()
    assert study.submit(submission=first.submission).digest == first.digest
    second = study.submit(again=True)
    assert second.digest != first.digest
    second.wait()


async def test_it_works_inside_a_running_event_loop_and_from_many_threads(
    federation: ConnectedFederation, published: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    async def cell() -> int:
        return len(federation.sites)

    assert (await cell()) == len(SITES)
    with (
        caplog.at_level(logging.ERROR, logger="asyncio"),
        eigenveil.connect(published.layout.analyst) as other,
        ThreadPoolExecutor(6) as pool,
    ):
        query = [pool.submit(lambda one=one: len(one.sites)) for one in [federation, other] * 6]  # type: ignore[misc]
        assert {one.result() for one in query} == {len(SITES)}
    assert caplog.records == []


def test_a_wait_outlives_the_coordinator_and_ctrl_c_does_not_end_a_study(
    federation: ConnectedFederation, published: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    pool = ThreadPoolExecutor(1)
    with without(published, LAST):
        run = federation.study(columns=COLUMNS, epsilon=0.3, components=1).submit()
        with refused(Code.NOT_READY, "still runs after"):
            run.wait(timeout=0.5)
        with refused(Code.NOT_READY):
            run.result  # noqa: B018
        threading.Timer(1.0, _thread.interrupt_main).start()
        with pytest.raises(KeyboardInterrupt):
            run.wait()
        assert "continues" in capsys.readouterr().out
        assert run.status.state == "running"
        waiting = pool.submit(run.wait)
        with without(published, COORDINATOR):
            assert not waiting.done()
    waiting.result(120)
    assert run.status.state == "released"


def test_a_study_reserves_its_cost_until_it_is_cancelled(
    federation: ConnectedFederation, published: Stage
) -> None:
    with without(published, LAST):
        run = federation.study(columns=COLUMNS, epsilon=5, components=1).submit()
        with refused(Code.BUDGET):
            federation.study(columns=COLUMNS, epsilon=4.9, components=1).submit()
        run.cancel()
        with refused(Code.CANCELLED, "charges remain"):
            run.wait()
        assert (run.status.state, run.status.ended) == ("cancelled", True)
        with refused(Code.CANCELLED):
            run.fetch()


def test_a_study_waits_for_a_person_and_fails_with_the_word_of_who_declines(
    federation: ConnectedFederation, published: Stage
) -> None:
    config = published.layout.site_config(LAST)
    by_its_rules = config.read_text()
    with without(published, LAST):
        config.write_text(by_its_rules.replace('approval = "auto"', 'approval = "manual"'))
    try:
        study = federation.study(columns=COLUMNS, epsilon=0.2, components=1, deadline_seconds=3600)
        run = study.submit()
        for _ in run.messages():
            if f"{LAST}  waiting for a person" in repr(run):
                break
        assert run.status.consent[LAST] == "waiting for a person"
        assert LAST in repr(study)
        assert "until" in run.status.waits
        declined = [*command_line("eigenveil-site"), "decline", run.short, "--config", str(config)]
        subprocess.run([*declined, "--reason", "purpose", "--by", "Ada"], check=True, capture_output=True)
        with refused(Code.STUDY_FAILED, f"{LAST}: declined: .*no query was sent to any site"):
            run.wait()
        assert run.status.failure in repr(run)
        assert run.status.spent == 0
    finally:
        with without(published, LAST):
            config.write_text(by_its_rules)


def test_connect_reports_a_missing_identity_and_an_unreachable_coordinator(
    published: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with refused(Code.BAD_CONFIG, "nrol with a join file"):
        eigenveil.connect(tmp_path / "nobody")
    monkeypatch.setenv("EIGENVEIL_PROFILE", str(published.layout.analyst))
    with eigenveil.connect() as known:
        assert len(known.sites) == len(SITES)
    with refused(Code.CANCELLED, "closed"):
        known.sites  # noqa: B018
    with refused(Code.BAD_CONFIG, "a site's"):
        eigenveil.connect(published.layout.site(LAST) / "identity")
    away = shutil.copytree(published.layout.analyst, tmp_path / "away")
    about = json.loads((away / "identity.json").read_text())
    (away / "identity.json").write_text(json.dumps(about | {"coordinator": "127.0.0.1:9"}))
    monkeypatch.setattr(client, "ATTEMPTS", 2)
    with eigenveil.connect(away) as far, refused(Code.UNREACHABLE):
        far.budget  # noqa: B018


@pytest.mark.parametrize("end", ["", "events = run.messages(); next(events)"])
def test_python_ends_without_a_word_whatever_goes_on(published: Stage, end: str) -> None:
    code = f"""
import eigenveil
federation = eigenveil.connect({str(published.layout.analyst)!r})
run = federation.study(columns={COLUMNS}, epsilon=0.2, components=1).submit(again=True)
{end}
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
