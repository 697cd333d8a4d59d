"""A study of generated records through real daemons: three sites, a coordinator, an analyst."""

from __future__ import annotations

import asyncio
from pathlib import Path

from benchmarks.papers.schemes import Regime
from eigenveil.reporting.result import Result
from eigenveil.reporting.verify import load_release
from eigenveil.study.study import Study
from eigenveil.study.toml import study_to_toml
from eigenveil_client.connection.identity import load_identity
from eigenveil_client.demo.demo import watch_release
from eigenveil_client.demo.federation import DemoFederation
from eigenveil_client.demo.layout import open_demo_folder, write_records
from eigenveil_client.demo.processes import Processes


def federated(study: Study, regime: Regime, folder: Path) -> Result:
    """Return the released result that daemons on this machine made of the study.

    Raises:
        EigenveilError: a command or the study failed; the message names its log."""
    with open_demo_folder(folder) as layout:
        layout.study.write_text(study_to_toml(study))
        processes = Processes(layout.logs)
        try:
            federation = DemoFederation(layout, study, processes)
            write_records(layout, study, regime.records)
            federation.set_up()
            digest = bytes.fromhex(federation.submit())
            identity = load_identity(layout.analyst)
            release = asyncio.run(watch_release(identity, digest, federation, lambda event: None))
        finally:
            processes.stop()
    return load_release(release).result
