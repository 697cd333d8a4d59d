"""The demonstration: hospitals, a coordinator, public records and one release on this machine."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eigenveil.accounting.ledger import EntryKind
from eigenveil.errors import Code, RequestError
from eigenveil.numerics.linalg import sin_angle
from eigenveil.reporting.document import attempts_of
from eigenveil.reporting.verify import SignedRelease, load_release, verify_release
from eigenveil.site.record_view import to_grid
from eigenveil.study.study import Study
from eigenveil.study.toml import study_to_toml
from eigenveil.study_authorization import release_analyst
from eigenveil_client.analyst.client import Analyst
from eigenveil_client.connection.identity import StoredIdentity, load_identity
from eigenveil_client.demo.federation import DemoFederation, DemoLedgers
from eigenveil_client.demo.layout import (
    DemoLayout,
    PublicRecords,
    demo_dictionary,
    open_demo_folder,
    public_records,
    write_records,
)
from eigenveil_client.demo.processes import Processes
from eigenveil_common.files import write_durably
from eigenveil_proto.v1 import eigenveil_pb2 as pb

CHECK_SECONDS = 0.5

LogStep = Callable[[str], None]
EventHandler = Callable[[pb.StudyEvent], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Demonstration:
    """Result of a demonstration; without components if the algorithm released none."""

    layout: DemoLayout
    release: SignedRelease
    study: str
    records: Mapping[str, int]
    ledgers: DemoLedgers
    sin_angle: float | None
    seconds: float

    def value(self) -> dict[str, Any]:
        document, result = self.release.document, self.release.result
        guarantee, rounds = document["guarantee"], document["rounds"]
        rows = self.ledgers.status["studies"]  # a release has no times of rounds
        round_ms = next(row["round_ms"] for row in rows if row["study"] == self.study)
        return {
            "release": str(self.layout.release),
            "report": str(self.layout.report),
            "profile": str(self.layout.analyst),
            "study": self.study,
            "algorithm": document["plan"]["algorithm"],
            "trust": document["plan"]["study"]["privacy"]["trust"],
            "analyst": release_analyst(document).to_dict(),
            "attempts": sum(attempts_of(row) for row in rounds),
            "n_sites": len(self.records),
            "rounds": len(rounds),
            "epsilon": guarantee["epsilon"],
            "delta": guarantee["delta"],
            "neighbours": guarantee["neighbours"],
            "rho": guarantee["rho"],
            "declined": result.declined,
            "sin_angle": self.sin_angle,
            "predicted_sin_angle": result.predicted_sin_angle,
            "seconds": round(self.seconds, 2),
            "round_ms_median": statistics.median(round_ms or [0]),
            "bytes_up_per_site": {name: self.sent(name) for name in self.records},
            "micro_rho_per_site": {name: self.spent(name) for name in self.records},
        }

    def sent(self, site: str) -> int:
        """Return the bytes sent for this study, by the site's egress ledger."""
        rows = self.ledgers.sites[site]["egress"]["rows"]
        return sum(row["bytes"] for row in rows if row["study"] == self.study)

    def spent(self, site: str) -> int:
        """Return the micro-rho charged for this study, by the site's ledger."""
        entries = self.ledgers.sites[site]["ledger"]["entries"]
        spending = (e for e in entries if EntryKind(e["kind"]).spends and e["study"] == self.study)
        return sum(e["micro_rho"] for e in spending)


