"""`doctor` on all three sides: each fault planted is found and named, and nothing secret is printed."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest

from eigenveil.accounting.zcdp import Cost
from eigenveil_client import cli
from eigenveil_client.demo.federation import free_ports
from eigenveil_client.site.commands import main as site_cli
from eigenveil_client.site.commands.checks import site_checks
from eigenveil_common import doctor
from eigenveil_common.config import load
from eigenveil_common.doctor import Check, Level
from eigenveil_common.files import write_secret
from eigenveil_server import cli as coordinator_cli
from eigenveil_server.admin.doctor import coordinator_checks
from eigenveil_server.admin.setup import create
from eigenveil_server.config import Config
from tests.client.site.support import FEDERATION, Coordinator, Stage, store_identity
from tests.network.forwarders import ConnectProxy, Inspection
from tests.server.rig import serving

ORDER = (
    "configuration", "approval", "analysts", "disk", "permissions", "peers", "analysts' keys",
    "confirmed cards", "ledger", "records", "engine", "identity", "certificate", "authorities", "proxy",
    "dns", "port", "tls", "coordinator", "clock",
)  # fmt: skip


def configured(stage: Stage, *lines: str) -> Path:
    path = stage.folder / "site.toml"
    keys = ['name = "hospital-a"', 'records = "records.csv"', 'identity = "identity"', 'state = "state.db"']
    path.write_text("\n".join([*keys, 'analysts = ["ada"]', *lines]))
    return path


async def diagnosed(stage: Stage, *lines: str, coordinator: Coordinator | None = None) -> dict[str, Check]:
    async with stage.serving(coordinator or Coordinator()):
        (stage.config.identity).chmod(0o700)
        return by_name(await asyncio.to_thread(site_checks, configured(stage, *lines)))


def by_name(checks: Sequence[Check]) -> dict[str, Check]:
    assert len({check.about for check in checks}) == len(checks)
    return {check.about: check for check in checks}


def found(checks: dict[str, Check], about: str, level: Level, *words: str) -> None:
    check = checks[about]
    assert check.level is level, check.line()
    assert all(word in check.line() for word in words), check.line()


async def test_a_site_where_all_is_well(stage: Stage) -> None:
    stage.store().close()
    stage.know_analyst()
    checks = await diagnosed(stage)
    assert tuple(checks) == ORDER
    assert [check.line() for check in checks.values() if check.level is not Level.OK] == []


def test_a_site_that_is_half_set_up(stage: Stage) -> None:
    for path in stage.config.identity.iterdir():
        path.unlink()
    checks = by_name(site_checks(configured(stage)))
    found(checks, "identity", Level.WARN, "holds no identity yet", "join file")
    found(checks, "ledger", Level.WARN, "does not exist yet")
    found(checks, "network", Level.WARN, "not checked")
    assert not stage.config.state.exists()  # it writes nothing
    (only,) = site_checks(stage.folder / "nothing.toml")
    assert (only.about, only.level) == ("configuration", Level.FAIL)
    checks = by_name(site_checks(configured(stage, "colour = 1")))
    found(checks, "configuration", Level.FAIL, "unknown key colour")


def test_doctor_shows_an_offline_site_where_its_path_ends(stage: Stage) -> None:
    checks = by_name(site_checks(configured(stage)))
    found(checks, "port", Level.FAIL, "no coordinator answers at 127.0.0.1:1", "ask its operator")
    assert "tls" not in checks
    store_identity(stage.authority, stage.config.identity, "no-such-host.invalid:7443")
    checks = by_name(site_checks(configured(stage)))
    found(checks, "dns", Level.FAIL, "no-such-host.invalid cannot be resolved")
    assert "port" not in checks


def test_settings_and_folders_that_others_can_change(stage: Stage) -> None:
    """Write access to site.toml, or to its folders, decides what the site agrees to."""
    stage.config.identity.chmod(0o700)
    isolated = stage.folder / "etc"
    isolated.mkdir(0o700)
    config = isolated / "site.toml"
    keys = {"records": "records.csv", "identity": "identity", "state": "state.db"}
    lines = [f'{key} = "{stage.folder / name}"' for key, name in keys.items()]
    config.write_text("\n".join(['name = "hospital-a"', *lines]))
    assert by_name(site_checks(config))["permissions"].level is Level.OK
    for path in (config, isolated, stage.folder):
        mode = path.stat().st_mode & 0o777
        path.chmod(mode | 0o002)
        found(
            by_name(site_checks(config)), "permissions", Level.FAIL, f"others can change {path}", "chmod go-w"
        )
        path.chmod(mode)
    assert by_name(site_checks(config))["permissions"].level is Level.OK


def edit_ledger(stage: Stage) -> None:
    store = stage.store()
    store.ledger.reserve("ab" * 32, store.ledger.ledger.limit, gaussian=True)
    store.close()
    with closing(sqlite3.connect(stage.config.state)) as connection, connection:
        connection.execute("DROP TRIGGER ledger_is_append_only_update")
        connection.execute("UPDATE ledger SET micro_rho = 1")


def be_another_site(stage: Stage) -> None:
    uri = f"eigenveil://{FEDERATION}/site/other"
    store_identity(stage.authority, stage.config.identity, "127.0.0.1:1", uri=uri)


@pytest.mark.parametrize(
    ("plant", "about", "level", "words"),
    [
        (lambda stage: (stage.config.identity / "key.pem").chmod(0o644), "permissions", Level.FAIL,
         ["key.pem", "chmod 600"]),
        # Root has a group of its own: only others count.
        (lambda stage: stage.config.identity.chmod(0o702), "permissions", Level.FAIL, ["chmod go-w"]),
        (edit_ledger, "ledger", Level.FAIL, ["ledger"]),
        (lambda stage: stage.records.chmod(0o660), "records", Level.WARN,
         ["other users can change", "chmod go-w"]),
        (be_another_site, "identity", Level.FAIL, ["site.toml names the site"]),
    ],
)  # fmt: skip
def test_a_fault_of_a_site_is_named(
    stage: Stage, plant: Callable[[Stage], object], about: str, level: Level, words: list[str]
) -> None:
    plant(stage)
    found(by_name(site_checks(configured(stage))), about, level, *words)


@pytest.mark.parametrize(("days", "level"), [(-1, Level.FAIL), (29, Level.WARN), (30, Level.OK)])
def test_an_approval_that_has_ended_or_soon_will(stage: Stage, days: int, level: Level) -> None:
    ends = datetime.now(UTC).date() + timedelta(days=days)
    found(by_name(site_checks(configured(stage, f'approval_ends = "{ends}"'))), "approval", level, str(ends))


def test_an_approval_ends_by_the_clock_of_the_ledger_too(stage: Stage) -> None:
    """A clock that is set back revives nothing, and doctor says so."""
    store = stage.store()  # its clock is at 1_800_000_000, in January 2027
    store.ledger.reserve("ab" * 32, Cost(micro_rho=1), gaussian=True)
    store.close()
    config = configured(stage, 'approval_ends = "2026-12-31"')
    with mock.patch("time.time", return_value=1_790_000_000):
        found(by_name(site_checks(config)), "approval", Level.FAIL, "2026-12-31")


def test_a_certificate_that_ends_soon_or_has_ended(stage: Stage) -> None:
    async def scenario(life: float) -> dict[str, Check]:
        async with stage.serving(Coordinator()) as port:
            store_identity(stage.authority, stage.config.identity, f"127.0.0.1:{port}", life=life)
            return by_name(await asyncio.to_thread(site_checks, configured(stage)))

    found(asyncio.run(scenario(1.0)), "certificate", Level.WARN, "days left", "renewed")
    ended = asyncio.run(scenario(-1.0))
    found(ended, "identity", Level.FAIL, "expired on")
    found(ended, "tls", Level.OK, "not intercepted")  # the route is checked all the same
    assert "coordinator" not in ended


@pytest.mark.parametrize(("lag", "level"), [(20_000, Level.WARN), (-90_000, Level.FAIL)])
async def test_a_clock_that_differs(stage: Stage, lag: int, level: Level) -> None:
    checks = await diagnosed(stage, coordinator=Coordinator(clock_lag_ms=lag))
    found(checks, "clock", level, f"{'+20' if lag > 0 else '-90'}.", "time server")


async def test_a_coordinator_that_speaks_another_version(stage: Stage) -> None:
    checks = await diagnosed(stage, coordinator=Coordinator(version=9))
    found(checks, "coordinator", Level.FAIL, "version 9", "update the older")


async def test_inspection_is_named(stage: Stage) -> None:
    async with Inspection(folder=stage.folder).listening() as port:
        store_identity(stage.authority, stage.config.identity, f"127.0.0.1:{port}")
        checks = by_name(await asyncio.to_thread(site_checks, configured(stage)))
    found(checks, "port", Level.OK)
    found(checks, "tls", Level.FAIL, "TLS inspection, issuer CN=Hospital TLS Inspection", "ask IT to exempt")


async def test_the_proxy_is_gone_through_and_its_credentials_stay_secret(stage: Stage) -> None:
    write_secret(stage.folder / "proxy.credentials", b"site-a:hunter2")
    results = []
    for user in ("site-a:hunter2", "site-a:other"):
        async with ConnectProxy(user=user).listening() as port:
            lines = (f'proxy = "http://127.0.0.1:{port}"', 'proxy_credentials = "proxy.credentials"')
            results.append(await diagnosed(stage, *lines))
    good, bad = results
    found(good, "proxy", Level.OK, "with a user name")
    found(good, "coordinator", Level.OK)
    found(bad, "port", Level.FAIL, "407 Proxy Authentication Required", "check user and password")
    assert "hunter2" not in "".join(check.line() for check in (*good.values(), *bad.values()))


def test_a_full_disk(tmp_path: Path) -> None:
    for free, level in ((2**40, Level.OK), (2**29, Level.WARN), (2**20, Level.FAIL)):
        usage = SimpleNamespace(free=free)
        with mock.patch("shutil.disk_usage", return_value=usage):
            assert doctor.disk(tmp_path / "not" / "yet").level is level


def federation(folder: Path) -> Path:
    """A coordinator's coordinator.toml, with ports that nobody uses."""
    port, enrol_port = free_ports()
    return create(
        folder, federation=FEDERATION, host="127.0.0.1", port=port, enrol_port=enrol_port,
        budget_epsilon=10.0, budget_delta=1e-6,
    )  # fmt: skip


