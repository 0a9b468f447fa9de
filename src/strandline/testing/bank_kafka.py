"""Mutants of the Kafka sink: its producers, its progress, and what it makes of silence."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from strandline.connectors import kafka_sink
from strandline.connectors.kafka_port import Message
from strandline.connectors.kafka_progress import Mark
from strandline.connectors.kafka_sink import KafkaSink
from strandline.connectors.sink import NOTHING_YET, Progress
from strandline.errors import SinkError, SinkFencedError
from strandline.pipeline import publish
from strandline.pipeline.publish import Publisher
from strandline.testing import bank_sinks
from strandline.testing.broker import ModelCluster, ModelOutbox
from strandline.testing.mutants import Mutant, Planting, mutant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    import pyarrow as pa

    from strandline.pipeline.place import Place

BANK: list[Mutant] = []


@mutant("a new producer shuts out the one before it (S81)", "kafka", BANK)
def init_shuts_nobody_out(planting: Planting) -> None:
    original = ModelOutbox.init

    def init(self: ModelOutbox) -> None:
        owner = self._log.owners.get(self._name)
        if owner is None:
            return original(self)
        # It goes on under the epoch that it finds, whoever else does.
        self._who = who = (owner.producer, owner.epoch)
        self._sequences = Counter(
            {
                (topic, number): each.sequences.get(who, 0)
                for topic, partitions in self._log.topics.items()
                for number, each in enumerate(partitions)
            }
        )
        return None

    planting.swap(ModelOutbox, "init", init)


@mutant("messages and progress are in one transaction (S79)", "kafka", BANK)
def progress_follows_in_a_transaction_of_its_own(planting: Planting) -> None:
    original = KafkaSink._leave  # noqa: SLF001

    def leave(self: KafkaSink, mark: Mark) -> None:
        outbox = self._opened()
        outbox.commit()
        outbox.begin()
        original(self, mark)

    planting.swap(KafkaSink, "_leave", leave)


@mutant("messages and progress are in one transaction, whichever comes first", "kafka", BANK)
def progress_goes_ahead_in_a_transaction_of_its_own(planting: Planting) -> None:
    leave, original = KafkaSink._leave, KafkaSink.deliver  # noqa: SLF001

    def ended(self: KafkaSink, mark: Mark) -> None:
        self._opened().commit()
        self._mark = mark

    def deliver(self: KafkaSink, t: int, epoch: int, changes: Iterable[pa.RecordBatch]) -> None:
        mark = self._mark
        if mark is None or t <= mark.t:
            raise SinkFencedError("another publisher was faster")
        self._opened().begin()
        leave(self, msgspec.structs.replace(mark, t=t, epoch=epoch))
        self._mark = mark
        original(self, t, epoch, changes)

    def found(self: KafkaSink, at: Progress) -> None:
        if self.progress() is None:
            self._opened().begin()
            leave(self, self._founding(at, {}))

    planting.swap(KafkaSink, "_leave", ended)
    planting.swap(KafkaSink, "deliver", deliver)
    planting.swap(KafkaSink, "found", found)


@mutant("progress counts when it is committed, not when it was sent", "kafka", BANK)
def progress_is_read_uncommitted(planting: Planting) -> None:
    def everything(
        self: ModelCluster, topic: str, start: Mapping[int, int] | None = None
    ) -> Iterator[Message]:
        del start
        for number, partition in enumerate(self._log.topics.get(topic, ())):
            for each in partition.records():
                yield Message(number, each.offset, each.key, each.value, each.headers)

    planting.swap(ModelCluster, "committed", everything)


@mutant("a topic whose progress is gone is never begun anew (S82)", "kafka_forgets", BANK)
def lost_progress_is_none_yet(planting: Planting) -> None:
    original = KafkaSink._read_mark  # noqa: SLF001

    def read_mark(self: KafkaSink) -> Mark | None:
        return original(self) or self._founding(Progress(NOTHING_YET, 1), {})

    planting.swap(KafkaSink, "_read_mark", read_mark)


@mutant("a commit without an answer is no commit yet (S80)", "kafka", BANK)
def silence_is_taken_for_yes(planting: Planting) -> None:
    original = ModelOutbox.commit

    def commit(self: ModelOutbox) -> None:
        with suppress(SinkError):
            original(self)

    planting.swap(ModelOutbox, "commit", commit)


@mutant("a commit without an answer may be one (S80)", "kafka", BANK)
def silence_is_taken_for_no(planting: Planting) -> None:
    original = KafkaSink.deliver

    def deliver(self: KafkaSink, t: int, epoch: int, changes: Iterable[pa.RecordBatch]) -> None:
        mark, batches = self._mark, list(changes)
        try:
            original(self, t, epoch, batches)
        except SinkError:
            with suppress(SinkError):
                self._opened().abort()
            self._mark = mark
            original(self, t, epoch, batches)

    planting.swap(KafkaSink, "deliver", deliver)


@mutant("after trouble there is a new producer (S80)", "kafka", BANK)
def producer_is_used_again_after_trouble(planting: Planting) -> None:
    original = ModelCluster.outbox

    def outbox(self: ModelCluster, transactional_id: str) -> ModelOutbox:
        kept: dict[str, ModelOutbox] = vars(self).setdefault("kept", {})
        if transactional_id not in kept:
            kept[transactional_id] = original(self, transactional_id)
        return kept[transactional_id]

    def init(self: ModelOutbox) -> None:
        if self._who == (-1, -1):
            first(self)

    first = ModelOutbox.init
    planting.swap(ModelCluster, "outbox", outbox)
    planting.swap(ModelOutbox, "init", init)


@mutant("whoever was fenced looks at the claim before anything else (S81)", "kafka", BANK)
def claim_is_not_looked_at_again(planting: Planting) -> None:
    original = Publisher._claim  # noqa: SLF001

    def claim(self: Publisher) -> bool:
        if self._term >= 0:
            self._holding = True
            return True
        return original(self)

    planting.swap(Publisher, "_claim", claim)


@mutant("a transactional id is one sink's alone", "kafka", BANK)
def all_sinks_have_one_id(planting: Planting) -> None:
    planting.swap(kafka_sink, "transactional_id", lambda _: "strandline")


@mutant("a progress record is one sink's alone", "kafka", BANK)
def all_sinks_have_one_progress(planting: Planting) -> None:
    def read_mark(self: KafkaSink) -> Mark | None:
        values = [each.value for each in self._cluster.committed(self._target.progress)]
        return msgspec.json.decode(values[-1] or b"", type=Mark) if values else None

    planting.swap(KafkaSink, "_read_mark", read_mark)


@mutant("an epoch is beside the progress, and no part of its key", "kafka", BANK)
def epoch_is_part_of_the_record_key(planting: Planting) -> None:
    original = Publisher._open  # noqa: SLF001

    def opened(self: Publisher, place: Place) -> None:
        epoch = self._journal.standing.epoch
        original(self, replace(place, lineage=f"{place.lineage}.{epoch}"))

    planting.swap(Publisher, "_open", opened)


@mutant("the progress topic decides, not the last message (S82)", "kafka", BANK)
def last_message_decides(planting: Planting) -> None:
    original = KafkaSink._read_mark  # noqa: SLF001

    def read_mark(self: KafkaSink) -> Mark | None:
        mark = original(self)
        if mark is None or self._target.form.envelope == "upsert":
            return mark
        said = [
            msgspec.json.decode(each.value)
            for each in self._cluster.committed(self._target.topic)
            if each.value is not None
        ]
        times = [each.get("source", each)["time"] for each in said]
        return msgspec.structs.replace(mark, t=max(times, default=mark.founded))

    planting.swap(KafkaSink, "_read_mark", read_mark)


def _choosing(planting: Planting, choose: Callable[[list[Message]], Message | None]) -> None:
    def read_mark(self: KafkaSink) -> Mark | None:
        there = self._cluster.committed(self._target.progress)
        found = choose([each for each in there if each.key == self._key])
        return None if found is None else msgspec.json.decode(found.value or b"{}", type=Mark)

    planting.swap(KafkaSink, "_read_mark", read_mark)


@mutant("all of a progress topic is read: it grows (S82)", "kafka", BANK)
def progress_is_read_where_it_was_first(planting: Planting) -> None:
    def choose(found: list[Message]) -> Message | None:
        return max((each for each in found if each.partition == 0), key=_offset, default=None)

    _choosing(planting, choose)


@mutant("of several progress records the highest counts", "kafka", BANK)
def first_progress_record_counts(planting: Planting) -> None:
    _choosing(planting, lambda found: min(found, key=_offset, default=None))


def _offset(message: Message) -> int:
    return message.offset


@mutant("a transaction without changes opens nothing", "kafka", BANK)
def empty_transaction_is_published(planting: Planting) -> None:
    bank_sinks.empty_transaction_is_delivered(planting)
    planting.swap(kafka_sink, "filled", lambda _, changes, **__: iter(changes))


@mutant("whoever published before a sink changed is shut out (S81)", "kafka_changes", BANK)
def older_producer_is_not_shut_out(planting: Planting) -> None:
    planting.swap(KafkaSink, "_shut_out", lambda *_: None)


@mutant("a lineage ends what the one before it has left", "kafka_changes", BANK)
def older_keys_are_left(planting: Planting) -> None:
    planting.swap(KafkaSink, "_inherited", lambda _: ([], ()))


@mutant("a sink whose progress is lost is not taken for a new one (S82)", "kafka_changes", BANK)
def store_tells_of_no_older_lineage(planting: Planting) -> None:
    planting.swap(publish, "older_lineages", lambda *_: ())


@mutant("keys of which nobody knows whose they are stop a sink (S82)", "kafka_changes", BANK)
def keys_of_unknown_origin_are_passed_over(planting: Planting) -> None:
    planting.swap(KafkaSink, "_refuse_unsettled", lambda _: None)