def demonstrate(
    study: Study,
    out: Path,
    *,
    log_step: LogStep,
    on_event: EventHandler,
    on_result: Callable[[Demonstration], None] | None = None,
) -> Demonstration:
    """Run `study` in the folder `out`, and return the result.

    `log_step` gets a sentence for each step, `on_event` every event of the study. With `on_result`, which
    gets the result, the federation then serves until it is interrupted. All processes are stopped at the
    end, also after an error.

    Raises EigenveilError: a command failed; the message names its log."""
    started = time.monotonic()
    with open_demo_folder(out) as layout:
        layout.study.write_text(study_to_toml(study))
        processes = Processes(layout.logs)
        try:
            federation = DemoFederation(layout, study, processes)
            records, sizes = _set_up(federation, layout, study, log_step)
            digest = federation.submit()
            log_step(f"Submitted the study: {digest[:12]}")
            identity = load_identity(layout.analyst)
            release = asyncio.run(watch_release(identity, bytes.fromhex(digest), federation, on_event))
            log_step("Writing the release and its report")
            sin_angle = _write_results(layout, study, records, release, identity)
            demonstration = Demonstration(
                layout=layout,
                release=load_release(release),
                study=digest,
                records=sizes,
                ledgers=federation.ledgers(),
                sin_angle=sin_angle,
                seconds=time.monotonic() - started,
            )
            if on_result is not None:
                federation.publish(demo_dictionary(study))
                on_result(demonstration)
                with suppress(KeyboardInterrupt):
                    asyncio.run(_guard(federation))  # until Ctrl-C, or until a daemon ends
        finally:
            processes.stop()
        return demonstration


def _set_up(
    federation: DemoFederation, layout: DemoLayout, study: Study, log_step: LogStep
) -> tuple[PublicRecords, dict[str, int]]:
    records = public_records()
    sizes = write_records(layout, study, records.values)
    least = federation.min_site_records
    if min(sizes.values()) < least:
        why = f"{study.algorithm.value} divides each site's records into batches"
        todo = f"needs {least} records at every site; use fewer sites"
        raise RequestError(Code.BAD_ARGUMENT, f"{why} and {todo}")
    shares = ", ".join(f"{name} {size}" for name, size in sizes.items())
    log_step(f"Dividing {len(records.values)} public records: {shares}")
    log_step("Making a certificate authority and a coordinator")
    federation.set_up()
    log_step(
        "The analyst made a signing key, and every site confirmed its fingerprint (in practice people "
        "compare it by telephone)"
    )
    if study.masked:
        log_step("The sites exchanged their key cards and confirmed each other's fingerprints")
    log_step("Every site made its key, enrolled, checked the study and serves")
    return records, sizes


def _write_results(
    layout: DemoLayout, study: Study, records: PublicRecords, release: bytes, identity: StoredIdentity
) -> float | None:
    """Write release.zip and report.html; return the sine to the exact answer. None if no components were
    released. The records are public, so the exact answer may be used."""
    from eigenveil.reporting.report import Projection, render
    from eigenveil_client.local.benchmark import exact_components

    write_durably(layout.release, release)
    signed = load_release(release)
    verify_release(signed, identity.release_keys.known)
    result, sine, projection = signed.result, None, None
    if result.declined is None:
        sine = sin_angle(exact_components(to_grid(records.values, study), study), result.components)
        points = (records.values - result.mean) / result.scale @ result.components.T
        note = "The dots are the demonstration's public records; in a study no record leaves its site."
        projection = Projection(points=points, groups=records.groups, note=note)
    key = signed.public_key.hex()
    page = render(signed, public_key=key, projection=projection, measured_sin_angle=sine)
    write_durably(layout.report, page.encode())
    return sine


async def watch_release(
    identity: StoredIdentity, digest: bytes, federation: DemoFederation, on_event: EventHandler
) -> bytes:
    """Return the release after the end of the study; raise if a daemon ends before."""
    guard = asyncio.create_task(_guard(federation))
    follow = asyncio.create_task(_follow(identity, digest, on_event))
    try:
        done, _ = await asyncio.wait({guard, follow}, return_when=asyncio.FIRST_COMPLETED)
        return next(iter(done)).result() or b""
    finally:
        for task in (guard, follow):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def _guard(federation: DemoFederation) -> None:
    while True:
        federation.check()
        await asyncio.sleep(CHECK_SECONDS)


async def _follow(identity: StoredIdentity, digest: bytes, on_event: EventHandler) -> bytes:
    async with Analyst(identity) as analyst:
        async for event in analyst.watch(digest):
            on_event(event)
            if event.state == pb.STUDY_STATE_FAILED:
                raise RequestError(Code.STUDY_FAILED, event.failure or "the study failed")
        return await analyst.release(digest)
