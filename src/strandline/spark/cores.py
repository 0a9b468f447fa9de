"""How much the machine of a session does at once."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def cores_for(spark: SparkSession) -> int | None:
    """The cores of the machine that a session runs on; `None` if that is another one."""
    return None if "connect" in type(spark).__module__.split(".") else cores_here()


def cores_here() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
