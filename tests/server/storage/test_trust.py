"""A coordinator and a site refuse to begin with files that others can change."""

from __future__ import annotations

from pathlib import Path

import pytest

from eigenveil.errors import Code, RequestError
from eigenveil_server.storage.database import existing_store
from tests.server.process import command
from tests.server.rig import made


@pytest.mark.parametrize("name", ["authorities.json", "ca.pem", "state.db", "state.db-wal", "."])
def test_a_coordinator_refuses_files_that_others_can_change(tmp_path: Path, name: str) -> None:
    config = made(tmp_path / "c")
    with_log = existing_store(config)
    path = config.files.folder / name
    mode = path.stat().st_mode & 0o777
    path.chmod(mode | 0o002)
    with pytest.raises(RequestError, match=f"others can change {path}; run: chmod go-w ") as caught:
        existing_store(config)
    assert caught.value.code is Code.BAD_CONFIG
    path.chmod(mode)
    existing_store(config).close()
    with_log.close()


def test_serve_refuses_a_coordinator_toml_that_others_can_change(tmp_path: Path) -> None:
    path = made(tmp_path / "c").files.folder / "coordinator.toml"
    path.chmod(0o666)
    code, _, message = command("serve", "--config", str(path))
    assert (code, f"others can change {path}; run: chmod go-w {path}" in message) == (4, True), message


def test_doctor_names_each(tmp_path: Path) -> None:
    folder = made(tmp_path / "c").files.folder
    for name in ("authorities.json", "ca.pem", "coordinator.toml"):
        (folder / name).chmod(0o622)
    code, message, _ = command("doctor", "--config", str(folder / "coordinator.toml"))
    assert code == 1
    (folder / "coordinator.toml").chmod(0o600)
    code, message, _ = command("doctor", "--config", str(folder / "coordinator.toml"))
    for name in ("authorities.json", "ca.pem"):
        assert f"others can change {folder / name}" in message
        assert f"chmod go-w {folder / name}" in message
