"""A running federation, shared by the tests of one worker."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from eigenveil.study.algorithm import Algorithm
from eigenveil.study.study import Trust
from eigenveil.study.toml import parse_study, study_to_toml
from eigenveil_client.analyst.client import Analyst
from eigenveil_client.demo.federation import DemoFederation
from eigenveil_client.demo.layout import (
    demo_dictionary,
    demo_study,
    open_demo_folder,
    public_records,
    write_records,
)
from eigenveil_client.demo.processes import Processes
from tests.integration.stage import SITES, Stage


def answer_both(federation: DemoFederation, config: Path, name: str) -> None:
    """A site that knows its peers, and whose site.toml allows central studies all the same."""
    message = config.read_text()
    assert "\ntrust = []\n" in message
    config.write_text(message.replace("trust = []", 'trust = ["central", "secure-aggregation"]'))
    federation.kill(name)
    federation.restart(name)


async def stated(stage: Stage) -> None:
    """Wait until the coordinator has what every site states since its restart: it refuses studies by that."""
    async with Analyst(stage.analyst) as analyst:
        while True:
            found = [one.statement for one in (await analyst.federation()).sites]
            rules = [one.study_rules for one in found if one is not None]
            if sum(one is not None and "central" in one.trust for one in rules) == len(SITES):
                return
            await asyncio.sleep(0.1)


@pytest.fixture(scope="session")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """The demonstration's federation, whose sites know each other; a small epsilon leaves budget for many
    studies."""
    study = demo_study(len(SITES), Algorithm.GAUSS_COV, 2, 0.3)
    text, masked = study_to_toml(study), replace(study, trust=Trust.SECURE_AGGREGATION)
    with open_demo_folder(tmp_path_factory.mktemp("stage") / "demo") as layout:
        layout.study.write_text(text)
        processes = Processes(layout.logs)
        try:
            federation = DemoFederation(layout, masked, processes)
            write_records(layout, study, public_records().values)
            federation.set_up()
            for name in SITES:
                answer_both(federation, layout.site_config(name), name)
            found = Stage(layout=layout, federation=federation, text=text)
            asyncio.run(stated(found))
            yield found
        finally:
            processes.stop()


@pytest.fixture(scope="session")
def published(stage: Stage) -> Stage:
    """The same federation with a dictionary, as `eigenveil demo --keep` leaves it."""
    stage.federation.publish(demo_dictionary(parse_study(stage.text)))
    return stage
