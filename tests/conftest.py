"""For every test: hypothesis tries the same examples on every run, with no deadline on a busy machine.

`make test-full` looks at more of them, and at others each time (`thorough`); `pytest
--hypothesis-profile=explore` looks for long."""

import logging
import signal
from collections.abc import Iterator
from unittest import mock

import pytest
from hypothesis import settings

from eigenveil_common import command
from tests.common.storage import cluster
from tests.compat.outputs import Checked

# A shell starts what runs in its background with Ctrl-C ignored, and every program that a test starts would
# inherit that: those tests that send it would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("repeatable", deadline=None, derandomize=True, max_examples=25)
settings.register_profile("thorough", deadline=None, max_examples=200)
settings.register_profile("explore", deadline=None, max_examples=2000)
settings.load_profile("repeatable")


@pytest.fixture(autouse=True)
def _the_log_as_it_was() -> Iterator[None]:
    """Whatever a program that a test runs in this process does to the log, the next test hears it."""
    logger = logging.getLogger("eigenveil")
    level, received = logger.level, logger.propagate
    yield
    logger.setLevel(level)
    logger.propagate = received


@pytest.fixture(autouse=True, scope="session")
def _outputs_fit_their_schemas() -> Iterator[None]:
    """Check what a command prints with --json, in any test, against its published schema."""
    with mock.patch.object(command, "json", Checked()):
        yield


@pytest.fixture(scope="session")
def server() -> Iterator[cluster.Cluster]:
    """A PostgreSQL server of this worker's own."""
    if cluster.missing():
        pytest.skip(cluster.missing())
    with cluster.running() as running:
        yield running


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Event loop of every asynchronous test."""
    return "asyncio"


@pytest.fixture
def unpainted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports of programs in this process, for what they say in words: their pictures take a second."""
    monkeypatch.setattr("eigenveil.reporting.figures.figure.render_svg", lambda *drawn: "")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow tests come first: one that began last would run on while the other workers have nothing left."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)
