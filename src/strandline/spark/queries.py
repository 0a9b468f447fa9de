"""Runs the queries of views in a session of its own, where nobody else's settings apply."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.errors import AnalysisException, PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession
from pyspark.sql.types import NullType, StringType, StructField, StructType

from strandline.errors import SchemaError, UsageError
from strandline.model.ids import printable
from strandline.spark.reasons import reason_for
from strandline.spark.relations import relations
from strandline.spark.sessions import configure
from strandline.spark.sparktypes import arrow_schema
from strandline.spark.table import frame_of
from strandline.views.rewrite import query_sql
from strandline.views.troubles import Troubles, named

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from logging import LogRecord

    from pyspark.sql import DataFrame

    from strandline.views.program import Program

_SETTINGS = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    # It computes what a condition guards before the condition, and so raises for rows that do not.
    "spark.sql.subexpressionElimination.enabled": "false",
}
_NOTHING = pa.table({"nothing": pa.array([], pa.int64())})
_REASON = 300
_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
_expecting: ContextVar[bool] = ContextVar("expecting", default=False)
"""Whether this thread is about to hear of values that raise; others are not concerned."""


def _unexpected(_: LogRecord) -> bool:
    """Whether Spark is to log what it says: a filter, which its loggers keep."""
    return not _expecting.get()


class Raised(Exception):  # noqa: N818 - an answer for some rows, not an error of ours
    """A query raised because of the values of rows; the text is the reason in our words."""


def own_session(spark: SparkSession, settings: Mapping[str, str] | None = None) -> SparkSession:
    """A session of the same Spark with the settings that decide what a query means.

    `settings` are others, which decide only how fast it is answered.
    """
    made = spark.newSession()
    configure(made)
    for name, value in {**(settings or {}), **_SETTINGS}.items():
        made.conf.set(name, value)
    return made


@contextmanager
def yours_stays_active() -> Iterator[None]:
    """The session that was active in this thread is so again, whatever was asked of others.

    A session becomes the active one by making a DataFrame of rows. It is the one that Spark looks
    for sources in, and our calls for a session: a caller would be left with one of a program's.
    """
    before = SparkSession.getActiveSession()
    try:
        yield
    finally:
        if before is not None:
            before.createDataFrame(_NOTHING)


@contextmanager
def raising() -> Iterator[None]:
    """What Spark raises because of values comes out as `Raised`; all else as it is.

    Spark's Python side logs such an error with both stacks; here it is expected, so it does not.
    What others ask meanwhile is logged as ever.
    """
    for name in _LOGGERS:
        # Spark's own kind of logger: a plain one of that name would fail whoever logs by it later.
        PySparkLogger.getLogger(name).addFilter(_unexpected)
    token = _expecting.set(True)
    try:
        yield
    except PySparkException as error:
        reason = reason_for(error.getCondition(), error.getSqlState(), str(error))
        if reason is None:
            raise
        raise Raised(reason) from error
    finally:
        _expecting.reset(token)


@contextmanager
def answering() -> Iterator[None]:
    """What Spark has against somebody's query comes out as errors of whoever wrote it."""
    try:
        with raising():
            yield
    except Raised as error:
        raise UsageError(f"the query has no answer, as it raises for a row: {error}") from error
    except AnalysisException as error:
        troubles = Troubles()
        troubles.add(0, _said(error), "change it")
        troubles.raise_any("the query")


def view_columns(spark: SparkSession, program: Program) -> dict[str, pa.Schema]:
    """The columns of each view, as Spark types its query over empty relations; `ProgramError` with
    all views whose queries it can't understand, by line."""
    known = {each.name: each.columns for each in program.tables}
    troubles = Troubles()
    for view in program.views:
        if not known.keys() >= set(view.reads):
            # What it reads is in trouble, and it is not blamed for that.
            continue
        frames = {name: frame_of(spark, known[name].empty_table()) for name in view.reads}
        try:
            with relations(spark, frames) as relation, raising():
                frame = spark.sql(query_sql(view.sql, relation, 0))
                known[view.name] = _columns(frame, view.name)
        except (AnalysisException, Raised) as error:
            what = f"view {named(view.name)}: {_said(error)}"
            troubles.add(view.line, what, "change its query")
    troubles.raise_any()
    return {view.name: known[view.name] for view in program.views}


def _said(error: Exception) -> str:
    """Spark's sentence, without the name of its kind and what it shows of its plan."""
    sentence = str(error).partition(" SQLSTATE:")[0].partition("] ")
    return printable(sentence[2] or sentence[0], limit=_REASON).strip("'\".")


def _columns(frame: DataFrame, view: str) -> pa.Schema:
    fields = [
        # A column of NULL alone is one of text: shards know no type without values.
        StructField(each.name, StringType() if each.dataType == NullType() else each.dataType)
        for each in frame.schema.fields
    ]
    try:
        return arrow_schema(StructType(fields))
    except (PySparkException, SchemaError) as error:
        raise SchemaError(
            f"view {printable(view)} has a column of a type that no table has: "
            f"{printable(str(error), 200)}"
        ) from error
