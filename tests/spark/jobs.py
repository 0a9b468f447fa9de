"""Which jobs a session has run."""

from __future__ import annotations

from pyspark.sql import SparkSession


def last_job(spark: SparkSession) -> int:
    """The newest job so far: they are numbered. How many it lists tells nothing, for it forgets."""
    return max(spark.sparkContext.statusTracker().getJobIdsForGroup(None), default=-1)
