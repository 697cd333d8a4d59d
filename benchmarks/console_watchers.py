"""Cost of watching people to a round: rounds a second without and with 50 live pages open, in turns.

One real federation on loopback, each party in a process of its own: a coordinator with a console, three
sites, and one process in which five analysts hold ten live pages each. Studies follow each other, every
second one watched; rounds are counted by the coordinator's own records.

`python -m benchmarks.console_watchers` prints both speeds and their ratio."""

from __future__ import annotations

import asyncio
import sqlite3
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from ssl import VERIFY_X509_PARTIAL_CHAIN, SSLContext, create_default_context

import numpy as np

from benchmarks.federation import Wide, released, write
from benchmarks.process import free_ports, kept_if_failed
from eigenveil.study.toml import parse_study
from eigenveil_client.analyst.client import Analyst
from eigenveil_client.connection.identity import load_identity
from eigenveil_client.demo.layout import DemoLayout, open_demo_folder
from eigenveil_client.demo.processes import Job, Processes

SITES = ("site-a", "site-b", "site-c")
COLUMNS, RECORDS, PAIRS = 20, 500, 5
ANALYSTS, PAGES = 5, 10
TARGET = 0.9
STUDY = f"""name = "watched"
algorithm = "dp-pca"
components = 3
[privacy]
epsilon = 0.5
delta = 1e-6
[federation]
sites = {list(SITES)!r}
[records]
max_records = 100000
expected_records = {RECORDS * len(SITES)}
""" + "".join(f'[[columns]]\nname = "x{i}"\nunit = "1"\nlower = -6\nupper = 6\n' for i in range(COLUMNS))


class Consoled(Wide):
    """A federation whose coordinator has a console on `port`."""

    port = 0

    def _serve_coordinator(self) -> Job:
        (self.port,) = free_ports(1)
        with self._layout.coordinator_config.open("a") as file:
            file.write(f'\n[console]\nlisten = "127.0.0.1:{self.port}"\n')
        return super()._serve_coordinator()


def enrolled(layout: DemoLayout, federation: Consoled, number: int) -> Path:
    """A further analyst's profile."""
    name, profile = f"watcher-{number}", layout.root / "logs" / f"watcher-{number}"
    join = layout.root / "logs" / f"{name}.json"
    config = ("--config", str(layout.coordinator_config))
    program = [sys.executable, "-P", "-c"]
    token = ["token", *config, "--role", "analyst", "--name", name, "--out", str(join), "--json"]
    code = "import sys; from {} import {} as run; sys.exit(run())"
    subprocess.run(
        [*program, code.format("eigenveil_server.entry", "coordinator"), *token],
        check=True, capture_output=True,
    )  # fmt: skip
    enrol = ["enrol", "--join", str(join), "--profile", str(profile), "--json"]
    subprocess.run(
        [*program, code.format("eigenveil_client.entry", "analyst"), *enrol], check=True, capture_output=True
    )
    return profile


@contextmanager
def watched(port: int, profiles: Sequence[Path]) -> Iterator[None]:
    """All pages open, in a process of their own, each with its first piece."""
    command = [sys.executable, "-m", "benchmarks.console_watchers", "--watch", str(port), *map(str, profiles)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            if process.stdout.readline().strip() != str(len(profiles) * PAGES):
                raise RuntimeError("not every page could be opened")
            yield
        finally:
            process.kill()


async def hold(port: int, profiles: Sequence[Path]) -> None:
    """Open every page, say so, and read whatever comes until this process is killed."""
    opened = await asyncio.gather(*(page(port, context(one)) for one in profiles for _ in range(PAGES)))
    print(len(opened), flush=True)
    await asyncio.gather(*(drained(reader) for reader, _ in opened))


async def page(port: int, tls: SSLContext) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
    writer.write(f"GET /live HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    if b" 200 " not in head.splitlines()[0]:
        raise RuntimeError(head.splitlines()[0].decode())
    await reader.readuntil(b"under-way")
    return reader, writer


async def drained(reader: asyncio.StreamReader) -> None:
    while await reader.read(65536):
        pass
    raise RuntimeError("a page has ended")


def context(profile: Path) -> SSLContext:
    """TLS with one analyst's certificate."""
    stored = load_identity(profile)
    made = create_default_context(cadata=stored.ca_pem.decode())
    made.verify_flags |= VERIFY_X509_PARTIAL_CHAIN
    made.load_cert_chain(stored.pair)
    return made


async def one_study(layout: DemoLayout, submission: str) -> None:
    async with Analyst(load_identity(layout.analyst)) as analyst:
        plan, _ = await analyst.submit(STUDY, submission)
    await released(layout, bytes.fromhex(plan.digest))


def speed(layout: DemoLayout) -> float:
    """Rounds a second of the study that ended last."""
    with closing(sqlite3.connect(layout.coordinator / "state.db")) as database:
        ((many, first, last),) = database.execute(
            "SELECT COUNT(*), MIN(opened_at), MAX(released_at) FROM rounds WHERE study = "
            "(SELECT digest FROM studies ORDER BY submitted_at DESC LIMIT 1)"
        ).fetchall()
    return 1000 * float(many) / float(last - first)


def run() -> tuple[list[float], list[float]]:
    """Rounds a second without watchers, and with."""
    study = parse_study(STUDY)
    with kept_if_failed() as folder, open_demo_folder(folder / "bench") as layout:
        layout.study.write_text(STUDY)
        processes = Processes(layout.logs)
        try:
            federation = Consoled(layout, study, processes)
            generator = np.random.default_rng(0)
            for name in SITES:
                write(layout, study, name, generator.normal(size=(RECORDS, COLUMNS)))
            federation.set_up()
            profiles = [enrolled(layout, federation, number) for number in range(ANALYSTS)]
            asyncio.run(one_study(layout, "warm"))
            alone, combined = list[float](), list[float]()
            for turn in range(PAIRS):
                asyncio.run(one_study(layout, f"alone-{turn}"))
                alone.append(speed(layout))
                with watched(federation.port, profiles):
                    asyncio.run(one_study(layout, f"watched-{turn}"))
                combined.append(speed(layout))
            return alone, combined
        finally:
            processes.stop()


def main() -> None:
    alone, combined = run()
    ratios = [after / before for before, after in zip(alone, combined, strict=True)]
    print(
        f"console: {ANALYSTS * PAGES} live pages: {statistics.median(combined):.1f} rounds/s, without "
        f"{statistics.median(alone):.1f}; ratio {statistics.median(ratios):.3f} (target {TARGET} or more; "
        f"each pair: {', '.join(f'{one:.3f}' for one in ratios)})"
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--watch"]:
        asyncio.run(hold(int(sys.argv[2]), [Path(one) for one in sys.argv[3:]]))
    else:
        main()