async def test_a_coordinator_that_serves_and_one_that_does_not(tmp_path: Path) -> None:
    config = federation(tmp_path / "c")

    async with serving(load(config, Config)):
        busy = by_name(await asyncio.to_thread(coordinator_checks, config))
    idle = by_name(coordinator_checks(config))
    assert [check.line() for check in busy.values() if check.level is not Level.OK] == []
    found(busy, "database", Level.OK, "WAL", "FULL")
    found(busy, "port", Level.OK, "TLS 1.3", "days left")
    found(idle, "port", Level.WARN, "no answer", "serve")
    found(idle, "ledger", Level.OK, "consistent")


def test_a_coordinator_s_faults(tmp_path: Path) -> None:
    config = federation(tmp_path / "c")
    (tmp_path / "c" / "ca.key").chmod(0o644)
    checks = by_name(coordinator_checks(config))
    found(checks, "permissions", Level.FAIL, "ca.key", "chmod 600")
    found(checks, "keys", Level.FAIL, "ca.key")
    (tmp_path / "c" / "ca.key").chmod(0o600)
    (tmp_path / "c" / "ca.pem").write_text("nonsense")
    assert by_name(coordinator_checks(config))["authority"].level is Level.FAIL
    (tmp_path / "c" / "state.db").unlink()
    found(by_name(coordinator_checks(config)), "database", Level.FAIL, "eigenveil-coordinator init")
    (only,) = coordinator_checks(tmp_path / "none.toml")
    assert only.level is Level.FAIL


