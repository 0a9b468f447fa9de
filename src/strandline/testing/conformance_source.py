"""What every source must show, whatever it reads.

    check_source(lambda: Stand(new=lambda: Ours(…), fetch=…, grow=…, forget=…))

`Stand` tells the suite how to open the source, how to read a split in whichever process, how to
let the source grow, and how to take away what was offered. Each clause checks one sentence of the
port's contract; a stand is made anew for each of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from strandline.connectors import raw as layout
from strandline.connectors.position import Position, Range
from strandline.connectors.source import Limits, Source, Split
from strandline.errors import SourceError, SourceGoneError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

ALL = Limits()
ONE_ROW = Limits(rows=1)
_TURNS_MAX = 10_000


@dataclass(frozen=True)
class Stand:
    """A source to be checked, and the world that it reads from."""

    new: Callable[[], Source]
    """Another handle on the same source."""
    fetch: Callable[[Split], Iterable[pa.RecordBatch]]
    grow: Callable[[], None]
    """Make at least two more rows available, in at least one step of a plan."""
    forget: Callable[[Range], None] | None = None
    """Make part of a range unreadable, or change it; `None` if that can't happen."""
    small: Limits = ONE_ROW
    """Limits under which what `grow` adds takes more than one step."""
    counts_rows: bool = True
    """Whether offsets count rows, so that a limit of rows is exact."""
    bounded: bool = True
    """Whether the offsets of rows lie within the range, as all but row numbers do."""
    strict: bool = True
    """Whether no two rows of a partition have the same offset."""


def check_source(stand: Callable[[], Stand]) -> None:
    """Fail unless the source keeps the contract of `Source`."""
    for clause in (
        _what_is_planned_follows_and_keeps_the_limits,
        _planning_moves_nothing,
        _small_steps_give_what_one_step_gives,
        _a_range_gives_the_same_rows_to_everybody,
        _rows_lie_in_their_range_in_order,
        _splits_cover_a_range_once,
        _empty_ranges_hold_nothing_and_resume,
        _after_the_end_there_is_nothing_until_it_grows,
        _acknowledging_twice_or_backwards_harms_nothing,
        _what_is_gone_is_named,
        _closing_twice_harms_nothing,
    ):
        made = stand()
        assert made.new().replayable, "a source that is not replayable is staged, not checked here"
        clause(made)


def drained(source: Source, start: Position, limits: Limits) -> list[Range]:
    """Ranges one after the other until the source has nothing more to offer."""
    ranges: list[Range] = []
    position = dict(start)
    while (taken := source.plan(position, limits)) is not None:
        assert taken.follows(position), f"{taken} does not follow {position}"
        assert not taken.empty, "a plan of nothing is None"
        position = taken.after(position)
        ranges.append(taken)
        assert len(ranges) < _TURNS_MAX, "a source that offers without end"
    return ranges


def rows_of(stand: Stand, source: Source, taken: Range) -> pa.Table:
    """The rows of a range in the order of partition and offset."""
    batches = [batch for split in source.splits(taken) for batch in stand.fetch(split)]
    if not batches:
        return pa.table({layout.PARTITION: pa.array([], pa.string()), layout.OFFSET: []})
    whole = pa.Table.from_batches(batches)
    return whole.sort_by([(layout.PARTITION, "ascending"), (layout.OFFSET, "ascending")])


def _what_is_planned_follows_and_keeps_the_limits(stand: Stand) -> None:
    source = stand.new()
    stand.grow()
    stand.grow()
    ranges = drained(source, {}, stand.small)
    assert len(ranges) > 1, "the limits did not cut anything"
    if stand.counts_rows and stand.small.rows is not None:
        assert max(taken.rows for taken in ranges) <= stand.small.rows, "more rows than allowed"


def _planning_moves_nothing(stand: Stand) -> None:
    source = stand.new()
    stand.grow()
    first = source.plan({}, stand.small)
    assert first is not None, "a source that has grown offers something"
    drained(source, {}, ALL)
    assert source.plan({}, stand.small) == first, "an offer depends on earlier ones"
    after = first.after({})
    assert source.plan(after, stand.small) == source.plan(after, stand.small)


def _small_steps_give_what_one_step_gives(stand: Stand) -> None:
    source = stand.new()
    stand.grow()
    stand.grow()
    small = drained(source, {}, stand.small)
    large = drained(source, {}, ALL)
    assert _end(small) == _end(large), "the end depends on the steps"
    assert _joined(stand, source, small) == _joined(stand, source, large), (
        "rows depend on the steps"
    )


