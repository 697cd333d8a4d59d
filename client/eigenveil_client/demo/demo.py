"""The demonstration: three hospitals, one coordinator, real records, one release, on this machine."""

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
from eigenveil.analyst_signature.asked_by import asked_by
from eigenveil.errors import Code, RequestError
from eigenveil.reporting.attempts import attempts_of
from eigenveil.reporting.verify import load_release
from eigenveil.study.study import Study
from eigenveil.study.toml import study_to_toml
from eigenveil_client.analyst.client import Analyst
from eigenveil_client.connection.identity import StoredIdentity, load_identity
from eigenveil_client.demo.federation import DemoFederation, DemoLedger
from eigenveil_client.demo.layout import (
    Layout,
    PublicRecords,
    demo_dictionary,
    prepared,
    public_records,
    write_records,
)
from eigenveil_client.demo.processes import Processes
from eigenveil_proto.v1 import eigenveil_pb2 as pb

CHECK_SECONDS = 0.5

Say = Callable[[str], None]
Show = Callable[[pb.StudyEvent], None]
Keep = Callable[["Demonstration"], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Demonstration:
    """What a demonstration gave; without components where the algorithm released none.

    The times of rounds come from the coordinator's operator: a release holds none.
    """

    release: Path
    report: Path
    profile: Path
    document: Mapping[str, Any]
    study: str
    records: Mapping[str, int]
    books: DemoLedger
    sin_angle: float | None
    seconds: float

    def value(self) -> dict[str, Any]:
        guarantee = self.document["guarantee"]
        rounds = self.document["rounds"]
        rows = self.books.status["studies"]
        round_ms = next(row["round_ms"] for row in rows if row["study"] == self.study)
        return {
            "release": str(self.release),
            "report": str(self.report),
            "profile": str(self.profile),
            "study": self.study,
            "algorithm": self.document["plan"]["algorithm"],
            "trust": self.document["plan"]["study"]["privacy"]["trust"],
            "asked_by": asked_by(self.document).to_dict(),
            "attempts": sum(attempts_of(row) for row in rounds),
            "n_sites": len(self.records),
            "rounds": len(rounds),
            "epsilon": guarantee["epsilon"],
            "delta": guarantee["delta"],
            "neighbours": guarantee["neighbours"],
            "rho": guarantee["rho"],
            "declined": self.document["result"]["declined"],
            "sin_angle": self.sin_angle,
            "predicted_sin_angle": self.document["result"]["predicted_sin_angle"],
            "seconds": round(self.seconds, 2),
            "round_ms_median": statistics.median(round_ms or [0]),
            "bytes_up_per_site": {name: self.sent(name) for name in self.records},
            "micro_rho_per_site": {name: self.spent(name) for name in self.records},
        }

    def sent(self, site: str) -> int:
        """Bytes that the site's egress ledger says have left it for this study."""
        rows = self.books.sites[site]["egress"]["rows"]
        return sum(row["bytes"] for row in rows if row["study"] == self.study)

    def spent(self, site: str) -> int:
        """Micro-rho that the site's own ledger has charged for this study."""
        entries = self.books.sites[site]["ledger"]["entries"]
        spending = (e for e in entries if EntryKind(e["kind"]).spends and e["study"] == self.study)
        return sum(e["micro_rho"] for e in spending)


def demonstrate(study: Study, out: Path, *, say: Say, show: Show, keep: Keep | None = None) -> Demonstration:
    """Run `study` in the folder `out`; `say` gets a sentence a step, `show` every event of the study. With
    `keep`, which gets what came of it, the federation then serves others until it is interrupted.

    Everything that was started is stopped, however this ends.

    Raises:
        EigenveilError: a part failed; the message names the log of its process.
    """
    started = time.monotonic()
    with prepared(out) as layout:
        layout.study.write_text(study_to_toml(study))
        processes = Processes(layout.logs)
        try:
            federation = DemoFederation(layout, study, processes)
            records, sizes = _set_up(federation, layout, study, say)
            submitting = federation.start_submission()
            # Matplotlib takes a second to load, and the coordinator about as long to plan.
            from eigenveil_client.demo import results

            digest = federation.finish_submission(submitting)
            say(f"Submitted the study: {digest[:12]}")
            identity = load_identity(layout.analyst)
            release = asyncio.run(_watch(identity, bytes.fromhex(digest), federation, show))
            reading = federation.start_books()
            say("Writing the release and its report")
            sin_angle = results.write(layout, study, records, release, identity)
            shown = Demonstration(
                release=layout.root / "release.json",
                report=layout.root / "report.html",
                profile=layout.analyst,
                document=load_release(release).document,
                study=digest,
                records=sizes,
                books=federation.finish_books(reading),
                sin_angle=sin_angle,
                seconds=time.monotonic() - started,
            )
            if keep is not None:
                federation.publish(demo_dictionary(study))
                keep(shown)
                _serve(federation)
        finally:
            processes.stop()
        return shown


def _serve(federation: DemoFederation) -> None:
    """Until Ctrl-C, or until a daemon ends."""
    with suppress(KeyboardInterrupt):
        asyncio.run(_guard(federation))


def _set_up(
    federation: DemoFederation, layout: Layout, study: Study, say: Say
) -> tuple[PublicRecords, dict[str, int]]:
    say("Making a certificate authority and a coordinator")
    begun = federation.begin()
    records = public_records()
    sizes = write_records(layout, study, records.values)
    if min(sizes.values()) < federation.least:
        raise RequestError(
            Code.BAD_ARGUMENT,
            f"{study.algorithm.value} deals each site's records into parts and needs {federation.least} of "
            "them at every site; ask for fewer sites",
        )
    shares = ", ".join(f"{name} {size}" for name, size in sizes.items())
    say(f"Dividing {len(records.values)} public records: {shares}")
    federation.set_up(begun)
    say(
        "The analyst made a signing key, and every site confirmed its digits (here by one program; elsewhere "
        "people compare them by telephone)"
    )
    if study.masked:
        say("The sites exchanged their cards and confirmed each other's digits")
    say("Every site made its key, enrolled, explained the study to itself and serves")
    return records, sizes


async def _watch(identity: StoredIdentity, digest: bytes, federation: DemoFederation, show: Show) -> bytes:
    """The release, once the study has ended; a daemon that dies on the way ends the wait."""
    guard = asyncio.create_task(_guard(federation))
    follow = asyncio.create_task(_follow(identity, digest, show))
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


async def _follow(identity: StoredIdentity, digest: bytes, show: Show) -> bytes:
    async with Analyst(identity) as analyst:
        async for event in analyst.watch(digest):
            show(event)
            if event.state == pb.STUDY_STATE_FAILED:
                raise RequestError(Code.STUDY_FAILED, event.failure or "the study failed")
        return await analyst.release(digest)
