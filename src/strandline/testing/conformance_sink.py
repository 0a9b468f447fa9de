"""What every sink must show, whatever its target is.

    check_sink(lambda: SinkStand(new=lambda what, step: Ours(…), read=…))

`SinkStand` tells the suite how to open a handle, whose `step` is called before every effect, and
how others see the target: as a log that holds each transaction's changes (`read`), or as a table
that holds rows (`state`). Each clause checks one sentence of the port's contract, two of them for
a death at every step of a delivery (S79); a stand is made anew for each.

The changes fit a table with `id` as its key: what is deleted was inserted by the delivery before,
and an update is a deletion with the insertion right after it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import pyarrow as pa

from strandline.connectors.sink import NOTHING_YET, Address, Delivered, Progress, Sink
from strandline.errors import InvariantError, SinkError, SinkFencedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string())])
CHANGES = pa.schema([*COLUMNS, pa.field("_diff", pa.int64(), nullable=False)])
_STEPS_MAX = 1_000
_Row = tuple[int, str | None]
_Seen = list[tuple[int, int, list[tuple[int, str | None, int]]]]


class DiedError(BaseException):
    """The process ended here: no line of it runs on but what tests need."""


def no_step(_: str) -> None:
    """A life in which nothing happens."""


@dataclass(frozen=True)
class SinkStand:
    """A sink to be checked, and its target: a log or a table, so `read` or `state`."""

    new: Callable[[Delivered, Callable[[str], None]], Sink]
    """Another handle on the target; `step` is called before each of its effects."""
    read: Callable[[Delivered], list[tuple[int, int, pa.Table]]] | None = None
    """What a reader of a log sees, in the target's order: time, epoch, changes."""
    lose: Callable[[Delivered], None] | None = None
    """Take the progress away, as retention may; `None` if the target can't lose it alone."""
    state: Callable[[Delivered], tuple[Progress | None, pa.Table]] | None = None
    """What a reader of a table sees: the progress under this address, and all rows that it holds
    now, without `_diff` and whichever lineage they are from."""


WHAT = Delivered(Address("l0", "shop", "out", "first"), COLUMNS)


def check_sink(stand: Callable[[], SinkStand]) -> None:
    """Fail unless the sink keeps the contract of `Sink`."""
    for clause in (
        _what_was_never_founded_has_no_progress,
        _founding_lasts_and_happens_once,
        _changes_and_progress_arrive_together,
        _batches_add_up_to_one_transaction,
        _times_may_have_gaps,
        _an_epoch_is_beside_the_progress,
        _lineages_are_kept_apart,
        _an_empty_transaction_is_refused_and_opens_nothing,
        _a_death_at_any_step_is_found_out_by_progress,
        _a_death_at_the_first_delivery_of_a_lineage_mixes_nothing,
        _an_empty_first_transaction_takes_what_was_left,
        _a_death_of_the_founder_harms_nothing,
        _a_zombie_that_comes_second_is_fenced,
        _a_zombie_that_comes_first_counts_or_is_fenced,
        _lost_progress_is_told_and_can_be_left_again,
        _what_is_read_back_adds_up,
        _opening_again_changes_nothing,
        _closing_twice_harms_nothing,
    ):
        clause(stand())


def changes(t: int, after: int = NOTHING_YET, rows: int = 2) -> list[pa.RecordBatch]:
    """The changes of a transaction whose predecessor had `changes(after)`, if there was one.

    One of its rows goes, another one is updated, and new ones come, one of them without a name.
    """
    found: list[tuple[int, str | None, int]] = []
    if after != NOTHING_YET:
        found += [(after * 10, "row 0", -1)]
        found += [(after * 10 + 1, None, -1), (after * 10 + 1, f"since {t}", 1)]
    found += [(t * 10 + n, None if n == 1 else f"row {n}", 1) for n in range(rows)]
    columns = list(zip(*found, strict=True))
    arrays = [pa.array(each, field.type) for each, field in zip(columns, CHANGES, strict=True)]
    return [pa.RecordBatch.from_arrays(arrays, schema=CHANGES)]


