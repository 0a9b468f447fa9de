"""The suite takes what keeps the contract, and refuses what breaks one sentence of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pyarrow as pa
import pytest

from strandline.connectors.sink import Delivered, Progress, filled
from strandline.errors import SinkError, SinkFencedError, SinkStoppedError
from strandline.testing.conformance_sink import CHANGES, DiedError, SinkStand, check_sink
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


def test_a_death_is_no_error_that_anybody_could_take_for_one_of_ours() -> None:
    assert not issubclass(DiedError, Exception)
    assert issubclass(SinkStoppedError, SinkError)
