"""What runs in Spark's Python workers: from a closure to a task's answer.

A closure carries a site and errands as bytes; modules and functions come from the package that is
installed beside the worker. What a worker process opens stays open for its next tasks: the blob,
the block cache, the grounds. Workers never open Consensus.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from strandline.config import cache_folder
from strandline.errors import LeaseLostError, NotFoundError, StrandlineError
from strandline.reading.extract import extract
from strandline.reading.fetch import read_object
from strandline.spark import perform
from strandline.spark.arrowtypes import for_spark
from strandline.spark.blocks import Blocks
from strandline.spark.cache import BlockCache
from strandline.spark.errands import Errands
from strandline.spark.instruction import Site, Staged, decode_ground, encode_answer
from strandline.spark.put import Bench
from strandline.spark.relay import wrapped
from strandline.spark.scanplan import decode_work
from strandline.spark.schedule import returnable
from strandline.spark.source_rows import snapshot_rows
from strandline.store.locate import open_blob
from strandline.system import SystemRandom, SystemTasks

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from strandline.reading.descriptor import PartDescriptor
    from strandline.spark.instruction import Answer, Ground
    from strandline.store.blob import Blob

_BATCH_ROWS = 65_536
_sites = msgspec.msgpack.Decoder(Site)
_errands = msgspec.msgpack.Decoder(Errands)
_staged = msgspec.msgpack.Decoder(tuple[Staged, ...])


# The functions that closures name; each takes what it was told, then the batches of its task.


def append_rows(
    site: bytes, bounds: tuple[int, int] | None, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Each task puts its rows as parts, or gives few rows back."""
    with _told():
        bench = _bench(site)
        most = returnable(_partition(), bench.ground.inline_max)
        yield _answer(bench, perform.append(bench, batches, bounds, most))


def stage_rows(
    site: bytes, most: int, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Each task puts its rows by place for the range job that follows, or gives few rows back."""
    with _told():
        bench = _bench(site)
        yield _answer(bench, perform.stage(bench, batches, returnable(_partition(), most)))


def upsert_ranges(
    site: bytes, errands: bytes, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Each row is the number of an errand; one for each task."""
    with _told():
        bench, blocks = _bench(site), _blocks(_sites.decode(site))
        for task in _tasks(batches):
            errand = _errands.decode(errands).of(task, bench.get_range)
            yield _answer(bench, perform.upsert(bench, blocks, errand))


def lookup_ranges(
    site: bytes, errands: bytes, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The same, for the rows of keys."""
    with _told():
        bench, blocks = _bench(site), _blocks(_sites.decode(site))
        for task in _tasks(batches):
            errand = _errands.decode(errands).of(task, bench.get_range)
            yield _answer(bench, perform.lookup(bench, blocks, errand))


def lookup_rows(
    site: bytes, errands: bytes, most: int, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The batches are keys: each task looks its own up, or puts them by place if they are many."""
    with _told():
        bench, blocks = _bench(site), _blocks(_sites.decode(site))
        keys = perform.stage(bench, batches, returnable(_partition(), most))
        if not keys.rows:
            yield _answer(bench, keys)
            return
        errand = _errands.decode(errands).of(0, bench.get_range)
        yield _answer(bench, perform.lookup_few(bench, blocks, errand, keys.rows))


def read_staged(
    site: bytes, staged: bytes, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Each row is the number of a staged object; its rows come out."""
    with _told():
        bench = _bench(site)
        listed = _staged.decode(staged)
        for at in _tasks(batches):
            for batch in bench.unstaged(listed[at]):
                yield from for_spark(pa.Table.from_batches([batch])).to_batches()


def look_up_rows(
    site: bytes, errands: bytes, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Each row is the number of an errand; the live rows of its keys come out."""
    with _told():
        bench, blocks = _bench(site), _blocks(_sites.decode(site))
        for task in _tasks(batches):
            errand = _errands.decode(errands).of(task, bench.get_range)
            for rows in perform.found_rows(bench, blocks, errand):
                yield from for_spark(rows).to_batches(max_chunksize=_BATCH_ROWS)


def read_works(
    site: bytes, key: str, ends: Sequence[int], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Each row is the number of a piece of the object `key`, which says what to read."""
    with _told():
        bench = _bench(site)

        def fetch(wanted: PartDescriptor) -> pa.Table:
            return extract(wanted, bench.patient(lambda: read_object(bench.blob, wanted)))

        for task in _tasks(batches):
            start = ends[task - 1] if task else 0
            encoded = bench.get_range(key, start, ends[task] - start)
            if encoded is None:
                raise LeaseLostError(
                    f"what a scan of {bench.ground.shard} was to read is gone: the table was "
                    "closed; open it and take a new DataFrame"
                )
            for rows in snapshot_rows(decode_work(encoded), fetch):
                named = rows.select(list(bench.ground.schema.names))
                yield from for_spark(named).to_batches(max_chunksize=_BATCH_ROWS)


# What they stand on.


@contextmanager
def _told() -> Iterator[None]:
    """Errors of ours travel with a mark, by which the driver finds them in Spark's text."""
    try:
        yield
    except StrandlineError as error:
        raise wrapped(error) from error


def _partition() -> int:
    # Not at the top: tests of this module run without Spark, and workers have loaded it already.
    from pyspark import TaskContext  # noqa: PLC0415

    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def _tasks(batches: Iterable[pa.RecordBatch]) -> Iterator[int]:
    for batch in batches:
        yield from batch.column(0).to_pylist()


def _answer(bench: Bench, answer: Answer) -> pa.RecordBatch:
    encoded = encode_answer(answer, bench.ground.shard_id)
    return pa.record_batch([pa.array([encoded], pa.binary())], ["answer"])


@lru_cache(maxsize=64)
def _bench(site: bytes) -> Bench:
    known = _sites.decode(site)
    blob = _blob(known.url)
    return Bench(_ground(blob, known), blob, SystemRandom(), SystemTasks().sleep)


@lru_cache(maxsize=8)
def _blob(url: str) -> Blob:
    return open_blob(url)


def _blocks(site: Site) -> Blocks:
    return _opened_blocks(site.url, site.cache_folder, site.cache_bytes)


@lru_cache(maxsize=8)
def _opened_blocks(url: str, folder: str, most: int) -> Blocks:
    return Blocks(_blob(url), BlockCache(cache_folder(folder or None), most))


def _ground(blob: Blob, site: Site) -> Ground:
    encoded = blob.get(site.ground)
    if encoded is None:
        raise NotFoundError(
            f"the store in {site.url}, as a worker sees it, is not the driver's: it does not hold "
            f"{site.ground}; workers must see the same folder under the same path"
        )
    return decode_ground(encoded, site.ground)
