"""Mutants of publishing: the claim, intent and done, progress, empty transactions, the hold."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from strandline.connectors.sink import NOTHING_YET
from strandline.errors import SinkFencedError
from strandline.pipeline import claim as rule, delivery, outgoing, publish
from strandline.pipeline.claims import Claims
from strandline.pipeline.outgoing import Outgoing, Transaction
from strandline.pipeline.publish import Publisher
from strandline.testing import scripted_sink
from strandline.testing.mutants import Mutant, Planting, mutant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from strandline.connectors.sink import Progress
    from strandline.handles.shard import Shard
    from strandline.model.frontier import Time
    from strandline.pipeline.delivery import Mark
    from strandline.pipeline.place import Place

BANK: list[Mutant] = []


@mutant("one publisher for each sink, by a claim", "publish", BANK)
def publisher_without_a_claim(planting: Planting) -> None:
    original = Claims._change  # noqa: SLF001

    def take(self: Claims) -> rule.Claim:
        return self.read()

    def change(self: Claims, wanted: Callable[[rule.Claim], rule.Claim | None]) -> rule.Claim:
        # Whoever comes makes it his own, and asks nobody.
        seqno, claim = self._read()
        self._write(msgspec.structs.replace(claim, owner=self.me.owner, term=1), seqno)
        try:
            return original(self, wanted)
        except SinkFencedError:
            return claim

    planting.swap(Claims, "take", take)
    planting.swap(Claims, "check", take)
    planting.swap(Claims, "_change", change)


@mutant("done is on record after the delivery, never before it (S82)", "publish_forgets", BANK)
def done_before_deliver(planting: Planting) -> None:
    original = delivery.intended

    def intended(mark: Mark | None, t: Time, epoch: int, progress: Time) -> Mark:
        return delivery.done(original(mark, t, epoch, progress), t)

    planting.swap(delivery, "intended", intended)


@mutant("the target's progress is read back, never assumed", "publish", BANK)
def progress_is_not_read_back(planting: Planting) -> None:
    original = delivery.started

    def started(
        mark: Mark | None, progress: Progress | None, epoch: int, **_: object
    ) -> delivery.Start:
        # What is on record as done is taken for all that was delivered.
        known = progress if mark is None or progress is None else replace(progress, t=mark.done)
        return original(mark, known, epoch)

    planting.swap(delivery, "started", started)


@mutant("what is intended is taken for delivered by nobody", "publish", BANK)
def intent_is_taken_for_done(planting: Planting) -> None:
    original = delivery.started

    def started(
        mark: Mark | None, progress: Progress | None, epoch: int, **_: object
    ) -> delivery.Start:
        known = progress if mark is None or progress is None else replace(progress, t=mark.intent)
        return original(mark, known, epoch)

    planting.swap(delivery, "started", started)


@mutant("a transaction without changes opens nothing", "publish", BANK)
def empty_transaction_is_delivered(planting: Planting) -> None:
    original = Outgoing._settled  # noqa: SLF001

    def settled(self: Outgoing, wait_ms: int) -> Iterator[Transaction]:
        before = self.reached
        yield from original(self, wait_ms)
        if self._before >= 0 and self.reached > max(before, self._before):
            yield Transaction(self.reached, self._before, iter(()))
            self._before = self.reached

    def filled(_: int, changes: Iterator[pa.RecordBatch], **__: bool) -> Iterator[pa.RecordBatch]:
        return iter(changes)

    planting.swap(Outgoing, "_settled", settled)
    planting.swap(scripted_sink, "filled", filled)


@mutant("an epoch is beside the progress, and no part of its key", "publish", BANK)
def epoch_is_part_of_the_key(planting: Planting) -> None:
    original = Publisher._open  # noqa: SLF001

    def opened(self: Publisher, place: Place) -> None:
        epoch = self._journal.standing.epoch
        original(self, replace(place, lineage=f"{place.lineage}.{epoch}"))

    planting.swap(Publisher, "_open", opened)


@mutant("a sink holds what it has not delivered", "publish", BANK)
def hold_is_not_kept(planting: Planting) -> None:
    def delivered(self: Outgoing, t: Time) -> None:
        """Nothing is kept."""

    planting.swap(Outgoing, "delivered", delivered)


@mutant("a sink holds what it is about to read, not what comes after it", "publish", BANK)
def hold_is_one_too_far(planting: Planting) -> None:
    def delivered(self: Outgoing, t: Time) -> None:
        for each in self._shards:
            each.hold(self._hold, max(t + 2, each.state().readable_from()))

    planting.swap(Outgoing, "delivered", delivered)


@mutant("history is let go of as far as it is on record that it was passed", "publish", BANK)
def unrecorded_history_is_let_go_of(planting: Planting) -> None:
    def free(self: Publisher, outgoing: Outgoing) -> None:
        del self
        if outgoing.reached > outgoing.held:
            outgoing.delivered(outgoing.reached)

    planting.swap(Publisher, "_free", free)


@mutant("a sink that is new does not begin with nothing", "publish", BANK)
def empty_view_is_delivered_to_a_new_sink(planting: Planting) -> None:
    planting.swap(delivery, "replaces", lambda *_: True)


@mutant("after trouble a new handle is prepared before anything is delivered", "publish", BANK)
def same_target_handle_after_trouble(planting: Planting) -> None:
    def close(self: Publisher) -> None:
        """It goes on as if the answer had been no."""

    planting.swap(Publisher, "_close", close)


@mutant("a claim is taken from who has not moved for a lease", "publish", BANK)
def suspicion_needs_no_lease(planting: Planting) -> None:
    def may_end(claim: rule.Claim, now_ms: int) -> bool:  # noqa: ARG001
        return True

    planting.swap(rule, "_may_end", may_end)
    planting.swap(rule.Watch, "unmoved_ms", lambda _self, claim, _now: claim.lease_ms)


@mutant("a new sink begins with what there is, not with what comes", "publish", BANK)
def new_sink_skips_what_there_was(planting: Planting) -> None:
    original = outgoing._Following.__init__  # noqa: SLF001

    def init(self: outgoing._Following, shard: Shard, *more: object, **_: bool) -> None:
        original(self, shard, *more, snapshot=False)  # type: ignore[arg-type]

    planting.swap(outgoing._Following, "__init__", init)  # noqa: SLF001


@mutant("what is before progress is dropped: LATE", "publish", BANK)
def late_is_delivered_again(planting: Planting) -> None:
    original = Publisher._start  # noqa: SLF001

    def start(self: Publisher, sink: object, place: object, found: delivery.Start) -> Time:
        after: Time = original(self, sink, place, found)  # type: ignore[arg-type]
        return max(NOTHING_YET, after - 1)

    def intended(mark: Mark | None, t: Time, epoch: int, progress: Time) -> Mark:  # noqa: ARG001
        known = mark or delivery.Mark()
        return msgspec.structs.replace(known, intent=max(t, known.intent), epoch=epoch)

    def done(mark: Mark | None, t: Time) -> Mark:
        known = mark or delivery.Mark()
        return msgspec.structs.replace(known, done=max(t, known.done))

    planting.swap(publish.Publisher, "_start", start)
    planting.swap(delivery, "intended", intended)
    planting.swap(delivery, "done", done)


@mutant("a sink in doubt about its last delivery stops (S82)", "publish_forgets", BANK)
def doubt_is_taken_for_delivered(planting: Planting) -> None:
    original = delivery.started

    def started(
        mark: Mark | None, progress: Progress | None, epoch: int, **_: object
    ) -> delivery.Start:
        sure = None if mark is None else msgspec.structs.replace(mark, done=mark.intent)
        return original(mark if progress is not None else sure, progress, epoch)

    def founded(mark: Mark | None, at: Progress) -> Mark:
        return msgspec.structs.replace(mark or delivery.Mark(), done=at.t, epoch=at.epoch)

    planting.swap(delivery, "started", started)
    planting.swap(delivery, "founded", founded)


@mutant("a target without progress is never begun anew (S82)", "publish_forgets", BANK)
def lost_progress_begins_anew(planting: Planting) -> None:
    original = delivery.started

    def started(
        mark: Mark | None, progress: Progress | None, epoch: int, **_: object
    ) -> delivery.Start:
        return original(None if progress is None else mark, progress, epoch)

    def founded(mark: Mark | None, at: Progress) -> Mark:  # noqa: ARG001
        return delivery.Mark(at.epoch)

    planting.swap(delivery, "started", started)
    planting.swap(delivery, "founded", founded)
