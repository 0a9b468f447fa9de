"""The suite takes what keeps the contract, and refuses what breaks one sentence of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from strandline.connectors.sink import NOTHING_YET, Delivered, Progress, ReadBack, filled
from strandline.errors import InvariantError, SinkError, SinkFencedError, SinkStoppedError
from strandline.testing.conformance_sink import (
    CHANGES,
    COLUMNS,
    DiedError,
    SinkStand,
    changes,
    check_sink,
)
from strandline.testing.scripted_sink import Landed, ScriptedSink, ScriptedTarget


def stand_of(kind: type[ScriptedSink]) -> Callable[[], SinkStand]:
    def stand() -> SinkStand:
        target = ScriptedTarget()

        def read(what: Delivered) -> list[tuple[int, int, pa.Table]]:
            return [
                (each.t, each.epoch, pa.Table.from_pylist(each.rows, schema=CHANGES))
                for each in target.log(what).landed
            ]

        return SinkStand(lambda what, step: kind(target, what, step), read, target.forget)

    return stand


def test_a_sink_with_transactions_keeps_the_contract() -> None:
    check_sink(stand_of(ScriptedSink))


class ProgressApart(ScriptedSink):
    def deliver(self, t: int, epoch: int, changes: Iterable[pa.RecordBatch]) -> None:
        before = self._log.progress
        super().deliver(t, epoch, changes)
        after, self._log.progress = self._log.progress, before
        self._before("progress apart")
        self._log.progress = after


class RowByRow(ScriptedSink):
    def deliver(self, t: int, epoch: int, changes: Iterable[pa.RecordBatch]) -> None:
        self._check()
        for batch in filled(t, changes):
            for row in batch.to_pylist():
                self._before("row")
                self._log.landed.append(Landed(t, epoch, [row]))
        self._log.progress = Progress(t, epoch)


class TakesNothing(ScriptedSink):
    def deliver(self, t: int, epoch: int, changes: Iterable[pa.RecordBatch]) -> None:
        whole = list(changes)
        if not sum(batch.num_rows for batch in whole):
            self._log.progress = Progress(t, epoch)
        else:
            super().deliver(t, epoch, whole)


class NeverFences(ScriptedSink):
    def _check(self) -> None: ...


class Truncates(ScriptedSink):
    """S88: it clears its target whenever it is prepared."""

    def prepare(self) -> None:
        super().prepare()
        self._log.landed.clear()


class FoundsAgain(ScriptedSink):
    def found(self, at: Progress) -> None:
        self._log.progress = at


class EpochIsTheKey(ScriptedSink):
    def progress(self) -> Progress | None:
        found = super().progress()
        return found if found is None or found.epoch < 2 else None


@pytest.mark.parametrize(
    "wrong",
    [ProgressApart, RowByRow, TakesNothing, NeverFences, Truncates, FoundsAgain, EpochIsTheKey],
)
def test_a_sink_that_breaks_the_contract_is_refused(wrong: type[ScriptedSink]) -> None:
    with pytest.raises((AssertionError, SinkError, SinkFencedError)):
        check_sink(stand_of(wrong))


class Table:
    """A target that holds rows: those of the lineage that delivered last."""

    def __init__(self) -> None:
        self.rows: Counter[tuple[object, ...]] = Counter()
        self.holder = ""
        self.owner: object = None
        self.marks: dict[str, Progress] = {}

    def content(self) -> pa.Table:
        assert min(self.rows.values(), default=0) >= 0, "a row went that was not there"
        rows = [dict(zip(COLUMNS.names, row, strict=True)) for row in self.rows.elements()]
        return pa.Table.from_pylist(rows, schema=COLUMNS)


class TableSink:
    def __init__(self, table: Table, what: Delivered, step: Callable[[str], None]) -> None:
        self.table = table
        self.me = what.address.digest
        self.step = step

    def prepare(self) -> None:
        self.step("prepare")
        self.table.owner = self

    def progress(self) -> Progress | None:
        return self.table.marks.get(self.me)

    def found(self, at: Progress) -> None:
        self.step("found")
        self.table.marks.setdefault(self.me, at)

    def deliver(self, t: int, epoch: int, changes: Iterable[pa.RecordBatch]) -> None:
        batches = filled(t, changes, first=self.table.marks[self.me].t == NOTHING_YET)
        self.step("begin")
        if self.table.owner is not self:
            raise SinkFencedError("another handle was prepared since")
        rows = self.begun()
        for batch in batches:
            self.step("batch")
            for *row, diff in zip(*(each.to_pylist() for each in batch.columns), strict=True):
                rows[tuple(row)] += diff
        self.step("commit")
        self.table.rows, self.table.holder = rows, self.me
        self.table.marks[self.me] = Progress(t, epoch)
        self.step("reply")

    def begun(self) -> Counter[tuple[object, ...]]:
        """The rows that changes are made to: none if those that are there are another's."""
        if self.table.holder == self.me:
            return self.table.rows.copy()
        if self.table.marks[self.me].t != NOTHING_YET:
            raise SinkStoppedError("the table holds another lineage")
        return Counter()

    def read_back(self) -> ReadBack | None:
        at = self.progress()
        if at is None:
            return None
        rows = self.table.content()
        ones = pa.array([1] * rows.num_rows, pa.int64())
        return ReadBack(at, iter(rows.append_column(CHANGES.field("_diff"), ones).to_batches()))

    def close(self) -> None: ...


