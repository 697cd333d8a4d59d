"""Daemons and commands of a federation whose parties have programs of several versions, on one machine."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import time
import zipfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eigenveil_client.demo.federation import COORDINATOR
from eigenveil_client.demo.layout import DemoLayout
from eigenveil_client.demo.processes import command_line

HERE = Path(__file__).resolve().parent
WHEELS = sorted(HERE.glob("*/eigenveil-*.whl"))  # of the earlier versions
SITES = ("hospital-1", "hospital-2", "hospital-3")
SECONDS = 60.0  # for a command, or until a daemon serves
CURRENT: Path | None = None  # the version of this tree
ENDED = ("released", "failed", "cancelled")


def unpacked(wheel: Path, folder: Path) -> Path:
    """A version that Python can run: the files of a wheel, in a folder that is kept between tests."""
    if not folder.exists():
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
    return folder


def environment(version: Path | None, offset: float) -> dict[str, str]:
    """Variables of a process that runs this version, `offset` seconds from now."""
    paths = [HERE / "dated", *([] if version is None else [version])]
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "EIGENVEIL_TESTS_OFFSET": str(offset),
        "OPENBLAS_NUM_THREADS": "1",
    }


@dataclass(slots=True)
class Parties:
    """Parties of the federation in `layout`, each with its version: `CURRENT`, unless it is named."""

    layout: DemoLayout
    offset: float = 0.0
    versions: dict[str, Path | None] = field(default_factory=dict)
    daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def command(self, name: str, *arguments: str | Path) -> dict[str, Any]:
        """Return the JSON object that a party's command prints. The analyst is a party."""
        done = self.run(name, *arguments)
        assert done.returncode == 0, f"{name} {arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        value: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return value

    def run(
        self, name: str, *arguments: str | Path, with_config: bool = True, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command of a party, whether it succeeds or not; `with_config`: on its configuration."""
        own = self.config_option(name) if with_config else []
        line = [*self._line(name), *map(str, arguments), *own, "--json"]
        env = environment(self.versions.get(name), self.offset) | variables
        return subprocess.run(line, env=env, capture_output=True, text=True, timeout=SECONDS, check=False)

    def _line(self, name: str) -> list[str]:
        program = {COORDINATOR: "eigenveil-coordinator", "analyst": "eigenveil"}
        return command_line(program.get(name, "eigenveil-site"))

    def config_option(self, name: str) -> list[str]:
        """The option that names the configuration of a party."""
        if name == "analyst":
            return ["--profile", str(self.layout.analyst)]
        if name == COORDINATOR:
            return ["--config", str(self.layout.coordinator_config)]
        return ["--config", str(self.layout.site_config(name))]

    def serve(self, *names: str) -> None:
        """Start daemons, and wait until they serve."""
        for name in names:
            out, log = (self.layout.logs / f"{name}.{kind}" for kind in ("out", "log"))
            out.write_bytes(b"")
            with out.open("ab") as printed, log.open("ab") as problems:
                self.daemons[name] = subprocess.Popen(
                    [*self._line(name), "serve", *self.config_option(name)],
                    env=environment(self.versions.get(name), self.offset),
                    stdin=subprocess.DEVNULL, stdout=printed, stderr=problems, start_new_session=True,
                )  # fmt: skip
        for name in names:
            out = self.layout.logs / f"{name}.out"
            until(lambda out=out: b"\n" in out.read_bytes(), f"{name} to serve", self._dead)

    def _dead(self) -> str:
        ended = [name for name, one in self.daemons.items() if one.poll() is not None]
        logs = {name: self.layout.logs / f"{name}.log" for name in ended}
        return "\n".join(f"{name}: {log.read_text()[-2000:]}" for name, log in logs.items())

    def kill(self, *names: str) -> None:
        for name in names:
            daemon = self.daemons.pop(name)
            with suppress(ProcessLookupError):  # it ended by itself
                os.killpg(daemon.pid, signal.SIGKILL)
            daemon.wait()

    def restart_later(self, seconds: float = 3600.0) -> None:
        """Kill all daemons, and start them again so much later: a study starts a while after the last person
        has agreed, so that its start does not tell when."""
        names = list(self.daemons)
        self.kill(*names)
        self.offset += seconds
        self.serve(*names)

    def studies(self) -> dict[str, dict[str, Any]]:
        """Return the rows of `study list`, by name."""
        return {row["name"]: row for row in self.command("analyst", "study", "list")["studies"]}

    def until_ended(self, *names: str) -> dict[str, dict[str, Any]]:
        """Wait for the end of these studies; what the list says of all."""
        found: dict[str, dict[str, Any]] = {}

        def ended() -> bool:
            found.update(self.studies())
            return all(found[name]["state"] in ENDED for name in names)

        until(ended, f"{names} to end", self._dead)
        return found

    def rounds(self, study: str) -> int:
        """The number of rounds of a study that are released."""
        statement = "SELECT COUNT(*) FROM releases WHERE study = ?"
        with closing(read_only(self.layout.coordinator / "state.db")) as connection:
            return int(connection.execute(statement, (study,)).fetchone()[0])

    def charges(self) -> dict[str, dict[str, int]]:
        """Micro-rho that each party has charged for each study."""
        parties = {COORDINATOR: self.layout.coordinator, **{name: self.layout.site(name) for name in SITES}}
        return {name: charged(folder / "state.db") for name, folder in parties.items()}


def read_only(database: Path) -> sqlite3.Connection:
    """A database that its daemon has open."""
    return sqlite3.connect(f"file:{database}?mode=ro", uri=True)


def charged(database: Path) -> dict[str, int]:
    """Micro-rho charged for each study in a ledger; no round is charged twice."""
    statement = "SELECT study, round, micro_rho FROM ledger WHERE kind IN ('charge', 'attempt')"
    with closing(read_only(database)) as connection:
        rows = connection.execute(statement).fetchall()
    assert len({row[:2] for row in rows}) == len(rows)
    total: dict[str, int] = {}
    for study, _, micro_rho in rows:
        total[study] = total.get(study, 0) + micro_rho
    return total


def until(
    done: Any, what: str, dead: Any = lambda: "", *, seconds: float = SECONDS, every: float = 0.1
) -> None:
    """Poll until `done`, at most so many seconds; a daemon that ended is an error at once."""
    ends = time.monotonic() + seconds
    while not done():
        problem = dead()
        assert not problem, problem
        assert time.monotonic() < ends, f"waited {seconds:.0f} s for {what}"
        time.sleep(every)


@contextmanager
def parties(
    layout: DemoLayout, offset: float = 0.0, versions: dict[str, Path | None] | None = None
) -> Iterator[Parties]:
    """Parties whose daemons end with the block."""
    found = Parties(layout, offset, versions or {})
    try:
        yield found
    finally:
        found.kill(*found.daemons)
