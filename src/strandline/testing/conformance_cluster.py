"""What every implementation of Cluster must show, whatever broker it reaches.

    check_cluster(lambda: ClusterStand(new=lambda: Ours(…), tasks=…, prefix="run-7-"))

Each clause checks one rule of the port (`connectors.kafka_port`), over topics and transactional
ids of its own: names of one stand are never used by another.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from strandline.connectors.kafka_port import Batch, Cluster, Message, Outbox
from strandline.errors import SinkFencedError
from strandline.testing.broker_log import partition_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from strandline.model.tasks import Tasks

_MANY = 3_000
_WAIT_MS = 300


@dataclass(frozen=True)
class ClusterStand:
    """A cluster to be checked."""

    new: Callable[[], Cluster]
    """Another connection, as another process has it."""
    tasks: Tasks
    prefix: str = ""
    """Before every name, so that nothing was there before."""
    cut: Callable[[str, int, int], None] | None = None
    """Forget what a topic's partition has before an offset; `None` if that can't be told."""

    def topic(self, partitions: int = 3) -> str:
        name = f"{self.prefix}topic"
        self.new().create(name, partitions, {})
        return name

    def outbox(self, name: str = "a") -> Outbox:
        """A producer as a sink opens it."""
        made = self.new().outbox(f"{self.prefix}{name}")
        made.init()
        return made

    def read(self, topic: str, start: Mapping[int, int] | None = None) -> list[Message]:
        return list(self.new().committed(topic, start))


def check_cluster(stand: Callable[[], ClusterStand]) -> None:
    """Fail unless the cluster keeps the rules of `Cluster`; a stand is made for each clause."""
    for clause in CLAUSES:
        clause(stand())


def _batch(*words: str) -> Batch:
    return Batch([each.encode() for each in words], [f"of {each}".encode() for each in words])


def _publish(outbox: Outbox, topic: str, *words: str) -> None:
    outbox.begin()
    outbox.send(topic, _batch(*words))
    outbox.commit()


def _words(found: list[Message]) -> list[str]:
    return sorted((each.key or b"").decode() for each in found)


def _is_fenced(outbox: Outbox, topic: str, word: str = "zombie") -> bool:
    try:
        _publish(outbox, topic, word)
    except SinkFencedError:
        return True
    return False


def _a_topic_is_made_once(stand: ClusterStand) -> None:
    cluster, name = stand.new(), f"{stand.prefix}made"
    assert cluster.partitions(name) == 0, "a topic that nobody made has partitions"
    cluster.create(name, 3, {"cleanup.policy": "compact"})
    cluster.create(name, 5, {})
    assert stand.new().partitions(name) == 3, "making a topic again changed it"
    assert stand.new().policy(name) == "compact", "a topic has not the policy that was asked for"
    assert stand.new().policy(stand.topic()) == "delete", "a topic has a policy of its own accord"
    assert cluster.identity(f"{stand.prefix}nobody") is None, "a topic that is not there is told"
    assert cluster.identity(name) == stand.new().identity(name), "a topic has two identities"
    assert cluster.identity(name), "a topic has no identity"
    assert cluster.identity(name) != cluster.identity(stand.topic()), "two topics are one"
    assert cluster.bounds(name) == {0: (0, 0), 1: (0, 0), 2: (0, 0)}
    assert stand.read(name) == []


def _what_is_committed_is_read_as_it_was_sent(stand: ClusterStand) -> None:
    topic, outbox = stand.topic(1), stand.outbox()
    outbox.begin()
    headers = ((("who", b"me"), ("why", b"")), ())
    outbox.send(topic, Batch([b"k", b"k"], [b"", None], headers))
    outbox.send(topic, Batch([b"", b"\x00\xff"], ["ü".encode(), b"v"]))
    outbox.commit()
    found = stand.read(topic)
    assert [(each.key, each.value) for each in found] == [
        (b"k", b""),
        (b"k", None),
        (b"", "ü".encode()),
        (b"\x00\xff", b"v"),
    ]
    assert [each.headers for each in found] == [*headers, (), ()]


def _offsets_rise_and_lie_within_the_bounds(stand: ClusterStand) -> None:
    topic, outbox = stand.topic(), stand.outbox()
    for turn in range(3):
        _publish(outbox, topic, *(f"{turn} {each}" for each in range(9)))
    bounds, by_partition = stand.new().bounds(topic), defaultdict(list)
    for each in stand.read(topic):
        by_partition[each.partition].append(each)
    assert set(bounds) == {0, 1, 2}
    for partition, found in by_partition.items():
        offsets = [each.offset for each in found]
        assert offsets == sorted(set(offsets)), "offsets are not in order"
        turns = [(each.key or b"")[:1] for each in found]
        assert turns == sorted(turns), "transactions are not in order"
        first, end = bounds[partition]
        assert first <= offsets[0] <= offsets[-1] < end, "a record lies beyond the bounds"


def _a_key_has_the_partition_of_kafkas_own_clients(stand: ClusterStand) -> None:
    topic = stand.topic(7)
    words = [f"key {each}" for each in range(20)]
    _publish(stand.outbox(), topic, *words)
    found = {(each.key or b""): each.partition for each in stand.read(topic)}
    assert found == {each.encode(): partition_of(each.encode(), 7) for each in words}


def _records_without_a_key_are_sent(stand: ClusterStand) -> None:
    topic, outbox = stand.topic(), stand.outbox()
    outbox.begin()
    outbox.send(topic, Batch([None, None], [b"1", b"2"]))
    outbox.commit()
    found = stand.read(topic)
    assert sorted(each.value or b"" for each in found) == [b"1", b"2"]
    assert {each.key for each in found} == {None}


def _many_records_stay_in_order(stand: ClusterStand) -> None:
    topic, outbox = stand.topic(), stand.outbox()
    values = [b"%06d" % each for each in range(_MANY)]
    outbox.begin()
    for at in range(0, _MANY, 1_000):
        part = values[at : at + 1_000]
        outbox.send(topic, Batch([each[-1:] for each in part], part))
    outbox.commit()
    by_key: dict[bytes | None, list[bytes]] = defaultdict(list)
    for each in stand.read(topic):
        by_key[each.key].append(each.value or b"")
    assert all(found == sorted(found) for found in by_key.values()), "a key's records changed order"
    assert sorted(each for found in by_key.values() for each in found) == values


def _what_was_aborted_never_counts(stand: ClusterStand) -> None:
    topic, outbox = stand.topic(), stand.outbox()
    outbox.begin()
    outbox.send(topic, _batch("a", "b", "c"))
    outbox.abort()
    assert stand.read(topic) == []
    _publish(outbox, topic, "d")
    assert _words(stand.read(topic)) == ["d"]


def _a_transaction_spans_topics(stand: ClusterStand) -> None:
    first, second, outbox = stand.topic(), f"{stand.prefix}second", stand.outbox()
    stand.new().create(second, 1, {})
    for word, ends in (("gone", outbox.abort), ("kept", outbox.commit)):
        outbox.begin()
        outbox.send(first, _batch(word))
        outbox.send(second, _batch(word))
        ends()
    assert _words(stand.read(first)) == _words(stand.read(second)) == ["kept"]


def _a_transaction_without_records_is_nothing(stand: ClusterStand) -> None:
    topic, outbox = stand.topic(), stand.outbox()
    outbox.begin()
    outbox.commit()
    outbox.begin()
    outbox.abort()
    assert stand.new().bounds(topic) == {0: (0, 0), 1: (0, 0), 2: (0, 0)}
    _publish(outbox, topic, "a")
    assert _words(stand.read(topic)) == ["a"]


def _a_new_outbox_ends_what_the_last_one_left_open(stand: ClusterStand) -> None:
    topic, dead = stand.topic(), stand.outbox()
    dead.begin()
    dead.send(topic, _batch("half"))
    dead.close()
    dead.close()
    outbox = stand.outbox()
    assert stand.read(topic) == []
    _publish(outbox, topic, "whole")
    assert _words(stand.read(topic)) == ["whole"]


def _who_was_shut_out_is_told(stand: ClusterStand) -> None:
    topic, zombie = stand.topic(), stand.outbox()
    _publish(zombie, topic, "a")
    outbox = stand.outbox()
    for _ in range(2):
        assert _is_fenced(zombie, topic), "an outbox goes on after another was initialised"
    _publish(outbox, topic, "b")
    assert _words(stand.read(topic)) == ["a", "b"]


def _who_was_shut_out_in_the_middle_is_told(stand: ClusterStand) -> None:
    topic, zombie = stand.topic(), stand.outbox()
    zombie.begin()
    zombie.send(topic, _batch("half"))
    stand.outbox()
    try:
        zombie.commit()
    except SinkFencedError:
        assert stand.read(topic) == []
        return
    raise AssertionError("a commit counted after another outbox was initialised")


def _ids_leave_each_other_alone(stand: ClusterStand) -> None:
    topic, one, other = stand.topic(), stand.outbox("one"), stand.outbox("other")
    one.begin()
    one.send(topic, _batch("1"))
    _publish(other, topic, "2")
    one.commit()
    assert _words(stand.read(topic)) == ["1", "2"]


def _reading_may_start_later(stand: ClusterStand) -> None:
    topic, outbox = stand.topic(2), stand.outbox()
    _publish(outbox, topic, *(f"old {each}" for each in range(8)))
    old = stand.read(topic)
    ends = {at: end for at, (_, end) in stand.new().bounds(topic).items()}
    assert stand.read(topic, ends) == []
    _publish(outbox, topic, *(f"new {each}" for each in range(8)))
    assert _words(stand.read(topic, ends)) == [f"new {each}" for each in range(8)]
    late = [each for each in stand.read(topic) if each.partition == 1 or each.offset >= ends[0]]
    assert stand.read(topic, {0: ends[0]}) == late
    assert [each for each in stand.read(topic) if each in old] == old


def _reading_ends_where_the_end_was_at_the_call(stand: ClusterStand) -> None:
    topic, outbox = stand.topic(1), stand.outbox()
    _publish(outbox, topic, "before")
    found = stand.new().committed(topic)
    _publish(outbox, topic, "after")
    assert _words(list(found)) == ["before"]


def _reading_waits_for_what_is_not_decided(stand: ClusterStand) -> None:
    """Or progress that was committed and not yet marked would be overlooked."""
    topic, outbox = stand.topic(1), stand.outbox()
    outbox.begin()
    outbox.send(topic, _batch("undecided"))
    outbox.send(topic, _batch("as well"))
    _arrived(stand, topic)
    found: list[Message] = []
    reading = stand.tasks.start("read", lambda: found.extend(stand.read(topic)))
    stand.tasks.sleep(_WAIT_MS)
    assert not reading.done(), "a reader did not wait for what may still be committed"
    outbox.commit()
    reading.join()
    assert _words(found) == ["as well", "undecided"]


def _arrived(stand: ClusterStand, topic: str) -> None:
    """Wait until what was sent has arrived: a client may keep it back for a while."""
    for _ in range(500):
        if stand.new().bounds(topic)[0][1] >= 2:
            return
        stand.tasks.sleep(20)
    raise AssertionError("what was sent does not leave before the commit")


def _what_is_gone_is_not_read(stand: ClusterStand) -> None:
    if stand.cut is None:
        return
    topic, outbox = stand.topic(1), stand.outbox()
    _publish(outbox, topic, "a", "b")
    _publish(outbox, topic, "c")
    last = stand.read(topic)[-1]
    stand.cut(topic, 0, last.offset)
    first, end = stand.new().bounds(topic)[0]
    assert (first, end > last.offset) == (last.offset, True)
    assert stand.read(topic) == [last] == stand.read(topic, {0: 0})
    stand.cut(topic, 0, end)
    assert stand.new().bounds(topic) == {0: (end, end)}, "offsets begin anew"
    assert stand.read(topic) == []


CLAUSES = (
    _a_topic_is_made_once,
    _what_is_committed_is_read_as_it_was_sent,
    _offsets_rise_and_lie_within_the_bounds,
    _a_key_has_the_partition_of_kafkas_own_clients,
    _records_without_a_key_are_sent,
    _many_records_stay_in_order,
    _what_was_aborted_never_counts,
    _a_transaction_spans_topics,
    _a_transaction_without_records_is_nothing,
    _a_new_outbox_ends_what_the_last_one_left_open,
    _who_was_shut_out_is_told,
    _who_was_shut_out_in_the_middle_is_told,
    _ids_leave_each_other_alone,
    _reading_may_start_later,
    _reading_ends_where_the_end_was_at_the_call,
    _reading_waits_for_what_is_not_decided,
    _what_is_gone_is_not_read,
)
