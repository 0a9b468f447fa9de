"""A table as Spark's users hold it: appends, upserts and lookups of DataFrames.

    table = store.table("orders")
    table.upsert(df, sequenceBy="lsn", deleteWhen="op = 'd'")
    table.lookup(keys).show()

A table is a shard; everything written here is read there, and the other way round.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from strandline.errors import BoundsError, UsageError
from strandline.model.frontier import Frontier, valid_time
from strandline.spark import worker
from strandline.spark.appends import append, append_at
from strandline.spark.arrowtypes import for_spark
from strandline.spark.columns import check_key
from strandline.spark.compacts import Carrier
from strandline.spark.incoming import Meaning
from strandline.spark.jobs import Jobs, closure
from strandline.spark.layouts import spark_struct
from strandline.spark.lookups import lookup, settled_time
from strandline.spark.scan import Scan
from strandline.spark.upserts import upsert, upsert_at

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strandline.handles.shard import Shard
    from strandline.model.frontier import Time
    from strandline.reading.view import View
    from strandline.shard.command import UpperMismatch
    from strandline.spark.desk import Desk
    from strandline.spark.incoming import Expression
    from strandline.spark.landed import Landed
    from strandline.spark.lookups import Found


class Table:
    """One table of a store, for Spark. Get it with `store.table(name)`."""

    def __init__(self, desk: Desk, *, slots: int | None = None) -> None:
        self._desk = desk
        self._slots = slots

    @property
    def name(self) -> str:
        return self._desk.name

    @property
    def shard(self) -> Shard:
        """The same rows without Spark."""
        return self._desk.shard

    def df(self, spark: SparkSession | None = None, as_of: Time | None = None) -> DataFrame:
        """The rows as of a time, by default the newest: Spark's own scan of the table's Parquet.

        No job runs before the DataFrame is used, and then it reads only the columns that it
        needs. What it reads is kept for a day, or until the table is closed: close it, or use it
        with `with`, when you are done. After that, objects that were merged into others may be
        gone, which Spark says.
        """
        session = self._session(None, spark)
        self._desk.check_visible()
        view = self._kept(as_of)
        time = settled_time(self.name, view, as_of)
        return Scan(self._desk, session, self._jobs(session), view, time).frame()

    def changes(
        self, start: Time, end: Time | None = None, *, spark: SparkSession | None = None
    ) -> DataFrame:
        """Every insertion and retraction from `start` on, before `end`, by default up to now.

        Rows have `_time` and `_diff`; there are none where `end` is not past `start`. What is read
        is kept as for `df`.
        """
        session = self._session(None, spark)
        self._desk.check_visible()
        start = valid_time(start, "start")
        end = None if end is None else valid_time(end, "end")
        last = None if end is None or end <= start else end - 1
        view = self._kept(last, start)
        newest = settled_time(self.name, view, last)
        scan = Scan(self._desk, session, self._jobs(session), view, newest)
        upto = (0 if newest is None else newest + 1) if end is None else end
        return scan.changes(start, max(start, upto))

    def append(
        self,
        df: DataFrame,
        *,
        lower: Time | None = None,
        upper: Time | None = None,
        by_place: bool | None = None,
    ) -> Landed | UpperMismatch:
        """Append the rows of a DataFrame at the next time: one Spark job, one commit.

        A second job puts an append to a keyed table by place if it is large, so that a lookup
        finds a key in one part and not in every task's; `by_place` says yes or no to it.

        Others that write at the same time only delay it. With `lower` and `upper` the rows have a
        column `_time` within `[lower, upper)`, which is settled if it starts at the table's upper;
        otherwise the answer is `UpperMismatch`, and nothing has happened.
        """
        jobs = self._jobs(_session_of(df, "append"))
        if lower is None and upper is None:
            return append(self._desk, jobs, df, by_place=by_place)
        bounds = _interval(lower, upper)
        return append_at(self._desk, jobs, df, bounds, by_place=by_place)

    def upsert(
        self,
        df: DataFrame,
        keys: Sequence[str] | None = None,
        sequenceBy: Expression | Sequence[Expression] | None = None,  # noqa: N803
        deleteWhen: Expression | None = None,  # noqa: N803
        *,
        lower: Time | None = None,
        upper: Time | None = None,
    ) -> Landed | UpperMismatch:
        """Each key gets the last of its rows, or none if that says `deleteWhen`: two Spark jobs.

        `sequenceBy` names columns, or gives SQL expressions, by which one row of a key comes after
        another; if they are columns of the table, a row that comes before the stored one is
        dropped. Without it a key may have one row. Both may use columns that the table does not
        have. Rows that are there already are not written again.

        An independent writer: if another one is faster, old rows are looked up again. With `lower`
        and `upper`, and a column `_time`, a replica: every time in `[lower, upper)` is settled at
        once, or the answer is `UpperMismatch`.
        """
        check_key(self._desk.shard.machine.state.schema, keys, self.name)
        return self.upsert_as(df, Meaning.of(sequenceBy, deleteWhen), lower=lower, upper=upper)

    def upsert_as(
        self, df: DataFrame, meaning: Meaning, *, lower: Time | None, upper: Time | None
    ) -> Landed | UpperMismatch:
        """The same, for callers that have put together themselves how rows are to be read."""
        jobs = self._jobs(_session_of(df, "upsert"))
        if lower is None and upper is None:
            return upsert(self._desk, jobs, df, meaning)
        return upsert_at(self._desk, jobs, df, meaning, _interval(lower, upper))

    def lookup(
        self,
        keys: DataFrame | pa.Table,
        as_of: Time | None = None,
        *,
        spark: SparkSession | None = None,
    ) -> DataFrame:
        """The rows whose key occurs in `keys`, as of a time: one Spark job, run at once.

        What it costs follows the keys, not the table. The rows stay what they are, however often
        the DataFrame is used; if they are many, for as long as the table is open.
        """
        session = self._session(keys, spark)
        found = lookup(self._desk, self._jobs(session), keys, as_of)
        return _frame(session, found)

    def lookup_arrow(
        self,
        keys: DataFrame | pa.Table,
        as_of: Time | None = None,
        *,
        spark: SparkSession | None = None,
    ) -> pa.Table:
        """The same as an Arrow table in this process."""
        session = self._session(keys, spark)
        return lookup(self._desk, self._jobs(session), keys, as_of).to_arrow(self._desk)

    def compact(self, spark: SparkSession, *, full: bool = False) -> None:
        """Merge what is due, or with `full` everything, in tasks: range by range.

        Background upkeep does the same by itself, in one process; this is for large tables.
        """
        jobs = self._jobs(spark)
        self._desk.compact(full=full, carrier=Carrier(self._desk, jobs), slots=jobs.slots)

    def close(self) -> None:
        """Give back what the table holds; DataFrames of it have to be taken anew.

        Repeating it is harmless; it opens again when used.
        """
        self._desk.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Table {self.name}>"

    def _kept(self, as_of: Time | None, start: Time = 0) -> View:
        """What is read stays; nothing is kept for a time that can't be read."""
        with self._desk.view() as view:
            settled_time(self.name, view, as_of)
            if not view.upper.is_closed and view.upper < Frontier(start):
                raise BoundsError(
                    f"changes of table {self.name} from {start} on can't be read: it is settled up "
                    f"to {view.upper}; is this the position of another table?"
                )
        return self._desk.kept_view()

    def _session(
        self, keys: DataFrame | pa.Table | None, spark: SparkSession | None
    ) -> SparkSession:
        # First: in a forked child, the way to Spark's JVM is that of the parent.
        self._desk.env.home.check()
        return _session(keys, spark)

    def _jobs(self, spark: SparkSession) -> Jobs:
        self._desk.env.home.check()
        return Jobs(spark, self._desk.shard.id, self._slots)


