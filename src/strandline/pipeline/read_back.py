"""Reads a sink's target back, and compares it with what its collection held at that time.

    lease on the collection ─► the record ─► read the target back, which says t ─► the record
      ─► read the collection as of t ─► compare digests ─► if they differ, both again, for rows

The lease comes first: whatever time the target turns out to be at stays readable until the end,
however far its publisher goes on meanwhile. Nothing is written, and nobody is shut out.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from strandline.connectors.sink import NOTHING_YET, Address, Delivered
from strandline.errors import SinkStoppedError
from strandline.model.digest import Digest
from strandline.model.ids import printable
from strandline.pipeline.claims import claim_of
from strandline.pipeline.compare import Columns, Rest, Side, affordable, differing
from strandline.pipeline.delivery import objection, onward
from strandline.reading.events import Updates

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from strandline.connectors.sink import Progress, Sink
    from strandline.handles.shard import Reader
    from strandline.handles.store import Store
    from strandline.model.frontier import Time
    from strandline.pipeline.compare import Difference
    from strandline.pipeline.delivery import Mark
    from strandline.pipeline.place import Place, Target

SAMPLES = 10
Told = Callable[[int, str], None]
"""Hears how many rows were read, and of what."""


def quiet(_: int, __: str) -> None:
    """Tell nobody."""


@dataclass(frozen=True, slots=True)
class VerifiedSink:
    """What came of comparing a target with its collection."""

    sink: str
    source: str
    at: Time | None = None
    """The last transaction that the target has; `None` before the first."""
    reason: str = ""
    """What is wrong; empty if both hold the same."""
    target: Digest = Digest.ZERO
    """Of what the target holds: its count of rows, and what they add up to."""
    view: Digest = Digest.ZERO
    """Of what the collection held."""
    samples: tuple[Difference, ...] = ()
    """Some rows that differ, where rows do: how many more of each the target has."""

    @property
    def equal(self) -> bool:
        return not self.reason


class _OtherColumnsError(Exception):
    """The target's rows are not of the collection's columns."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One sink, as whoever verifies it reaches both of its sides."""

    store: Store
    pipeline: str
    target: Target
    place: Place

    @property
    def columns(self) -> Columns:
        kept = self.place.shard.machine.state.schema
        schema = self._delivered.columns
        return Columns(schema, tuple(kept.field(name).id for name in schema.names))

    def mark(self) -> Mark | None:
        claim = claim_of(self.store.env, self.pipeline, self.target.name)
        return claim.marks.get(self.place.lineage)

    def open(self) -> Sink:
        return self.target.open(self._delivered)

    @property
    def _delivered(self) -> Delivered:
        address = Address(self.store.id, self.pipeline, self.target.name, self.place.lineage)
        return self.target.delivered(address, self.place.shard.schema)

    def collection(self, t: Time) -> Iterator[pa.Table]:
        """What the collection holds as of t, piece by piece; its pieces add up to it."""
        if t == NOTHING_YET:
            return
        names = self.columns.schema.names
        with self.place.shard.subscribe(t, until=t + 1, columns=names) as subscription:
            for event in subscription:
                if isinstance(event, Updates):
                    yield event.rows


def compared(reading: Reading, told: Told = quiet) -> VerifiedSink:
    """Whether the target of a sink holds what its collection held at the delivered time."""
    purpose = f"verify sink {reading.target.name}"
    with reading.place.shard.reader(purpose=purpose) as reader:
        try:
            return _compared(reading, reader, told)
        except (SinkStoppedError, _OtherColumnsError) as error:
            return replace(_blank(reading), reason=str(error))


def _compared(reading: Reading, reader: Reader, told: Told) -> VerifiedSink:
    before, columns = reading.mark(), reading.columns
    theirs, ours = Side(columns), Side(columns)
    with closing(reading.open()) as sink:
        back = sink.read_back()
        at = None if back is None else back.at
        wrong = objection(before, at, reading.mark())
        if back is None or wrong:
            return replace(_blank(reading, at), reason=wrong)
        # What came after its last transaction has no changes, and what was before may be merged.
        t = onward(before, back.at.t)
        if t != NOTHING_YET:
            reader.downgrade(t)
        for batch in _checked(back.rows, columns):
            theirs.add(batch)
            told(sum(theirs.updates.values()), "of the target")
    for rows in reading.collection(t):
        ours.add(rows)
        told(sum(ours.updates.values()), f"of {reading.target.source}")
    found = replace(_blank(reading, at), target=theirs.total, view=ours.total)
    places = differing(theirs, ours)
    if not places:
        return found
    return replace(
        found,
        reason=f"as of {back.at.t} it does not hold what {reading.target.source} holds",
        samples=tuple(_samples(reading, before, affordable(places, theirs, ours), told)),
    )


def _samples(
    reading: Reading, mark: Mark | None, places: Collection[int], told: Told
) -> list[Difference]:
    """Some rows that differ: both sides once more, and only those places.

    A publisher may have gone on meanwhile: then it is what the target has now that is looked at.
    """
    rest = Rest(reading.columns, places)
    with closing(reading.open()) as sink:
        back = sink.read_back()
        if back is None:
            return []
        for batch in _checked(back.rows, reading.columns):
            rest.add(batch, 1)
    told(0, "that differ")
    for rows in reading.collection(onward(mark, back.at.t)):
        rest.add(rows, -1)
    return rest.differences(SAMPLES)


def _checked(rows: Iterator[pa.RecordBatch], columns: Columns) -> Iterator[pa.Table]:
    for batch in rows:
        try:
            yield columns.rows(batch)
        except (pa.ArrowException, KeyError, ValueError) as error:
            raise _OtherColumnsError(
                f"its target's rows are not of the columns of the collection: "
                f"{printable(error, 300)}"
            ) from error


def _blank(reading: Reading, at: Progress | None = None) -> VerifiedSink:
    time = None if at is None or at.t == NOTHING_YET else at.t
    return VerifiedSink(reading.target.name, reading.target.source, time)
