"""What a topic tells of the transactions in it, and what a reader saw of them. Pure.

A transaction of the broker that counts has one progress record, which says its time, and the
messages of that time; the envelope says what they mean.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from strandline.testing.broker_log import BrokerLog, Entry

Rows = list[dict[str, object]]


class Arrived(NamedTuple):
    """One transaction of a sink, as the topic has it."""

    t: int
    epoch: int
    rows: Rows
    """With `_diff`."""


class _Mark(NamedTuple):
    t: int
    epoch: int
    founded: int


@dataclass
class Topic:
    """One sink's topic and its progress, in a broker's log."""

    log: BrokerLog
    name: str
    progress: str
    sink: str
    envelope: str
    wrong: list[str] = field(default_factory=list)

    def arrived(self) -> list[Arrived]:
        """What counted, transaction by transaction; what makes no sense is in `wrong`."""
        marks, messages = self._marks(), self._messages()
        for number in sorted(messages.keys() - marks.keys()):
            values = [each.value for each in messages[number]]
            self.wrong.append(f"{values} counted without progress")
        held: dict[bytes | None, dict[str, object]] = {}
        found = []
        for number, mark in sorted(marks.items()):
            rows: Rows = []
            for each in messages.get(number, []):
                rows += self._meant(each, mark, held)
            if rows or messages.get(number):
                found.append(Arrived(mark.t, mark.epoch, rows))
            elif mark.t != mark.founded:
                self.wrong.append(f"progress went to {mark.t} without a message")
        return found

    def writers(self) -> set[str]:
        """The transactional ids of all that counted."""
        return {self.log.writers[number] for number in self._messages()}

    def times(self) -> dict[int, int]:
        """By transaction of the broker: the time that its progress says."""
        return {number: mark.t for number, mark in self._marks().items()}

    def _marks(self) -> dict[int, _Mark]:
        found: dict[int, list[_Mark]] = defaultdict(list)
        for partition in self.log.topics.get(self.progress, ()):
            for each in partition.counted():
                if msgspec.json.decode(each.key or b"{}").get("sink") == self.sink:
                    said = msgspec.json.decode(each.value or b"{}")
                    mark = _Mark(said["t"], said["epoch"], said["founded"])
                    found[each.transaction].append(mark)
        for marks in found.values():
            if len(marks) > 1:
                self.wrong.append(f"one transaction has the progress of {marks}")
        return {number: marks[-1] for number, marks in found.items()}

    def _messages(self) -> dict[int, list[Entry]]:
        found: dict[int, list[Entry]] = defaultdict(list)
        for partition in self.log.topics.get(self.name, ()):
            for each in partition.counted():
                found[each.transaction].append(each)
        return found

    def _meant(
        self, each: Entry, mark: _Mark, held: dict[bytes | None, dict[str, object]]
    ) -> Iterable[dict[str, object]]:
        """The changes that a message means, given what each key holds."""
        said: Any = None if each.value is None else msgspec.json.decode(each.value)
        if self.envelope == "upsert":
            return self._moved(each.key, held.get(each.key), said, held)
        if said is None:
            return []
        about = said["source"] if self.envelope == "debezium" else said
        if (about["time"], about["epoch"]) != (mark.t, mark.epoch):
            self.wrong.append(f"{said} was sent with the progress of {mark}")
        if self.envelope == "changes":
            return [{**said["row"], "_diff": said["diff"]}]
        if said["before"] != held.get(each.key):
            self.wrong.append(f"{said}, and its key held {held.get(each.key)}")
        return self._moved(each.key, said["before"], said["after"], held)

    def _moved(
        self,
        key: bytes | None,
        before: dict[str, object] | None,
        after: dict[str, object] | None,
        held: dict[bytes | None, dict[str, object]],
    ) -> Rows:
        held.pop(key, None)
        if after is not None:
            held[key] = after
        gone = [] if before is None else [{**before, "_diff": -1}]
        come = [] if after is None else [{**after, "_diff": 1}]
        return [*gone, *come]


@dataclass
class Reader:
    """Reads committed records all the time, and remembers what it saw at which look."""

    topic: Topic
    seen: dict[int, list[Entry]] = field(default_factory=lambda: defaultdict(list))
    looks: list[tuple[int, list[Entry]]] = field(default_factory=list)
    _at: Counter[int] = field(default_factory=Counter)

    def look(self) -> None:
        for number, partition in enumerate(self.topic.log.topics.get(self.topic.name, ())):
            new = list(partition.committed(self._at[number]))
            self._at[number] = partition.stable
            if new:
                self.seen[number] += new
                self.looks.append((number, new))

    def wrong(self) -> list[str]:
        """Where it saw something else than what there is in the end, or a part of it."""
        found, times = [], self.topic.times()
        partitions = self.topic.log.topics.get(self.topic.name, [])
        for number, partition in enumerate(partitions):
            there = partition.counted()
            if self.seen[number] != there:
                found.append(f"a reader saw {self.seen[number]} of partition {number}: {there}")
            order = [times.get(each.transaction, -1) for each in there]
            if order != sorted(order):
                found.append(f"partition {number} has transactions in the order {order}")
        whole = [
            Counter(times.get(each.transaction) for each in partition.counted())
            for partition in partitions
        ]
        for number, new in self.looks:
            parts = Counter(times.get(each.transaction) for each in new)
            found += [
                f"a reader saw {count} of {whole[number][t]} messages of {t} in partition {number}"
                for t, count in parts.items()
                if count != whole[number][t]
            ]
        return found
