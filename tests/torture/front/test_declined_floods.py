"""The judge of floods finds each fault that it is there for."""

from __future__ import annotations

from pathlib import Path

from eigenveil_server.config import Config
from tests.torture.front.declined_floods import LOG_GROWTH, SITE_GROWTH, Disks, faults

CONFIG = Config(federation="f", state=Path("c"))
BEFORE = Disks(site=100, coordinator=100, studies=0)


def after(site: int = 0, coordinator: int = 0, studies: int = 9) -> Disks:
    return Disks(site=100 + site, coordinator=100 + coordinator, studies=studies)


def test_what_is_on_the_disks_decides() -> None:
    most = int(CONFIG.max_submitted_mib_per_day * 2**20) + LOG_GROWTH
    assert faults(BEFORE, after(SITE_GROWTH, most, CONFIG.max_submissions_per_day), CONFIG) == []
    assert "the site's disk" in faults(BEFORE, after(site=SITE_GROWTH + 1), CONFIG)[0]
    assert "the coordinator's disk" in faults(BEFORE, after(coordinator=most + 1), CONFIG)[0]
    assert (
        "studies of one analyst"
        in faults(BEFORE, after(studies=CONFIG.max_submissions_per_day + 1), CONFIG)[0]
    )
    assert "ever stored" in faults(BEFORE, after(studies=0), CONFIG)[0], "nothing was attacked"
