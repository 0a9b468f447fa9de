"""What a progress topic tells of one sink: how far each lineage came, and whose keys are left.

A record has the address as its key, so a compacted topic keeps the last one of each lineage. A
lineage begins with the end of what those before it have left (`left_by`): of each the record says
where in the topic it began. That is not known of all of them:

    the store has it on record, the progress topic does not    that topic was lost since, or is
                                                               another one (`progressTopic`)
    its record was left again after it was lost                where it began is gone

Such a lineage is unsettled (`unsettled`): keys in the topic may be its own or somebody else's, and
messages of upsert do not tell. Somebody has to say what becomes of them, once: whoever delivers
next puts on record for whom that was (`settled`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from strandline.connectors.kafka_form import KEYED
from strandline.connectors.sink import NOTHING_YET, Address, Progress
from strandline.errors import SinkStoppedError
from strandline.model.ids import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from strandline.connectors.kafka_port import Message

FORMAT = 1


class Mark(msgspec.Struct, frozen=True, omit_defaults=True):
    """A progress record's value."""

    format: int
    t: int
    epoch: int
    founded: int
    """The time that the lineage was founded at: what is above was delivered here."""
    starts: dict[str, int]
    """By partition, the offset at which the lineage begins; 0 where nothing is said."""
    topic: str
    envelope: str
    settled: tuple[str, ...] = ()
    """Lineages whose beginning was not known, and whose keys were seen to in this topic."""
    identity: int = 0
    """Of the topic, since this was first left there: one that is made anew has another. 0 where
    the cluster tells none, and in records that older versions have left."""

    @property
    def progress(self) -> Progress:
        return Progress(self.t, self.epoch)


@dataclass(frozen=True, slots=True)
class Record:
    """A progress record of one lineage."""

    partition: int
    lineage: str
    mark: Mark


def records_of(address: Address, topic: str, messages: Iterable[Message]) -> list[Record]:
    """The records of this sink, whatever the lineage; what else there is, is not ours."""
    found = []
    for each in messages:
        lineage = None if each.key is None else _lineage(each.key, address)
        if lineage is not None and each.value is not None:
            found.append(Record(each.partition, lineage, _decoded(each.value, topic)))
    return found


def newest(records: Iterable[Record], lineage: str) -> Mark | None:
    """How far a lineage came. The highest counts: a topic that got more partitions may keep an old
    record of the same key for ever."""
    marks = (each.mark for each in records if each.lineage == lineage)
    return max(marks, key=lambda mark: (mark.t, mark.epoch), default=None)


def last_before(records: Iterable[Record], lineage: str) -> list[str]:
    """The lineages that may have been the last before this one: whoever wrote last, which is the
    last of one of the topic's partitions."""
    lasts = {each.partition: each.lineage for each in records if each.lineage != lineage}
    return list(dict.fromkeys(lasts.values()))


def unsettled(
    records: Sequence[Record], lineage: str, older: Sequence[str], topic: str
) -> tuple[str, ...]:
    """The lineages that may have left keys in the topic, nobody knows from where on."""
    known = {each.lineage for each in records}
    lost = [each.lineage for each in records if _left(each, topic) and _is_lost(each.mark)]
    settled = {name for each in records if each.mark.topic == topic for name in each.mark.settled}
    names = [*(each for each in older if each not in known), *lost]
    return tuple(each for each in dict.fromkeys(names) if each not in {*settled, lineage})


def left_by(records: Iterable[Record], lineage: str, topic: str) -> list[dict[str, int]]:
    """Where those began that may have left keys in the topic, and that are known."""
    return [
        each.mark.starts
        for each in records
        if each.lineage != lineage and _left(each, topic) and not _is_lost(each.mark)
    ]


def replaced_by(
    records: Sequence[Record], lineage: str, mark: Mark, newer: Sequence[str] = ()
) -> str:
    """Another lineage that has delivered since this one did: its keys are gone. Empty if none.

    Only records of one partition are in order; of those in others the store knows which are newer.
    """
    if mark.envelope not in KEYED:
        return ""
    mine = [n for n, each in enumerate(records) if (each.lineage, each.mark) == (lineage, mark)]
    at = mine[-1] if mine else len(records)
    later = (
        each.lineage
        for n, each in enumerate(records)
        if (each.lineage in newer or (n > at and each.partition == records[at].partition))
        and each.lineage != lineage
        and _left(each, mark.topic)
        and each.mark.t > NOTHING_YET
    )
    return next(later, "")


def _left(record: Record, topic: str) -> bool:
    return record.mark.topic == topic and record.mark.envelope in KEYED


def _is_lost(mark: Mark) -> bool:
    """Whether it was left again, without the beginning: a topic has a partition at least."""
    return not mark.starts


def _lineage(key: bytes, address: Address) -> str | None:
    try:
        found = msgspec.json.decode(key, type=Address)
    except msgspec.MsgspecError:
        return None
    same = (found.store, found.pipeline, found.sink)
    return found.lineage if same == (address.store, address.pipeline, address.sink) else None


def _decoded(value: bytes, topic: str) -> Mark:
    try:
        mark = msgspec.json.decode(value, type=Mark)
    except msgspec.MsgspecError as error:
        raise SinkStoppedError(
            f"a progress record of topic {topic} is damaged: {printable(error, 200)}"
        ) from error
    if mark.format > FORMAT:
        raise SinkStoppedError(
            f"a progress record of topic {topic} was written by a newer version: upgrade Strandline"
        )
    return mark
