"""Runs Spark jobs of ours and takes their answers; errors come out as what tasks raised.

Public DataFrame calls alone, so that a session of Spark Connect does as well. No DataFrame runs
twice: one that has run may answer again with what it saw then.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec
from pyspark.errors import PySparkException
from pyspark.sql.types import BinaryType, StructField, StructType

from strandline.spark import worker
from strandline.spark.confs import cores_of
from strandline.spark.cores import cores_for
from strandline.spark.instruction import decode_answer
from strandline.spark.relay import unwrapped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from strandline.spark.errands import Errands
    from strandline.spark.instruction import Answer

ANSWERS = StructType([StructField("answer", BinaryType())])
"""Not as text, which Spark would have to parse for every job."""
_UNNAMEABLE = frozenset(".`")
_SLOTS = 8
"""What is taken for granted where a session does not say how much it can do at once."""
_encoder = msgspec.msgpack.Encoder()


class Jobs:
    """The jobs of one call, counted."""

    def __init__(self, spark: SparkSession, shard_id: str, slots: int | None = None) -> None:
        self.count = 0
        self._spark = spark
        self._shard_id = shard_id
        self._slots = slots

    @property
    def slots(self) -> int:
        """How many tasks run at once, as far as the session says."""
        if self._slots is None:
            self._slots = slots_of(
                lambda name: self._spark.conf.get(name, None), cores_for(self._spark)
            )
        return self._slots

    def over(self, frame: DataFrame, task: Callable[..., object], *told: object) -> list[Answer]:
        """One job over the rows of a frame: each task runs `task(*told, batches)`."""
        return [decode_answer(each, self._shard_id) for each in self.collect(frame, task, *told)]

    def collect(self, frame: DataFrame, task: Callable[..., object], *told: object) -> list[bytes]:
        """The same for tasks that answer in words of their own."""
        names = frame.columns
        if _UNNAMEABLE.isdisjoint("".join(names)):
            return self._run(frame.mapInArrow(closure(task, told), ANSWERS))
        # Spark would take these names for expressions, so columns travel under others.
        plain = frame.toDF(*(f"c{at}" for at in range(len(names))))
        named = closure(worker.under_names, (names, task, *told))
        return self._run(plain.mapInArrow(named, ANSWERS))

    def errands(self, task: Callable[..., object], site: bytes, errands: Errands) -> list[Answer]:
        """One job with one task for each errand."""
        return self.over(self.numbers(len(errands.ends)), task, site, _encoder.encode(errands))

    def numbers(self, count: int) -> DataFrame:
        """The numbers from 0 on, each in a task of its own."""
        return self._spark.range(0, count, 1, numPartitions=count)

    def _run(self, frame: DataFrame) -> list[bytes]:
        self.count += 1
        with ours():
            table = frame.toArrow()
        answers: list[bytes] = table.column("answer").to_pylist()
        return answers


class ours:  # noqa: N801 - reads as a word where it is used
    """What a task of ours raised comes out as itself, with Spark's error as its cause."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, PySparkException):
            found = unwrapped(str(error))
            if found is not None:
                raise found from error


def closure(
    task: Callable[..., object], told: Sequence[object]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    return partial(task, *told)  # type: ignore[return-value]


def slots_of(conf: Callable[[str], str | None], here: int | None) -> int:
    """How many tasks a session runs at once, by its settings; `here` is what its machine has, if
    that is known.

    >>> slots_of({"spark.master": "local[3]"}.get, 8), slots_of({"spark.master": "local[*]"}.get, 8)
    (3, 8)
    >>> slots_of({"spark.executor.instances": "4", "spark.executor.cores": "2"}.get, 8)
    8
    """
    master = conf("spark.master") or ""
    known = cores_of(master, None)
    if known is not None:
        return known
    said = conf("spark.default.parallelism")
    if said is not None and said.isdigit():
        return max(1, int(said))
    known = cores_of(master, here)
    if known is not None:
        return known
    executors, cores = conf("spark.executor.instances"), conf("spark.executor.cores")
    if executors is not None and executors.isdigit():
        return max(1, int(executors) * int(cores or 1))
    return _SLOTS
