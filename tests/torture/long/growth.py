"""Growth of daemons with the studies that they ran: a slope for each stretch of one life, and a verdict.

A life is one process. Its first WARM samples are left out, in which caches and the allocator fill up. The
rest is cut into stretches of LENGTH samples, so that no stretch holds a restart, and each has a Theil-Sen
slope: the median of the slopes of all pairs of its samples.

A daemon is flat if its growth in a stretch exceeds TOLERANCES no more often than not. If the stretches of
a daemon, and the daemons of a federation, grow independently, k of n slopes above the tolerance then have at
most the probability of k heads of n fair coins; `limit` is the smallest k of a probability of at most
FALSE_ALARM. That assumes no distribution. It is a bound for each of the six series (three measures, of the
coordinator and of its sites): at most 6 FALSE_ALARM for all."""

from __future__ import annotations

import os
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import comb
from pathlib import Path
from typing import NamedTuple

FALSE_ALARM = 1e-4
WARM, LENGTH = 20, 6  # samples of a life that are left out, and of a stretch
# Of each measure, for each study: a coordinator keeps rows of its ledger and what sites state.
TOLERANCES = {"KiB": 128.0, "files": 0.5, "threads": 0.2}


class Sample(NamedTuple):
    """Of one process after `studies` studies: KiB of its own memory, open files, threads and children."""

    studies: int
    KiB: int
    files: int
    threads: int


def sample(pid: int, studies: int) -> Sample:
    """Raises OSError: the process is gone."""
    here = Path(f"/proc/{pid}")
    status = (here / "status").read_text()
    own = int(status.split("RssAnon:")[1].split()[0])
    tasks = os.listdir(here / "task")
    children = sum(len((here / "task" / task / "children").read_text().split()) for task in tasks)
    return Sample(studies, own, len(os.listdir(here / "fd")), len(tasks) + children)


def theil_sen(points: Sequence[tuple[float, float]]) -> float:
    """Median of the slopes of all pairs of points (x, y), whose x differ."""
    return statistics.median((y2 - y1) / (x2 - x1) for (x1, y1), (x2, y2) in combinations(points, 2))


def limit(count: int) -> int:
    """The smallest k of at most the probability FALSE_ALARM of k or more heads of `count` coins; count + 1 if
    there is none."""
    tail, k = 0, count + 1
    while k and (tail + comb(count, k - 1)) <= FALSE_ALARM * 2**count:
        k -= 1
        tail += comb(count, k)
    return k


@dataclass(slots=True)
class Lives:
    """Samples of each life, by daemon and number of life."""

    samples: dict[tuple[str, int], list[Sample]] = field(default_factory=lambda: defaultdict(list))

    def add(self, name: str, life: int, found: Sample) -> None:
        self.samples[name, life].append(found)

    def stretches(self, name: str, since: int) -> list[list[Sample]]:
        """Stretches of a daemon that begin after `since` studies."""
        found = []
        for (owner, _), life in self.samples.items():
            if owner == name:
                rest = [one for one in life[WARM:] if one.studies >= since]
                whole = range(0, len(rest) - LENGTH + 1, LENGTH)
                found += [rest[start : start + LENGTH] for start in whole]
        return found

    def slopes(self, name: str, measure: str, since: int) -> list[float]:
        """Of each stretch of a daemon, per study."""
        return [
            theil_sen([(one.studies, getattr(one, measure)) for one in stretch])
            for stretch in self.stretches(name, since)
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Of one series of slopes. `judged`: there are enough for an alarm."""

    who: str
    measure: str
    slopes: tuple[float, ...]

    @property
    def judged(self) -> bool:
        return limit(len(self.slopes)) <= len(self.slopes)

    @property
    def above(self) -> int:
        return sum(slope > TOLERANCES[self.measure] for slope in self.slopes)

    @property
    def grows(self) -> bool:
        return self.judged and self.above >= limit(len(self.slopes))

    @property
    def median(self) -> float:
        return statistics.median(self.slopes) if self.slopes else 0.0

    def __str__(self) -> str:
        unit = self.measure if self.measure != "KiB" else "KiB of memory"
        shown = f"{self.median:+.2g} {unit} a study ({self.above} of {len(self.slopes)} above)"
        return f"{self.who}: {shown if self.judged else f'too short to judge {self.measure}'}"


def verdicts(lives: Lives, coordinator: str, sites: Iterable[str], since: int) -> list[Verdict]:
    """The coordinator by its stretches; the sites by one slope each, the median of its stretches'."""
    found, names = [], list(sites)
    for measure in TOLERANCES:
        alone = tuple(lives.slopes(coordinator, measure, since))
        each = [lives.slopes(name, measure, since) for name in names]
        medians = tuple(statistics.median(slopes) for slopes in each if slopes)
        found += [
            Verdict(who="coordinator", measure=measure, slopes=alone),
            Verdict(who="sites", measure=measure, slopes=medians),
        ]
    return found
