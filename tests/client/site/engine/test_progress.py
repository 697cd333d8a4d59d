"""The progress of a load is shown to the site's own people while it lasts, and nowhere else."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eigenveil_client.site.commands import study_list
from eigenveil_client.site.engine import progress
from eigenveil_client.site.engine.engine import LocalEngine
from eigenveil_client.site.engine.progress import LoadProgress, progress_file, read_progress
from eigenveil_client.site.state.store_access import exclusive_lock
from tests.client.site.daemon.test_worker import PLAN, reply_to
from tests.client.site.support import Log, Patch, Stage


def rows(number: int) -> Any:
    return np.zeros((number, 2), dtype=np.int16)


def test_records_are_counted_until_the_end_of_a_load(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(progress, "WRITE_SECONDS", 0.0)
    state, taken = tmp_path / "state.db", list[Any]()
    counting = LoadProgress(progress_file(state))
    assert read_progress(state) == {}
    with counting.counted("one", taken.append) as sink:
        assert read_progress(state) == {"one": 0}
        assert progress_file(state).stat().st_mode & 0o777 == 0o600
        with counting.counted("two", taken.append) as other:
            sink(rows(3))
            other(rows(4))
            sink(rows(2))
            assert read_progress(state) == {"one": 5, "two": 4}
        assert read_progress(state) == {"one": 5}
    assert (read_progress(state), os.listdir(tmp_path), len(taken)) == ({}, [], 3)


def test_a_failed_load_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError):
        fail(LoadProgress(tmp_path / "loading.json"))
    assert os.listdir(tmp_path) == []


def fail(counting: LoadProgress) -> None:
    with counting.counted("one", lambda rows: None) as sink:
        sink(rows(1))
        raise RuntimeError


def test_a_file_that_cannot_be_written_or_read_harms_nothing(tmp_path: Path) -> None:
    counting = LoadProgress(tmp_path / "absent" / "loading.json")
    with counting.counted("one", lambda rows: None) as sink:
        sink(rows(1))
    progress_file(tmp_path / "state.db").write_bytes(b"\xff{")
    assert read_progress(tmp_path / "state.db") == {}


def test_the_list_of_studies_shows_it_and_no_log_does(stage: Stage, monkeypatch: Patch, caplog: Log) -> None:
    caplog.set_level(logging.DEBUG, "eigenveil")
    monkeypatch.setattr(progress, "WRITE_SECONDS", 0.0)
    shown: list[dict[str, Any]] = []
    with stage.process() as (store, worker):
        engine = worker._engine
        assert isinstance(engine, LocalEngine)
        engine._progress = LoadProgress(progress_file(stage.config.state))
        read = engine._read

        def looked(study: Any, sink: Any) -> Any:
            found = read(study, sink)
            shown.extend(study_list.studies(stage.config, store)["studies"])
            return found

        engine._read = looked
        with exclusive_lock(stage.config.state):
            reply_to(stage, worker)
        progress_file(stage.config.state).write_text(f'{{"{PLAN.digest}": 7}}')  # of a daemon that was killed
        after = study_list.studies(stage.config, store)["studies"]
    assert [(one["study"], one["loading"]) for one in shown] == [(PLAN.digest, 40)]
    assert study_list._decided(shown[0]) == "accepted, loading: 40 records so far"
    assert [one["loading"] for one in after] == [None]
    assert "40" not in " ".join(caplog.messages).replace(PLAN.digest, "").replace(PLAN.digest[:12], "")
    assert json.dumps(shown)
