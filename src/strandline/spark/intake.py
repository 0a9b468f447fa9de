"""Takes rows in, in tasks: fetch them from their source, decode them, put them by place.

A task takes pieces of one intake. What it answers is the digest of the rows as they came, and the
good rows where they are now: here if they are few, else put for the range job that follows. The
rows of a table without a key are its updates already, and put as parts.

Error rows of a table are resolved like rows of a table, by their id. Ids of good rows heal errors,
so they are taken too, but only where there are errors: that is known beforehand of those that are
stored, and of those that come only when they have come. Then a second job takes the ids alone.
"""

from __future__ import annotations

from dataclasses import astuple
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from strandline.connectors.incoming import decode
from strandline.connectors.reading import reading
from strandline.connectors.registry import fetch
from strandline.connectors.source import Split
from strandline.journal.record import StagedRef
from strandline.journal.staging import intact
from strandline.model.digest import Digest
from strandline.pipeline.evolve import joined
from strandline.pipeline.meaning import (
    declared_only,
    fitted,
    fresh_words,
    input_digest,
    undecoded,
    unpacked_rows,
)
from strandline.spark import perform, slices
from strandline.spark.changes import put_changes
from strandline.spark.instruction import Answer
from strandline.spark.parcels import unwrap
from strandline.spark.scanplan import decode_work
from strandline.spark.schedule import RETURNED_BYTES, returnable
from strandline.spark.upstream import work_rows
from strandline.spark.worker import bench_of, numbers_in, partition_number, reporting

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from strandline.connectors.incoming import Incoming
    from strandline.connectors.source import ResolveSecret
    from strandline.pipeline.meaning import Undecoded
    from strandline.spark.put import Bench


class Piece(msgspec.Struct, frozen=True, array_like=True):
    """Rows of a source, or rows that were staged."""

    split: Split | None = None
    staged: StagedRef | None = None
    work: bytes = b""
    """Which parts of a shard hold the rows of the split, as the driver found them."""


class Order(msgspec.Struct, frozen=True, array_like=True):
    """What one task takes in."""

    intake: int
    """The number of its intake in the work."""
    pipeline: str
    time: int
    pieces: tuple[Piece, ...]
    columns: bytes
    """The table's columns, as Arrow writes a schema."""
    key: tuple[str, ...]
    options: dict[str, str]
    """How the source's rows are read."""
    site: bytes
    errors: bytes
    """The sites of the table and of its errors."""
    takes_rows: bool = True
    takes_ids: bool = False
    declared: tuple[str, ...] = ()
    """The columns that the program declares, where the table may have been given more."""


class Took(msgspec.Struct, frozen=True, array_like=True):
    """What came of an order."""

    intake: int
    digest: bytes
    rows: Answer
    errors: Answer
    bad: tuple[int, str, int, str, bool] | None
    """How many rows could not be decoded, and the first of them; see `Undecoded`."""
    fresh: dict[str, str] = {}
    """Fields without a column, where the table adds them."""
    truncations: tuple[bytes, ...] = ()
    """The order columns of truncations, an Arrow stream for each batch that has some."""


_orders = msgspec.msgpack.Decoder(Order)
_tooks = msgspec.msgpack.Decoder(Took)
_encoder = msgspec.msgpack.Encoder()


def encode_order(order: Order) -> bytes:
    return _encoder.encode(order)


def decode_took(encoded: bytes) -> Took:
    return _tooks.decode(encoded)


def take_in(
    site: bytes, parcels: bytes, resolve: ResolveSecret, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Each row is the number of an order; `site` is where orders are read, if they are many."""
    with reporting():
        for number in numbers_in(batches):
            told = unwrap(parcels).of(number, lambda *at: bench_of(site).get_range(*at))
            order = _orders.decode(told)
            taking = Taking(order, bench_of(order.site), bench_of(order.errors), resolve)
            encoded = _encoder.encode(taking.take(returnable(partition_number(), RETURNED_BYTES)))
            yield pa.record_batch([pa.array([encoded], pa.binary())], ["answer"])


class Taking:
    """One order on its way."""

    def __init__(self, order: Order, table: Bench, errors: Bench, resolve: ResolveSecret) -> None:
        self._order = order
        self._table = table
        self._errors = errors
        self._resolve = resolve
        columns = pa.ipc.read_schema(pa.py_buffer(order.columns))
        self._how = reading(columns, order.key, order.options)
        self._digest = Digest.ZERO
        self._bad: Undecoded | None = None
        self._fresh: dict[str, str] = {}
        self._ids: list[pa.Table] = []
        self._truncations: list[pa.Table] = []

    def take(self, most: int) -> Took:
        """Fetch and decode all there is; up to `most` bytes are given back instead of put."""
        rows = Answer()
        if not self._order.takes_rows:
            for _ in self._decoded():
                pass
        elif self._how.keyed:
            rows = perform.stage(self._table, self._good(), most)
        else:
            rows = put_changes(self._table, self._good(), self._order.time, most)
        errors = Answer()
        if self._ids:
            whole = pa.concat_tables(self._ids)
            errors = perform.stage(self._errors, whole.to_batches(), most)
        bad = None if self._bad is None else astuple(self._bad)
        truncations = tuple(slices.to_stream(each) for each in self._truncations)
        digest = self._digest.pack()
        return Took(self._order.intake, digest, rows, errors, bad, self._fresh, truncations)

    def _good(self) -> Iterator[pa.RecordBatch]:
        how = self._how
        for incoming in self._decoded():
            good = incoming.rows(how) if how.keyed else incoming.appended(how)
            good = fitted(good, self._table.ground.schema)
            yield from good.combine_chunks().to_batches()

    def _decoded(self) -> Iterator[Incoming]:
        """What each batch means; its digest and its errors are noted."""
        for batch in self._fetched():
            self._digest += input_digest(batch)
            incoming = decode(batch, self._how)
            declared = declared_only(self._how, self._order.declared)
            again = None if declared is None else partial(decode, batch, declared)
            if (bad := undecoded(incoming, again)) is not None:
                self._bad = bad.with_others(self._bad)
            self._fresh = joined([self._fresh, fresh_words(incoming.fresh)])
            if self._how.keyed:
                found = incoming.truncations(self._how)
                self._truncations += [found] if found.num_rows else []
            if self._order.takes_ids:
                self._ids.append(incoming.errors())
            yield incoming

    def _fetched(self) -> Iterator[pa.Table]:
        for piece in self._order.pieces:
            if piece.split is not None and piece.work:
                yield from work_rows(decode_work(piece.work), piece.split, self._table.blob)
            elif piece.split is not None:
                for batch in fetch(piece.split, self._resolve):
                    yield pa.Table.from_batches([batch])
            if piece.staged is not None:
                yield self._unstaged(piece.staged)

    def _unstaged(self, ref: StagedRef) -> pa.Table:
        bench = self._table
        found = bench.patient(lambda: bench.blob.get(ref.key))
        return unpacked_rows(intact(found, self._order.pipeline, ref))
