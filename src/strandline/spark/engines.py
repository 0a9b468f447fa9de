"""Spark as the engine of pipelines: one session computes transactions and answers queries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.config import resolve_secret
from strandline.pipeline.engine import PipelineEngine
from strandline.spark.computer import SparkComputer
from strandline.spark.queries import answering, own_session, yours_stays_active
from strandline.spark.relations import relations
from strandline.spark.sessions import session
from strandline.spark.stagings import staged_by
from strandline.spark.table import frame_of
from strandline.views.rewrite import query_sql

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from strandline.handles.store import Store
    from strandline.pipeline.engine import NewEngine, Question


def spark_engine(spark: SparkSession | None = None) -> NewEngine:
    """An engine on this session; without one, on a session of its own, which it stops."""

    def made(store: Store) -> PipelineEngine:
        used = session() if spark is None else spark
        computer = SparkComputer(store, used, resolve_secret)

        def close() -> None:
            computer.close()
            if spark is None:
                used.stop()

        return PipelineEngine(
            computer,
            lambda question: answered(store, used, question),
            close,
            lambda bringing: staged_by(store, used, resolve_secret, bringing),
            lambda rows: frame_of(used, rows),
        )

    return made


def answered(store: Store, spark: SparkSession, question: Question) -> pa.Table:
    """The rows of a query, in a session where only the settings of programs hold."""
    # Questions come from several tasks at once, and relations are named alike in one session.
    alone = own_session(spark, {})
    with yours_stays_active():
        frames = {
            name: store.table(shard).df(alone, as_of=question.at)
            for name, shard in sorted(question.shards.items())
        }
        with relations(alone, frames) as named, answering():
            return alone.sql(query_sql(question.sql, named, question.now_ms)).toArrow()
