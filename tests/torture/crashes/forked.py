"""A federation of forked processes for tests that kill: a coordinator, two sites, an analyst."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import numpy as np

from eigenveil.numerics.encoding import FloatArray
from eigenveil_client.connection.identity import StoredIdentity, load_identity
from eigenveil_client.demo.federation import free_ports
from tests.server.masked.sites import masked_toml
from tests.server.rig import records, study_toml
from tests.torture.crashes.armed import Command, Kill
from tests.torture.masked.known import exchange_key_cards

SITES = ("anna", "bert")
COORDINATOR, OPERATOR, ANALYST = "coordinator", "operator", "ada"
PROGRAMS = {COORDINATOR: "eigenveil-coordinator", OPERATOR: "eigenveil-coordinator", ANALYST: "eigenveil"}
COLUMNS, ROWS = 4, 100
LACKING = 5  # columns of a study that asks for one of which anna has no value
START_SECONDS, GLANCE = 60.0, 0.01
BUDGET = ("--budget-epsilon", "10000")

STUDIES: Mapping[str, str] = {
    "plain": study_toml(sites=SITES, deadline_seconds=60.0),
    "parts": study_toml(sites=SITES, deadline_seconds=60.0, algorithm="private-oja", components=1).replace(
        "components = 1", "components = 1\nbatches = 4"
    ),
    "masked": masked_toml(sites=SITES, quorum=2, deadline_seconds=60.0),
    # What its records forbid a site tells in each round, after it agreed.
    "declined": study_toml(sites=SITES, deadline_seconds=60.0, columns=LACKING, quorum=1),
}


@dataclass(slots=True)
class Federation:
    """Everything in one folder. `renews`: its certificates, every few seconds. `wide`: columns of all
    records, if not those of STUDIES. `database`: the URL of the coordinator's, if not a file. `planted`: what
    every process calls at its start."""

    folder: Path
    names: tuple[str, ...] = SITES
    renews: bool = True
    wide: int = 0
    database: str = ""
    planted: Callable[[], object] | None = None
    processes: dict[str, ForkServerProcess] = field(default_factory=dict)
    serial: int = 0

    @property
    def books(self) -> Path | str:
        return self.database or self.folder / COORDINATOR / "state.db"

    @property
    def sites(self) -> dict[str, Path]:
        return {name: self.folder / name / "state.db" for name in self.names}

    @property
    def records(self) -> dict[str, FloatArray]:
        columns = range(COLUMNS)
        tables = {name: self.folder / f"{name}.csv" for name in self.names}
        return {
            name: np.loadtxt(path, delimiter=",", skiprows=1, usecols=columns)
            for name, path in tables.items()
        }

    @property
    def analyst(self) -> StoredIdentity:
        return load_identity(self.folder / ANALYST)

    def config(self, name: str) -> str:
        file = "coordinator.toml" if name == COORDINATOR else "site.toml"
        return str(self.folder / name / file)

    def start(self, name: str, *arguments: str, kill: Kill | None = None) -> Command:
        """Start a command of the coordinator, a site or the analyst under this name; without arguments,
        serve."""
        self.serial += 1
        command = Command(
            program=PROGRAMS.get(name, "eigenveil-site"),
            arguments=arguments or ("serve", "--config", self.config(name)),
            out=self.folder / f"{name}-{self.serial}.out", log=self.folder / f"{name}.log", kill=kill,
            renews=self.renews, planted=self.planted,
        )  # fmt: skip
        self.processes[name] = command.start()
        return command

    async def ended(self, name: str) -> int:
        process = self.processes[name]
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(process.sentinel, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(process.sentinel)
        process.join()
        code = process.exitcode
        assert code is not None
        return code

    async def done(self, name: str, *arguments: str, kill: Kill | None = None) -> int:
        """Run a command to its end; its exit code. It runs beside the daemon of that name, if any."""
        daemon = self.processes.pop(name, None)
        self.start(name, *arguments, kill=kill)
        try:
            return await self.ended(name)
        finally:
            del self.processes[name]
            if daemon is not None:
                self.processes[name] = daemon

    async def serves(self, command: Command, name: str) -> bool:
        """Wait until a daemon has said that it serves; False if it ended before."""
        deadline = time.monotonic() + START_SECONDS
        while command.result() is None:
            if not self.processes[name].is_alive():
                return False
            assert time.monotonic() < deadline, f"{name}: {command.log.read_text()[-500:]}"
            await asyncio.sleep(GLANCE)
        return True

    async def set_up(self) -> None:
        """Make the federation; the coordinator serves when this returns, and the sites do not."""
        await self.set_up_coordinator()
        for seed, name in enumerate(self.names):
            await self.make_site(name, seed)
            await self.enrol(name, await self.join(name))
        exchange_key_cards({name: self.folder / name / "identity" for name in self.names})
        await self.enrol_analyst()

    async def set_up_coordinator(self) -> None:
        """Make the coordinator, and start it."""
        port, enrol_port = free_ports()
        await self._well(
            COORDINATOR, "init", "--dir", str(self.folder / COORDINATOR), "--federation", "torture",
            "--port", str(port), "--enrol-port", str(enrol_port), *BUDGET,
            *(("--database", self.database) if self.database else ()),
        )  # fmt: skip
        assert await self.serves(self.start(COORDINATOR), COORDINATOR), self.log(COORDINATOR)

    async def enrol(self, name: str, join: str) -> None:
        """Enrol a site."""
        await self._well(name, "enrol", "--config", self.config(name), "--join", join)

    async def enrol_analyst(self) -> None:
        join = await self.join(ANALYST, "analyst")
        await self._well(ANALYST, "enrol", "--join", join, "--profile", str(self.folder / ANALYST))

    async def make_site(self, name: str, seed: int) -> None:
        table = self.folder / f"{name}.csv"
        columns = self.wide or LACKING
        remaining = COLUMNS if name == self.names[0] and not self.wide else columns
        rows = [
            ",".join([*(f"{value:.6f}" for value in row[:remaining]), *[""] * (columns - remaining)])
            for row in records(ROWS, columns, seed)
        ]
        table.write_text("\n".join([",".join(f"c{index}" for index in range(columns)), *rows]) + "\n")
        await self._well(
            name, "init", "--dir", str(self.folder / name), "--name", name, "--records", str(table),
            "--approval", "auto", "--analyst", "*", "--max-epsilon-per-study", "5",
            "--minimum-records", "80", *BUDGET,
            "--algorithm", "private-oja", "--algorithm", "gauss-cov", "--algorithm", "dp-pca",
        )  # fmt: skip
        config = Path(self.config(name))
        message = config.read_text()
        assert "\ntrust = []\n" in message  # else nothing but masked studies once its peers are known
        message = message.replace("trust = []", 'trust = ["central", "secure-aggregation"]')
        if self.wide:
            assert "\nmax_columns_per_record = 2.0\n" in message
            message = message.replace("max_columns_per_record = 2.0", "max_columns_per_record = inf")
        config.write_text(message)

    async def join(self, name: str, role: str = "site") -> str:
        self.serial += 1
        path = self.folder / f"{name}-{self.serial}.join"
        await self._well(
            COORDINATOR, "token", "--config", self.config(COORDINATOR), "--role", role, "--name", name,
            "--out", str(path),
        )  # fmt: skip
        return str(path)

    async def _well(self, name: str, *arguments: str) -> None:
        code = await self.done(name, *arguments)
        assert code == 0, f"{name} {arguments[0]}: {code}\n{self.log(name)}"

    def log(self, name: str) -> str:
        """The end of what `name` has logged."""
        return (self.folder / f"{name}.log").read_text()[-1500:]

    def stop(self, names: Sequence[str] = ()) -> None:
        for name in names or tuple(self.processes):
            process = self.processes.pop(name)
            if process.is_alive() and process.pid is not None:
                os.kill(process.pid, 9)
            process.join()
