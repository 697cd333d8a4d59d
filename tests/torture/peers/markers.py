"""Two hundred patient markers in the records of two sites: they appear nowhere else.

A federation of processes answers a study, declines others, is restarted and crashes, with every logger at
DEBUG and every message written down before it is encrypted. Then all that is on the disk is searched but the
records, and what `explain` shows to a person of a site, three cells of a column among it. Passed: no marker
is found, and the same search finds each one that is written into a log on purpose.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
import urllib.request
from pathlib import Path
from unittest import mock

from eigenveil.study.algorithm import Algorithm
from eigenveil.study.study import Study
from eigenveil.study.toml import study_to_toml
from eigenveil_client.analyst.client import Analyst
from eigenveil_client.connection.identity import load_identity
from eigenveil_client.demo.federation import COORDINATOR, DemoFederation, free_ports
from eigenveil_client.demo.layout import DemoLayout, demo_study, open_demo_folder, public_records
from eigenveil_client.demo.processes import Job, Processes
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.torture.peers.planted import Marker, Planted, found, plant, write_csv, write_parquet

SPY = Path(__file__).with_name("spy")
SITES = ("hospital-1", "hospital-2")
RECORDS = (".csv", ".parquet", ".copy")
SHOWN = "-explain.out"
CORE = "Max core file size"
# What the log of a site says once all of it has happened: an error that quotes records, raised while they are
# read and told by its class; an open quote; too few records; a crash.
HAPPENED = (
    "code=bad-data about=reader type=ValueError", "code=bad-data about=quotes", "code=too-few-records",
    "Fatal Python error: Aborted",
)  # fmt: skip


class Marked(DemoFederation):
    """A demonstration whose daemons have every file and listener that they can have."""

    def __init__(self, layout: DemoLayout, study: Study, processes: Processes) -> None:
        super().__init__(layout, study, processes)
        self._folder = layout
        self.metrics = f"127.0.0.1:{free_ports()[0]}"

    def _serve_coordinator(self) -> Job:
        _append(self._folder.coordinator_config, f'metrics = "{self.metrics}"\n', "metrics")
        return super()._serve_coordinator()

    def serve_site(self, name: str) -> Job:
        """Start a site's daemon, which groups rows by patient and writes its metrics into a file."""
        path = self._folder.site_config(name)
        text = path.read_text().replace('person_column = ""', 'person_column = "patient_id"')
        if name == SITES[1]:
            text = text.replace(f"{name}.csv", f"{name}.parquet")
        _replace(path, text)
        _append(path, 'metrics_file = "metrics.prom"\n', "metrics_file")
        return super().serve_site(name)


def _append(path: Path, line: str, key: str) -> None:
    if key not in path.read_text():
        _replace(path, path.read_text() + line)


def _replace(path: Path, text: str) -> None:
    """At once: a command may be reading it."""
    whole = path.with_suffix(".new")
    whole.write_text(text)
    whole.replace(path)


def run(folder: Path, scale: float) -> tuple[list[str], str]:
    """The same at every scale: it takes its time to start, not to run."""
    spy, temporary = folder / "spy", folder / "tmp"
    for made in (spy, temporary):
        made.mkdir(parents=True)
    changes = spying(spy) | {
        "PYTHONFAULTHANDLER": "1", "PYTHONDEVMODE": "1", "TMPDIR": str(temporary), "GRPC_VERBOSITY": "DEBUG",
    }  # fmt: skip
    with mock.patch.dict(os.environ, changes), open_demo_folder(folder / "demo") as layout:
        planted, released, dumps = _federation(layout, spy)
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix not in RECORDS]
    files = [path for path in files if not path.name.endswith(SHOWN)]
    log = (layout.logs / f"{SITES[0]}.log").read_text(errors="replace")
    wrong = [f"{marker.text} in {path.relative_to(folder)}" for marker, path in found(planted.markers, files)]
    wrong += [f"{name} may dump core" for name in dumps]
    wrong += [f"no log says {words!r}" for words in HAPPENED if words not in log]
    size, control = sum(path.stat().st_size for path in files), _control(planted.markers, layout)
    if control != len(planted.markers):
        wrong.append("the search does not find every marker that is planted")
    if not released:
        wrong.append("the study was not released")
    return wrong, (
        f"{len(planted.markers)} markers in no one of {len(files)} files ({size / 2**20:.1f} MiB: logs at "
        f"DEBUG, databases, messages, metrics, crashes); {control} found when planted"
    )


