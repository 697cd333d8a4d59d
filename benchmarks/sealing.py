"""Cost of one large matrix at the coordinator: a site's upload and `Commit`, and all that follows until the
study is released. One real coordinator process, one light site, a gauss-cov study of 2,000 columns, so an
answer of 16 MB and a release of 32.

`python -m benchmarks.sealing [--columns D] [--times N]` prints milliseconds of sending and of `Commit`,
beside a bare gRPC server that is sent the same messages over the same TLS; and CPU seconds from the answer to
the release, of the coordinator and its subprocesses, beside numpy's decomposition of a matrix of that size
and beside Python's `json` of as many numbers, which a release had been before its arrays were binary."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from argparse import ArgumentParser
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.echo import stream_ms
from benchmarks.light_sites import Shared
from benchmarks.many_sites import (
    Asked,
    Coordinator,
    Federation,
    at_work,
    coordinating,
    federation,
    run_study,
    study_toml,
)
from benchmarks.process import kept_if_failed
from eigenveil.numerics.linalg import single_blas_thread
from eigenveil_common.files import arm

COLUMNS, TIMES, RECORDS = 2_000, 5, 200
COMMIT_GOAL, STREAM_GOAL, SEALING_GOAL = 100.0, 2.5, 1.0  # milliseconds, times the bare stream, CPU seconds


@dataclass(slots=True)
class Passages:
    """Moments of the light site's last large answer, and the coordinator's CPU seconds at its end."""

    coordinator: Coordinator
    begun: float = 0.0
    chunk: float = 0.0
    sent: float = 0.0
    cpu: float = 0.0
    large: bool = False
    transfers: list[tuple[float, float]] = field(default_factory=list)

    def arm(self) -> None:
        """Note the moments from now on."""
        arm("reply-sending", self._begin)
        arm("chunk-sent", self._chunk)
        arm("reply-sent", self._end)

    def _begin(self) -> None:
        self.begun, self.large = time.perf_counter(), False

    def _chunk(self) -> None:
        self.chunk, self.large = time.perf_counter(), True

    def _end(self) -> None:
        if self.large:
            self.sent, self.cpu = time.perf_counter(), self.coordinator.cpu()
            self.transfers.append((1e3 * (self.chunk - self.begun), 1e3 * (self.sent - self.chunk)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Milliseconds of sending, of `Commit` and of the bare stream; CPU and wall seconds until the release."""

    sending: float
    commit: float
    stream: float
    cpu: float
    seconds: float


async def _studies(made: Federation, coordinator: Coordinator, columns: int, times: int) -> Measured:
    seen = Passages(coordinator)
    cpu, seconds = [], []
    toml = study_toml([one.name for one in made.sites], Asked(columns=columns, algorithm="gauss-cov"), "one")
    async with at_work(made.sites, Shared(RECORDS, lambda _: None)):
        for number in range(1 + times):  # the first warms up
            seen.arm()
            await run_study(made.analyst, toml, f"one-{number}")
            cpu.append(coordinator.cpu() - seen.cpu)
            seconds.append(time.perf_counter() - seen.sent)
    sending, commit = (median(values) for values in zip(*seen.transfers[1:], strict=True))
    size = 8 * columns * (columns + 1) // 2
    return Measured(
        sending=sending,
        commit=commit,
        stream=stream_ms(made.config.files.folder, _pair(made), size),
        cpu=median(cpu[1:]),
        seconds=median(seconds[1:]),
    )


def _pair(made: Federation) -> Path:
    """Key and certificate of a site in one file."""
    site, path = made.sites[0], made.toml.parent / "pair.pem"
    path.write_bytes(site.key + site.certificate)
    return path


def measured(columns: int = COLUMNS, times: int = TIMES) -> Measured:
    """Run the study `times` times."""
    with kept_if_failed() as folder:
        made = federation(folder, 1)
        with coordinating(made) as coordinator:
            return asyncio.run(_studies(made, coordinator, columns, times))


def seconds_of(work: Callable[[], object]) -> float:
    """Least CPU seconds of three runs."""
    found = []
    for _ in range(3):
        begin = time.process_time()
        work()
        found.append(time.process_time() - begin)
    return min(found)


def anchors(columns: int) -> tuple[float, float]:
    """CPU seconds of numpy's decomposition, and of `json` of the covariance."""
    matrix = np.random.default_rng(0).normal(size=(columns, columns))
    with single_blas_thread():
        decomposition = seconds_of(lambda: np.linalg.eigh(matrix + matrix.T))
    return decomposition, seconds_of(lambda: json.dumps(matrix.tolist()))


def main() -> int:
    """Print the figures; 1 if a goal is missed."""
    parser = ArgumentParser()
    parser.add_argument("--columns", type=int, default=COLUMNS)
    parser.add_argument("--times", type=int, default=TIMES)
    wanted = parser.parse_args()
    found, (decomposition, texts) = measured(wanted.columns, wanted.times), anchors(wanted.columns)
    whole = (found.sending + found.commit) / found.stream
    print(
        f"one answer of {wanted.columns:,} columns: sent in {found.sending:.0f} ms, Commit in "
        f"{found.commit:.0f} (goal {COMMIT_GOAL:.0f}), together {whole:.2f} times a bare stream of "
        f"{found.stream:.0f} ms (goal {STREAM_GOAL})\n"
        f"from the answer to the release: {found.cpu:.2f} s of CPU (goal {SEALING_GOAL:.0f}) in "
        f"{found.seconds:.2f} s; numpy's decomposition alone {decomposition:.2f} s, the rest "
        f"{found.cpu - decomposition:.2f}; `json` of its numbers {texts:.2f} s"
    )
    met = (found.commit <= COMMIT_GOAL, whole <= STREAM_GOAL, found.cpu <= SEALING_GOAL)
    return int(not all(met))


if __name__ == "__main__":
    sys.exit(main())
