"""A coordinator from its first line of output to SIGTERM."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import signal
import sys
from typing import NoReturn

import click

from eigenveil_common import log
from eigenveil_common.notify.outbox import notifying
from eigenveil_common.process import allow_files, forbid_core_dumps, keep_buffers
from eigenveil_server.config import Config
from eigenveil_server.daemon import Daemon, Ports

STOP_SECONDS = 10.0


def serve_until_stopped(config: Config) -> NoReturn:
    """Serve until SIGTERM or SIGINT, and end the process."""
    forbid_core_dumps()
    allow_files()
    keep_buffers()
    log.to_stderr(config.log_format)
    asyncio.run(_serve(config))
    _leave()


async def _serve(config: Config) -> None:
    daemon = Daemon(config)
    told = notifying(
        config.notify.way,
        federation=config.federation,
        analysts=dict(config.notify.analysts),
        count=daemon.runtime.metrics.notified,
    )
    with told:
        # A long ledger is a million values that stay: no search for garbage goes through them again.
        gc.collect()
        gc.freeze()
        ports = await daemon.start()
        await _until_stopped(config, ports)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(daemon.stop(), STOP_SECONDS)


async def _until_stopped(config: Config, ports: Ports) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    serving = {
        "event": "serving",
        "federation": config.federation,
        "host": config.host,
        "port": ports.port,
        "enrol_port": ports.enrol_port,
    }
    if ports.console_port is not None:
        serving["console_port"] = ports.console_port
    click.echo(json.dumps(serving, sort_keys=True))
    sys.stdout.flush()
    await stop.wait()
    log.event("stopping", federation=config.federation)


def _leave() -> NoReturn:
    """A long draw of noise cannot be interrupted; being killed is safe at any point, so do not wait."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
