"""What every sink must show, whatever its target is.

    check_sink(lambda: SinkStand(new=lambda what, step: Ours(…), read=…))

`SinkStand` tells the suite how to open a handle, whose `step` is called before every effect, and
how a reader of the target sees it. Each clause checks one sentence of the port's contract, one of
them for a death at every step of a delivery (S79); a stand is made anew for each.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from strandline.connectors.sink import NOTHING_YET, Address, Delivered, Progress, Sink
from strandline.errors import InvariantError, SinkFencedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string())])
CHANGES = pa.schema([*COLUMNS, pa.field("_diff", pa.int64(), nullable=False)])
_STEPS_MAX = 1_000
_Seen = list[tuple[int, int, list[tuple[int, str | None, int]]]]


class DiedError(BaseException):
    """The process ended here: no line of it runs on but what tests need."""


def no_step(_: str) -> None:
    """A life in which nothing happens."""


@dataclass(frozen=True)
class SinkStand:
    """A sink to be checked, and its target."""

    new: Callable[[Delivered, Callable[[str], None]], Sink]
    """Another handle on the target; `step` is called before each of its effects."""
    read: Callable[[Delivered], list[tuple[int, int, pa.Table]]]
    """What a reader sees, in the target's order: time, epoch, changes."""
    lose: Callable[[Delivered], None] | None = None
    """Take the progress away, as retention may; `None` if the target can't lose it alone."""


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
        _a_death_of_the_founder_harms_nothing,
        _a_zombie_that_comes_second_is_fenced,
        _a_zombie_that_comes_first_counts_or_is_fenced,
        _lost_progress_is_told_and_can_be_left_again,
        _closing_twice_harms_nothing,
    ):
        clause(stand())


def changes(t: int, rows: int = 2) -> list[pa.RecordBatch]:
    """The changes of a transaction: an insertion for each row, and a deletion."""
    ids = [*range(t * 10, t * 10 + rows), t]
    names = [*(f"row {n}" for n in range(rows)), None]
    diffs = [1] * rows + [-1]
    arrays = [pa.array(ids), pa.array(names, pa.string()), pa.array(diffs)]
    return [pa.RecordBatch.from_arrays(arrays, schema=CHANGES)]


def opened(
    stand: SinkStand, what: Delivered = WHAT, step: Callable[[str], None] = no_step
) -> tuple[Sink, Progress | None]:
    """A handle as a publisher opens it, and the progress that it read."""
    sink = stand.new(what, step)
    sink.prepare()
    return sink, sink.progress()


def founded(stand: SinkStand, *times: int, what: Delivered = WHAT) -> Sink:
    """A handle on a target that has these transactions, of epoch 1."""
    sink, progress = opened(stand, what)
    if progress is None:
        sink.found(Progress(NOTHING_YET, 1))
    for t in times:
        sink.deliver(t, 1, changes(t))
    return sink


def seen(stand: SinkStand, what: Delivered = WHAT) -> _Seen:
    return [(t, epoch, _rows(table)) for t, epoch, table in stand.read(what)]


def expected(*times: int, epoch: int = 1) -> _Seen:
    return [(t, epoch, _rows(pa.Table.from_batches(changes(t)))) for t in times]


def _rows(table: pa.Table) -> list[tuple[int, str | None, int]]:
    assert table.column_names == CHANGES.names, "columns are missing, or too many"
    return sorted(zip(*(table[name].to_pylist() for name in CHANGES.names), strict=True), key=str)


def _what_was_never_founded_has_no_progress(stand: SinkStand) -> None:
    sink, progress = opened(stand)
    assert progress is None, "progress before anything was founded"
    sink.close()
    assert opened(stand)[1] is None, "preparing left progress"
    assert seen(stand) == []


def _founding_lasts_and_happens_once(stand: SinkStand) -> None:
    sink = founded(stand)
    assert sink.progress() == Progress(NOTHING_YET, 1)
    sink.deliver(0, 1, changes(0))
    sink.found(Progress(NOTHING_YET, 1))
    assert opened(stand)[1] == Progress(0, 1), "founding again took progress back"
    assert seen(stand) == expected(0)


def _changes_and_progress_arrive_together(stand: SinkStand) -> None:
    sink = founded(stand, 0)
    for t in (1, 2):
        sink.deliver(t, 1, changes(t))
        assert sink.progress() == Progress(t, 1), "progress is not that of the delivery"
        assert seen(stand) == expected(*range(t + 1)), "a delivery is not what a reader sees"
    assert opened(stand)[1] == Progress(2, 1), "another handle is told of other progress"