def opened(
    stand: SinkStand, what: Delivered = WHAT, step: Callable[[str], None] = no_step
) -> tuple[Sink, Progress | None]:
    """A handle as a publisher opens it, and the progress that it read."""
    sink = stand.new(what, step)
    sink.prepare()
    return sink, sink.progress()


def founded(stand: SinkStand, *times: int, what: Delivered = WHAT) -> Sink:
    """A handle on a target that has these transactions, of epoch 1, after those it had."""
    sink, progress = opened(stand, what)
    if progress is None:
        progress = Progress(NOTHING_YET, 1)
        sink.found(progress)
    for after, t in pairwise([progress.t, *times]):
        sink.deliver(t, 1, changes(t, after))
    return sink


def expected(*times: int, after: int = NOTHING_YET, epoch: int = 1) -> _Seen:
    """What a reader sees of these transactions, one after the other."""
    return [(t, epoch, _rows(_whole(changes(t, last)))) for last, t in pairwise([after, *times])]


def has(stand: SinkStand, wanted: _Seen, what: Delivered = WHAT) -> bool:
    """Whether readers see these transactions and nothing else; there must be one of them."""
    if stand.read is not None:
        return _read(stand, what) == wanted
    progress, rows = _state(stand, what)
    return progress == Progress(*wanted[-1][:2]) and rows == _sum(wanted)


def _read(stand: SinkStand, what: Delivered) -> _Seen:
    assert stand.read is not None, "a stand has `read` or `state`"
    return [(t, epoch, _rows(table)) for t, epoch, table in stand.read(what)]


def _state(stand: SinkStand, what: Delivered) -> tuple[Progress | None, Counter[_Row]]:
    assert stand.state is not None, "a stand has `read` or `state`"
    progress, table = stand.state(what)
    assert table.column_names == COLUMNS.names, "columns are missing, or too many"
    rows = (table[name].to_pylist() for name in COLUMNS.names)
    return progress, Counter(zip(*rows, strict=True))


def _is_empty(stand: SinkStand, what: Delivered = WHAT) -> bool:
    """Whether there is neither progress nor a row."""
    if stand.read is not None:
        return not stand.read(what)
    return _state(stand, what) == (None, Counter())


def _whole(batches: list[pa.RecordBatch]) -> pa.Table:
    return pa.Table.from_batches(batches, schema=CHANGES)


def _rows(table: pa.Table) -> list[tuple[int, str | None, int]]:
    assert table.column_names == CHANGES.names, "columns are missing, or too many"
    return sorted(zip(*(table[name].to_pylist() for name in CHANGES.names), strict=True), key=str)


def _sum(transactions: _Seen) -> Counter[_Row]:
    """The rows that are there after all of these changes, and how often."""
    total: Counter[_Row] = Counter()
    for _, _, rows in transactions:
        for number, name, diff in rows:
            total[number, name] += diff
    assert min(total.values(), default=0) >= 0, "a row went that was not there"
    return +total


def _what_was_never_founded_has_no_progress(stand: SinkStand) -> None:
    sink, progress = opened(stand)
    assert progress is None, "progress before anything was founded"
    sink.close()
    assert opened(stand)[1] is None, "preparing left progress"
    assert _is_empty(stand)


def _founding_lasts_and_happens_once(stand: SinkStand) -> None:
    sink = founded(stand)
    assert sink.progress() == Progress(NOTHING_YET, 1)
    sink.deliver(0, 1, changes(0))
    sink.found(Progress(NOTHING_YET, 1))
    assert opened(stand)[1] == Progress(0, 1), "founding again took progress back"
    assert has(stand, expected(0))