@pytest.mark.parametrize(
    ("address", "level"),
    [
        ("127.0.0.1:9464", Level.OK), ("10.1.2.3:9464", Level.OK), ("0.0.0.0:9464", Level.WARN),
        ("8.8.8.8:9464", Level.WARN),
    ],
)  # fmt: skip
def test_a_plain_listener_on_a_public_address_is_warned_of(
    tmp_path: Path, address: str, level: Level
) -> None:
    config = federation(tmp_path / "c")
    config.write_text(config.read_text() + f'metrics = "{address}"\n')
    checks = by_name(coordinator_checks(config))
    assert checks["metrics"].level is level
    assert "health" not in checks


@pytest.mark.parametrize(
    ("main", "words"),
    [
        (site_cli.main, ["eigenveil-site", "doctor", "--config", "site.toml"]),
        (coordinator_cli.main, ["eigenveil-coordinator", "doctor", "--config", "coordinator.toml"]),
    ],
)
def test_the_commands_exit_with_1_and_speak_json(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    main: object,
    words: list[str],
) -> None:
    assert callable(main)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [*words, "--json"])
    assert main() == 1
    result = json.loads(capsys.readouterr().out)
    assert result["ok"] is False
    assert [set(check) for check in result["checks"]] == [{"check", "level", "text", "action"}]
    monkeypatch.setattr(sys, "argv", words)
    assert main() == 1
    assert capsys.readouterr().out.startswith("fail  configuration")


async def test_an_analyst_s_doctor(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async with stage.serving(Coordinator()):
        stage.config.identity.chmod(0o700)
        words = ["eigenveil", "doctor", "--profile", str(stage.config.identity)]
        monkeypatch.setattr(sys, "argv", words)
        code = await asyncio.to_thread(cli.main)
    assert code == 0
    lines = capsys.readouterr().out.splitlines()
    order = ["permissions", "signing", *ORDER[ORDER.index("identity") :]]
    assert [line.split()[1] for line in lines] == order
    (stage.config.identity / "profile.toml").write_text('proxy = "socks5://x"')
    words = ["eigenveil", "doctor", "--profile", str(stage.config.identity)]
    monkeypatch.setattr(sys, "argv", words)
    assert cli.main() == 1
    assert "fail  proxy" in capsys.readouterr().out
