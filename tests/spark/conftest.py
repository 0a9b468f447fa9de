"""One Spark session for all tests of a process."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from strandline.spark import session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

TIMEOUT_S = 300

# Lets the tests of this folder import what they share.
ROOT = str(Path(__file__).resolve().parents[2])
if ROOT not in sys.path:
    sys.path.insert(0, ROOT)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What needs Spark is marked so, and goes to one worker: each JVM takes seconds to start. Tests
    that start one of their own go to another.

    On a busy machine it takes a minute, and the test that happens to come first is charged for it.
    """
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
        if item.get_closest_marker("spark") is not None:
            shared = "spark" in getattr(item, "fixturenames", ())
            item.add_marker(pytest.mark.xdist_group("spark" if shared else "cluster"))
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(TIMEOUT_S))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session on two cores of this machine. Its settings are shared: put back what you change."""
    from tests.jvm import DRIVER

    settings = {"spark.sql.shuffle.partitions": 2, **DRIVER}
    made = session("tests", master="local[2]", settings=settings)
    yield made
    made.stop()
