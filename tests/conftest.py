"""Options that the Makefile passes on to the tests."""

from collections.abc import Iterator

import pytest

from strandline.testing.lab import Lab


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("strandline")
    group.addoption("--seed", type=int, help="simulate this one seed instead of a range")
    group.addoption("--cycles", type=int, default=25, help="how often a chaos test kills (25)")


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
