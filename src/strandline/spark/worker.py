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
from msgspec.structs import replace

from strandline.config import cache_folder
from strandline.errors import LeaseLostError, NotFoundError, StrandlineError
from strandline.spark import perform
from strandline.spark.arrowtypes import for_spark
from strandline.spark.blocks import Blocks
from strandline.spark.cache import BlockCache
from strandline.spark.errands import Errands
from strandline.spark.instruction import Merge, Site, Staged, decode_ground, encode_answer
from strandline.spark.merging import merged
from strandline.spark.parcels import unwrap
from strandline.spark.placing import decode_placing
from strandline.spark.put import Bench
from strandline.spark.relay import wrapped
from strandline.spark.scanplan import decode_work
from strandline.spark.schedule import returnable
from strandline.spark.source_fetch import fetch_kept
from strandline.spark.source_rows import change_updates, snapshot_rows
from strandline.spark.strips import put_strips
from strandline.store.locate import open_blob
from strandline.system import SystemRandom, SystemTasks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from strandline.reading.descriptor import PartDescriptor
    from strandline.spark.instruction import Answer, Errand
    from strandline.spark.source_plan import Work
    from strandline.spark.source_rows import Fetch
    from strandline.store.blob import Blob

_BATCH_ROWS = 65_536
_sites = msgspec.msgpack.Decoder(Site)
_errands = msgspec.msgpack.Decoder(Errands)
_merges = msgspec.msgpack.Decoder(Merge)
_staged = msgspec.msgpack.Decoder(tuple[Staged, ...])


# The functions that closures name; each takes what it was told, then the batches of its task.