def _changes_and_progress_arrive_together(stand: SinkStand) -> None:
    sink = founded(stand, 0)
    for t in (1, 2):
        sink.deliver(t, 1, changes(t, t - 1))
        assert sink.progress() == Progress(t, 1), "progress is not that of the delivery"
        assert has(stand, expected(*range(t + 1))), "a delivery is not what a reader sees"
    assert opened(stand)[1] == Progress(2, 1), "another handle is told of other progress"


def _batches_add_up_to_one_transaction(stand: SinkStand) -> None:
    sink = founded(stand, 0)
    whole = _whole(changes(1, 0, rows=5))
    nothing = CHANGES.empty_table().to_batches() or [pa.RecordBatch.from_pylist([], CHANGES)]

    def lazily() -> Iterator[pa.RecordBatch]:
        yield nothing[0]
        yield from whole.to_batches(max_chunksize=2)
        yield nothing[0]

    sink.deliver(1, 1, lazily())
    assert has(stand, [*expected(0), (1, 1, _rows(whole))])


def _times_may_have_gaps(stand: SinkStand) -> None:
    founded(stand, 3, 9, 10, 1_000_000)
    assert has(stand, expected(3, 9, 10, 1_000_000)), "transactions are not in order"
    assert opened(stand)[1] == Progress(1_000_000, 1)


def _an_epoch_is_beside_the_progress(stand: SinkStand) -> None:
    founded(stand, 0)
    sink, progress = opened(stand)
    assert progress == Progress(0, 1), "a promotion begins anew"
    sink.deliver(1, 2, changes(1, 0))
    assert opened(stand)[1] == Progress(1, 2)
    assert has(stand, expected(0) + expected(1, after=0, epoch=2))


def _lineages_are_kept_apart(stand: SinkStand) -> None:
    """A log has each of them; a table has the rows of the newest, and no others come back."""
    founded(stand, 0, 1)
    other = _lineage("second")
    assert opened(stand, other)[1] is None, "another lineage has this one's progress"
    founded(stand, 5, what=other)
    assert has(stand, expected(5), other)
    if stand.read is not None:
        assert opened(stand)[1] == Progress(1, 1)
        assert has(stand, expected(0, 1))
        return
    try:
        # Insertions alone: nothing that is missing would give it away.
        opened(stand)[0].deliver(2, 1, changes(2))
    except (SinkError, SinkFencedError):
        assert has(stand, expected(5), other), "a lineage that was replaced came back"
    else:
        raise AssertionError("a lineage whose rows were replaced goes on without them")
    founded(stand, 6, what=other)
    assert has(stand, expected(5, 6), other), "a lineage that was replaced got in the way"


def _an_empty_transaction_is_refused_and_opens_nothing(stand: SinkStand) -> None:
    """Also if the first one was empty: no other one may be."""
    founded(stand, 0)
    other = _lineage("second")
    founded(stand, what=other).deliver(0, 1, [])
    for what in (WHAT, other):
        steps: list[str] = []
        sink, _ = opened(stand, what, step=steps.append)
        steps.clear()
        for nothing in ([], [pa.RecordBatch.from_pylist([], CHANGES)]):
            try:
                sink.deliver(1, 1, nothing)
            except InvariantError:
                continue
            raise AssertionError("a transaction without changes was taken")
        assert steps == [], f"a transaction without changes opened something: {steps}"
        assert opened(stand, what)[1] == Progress(0, 1)


def _a_death_at_any_step_is_found_out_by_progress(stand: SinkStand) -> None:
    """S79: whatever step a delivery dies before, progress tells whether it counts."""
    founded(stand, 0)
    t = deaths = 0
    while True:
        t += 1
        died = _dies(stand, t, deaths)
        sink, progress = opened(stand)
        assert progress is not None, "progress is gone"
        assert progress in {Progress(t - 1, 1), Progress(t, 1)}, f"{progress} after {t - 1}"
        assert has(stand, expected(*range(progress.t + 1))), "a part of it is seen"
        if progress == Progress(t - 1, 1):
            sink.deliver(t, 1, changes(t, t - 1))
        assert has(stand, expected(*range(t + 1))), f"not once after a death at step {deaths}"
        if not died:
            break
        deaths += 1
        assert deaths < _STEPS_MAX, "a delivery without end"
    assert deaths > 2, "the stand calls no steps"