def _batches_add_up_to_one_transaction(stand: SinkStand) -> None:
    sink = founded(stand)
    whole = pa.Table.from_batches(changes(0, rows=5))
    nothing = CHANGES.empty_table().to_batches() or [pa.RecordBatch.from_pylist([], CHANGES)]

    def lazily() -> Iterator[pa.RecordBatch]:
        yield nothing[0]
        yield from whole.to_batches(max_chunksize=2)
        yield nothing[0]

    sink.deliver(0, 1, lazily())
    assert seen(stand) == [(0, 1, _rows(whole))]


def _times_may_have_gaps(stand: SinkStand) -> None:
    founded(stand, 3, 9, 10, 1_000_000)
    assert seen(stand) == expected(3, 9, 10, 1_000_000), "transactions are not in order"
    assert opened(stand)[1] == Progress(1_000_000, 1)


def _an_epoch_is_beside_the_progress(stand: SinkStand) -> None:
    founded(stand, 0)
    sink, progress = opened(stand)
    assert progress == Progress(0, 1), "a promotion begins anew"
    sink.deliver(1, 2, changes(1))
    assert opened(stand)[1] == Progress(1, 2)
    assert seen(stand) == expected(0) + expected(1, epoch=2)


def _lineages_are_kept_apart(stand: SinkStand) -> None:
    founded(stand, 0, 1)
    other = replace(WHAT, address=replace(WHAT.address, lineage="second"))
    assert opened(stand, other)[1] is None, "another lineage has this one's progress"
    founded(stand, 5, what=other)
    assert opened(stand)[1] == Progress(1, 1)
    assert (seen(stand), seen(stand, other)) == (expected(0, 1), expected(5))


def _an_empty_transaction_is_refused_and_opens_nothing(stand: SinkStand) -> None:
    founded(stand, 0)
    steps: list[str] = []
    sink, _ = opened(stand, step=steps.append)
    steps.clear()
    for nothing in ([], [pa.RecordBatch.from_pylist([], CHANGES)]):
        try:
            sink.deliver(1, 1, nothing)
        except InvariantError:
            continue
        raise AssertionError("a transaction without changes was taken")
    assert steps == [], f"a transaction without changes opened something: {steps}"
    assert opened(stand)[1] == Progress(0, 1)


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
        there = [each[0] for each in seen(stand)]
        assert there == list(range(progress.t + 1)), "a part of it is seen"
        if progress == Progress(t - 1, 1):
            sink.deliver(t, 1, changes(t))
        assert seen(stand) == expected(*range(t + 1)), f"not once after a death at step {deaths}"
        if not died:
            break
        deaths += 1
        assert deaths < _STEPS_MAX, "a delivery without end"
    assert deaths > 2, "the stand calls no steps"


def _a_death_of_the_founder_harms_nothing(stand: SinkStand) -> None:
    """A first progress mark is there or not, and the next one goes on."""
    for step in range(_STEPS_MAX):
        what = replace(WHAT, address=replace(WHAT.address, lineage=f"n{step}"))
        try:
            sink, _ = opened(stand, what, _dying(step))
            sink.found(Progress(NOTHING_YET, 1))
        except DiedError:
            founded(stand, 0, what=what)
            assert seen(stand, what) == expected(0), f"after a death at step {step}"
        else:
            return


def _a_zombie_that_comes_second_is_fenced(stand: SinkStand) -> None:
    """S81: a handle that was replaced delivers nothing again."""
    zombie = founded(stand, 0)
    sink, _ = opened(stand)
    sink.deliver(1, 1, changes(1))
    assert _is_fenced(zombie, 1), "a handle that was replaced was not told"
    assert seen(stand) == expected(0, 1)
    sink.deliver(2, 1, changes(2))
    assert seen(stand) == expected(0, 1, 2)


def _a_zombie_that_comes_first_counts_or_is_fenced(stand: SinkStand) -> None:
    """S80: what lands after somebody else was prepared is seen by that one."""
    zombie = founded(stand, 0)
    sink, progress = opened(stand)
    assert progress == Progress(0, 1)
    late = _is_fenced(zombie, 1)
    assert _is_fenced(sink, 1) is not late, "both or neither of two deliveries counted"
    assert seen(stand) == expected(0, 1)
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
    assert seen(stand) == expected(0, 1, 2)


def _closing_twice_harms_nothing(stand: SinkStand) -> None:
    sink = founded(stand, 0)
    sink.close()
    sink.close()
    founded(stand, 1)
    assert seen(stand) == expected(0, 1)


def _dies(stand: SinkStand, t: int, at: int) -> bool:
    """Deliver t with a death before the step of that number; whether it came so far."""
    armed = False
    dying = _dying(at)

    def step(name: str) -> None:
        if armed:
            dying(name)

    sink, _ = opened(stand, step=step)
    armed = True
    try:
        sink.deliver(t, 1, changes(t))
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
        sink.deliver(t, 1, changes(t))
    except SinkFencedError:
        return True
    return False