def spying(spy: Path) -> dict[str, str]:
    """The environment of processes that write their messages down in a folder."""
    path = os.pathsep.join([str(SPY), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    return {"PYTHONPATH": path, "EIGENVEIL_SPY": str(spy)}


def _control(markers: list[Marker], layout: DemoLayout) -> int:
    """Write every marker into a log, each in another of its spellings, and count those that are found."""
    log = layout.logs / f"{SITES[0]}.log"
    with log.open("ab") as file:
        for number, marker in enumerate(markers):
            file.write(b"\n" + marker.needles[number % len(marker.needles)])
    return len({marker.text for marker, _ in found(markers, [log])})


def _federation(layout: DemoLayout, spy: Path) -> tuple[Planted, bool, list[str]]:
    study = demo_study(len(SITES), Algorithm.GAUSS_COV, 2, 0.5)
    text = study_to_toml(study)
    text = text.replace("deadline_seconds = 60.0", "deadline_seconds = 30.0")
    text = text.replace("[records]", '[records]\nperson_column = "patient_id"', 1)
    layout.study.write_text(text)
    planted = plant(study, public_records().values)
    processes = Processes(layout.logs)
    try:
        federation = Marked(layout, study, processes)
        # Markers stand in the first records: every other one goes to the one site, the rest to the other.
        write_csv(layout.records(SITES[0]), planted, planted.rows[::2])
        write_parquet(layout.records(SITES[1]).with_suffix(".parquet"), planted, planted.rows[1::2])
        federation.set_up()
        released = _follow(layout, text, "released") == pb.STUDY_STATE_RELEASED
        (layout.root / "scraped").write_bytes(_scrape(federation.metrics))
        dumps = _core_limits(federation)
        _fail(layout, federation, spy, text, planted)
        _abort(federation)
        return planted, released, dumps
    finally:
        processes.stop()


def _follow(layout: DemoLayout, text: str, submission: str) -> int:
    async def follow() -> int:
        async with Analyst(load_identity(layout.analyst)) as analyst:
            plan, _ = await analyst.submit(text, submission)
            events = [event async for event in analyst.watch(bytes.fromhex(plan.digest))]
            if events[-1].state == pb.STUDY_STATE_RELEASED:
                (layout.root / "release.zip").write_bytes(await analyst.release(bytes.fromhex(plan.digest)))
            return events[-1].state

    return asyncio.run(follow())


def _fail(layout: DemoLayout, federation: DemoFederation, spy: Path, text: str, planted: Planted) -> None:
    """Studies that a site cannot answer: an error that quotes records, an open quote, too few records."""
    (spy / "raise").touch()
    _follow(layout, text, "raised")
    (spy / "raise").unlink()
    records = layout.records(SITES[0])
    with records.open("a") as file:
        file.write('"' + ",".join(planted.rows[0]) + "\n")
    _follow(layout, text, "quoted")
    write_csv(records, planted, planted.rows[: 2 * 19 : 2])
    federation.kill(SITES[0])
    federation.restart(SITES[0])
    _follow(layout, text, "few")


def _core_limits(federation: DemoFederation) -> list[str]:
    may = []
    for name, job in federation.daemons.items():
        limits = Path(f"/proc/{job.process.pid}/limits").read_text().splitlines()
        row = next(line for line in limits if line.startswith(CORE))
        if row.removeprefix(CORE).split()[:2] != ["0", "0"]:
            may.append(name)
    return may


def _abort(federation: DemoFederation) -> None:
    for name in (*SITES, COORDINATOR):
        process = federation.daemons[name].process
        process.send_signal(signal.SIGABRT)
        process.wait()


def _scrape(listen: str) -> bytes:
    for _ in range(50):
        try:
            with urllib.request.urlopen(f"http://{listen}/metrics", timeout=5) as answer:
                return bytes(answer.read())
        except OSError:
            time.sleep(0.1)
    raise AssertionError("the coordinator shows no metrics")