def append_rows(
    site: bytes, bounds: tuple[int, int] | None, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Each task puts its rows as parts, or gives few rows back."""
    with reporting():
        bench = bench_of(site)
        most = returnable(partition_number(), bench.ground.inline_max)
        yield _answer(bench, perform.append(bench, batches, bounds, most))


def stage_rows(
    site: bytes, most: int, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Each task puts its rows by place for the range job that follows, or gives few rows back."""
    with reporting():
        bench = bench_of(site)
        yield _answer(bench, perform.stage(bench, batches, returnable(partition_number(), most)))


def upsert_ranges(
    site: bytes, errands: bytes, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Each row is the number of an errand; one for each task."""
    with reporting():
        for bench, blocks, errand in _each(site, errands, batches):
            yield _answer(bench, perform.upsert(bench, blocks, errand))


def lookup_ranges(
    site: bytes, errands: bytes, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The same, for the rows of keys."""
    with reporting():
        for bench, blocks, errand in _each(site, errands, batches):
            yield _answer(bench, perform.lookup(bench, blocks, errand))


def lookup_rows(
    site: bytes, errands: bytes, most: int, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The batches are keys: each task looks its own up, or puts them by place if they are many."""
    with reporting():
        bench, blocks = bench_of(site), blocks_of(_sites.decode(site))
        keys = perform.stage(bench, batches, returnable(partition_number(), most))
        if not keys.rows:
            yield _answer(bench, keys)
            return
        errand = _errands.decode(errands).of(0, bench.get_range)
        yield _answer(bench, perform.lookup_few(bench, blocks, errand, keys.rows))


def read_staged(
    site: bytes, staged: bytes, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Each row is the number of a staged object; its rows come out."""
    with reporting():
        bench = bench_of(site)
        listed = _staged.decode(staged)
        for at in numbers_in(batches):
            for batch in bench.unstaged(listed[at]):
                yield from for_spark(pa.Table.from_batches([batch])).to_batches()


def look_up_rows(
    site: bytes, errands: bytes, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Each row is the number of an errand; the live rows of its keys come out."""
    with reporting():
        for bench, blocks, errand in _each(site, errands, batches):
            for rows in perform.found_rows(bench, blocks, errand):
                yield from for_spark(rows).to_batches(max_chunksize=_BATCH_ROWS)


def read_works(
    site: bytes, key: str, ends: Sequence[int], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Each row is the number of a piece of the object `key`, which says what to read."""
    yield from _read_works(snapshot_rows, (site, key, ends), batches)


def change_works(
    site: bytes, key: str, ends: Sequence[int], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The same, for updates with `_time` and `_diff`."""
    yield from _read_works(change_updates, (site, key, ends), batches)


def _read_works(
    reading: Callable[[Work, Fetch], Iterator[pa.Table]],
    told: tuple[bytes, str, Sequence[int]],
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    site, key, ends = told
    with reporting():
        bench = bench_of(site)
        once = fetch_kept(bench.blob)

        def fetch(wanted: PartDescriptor, lo: int, hi: int) -> pa.Table:
            return bench.patient(lambda: once(wanted, lo, hi))

        for task in numbers_in(batches):
            start = ends[task - 1] if task else 0
            encoded = bench.get_range(key, start, ends[task] - start)
            if encoded is None:
                raise LeaseLostError(
                    f"what a scan of {bench.ground.shard} was to read is gone: the table was "
                    "closed; open it and take a new DataFrame"
                )
            for rows in reading(decode_work(encoded), fetch):
                names = [
                    name
                    for name in bench.ground.schema.updates().names
                    if name in rows.schema.names
                ]
                yield from for_spark(rows.select(names)).to_batches(max_chunksize=_BATCH_ROWS)


def under_names(
    names: Sequence[str], task: Callable[..., Iterator[pa.RecordBatch]], *told: object
) -> Iterator[pa.RecordBatch]:
    """Another task, whose batches have other names on their way; they are the last of `told`."""
    *others, batches = told
    yield from task(*others, (batch.rename_columns(list(names)) for batch in batches))  # type: ignore[attr-defined]


def merge_units(
    site: bytes, parcels: bytes, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Each row is the number of what a task is told to merge."""
    with reporting():
        bench = bench_of(site)
        told = unwrap(parcels)
        for at in numbers_in(batches):
            unit = _merges.decode(told.of(at, bench.get_range))
            yield _answer(bench, replace(merged(bench, unit), number=at))


def place_parts(
    site: bytes, parcels: bytes, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Each row is the number of what a task is told to put by place."""
    with reporting():
        bench = bench_of(site)
        told = unwrap(parcels)
        for at in numbers_in(batches):
            placing = decode_placing(told.of(at, bench.get_range))
            yield _answer(bench, put_strips(bench, placing))


# What they stand on.


@contextmanager
def reporting() -> Iterator[None]:
    """Errors of ours travel with a mark, by which the driver finds them in Spark's text."""
    try:
        yield
    except StrandlineError as error:
        raise wrapped(error) from error


def partition_number() -> int:
    """Which partition of its job this task has."""
    # Not at the top: tests of this module run without Spark, and workers have loaded it already.
    from pyspark import TaskContext  # noqa: PLC0415

    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def _each(
    site: bytes, errands: bytes, batches: Iterable[pa.RecordBatch]
) -> Iterator[tuple[Bench, Blocks, Errand]]:
    """The errands whose numbers come in, and what they are carried out with."""
    bench, blocks = bench_of(site), blocks_of(_sites.decode(site))
    for task in numbers_in(batches):
        yield bench, blocks, _errands.decode(errands).of(task, bench.get_range)


def numbers_in(batches: Iterable[pa.RecordBatch]) -> Iterator[int]:
    """The numbers that a task of a job over numbers gets."""
    for batch in batches:
        yield from batch.column(0).to_pylist()


def _answer(bench: Bench, answer: Answer) -> pa.RecordBatch:
    encoded = encode_answer(answer, bench.ground.shard_id)
    return pa.record_batch([pa.array([encoded], pa.binary())], ["answer"])


@lru_cache(maxsize=64)
def bench_of(site: bytes) -> Bench:
    """What a task stands on: the ground of its site, and the blob."""
    known = _sites.decode(site)
    encoded = _blob(known.url).get(known.ground)
    if encoded is None:
        # The folder may have been removed and made anew since this process opened it.
        _blob.cache_clear()
        _opened_blocks.cache_clear()
        encoded = _blob(known.url).get(known.ground)
    if encoded is None:
        raise NotFoundError(
            f"the store in {known.url}, as a worker sees it, does not hold {known.ground}: it "
            "is not the driver's, and workers must see the same folder under the same path; or the "
            "table was closed, and a DataFrame of it has to be taken anew"
        )
    ground = decode_ground(encoded, known.ground)
    return Bench(ground, _blob(known.url), SystemRandom(), SystemTasks().sleep)


@lru_cache(maxsize=8)
def _blob(url: str) -> Blob:
    return open_blob(url)


def blocks_of(site: Site) -> Blocks:
    """The block cache of this machine."""
    return _opened_blocks(site.url, site.cache_folder, site.cache_bytes)


@lru_cache(maxsize=8)
def _opened_blocks(url: str, folder: str, most: int) -> Blocks:
    return Blocks(_blob(url), BlockCache(cache_folder(folder or None), most))