def _a_death_at_the_first_delivery_of_a_lineage_mixes_nothing(stand: SinkStand) -> None:
    """S88: what an older lineage left is there whole until the newer one's rows are."""
    founded(stand, 0, 1)
    before = expected(0, 1)
    for deaths in range(_STEPS_MAX):
        what = _lineage(f"n{deaths}")
        founded(stand, what=what)
        died = _dies(stand, 5, deaths, what)
        sink, progress = opened(stand, what)
        assert progress in {Progress(NOTHING_YET, 1), Progress(5, 1)}
        if progress == Progress(NOTHING_YET, 1):
            if stand.read is None:
                assert _state(stand, what)[1] == _sum(before), "neither old nor new"
            sink.deliver(5, 1, changes(5))
        sink.deliver(6, 1, changes(6, 5))
        before = expected(5, 6)
        assert has(stand, before, what), f"not once after a death at step {deaths}"
        if not died:
            return
    raise AssertionError("a delivery without end")


def _an_empty_first_transaction_takes_what_was_left(stand: SinkStand) -> None:
    """A lineage that begins with nothing says so, and the rows of the older one are gone."""
    founded(stand, 0, 1)
    before = expected(0, 1)
    for deaths in range(_STEPS_MAX):
        what = _lineage(f"n{deaths}")
        founded(stand, what=what)
        died = _dies(stand, 5, deaths, what, [])
        sink, progress = opened(stand, what)
        assert progress in {Progress(NOTHING_YET, 1), Progress(5, 1)}
        if progress == Progress(NOTHING_YET, 1):
            if stand.read is None:
                assert _state(stand, what)[1] == _sum(before), "neither old nor new"
            sink.deliver(5, 1, [])
        _holds_nothing(stand, Progress(5, 1), what)
        sink, _ = opened(stand, what)
        sink.deliver(6, 1, changes(6))
        before = expected(6)
        assert _with_rows(stand, before, what), f"not once after a death at step {deaths}"
        if not died:
            return
    raise AssertionError("a delivery without end")


def _holds_nothing(stand: SinkStand, at: Progress, what: Delivered) -> None:
    assert opened(stand, what)[1] == at, "an empty first transaction is no progress"
    held = _state(stand, what)[1] if stand.read is None else _sum(_read(stand, what))
    assert held == Counter(), "what an older lineage left is still there"
    back = stand.new(what, no_step).read_back()
    assert back is not None
    assert back.at == at
    rows = _rows(pa.Table.from_batches(back.rows, schema=CHANGES))
    assert _sum([(at.t, at.epoch, rows)]) == Counter(), "what is read back is not what is there"


def _with_rows(stand: SinkStand, wanted: _Seen, what: Delivered) -> bool:
    """Whether readers see these transactions; a log may or may not show an empty one."""
    if stand.read is None:
        return has(stand, wanted, what)
    return [each for each in _read(stand, what) if each[2]] == wanted


def _a_death_of_the_founder_harms_nothing(stand: SinkStand) -> None:
    """A first progress mark is there or not, and the next one goes on."""
    for step in range(_STEPS_MAX):
        what = _lineage(f"n{step}")
        try:
            sink, _ = opened(stand, what, _dying(step))
            sink.found(Progress(NOTHING_YET, 1))
        except DiedError:
            founded(stand, 0, what=what)
            assert has(stand, expected(0), what), f"after a death at step {step}"
        else:
            return


