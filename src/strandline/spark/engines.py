"""Spark as the engine of pipelines: one session computes transactions and answers queries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.config import resolve_secret
from strandline.pipeline.engine import Engine
from strandline.spark.computer import SparkComputer
from strandline.spark.sessions import session
from strandline.views.rewrite import query_sql

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from strandline.handles.store import Store
    from strandline.pipeline.engine import NewEngine, Question


def spark_engine(spark: SparkSession | None = None) -> NewEngine:
    """An engine on this session; without one, on a session of its own, which it stops."""

    def made(store: Store) -> Engine:
        used = session() if spark is None else spark
        return Engine(
            computer=SparkComputer(store, used, resolve_secret),
            answer=lambda question: answered(store, used, question),
            close=used.stop if spark is None else lambda: None,
        )

    return made


def answered(store: Store, spark: SparkSession, question: Question) -> pa.Table:
    """The rows of a query, over views that are there for this question alone."""
    token = store.env.random.token()
    relations = {}
    try:
        for number, (name, shard) in enumerate(sorted(question.shards.items())):
            frame = store.table(shard).df(spark, as_of=question.at)
            relations[name] = f"strandline_{token}_{number}"
            frame.createOrReplaceTempView(relations[name])
        return spark.sql(query_sql(question.sql, relations, question.now_ms)).toArrow()
    finally:
        for relation in relations.values():
            spark.catalog.dropTempView(relation)
