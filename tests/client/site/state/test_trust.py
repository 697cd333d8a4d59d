"""A site and an analyst believe no file that others can change."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from eigenveil.errors import RequestError
from eigenveil_client.connection.identity import load_identity
from eigenveil_client.site.commands.checks import site_checks
from eigenveil_client.site.state import store_access
from eigenveil_client.site.state.store import SiteStore
from eigenveil_common.doctor import Level
from tests.client.site.command_line import site, written
from tests.client.site.support import Stage


@pytest.mark.parametrize("name", ["state.db", "state.db-wal", "state.db-shm"])
def test_a_site_refuses_a_ledger_that_others_can_change(stage: Stage, name: str) -> None:
    with closing(stage.store()) as store:
        assert isinstance(store, SiteStore)
        path = stage.config.state.with_name(name)
        path.chmod(0o602)
        message = f"others can change {path}; run: chmod go-w {path}"
        with pytest.raises(RequestError, match=message), store_access.open_site_store(stage.config):
            pass
        with pytest.raises(RequestError, match=message):
            store_access.accept_loss(stage.config)


def test_a_site_refuses_a_site_toml_that_others_can_change(stage: Stage) -> None:
    path = written(stage)
    assert site(path, "authorities").code == 0
    path.chmod(0o602)
    assert site(path, "authorities").code == 4
    path.chmod(0o600)
    path.rename(moved := path.with_name("moved.toml"))
    path.symlink_to(moved)
    assert site(path, "authorities").code == 4


@pytest.mark.parametrize("name", ["authorities.json", "identity.json", "profile.toml", "peers.json"])
def test_an_identity_is_not_believed_that_others_can_change(stage: Stage, name: str) -> None:
    path: Path = stage.config.identity / name
    if not path.exists():
        path.write_text("{}")
    path.chmod(0o600)
    load_identity(stage.config.identity)
    path.chmod(0o606)
    with pytest.raises(RequestError, match=f"others can change {path}; run: chmod go-w {path}"):
        load_identity(stage.config.identity)
    found = {check.about: check for check in site_checks(written(stage))}["permissions"]
    assert found.level is Level.FAIL
    assert str(path) in found.text