class InPlace(TableSink):
    def begun(self) -> Counter[tuple[object, ...]]:
        super().begun()
        return self.table.rows


class KeepsTheOld(TableSink):
    def begun(self) -> Counter[tuple[object, ...]]:
        super().begun()
        return self.table.rows.copy()


class ClearsFirst(TableSink):
    def begun(self) -> Counter[tuple[object, ...]]:
        rows = super().begun()
        self.table.rows = rows.copy()
        return rows


class ClearsWheneverPrepared(TableSink):
    """S88."""

    def prepare(self) -> None:
        super().prepare()
        self.table.rows = Counter()


class GoesOnWithoutItsRows(TableSink):
    def begun(self) -> Counter[tuple[object, ...]]:
        return self.table.rows.copy() if self.table.holder == self.me else Counter()


class LeavesTheOldForNothing(TableSink):
    """What an older lineage left goes with the first row, and not before."""

    def deliver(self, t: int, epoch: int, changes: Iterable[pa.RecordBatch]) -> None:
        whole = list(changes)
        if sum(batch.num_rows for batch in whole) or self.table.marks[self.me].t != NOTHING_YET:
            super().deliver(t, epoch, whole)
        else:
            self.step("commit")
            self.table.marks[self.me] = Progress(t, epoch)
            self.table.holder = self.me


class RefusesAnEmptyFirst(TableSink):
    def deliver(self, t: int, epoch: int, changes: Iterable[pa.RecordBatch]) -> None:
        super().deliver(t, epoch, filled(t, changes))


class SaysNothingOfAnEmptyFirst(TableSink):
    """It takes it, and its progress is as it was."""

    def deliver(self, t: int, epoch: int, changes: Iterable[pa.RecordBatch]) -> None:
        before = self.table.marks[self.me]
        whole = list(changes)
        super().deliver(t, epoch, whole)
        if not sum(batch.num_rows for batch in whole):
            self.table.marks[self.me] = before


class ForgetsWhatGoes(TableSink):
    def deliver(self, t: int, epoch: int, changes: Iterable[pa.RecordBatch]) -> None:
        batches = list(changes)
        came = [batch.filter(pc.greater(batch["_diff"], 0)) for batch in batches]
        super().deliver(t, epoch, came if any(each.num_rows for each in came) else batches)


def table_of(kind: type[TableSink]) -> Callable[[], SinkStand]:
    def stand() -> SinkStand:
        table = Table()

        def state(what: Delivered) -> tuple[Progress | None, pa.Table]:
            return table.marks.get(what.address.digest), table.content()

        def lose(what: Delivered) -> None:
            del table.marks[what.address.digest]

        return SinkStand(lambda what, step: kind(table, what, step), lose=lose, state=state)

    return stand


def test_a_target_that_holds_rows_keeps_the_contract() -> None:
    check_sink(table_of(TableSink))


@pytest.mark.parametrize(
    "wrong",
    [
        InPlace,
        KeepsTheOld,
        ClearsFirst,
        ClearsWheneverPrepared,
        GoesOnWithoutItsRows,
        LeavesTheOldForNothing,
        RefusesAnEmptyFirst,
        SaysNothingOfAnEmptyFirst,
        ForgetsWhatGoes,
    ],
)
def test_a_table_that_breaks_the_contract_is_refused(wrong: type[TableSink]) -> None:
    with pytest.raises((AssertionError, InvariantError)):
        check_sink(table_of(wrong))


def test_what_changes_was_there_before_and_of_one_key_what_goes_comes_first() -> None:
    held: dict[int, str | None] = {}
    for t in range(4):
        for row in changes(t, t - 1)[0].to_pylist():
            if row["_diff"] == 1:
                assert row["id"] not in held
                held[row["id"]] = row["name"]
            else:
                assert held.pop(row["id"]) == row["name"]
    assert None in held.values()
    assert len(held) == 5


def test_a_death_is_no_error_that_anybody_could_take_for_one_of_ours() -> None:
    assert not issubclass(DiedError, Exception)
    assert issubclass(SinkStoppedError, SinkError)