def _a_zombie_that_comes_second_is_fenced(stand: SinkStand) -> None:
    """S81: a handle that was replaced delivers nothing again."""
    zombie = founded(stand, 0)
    sink, _ = opened(stand)
    sink.deliver(1, 1, changes(1, 0))
    assert _is_fenced(zombie, 1), "a handle that was replaced was not told"
    assert has(stand, expected(0, 1))
    sink.deliver(2, 1, changes(2, 1))
    assert has(stand, expected(0, 1, 2))


def _a_zombie_that_comes_first_counts_or_is_fenced(stand: SinkStand) -> None:
    """S80: what lands after somebody else was prepared is seen by that one."""
    zombie = founded(stand, 0)
    sink, progress = opened(stand)
    assert progress == Progress(0, 1)
    late = _is_fenced(zombie, 1)
    assert _is_fenced(sink, 1) is not late, "both or neither of two deliveries counted"
    assert has(stand, expected(0, 1))
    assert opened(stand)[1] == Progress(1, 1)


def _lost_progress_is_told_and_can_be_left_again(stand: SinkStand) -> None:
    if stand.lose is None:
        return
    founded(stand, 0, 1)
    stand.lose(WHAT)
    sink, progress = opened(stand)
    assert progress is None, "progress that is gone was made up"
    sink.found(Progress(1, 1))
    assert opened(stand)[1] == Progress(1, 1)
    founded(stand, 2)
    assert has(stand, expected(0, 1, 2))


def _what_is_read_back_adds_up(stand: SinkStand) -> None:
    """Also by a handle that was not prepared, which leaves whoever publishes alone."""
    assert stand.new(WHAT, no_step).read_back() is None, "read back before anything was founded"
    sink = founded(stand, 0, 1)
    found = stand.new(WHAT, no_step).read_back()
    assert found is not None
    assert found.at == Progress(1, 1)
    rows = _rows(pa.Table.from_batches(found.rows, schema=CHANGES))
    if stand.read is not None:
        assert rows == sorted((row for each in expected(0, 1) for row in each[2]), key=str)
    assert _sum([(1, 1, rows)]) == _sum(expected(0, 1))
    sink.deliver(2, 1, changes(2, 1))
    assert has(stand, expected(0, 1, 2)), "reading back shut the publisher out"


def _opening_again_changes_nothing(stand: SinkStand) -> None:
    """S88: what cleared its target at its first start does not at the next one."""
    founded(stand, 0, 1)
    for _ in range(3):
        assert opened(stand)[1] == Progress(1, 1)
        assert has(stand, expected(0, 1)), "opening it again changed the target"
    founded(stand, 2)
    assert has(stand, expected(0, 1, 2))


def _closing_twice_harms_nothing(stand: SinkStand) -> None:
    sink = founded(stand, 0)
    sink.close()
    sink.close()
    founded(stand, 1)
    assert has(stand, expected(0, 1))


def _lineage(name: str) -> Delivered:
    return replace(WHAT, address=replace(WHAT.address, lineage=name))


def _dies(
    stand: SinkStand,
    t: int,
    at: int,
    what: Delivered = WHAT,
    given: list[pa.RecordBatch] | None = None,
) -> bool:
    """Deliver t with a death before the step of that number; whether it came so far."""
    armed = False
    dying = _dying(at)

    def step(name: str) -> None:
        if armed:
            dying(name)

    sink, progress = opened(stand, what, step)
    assert progress is not None, "progress is gone"
    armed = True
    try:
        sink.deliver(t, 1, changes(t, progress.t) if given is None else given)
    except DiedError:
        return True
    return False


def _dying(at: int) -> Callable[[str], None]:
    left = at

    def step(_: str) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise DiedError

    return step


def _is_fenced(sink: Sink, t: int) -> bool:
    try:
        sink.deliver(t, 1, changes(t, t - 1))
    except SinkFencedError:
        return True
    return False
