"""What a broker does with requests: topics, transactions, fencing and the last stable offset. Pure.

As Kafka has it. A transactional id has a producer, whose epoch rises with every `init`; requests
of an older one are refused. The records of a transaction are in their partitions at once, and so
is their place in the order; what is missing is the verdict. `end` decides it for all partitions
together; from then on it holds, and a marker in each partition, which takes an offset of its own,
tells readers. Until its marker is there, a transaction holds back the last stable offset, and
with it every reader of committed records.

An `end` that comes late, or again, counts for whatever transaction its producer has open by then:
the protocol does not say which one was meant. Only a new epoch keeps it out, which a new `init`
brings, and newer brokers with every `end` (KIP-890; `bumps`), for clients that know of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from strandline.connectors.kafka_port import Headers

Sent = tuple["bytes | None", "bytes | None", "Headers"]
"""Key, value and headers of a record on its way."""


class Answer(StrEnum):
    """What a broker says to a request."""

    DONE = "done"
    FENCED = "another producer of this id was initialised, or this one was timed out"
    BUSY = "the last transaction of this id is being ended"
    UNKNOWN = "there is no such topic or partition"
    INVALID = "the transaction was ended in another way"


@dataclass(frozen=True, slots=True)
class Entry:
    """One offset of a partition: a record, or the marker that ends a transaction."""

    offset: int
    transaction: int
    key: bytes | None = None
    value: bytes | None = None
    headers: Headers = ()
    sent_ms: float = 0
    marker: bool | None = None
    """Of a marker: whether it commits. Readers of records never see one."""


@dataclass
class Partition:
    """An order of entries. Offsets are never given twice; those that went leave gaps."""

    entries: list[Entry] = field(default_factory=list)
    gone: list[Entry] = field(default_factory=list)
    """What retention or compaction removed: no reader sees it, and judges do."""
    anew: bool = False
    """Whether there was another one of its name before."""
    first: int = 0
    end: int = 0
    undecided: dict[int, int] = field(default_factory=dict)
    """By transaction without a marker: its first offset."""
    aborted: set[int] = field(default_factory=set)
    sequences: dict[tuple[int, int], int] = field(default_factory=dict)
    """By producer and epoch: the number of the next request."""

    @property
    def stable(self) -> int:
        """Everything before it is decided."""
        return min(self.undecided.values(), default=self.end)

    def append(self, transaction: int, sent: Sent, sent_ms: float) -> None:
        self.entries.append(Entry(self.end, transaction, *sent, sent_ms))
        self.end += 1

    def mark(self, transaction: int, *, commits: bool) -> None:
        """Tell readers how a transaction was decided."""
        if not commits:
            self.aborted.add(transaction)
        del self.undecided[transaction]
        self.entries.append(Entry(self.end, transaction, marker=commits))
        self.end += 1

    def records(self, start: int = 0) -> Iterator[Entry]:
        """Whatever is there, as who reads uncommitted records sees it."""
        return (each for each in self.entries if each.marker is None and each.offset >= start)

    def committed(self, start: int = 0) -> Iterator[Entry]:
        """What counts by now."""
        below = self.stable
        return (
            each
            for each in self.records(start)
            if each.offset < below and each.transaction not in self.aborted
        )

    def counted(self) -> list[Entry]:
        """All that ever counted, what is gone among it."""
        gone = (each for each in self.gone if each.marker is None)
        counted = (each for each in gone if each.transaction not in self.aborted)
        return sorted((*counted, *self.committed()), key=lambda each: each.offset)

    def cut(self, first: int) -> None:
        """Retention: forget what is before an offset."""
        self.first = max(self.first, min(first, self.end))
        self._keep(lambda each: each.offset >= self.first)

    def compact(self) -> None:
        """Keep the last decided record of each key; what was aborted goes."""
        below = self.stable
        last = {each.key: each.offset for each in self.committed()}
        self._keep(
            lambda each: (
                each.offset >= below or each.marker is not None or last.get(each.key) == each.offset
            )
        )

    def _keep(self, wanted: Callable[[Entry], bool]) -> None:
        kept = [each for each in self.entries if wanted(each)]
        self.gone += [each for each in self.entries if not wanted(each)]
        self.entries = kept


@dataclass
class Transaction:
    """What a producer has open, or what was decided and is not marked everywhere."""

    number: int
    began_ms: float
    partitions: list[Partition] = field(default_factory=list)
    commits: bool | None = None
    """How it was decided; `None` while it is open."""


@dataclass
class Owner:
    """A transactional id: who may write under it, and what is open."""

    producer: int
    epoch: int = 0
    transaction: Transaction | None = None
    last: bool | None = None
    """How the last transaction was ended."""
    used_ms: float = 0


class BrokerLog:
    """All topics and all transactional ids of one cluster. Time is told by whoever calls."""

    def __init__(self, *, timeout_ms: float = 60_000, expiry_ms: float = 10**9) -> None:
        self.topics: dict[str, list[Partition]] = {}
        self.identities: dict[str, int] = {}
        """By topic: a number that no other topic had, of this name or another."""
        self.made = 0
        self.policies: dict[str, str] = {}
        """By topic: its `cleanup.policy`; `delete` if nothing else was said."""
        self.owners: dict[str, Owner] = {}
        self.timeout_ms = timeout_ms
        self.expiry_ms = expiry_ms
        self.bumps = False
        """Whether the epoch rises with every transaction."""
        self.transactions = 0
        self.writers: dict[int, str] = {}
        """By transaction: the transactional id."""
        self.producers = 0
        self.markers = 0
        self.overdue = 0
        """How many transactions were open for too long."""

    # What producers ask for.

    def init(self, name: str, now_ms: float) -> tuple[Answer, int, int]:
        """End what is open under this id, and shut out who opened it; again until it is done."""
        owner = self.owners.get(name)
        if owner is None:
            self.producers += 1
            owner = self.owners[name] = Owner(self.producers, -1)
        open_ = owner.transaction
        if open_ is not None:
            if open_.commits is None:
                self._abort(owner)
            return Answer.BUSY, owner.producer, owner.epoch
        owner.epoch += 1
        owner.last = None
        owner.used_ms = now_ms
        return Answer.DONE, owner.producer, owner.epoch

    def produce(
        self,
        name: str,
        who: tuple[int, int],
        place: tuple[str, int],
        request: tuple[int, Sequence[Sent]],
        now_ms: float,
    ) -> Answer:
        """Append records, once: a request whose number was seen is answered as it was then."""
        owner = self._owner(name, who)
        topic, number = place
        if owner is None:
            return Answer.FENCED
        if number >= len(self.topics.get(topic, ())):
            return Answer.UNKNOWN
        partition = self.topics[topic][number]
        sequence, records = request
        # One that was made anew knows nobody, and takes whatever number comes first.
        expected = partition.sequences.get(who, sequence if partition.anew else 0)
        if sequence < expected:
            return Answer.DONE
        if owner.transaction is not None and owner.transaction.commits is not None:
            return Answer.BUSY
        if sequence > expected:
            return Answer.INVALID
        partition.sequences[who] = sequence + 1
        self.writers[self._append(owner, partition, records, now_ms)] = name
        return Answer.DONE

    def _append(
        self, owner: Owner, partition: Partition, records: Sequence[Sent], now_ms: float
    ) -> int:
        if owner.transaction is None:
            self.transactions += 1
            owner.transaction = Transaction(self.transactions, now_ms)
        here = owner.transaction
        owner.used_ms = now_ms
        if all(each is not partition for each in here.partitions):
            here.partitions.append(partition)
            partition.undecided[here.number] = partition.end
        for each in records:
            partition.append(here.number, each, now_ms)
        return here.number

    def end(self, name: str, who: tuple[int, int], *, commit: bool, now_ms: float) -> Answer:
        """Decide the transaction that is open. Repeating it is harmless, if it is the last."""
        owner = self._owner(name, who)
        if owner is None:
            return Answer.FENCED
        owner.used_ms = now_ms
        here = owner.transaction
        if here is None:
            return Answer.DONE if owner.last in {commit, None} else Answer.INVALID
        if here.commits is None:
            here.commits = commit
            owner.epoch += self.bumps
        return Answer.DONE if here.commits is commit else Answer.INVALID

    def _owner(self, name: str, who: tuple[int, int]) -> Owner | None:
        owner = self.owners.get(name)
        return owner if owner is not None and (owner.producer, owner.epoch) == who else None

    def _abort(self, owner: Owner) -> None:
        owner.epoch += 1
        if owner.transaction is not None:
            owner.transaction.commits = False

    # What the broker does by itself.

    def mark(self) -> bool:
        """Write one marker of a decided transaction; whether there was one to write."""
        for owner in self.owners.values():
            here = owner.transaction
            if here is None or here.commits is None:
                continue
            if here.partitions:
                self.markers += 1
                here.partitions.pop(0).mark(here.number, commits=here.commits)
            if not here.partitions:
                owner.transaction, owner.last = None, here.commits
            return True
        return False

    def expire(self, now_ms: float) -> None:
        """Abort what is open for too long, and forget ids that nobody has used for long."""
        for name, owner in list(self.owners.items()):
            here = owner.transaction
            if here is None:
                if now_ms - owner.used_ms > self.expiry_ms:
                    del self.owners[name]
            elif here.commits is None and now_ms - here.began_ms > self.timeout_ms:
                self.overdue += 1
                self._abort(owner)

    def grow(self, topic: str, partitions: int) -> None:
        """Make a topic, or give it more partitions."""
        anew = topic not in self.topics and topic in self.identities
        if topic not in self.topics:
            self.made += 1
            self.identities[topic] = self.made
        held = self.topics.setdefault(topic, [])
        held.extend(Partition(anew=anew) for _ in range(partitions - len(held)))


def partition_of(key: bytes, partitions: int) -> int:
    """Where Kafka's own clients put a key.

    >>> partition_of(b"kafka", 5), partition_of(b"", 7), partition_of(b"21", 3)
    (0, 2, 0)
    """
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def murmur2(key: bytes) -> int:
    """The hash of a key, as Kafka's own clients have it.

    >>> murmur2(b"foobar") == 0xFFFFFFFF & -790332482
    True
    """
    mix, whole = 0x5BD1E995, 0xFFFFFFFF
    found = 0x9747B28C ^ len(key)
    tail = len(key) & ~3
    for at in range(0, tail, 4):
        word = int.from_bytes(key[at : at + 4], "little") * mix & whole
        word = (word ^ (word >> 24)) * mix & whole
        found = (found * mix & whole) ^ word
    if key[tail:]:
        found = (found ^ int.from_bytes(key[tail:], "little")) * mix & whole
    found = (found ^ (found >> 13)) * mix & whole
    return found ^ (found >> 15)