def _a_range_gives_the_same_rows_to_everybody(stand: Stand) -> None:
    ours, theirs = stand.new(), stand.new()
    stand.grow()
    taken = ours.plan({}, ALL)
    assert taken is not None
    first = rows_of(stand, ours, taken)
    stand.grow()
    assert rows_of(stand, ours, taken).equals(first), "a range read twice has other rows"
    assert rows_of(stand, theirs, taken).equals(first), "another handle reads other rows"
    wire = msgspec.json.encode(theirs.splits(taken))
    splits = msgspec.json.decode(wire, type=list[Split])
    assert splits == theirs.splits(taken), "a split does not survive the wire"
    copied = msgspec.json.decode(msgspec.json.encode(taken), type=Range)
    assert rows_of(stand, stand.new(), copied).equals(first)


def _rows_lie_in_their_range_in_order(stand: Stand) -> None:
    source = stand.new()
    stand.grow()
    for taken in drained(source, {}, stand.small):
        for split in source.splits(taken):
            offsets: list[int] = []
            for batch in stand.fetch(split):
                assert set(batch[layout.PARTITION].to_pylist()) <= {split.partition}
                offsets += batch[layout.OFFSET].to_pylist()
            assert offsets == sorted(offsets), "offsets go back"
            assert not stand.strict or len(set(offsets)) == len(offsets), "an offset comes twice"
            if stand.bounded and offsets:
                assert split.start <= offsets[0], "a row before its range"
                assert offsets[-1] < split.stop, "a row at or after the end of its range"


def _splits_cover_a_range_once(stand: Stand) -> None:
    source = stand.new()
    stand.grow()
    taken = source.plan({}, ALL)
    assert taken is not None
    for partition, (start, stop) in taken.parts.items():
        spans = sorted((s.start, s.stop) for s in source.splits(taken) if s.partition == partition)
        edges = [start, *(end for _, end in spans)]
        assert [begin for begin, _ in spans] == edges[:-1], "splits overlap or leave a gap"
        assert edges[-1] == stop, "splits end before or after their range"


def _empty_ranges_hold_nothing_and_resume(stand: Stand) -> None:
    source = stand.new()
    stand.grow()
    taken = source.plan({}, ALL)
    assert taken is not None
    for position in (dict.fromkeys(taken.parts, 0), taken.after({})):
        empty = Range({each: (at, at) for each, at in position.items()})
        source.check(empty)
        assert rows_of(stand, source, empty).num_rows == 0, "an empty range has rows"
        assert empty.after(position) == position


def _after_the_end_there_is_nothing_until_it_grows(stand: Stand) -> None:
    source = stand.new()
    stand.grow()
    end = _end(drained(source, {}, ALL))
    assert source.plan(end, ALL) is None, "something comes after the end"
    assert source.plan(end, stand.small) is None
    stand.grow()
    more = source.plan(end, ALL)
    assert more is not None, "what came after the end is not offered"
    assert more.follows(end), "what came after the end does not follow it"
    assert rows_of(stand, source, more).num_rows > 0


def _acknowledging_twice_or_backwards_harms_nothing(stand: Stand) -> None:
    source = stand.new()
    stand.grow()
    ranges = drained(source, {}, stand.small)
    middle = ranges[0].after({})
    rest = [rows_of(stand, source, taken) for taken in ranges[1:]]
    source.acknowledge(middle)
    source.acknowledge(middle)
    source.acknowledge({})
    for taken, before in zip(ranges[1:], rest, strict=True):
        source.check(taken)
        assert rows_of(stand, stand.new(), taken).equals(before), "acknowledging lost later rows"


def _what_is_gone_is_named(stand: Stand) -> None:
    source = stand.new()
    stand.grow()
    taken = source.plan({}, ALL)
    assert taken is not None
    source.check(taken)
    if stand.forget is None:
        return
    stand.forget(taken)
    for check in (source.check, stand.new().check):
        told = _raised(SourceGoneError, partial(check, taken))
        assert told is not None, "what can't be read any more is not noticed"
        assert len(told) > 20, "the error does not say what is gone"
    read = _raised(SourceError, lambda: rows_of(stand, source, taken))
    assert read is not None, "what can't be read exactly any more is read"


def _closing_twice_harms_nothing(stand: Stand) -> None:
    ours, theirs = stand.new(), stand.new()
    stand.grow()
    ours.close()
    ours.close()
    assert theirs.plan({}, ALL) is not None, "closing one handle closed another"


def _raised(kind: type[SourceError], call: Callable[[], object]) -> str | None:
    try:
        call()
    except kind as error:
        return str(error)
    return None


def _end(ranges: list[Range]) -> Position:
    position: Position = {}
    for taken in ranges:
        position = taken.after(position)
    return position


def _joined(stand: Stand, source: Source, ranges: list[Range]) -> list[str]:
    """All rows of some ranges, as text that can be compared."""
    rows = [repr(row) for taken in ranges for row in rows_of(stand, source, taken).to_pylist()]
    return sorted(rows)
