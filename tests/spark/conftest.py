"""One Spark session for all tests of a process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from strandline.spark import session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

TIMEOUT_S = 300


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What needs Spark is marked so, and goes to one worker: each JVM takes seconds to start.

    On a busy machine it takes a minute, and the test that happens to come first is charged for it.
    """
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
        if item.get_closest_marker("spark") is not None:
            item.add_marker(pytest.mark.xdist_group("spark"))
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(TIMEOUT_S))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session on two cores of this machine. Its settings are shared: put back what you change."""
    made = session("tests", master="local[2]", settings={"spark.sql.shuffle.partitions": 2})
    yield made
    made.stop()
