"""Options that the Makefile passes on to the tests, and what tests of several folders share."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from strandline.testing.lab import Lab

# A machine that is busy makes nothing wrong. All else stays as hypothesis has it, also in CI.
settings.register_profile("unhurried", settings(), deadline=None)
settings.load_profile("unhurried")

# Lets tests import what they share.
ROOT = str(Path(__file__).resolve().parents[1])
if ROOT not in sys.path:
    sys.path.insert(0, ROOT)

if TYPE_CHECKING:
    from tests.broker.broker import Broker
    from tests.broker.topics import Topics
    from tests.postgres.server import Server

BROKER_TIMEOUT_S = 300
SERVERS = {"broker": "kafka", "postgres": "postgres"}
"""The marker of what uses a server's fixture."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("strandline")
    group.addoption("--seed", type=int, help="simulate this one seed instead of a range")
    group.addoption("--cycles", type=int, default=25, help="how often a chaos test kills (25)")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What needs a server is marked so, and goes to one worker: it takes seconds to start.

    What needs Spark too goes where Spark is, and that worker has a server of its own. Groups are
    there before pytest-xdist looks for them.
    """
    for item in items:
        for fixture, marker in SERVERS.items():
            if fixture not in getattr(item, "fixturenames", ()):
                continue
            item.add_marker(marker)
            if item.get_closest_marker("xdist_group") is None:
                item.add_marker(pytest.mark.xdist_group(fixture))
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(BROKER_TIMEOUT_S))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Tests of a group share a worker only if pytest and pytest-xdist understand each other."""
    if not getattr(session.config.option, "loadgroup", False):
        return
    for item in session.items:
        if item.get_closest_marker("xdist_group") and "@" not in item.nodeid:
            raise pytest.UsageError("pytest-xdist overlooks groups of tests: take another pytest")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name each test that had no server: silence would look like a pass."""
    skipped = terminalreporter.stats.get("skipped", [])
    for marker, title, home in (
        ("kafka", "A KAFKA BROKER", "tests.broker.broker"),
        ("postgres", "A POSTGRESQL SERVER", "tests.postgres.server"),
    ):
        without = sorted({each.nodeid for each in skipped if marker in each.keywords})
        if without:
            reason = import_module(home).missing()
            terminalreporter.section(f"SKIPPED WITHOUT {title}", red=True, bold=True)
            terminalreporter.line(f"{len(without)} tests were not run: {reason}")
            for name in without:
                terminalreporter.line(f"  {name}")


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A running broker, shared by all tests of a process: use topics of your own.

    A test that stops it must start it again.
    """
    from tests.broker.broker import Broker, missing

    if trouble := missing():
        if os.environ.get("CI") == "true":
            pytest.fail(f"CI requires the Kafka broker: {trouble}")
        pytest.skip(f"no Kafka broker: {trouble}")
    made = Broker(tmp_path_factory.mktemp("broker"))
    made.start()
    yield made
    made.stop()


@pytest.fixture(scope="session")
def topics(broker: Broker) -> Iterator[Topics]:
    """Makes topics on the broker, and writes to them."""
    from tests.broker.topics import Topics

    made = Topics(broker.address)
    yield made
    made.close()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A running PostgreSQL, shared by all tests of a process: use schemas of your own.

    A test that stops it must start it again.
    """
    from tests.postgres.server import Server, folder_of_its_own, missing

    if trouble := missing():
        if os.environ.get("CI") == "true":
            pytest.fail(f"CI requires PostgreSQL: {trouble}")
        pytest.skip(f"no PostgreSQL: {trouble}")
    with folder_of_its_own() as folder:
        made = Server(folder)
        made.start()
        yield made
        made.stop()


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int | None:
    """The one seed to simulate, or `None` for the test's own range."""
    return request.config.getoption("seed")


@pytest.fixture
def cycles(request: pytest.FixtureRequest) -> int:
    """How often a chaos test kills something."""
    return request.config.getoption("cycles")


@pytest.fixture
def lab() -> Iterator[Lab]:
    made = Lab()
    yield made
    made.close()