def _interval(lower: Time | None, upper: Time | None) -> tuple[Time, Time]:
    if lower is None or upper is None:
        raise UsageError("lower and upper go together: give both, or neither")
    return lower, upper


def _session(keys: DataFrame | pa.Table | None, spark: SparkSession | None) -> SparkSession:
    """The session of the keys, the one that was given, or the one that is active."""
    if keys is not None and not isinstance(keys, DataFrame | pa.Table):
        raise UsageError(
            f"lookup takes a DataFrame of Spark or an Arrow table with the columns of the key, not "
            f"{_kind(keys)}: write pa.table({{'id': [1, 2]}})"
        )
    own: SparkSession | None = getattr(keys, "sparkSession", None)
    session = own or spark or SparkSession.getActiveSession()
    if session is None:
        raise UsageError("there is no Spark session: start one, or give it as spark=")
    return session


def _session_of(df: object, what: str) -> SparkSession:
    """The session of a DataFrame, and of nothing else."""
    if not isinstance(df, DataFrame):
        raise UsageError(
            f"{what} takes a DataFrame of Spark, not {_kind(df)}: make one with "
            "spark.createDataFrame(…), or write rows without Spark (table.shard.writer())"
        )
    return df.sparkSession


def _kind(given: object) -> str:
    kind = type(given)
    return f"{kind.__module__.partition('.')[0]}.{kind.__name__}".removeprefix("builtins.")


def frame_of(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """Rows that are here as a DataFrame."""
    # As one chunk: Spark takes an empty one for the end, and leaves out all rows after it.
    return spark.createDataFrame(for_spark(rows).combine_chunks(), spark_struct(rows.schema))


def _frame(spark: SparkSession, found: Found) -> DataFrame:
    few = frame_of(spark, found.rows)
    if not found.staged:
        return few
    count = len(found.staged)
    numbers = spark.range(0, count, 1, numPartitions=count)
    layout = spark_struct(found.schema.arrow())
    told = (found.site, found.told)
    return few.unionByName(numbers.mapInArrow(closure(worker.read_staged, told), layout))
