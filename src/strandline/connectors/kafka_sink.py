"""Changes as messages of Kafka: a transaction of ours is one of Kafka's, with its progress in it.

    prepare ─► init: whoever was here before is shut out, and what it had open is decided
    progress ─► the progress topic, committed records only, to its end
    deliver ─► begin ─► messages … ─► progress record ─► commit

A progress record says the time, the epoch, and where in the topic this lineage begins
(`kafka_progress`). It decides, whatever the topic itself still holds (S82).

A lineage that follows another one of the same sink shuts its producer out, and begins with the
deletion of the keys that the other one has left, in its first transaction; those who keep the last
value of each key then hold what the collection holds. Messages of upsert do not tell whose they
are, so a topic by key has one writer. Of a sink that is new nothing is deleted,
whatever the topic has. That it is not new the store knows as well: if progress is lost and the
topic has keys, the sink does not guess whose they are. It stops, unless option `existing` says what
becomes of them: to delete somebody's keys, or to leave ours for ever, is not for it to choose.

After any error a handle is of no use any more: a commit that was not answered may count or not,
and only the next one's `init` settles that (S80). Readers with `isolation.level=read_committed`,
which is not the default of all clients, see whole transactions only.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from strandline.connectors.kafka_client import KafkaCluster
from strandline.connectors.kafka_fold import folded, keys_held
from strandline.connectors.kafka_form import DEBEZIUM, KEYED, UPSERT, Stamp, deletions, encoded
from strandline.connectors.kafka_port import Batch
from strandline.connectors.kafka_progress import (
    FORMAT,
    Mark,
    last_before,
    left_by,
    newest,
    records_of,
    replaced_by,
    unsettled,
)
from strandline.connectors.kafka_target import REFUSE, REPLACE, target_of, transactional_id
from strandline.connectors.sink import NOTHING_YET, Progress, ReadBack, filled
from strandline.errors import (
    SinkError,
    SinkFencedError,
    SinkStoppedError,
    invariant,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from strandline.connectors.kafka_port import Cluster, Outbox
    from strandline.connectors.kafka_progress import Record
    from strandline.connectors.kafka_target import Target
    from strandline.connectors.sink import Delivered, SinkPorts

IDENTITY = ("topic", "envelope", "key")
_COMPACT = "compact"
_ATTEMPTS = 10


@contextmanager
def _aborted_at(error: type[Exception], outbox: Outbox) -> Iterator[None]:
    """End a transaction that such an error has ended for us: readers should not wait for it.

    Whether this succeeds or not is all the same: it does not count, and whoever comes next ends it.
    """
    try:
        yield
    except error:
        with suppress(SinkError, SinkFencedError):
            outbox.abort()
        raise


class KafkaSink:
    """The sink."""

    def __init__(self, cluster: Cluster, target: Target, what: Delivered) -> None:
        self._cluster = cluster
        self._target = target
        self._address = what.address
        self._older = what.older
        self._done = what.done
        self._newer = what.newer
        self._out: set[str] = set()
        """Lineages that were shut out."""
        self._columns = what.columns
        self._key = msgspec.json.encode(what.address)
        self._outbox: Outbox | None = None
        self._mark: Mark | None = None

    def prepare(self) -> None:
        """Make sure of both topics, and shut out whoever was there before.

        A progress topic that is not compacted loses by age what was published last.
        """
        topic, wanted = self._target.topic, self._target.partitions
        if not self._cluster.partitions(topic):
            if not wanted:
                raise SinkStoppedError(
                    f"topic {topic} does not exist: create it, or set option partitions, and it "
                    "is made with so many"
                )
            self._cluster.create(topic, wanted, {})
        if not self._cluster.partitions(self._target.progress):
            self._cluster.create(self._target.progress, 1, {"cleanup.policy": _COMPACT})
        self._refuse_policy(self._cluster.policy(self._target.progress))
        self._outbox = self._cluster.outbox(transactional_id(self._address))
        self._outbox.init()
        # What it has open may hold up whoever reads progress, so it ends before that.
        self._shut_out(self._older[-1:])

    def progress(self) -> Progress | None:
        self._mark = mark = self._read_mark()
        if self._outbox is not None and (mark is None or mark.t == NOTHING_YET):
            records = self._records()
            self._shut_out(last_before(records, self._address.lineage))
        if mark is None:
            return None
        self._refuse_outdated(mark)
        if mark.t == NOTHING_YET:
            self._refuse_unsettled()
        else:
            self._refuse_replaced(mark)
        self._insist(mark)
        return mark.progress

    def found(self, at: Progress) -> None:
        self._mark = self._mark or self._read_mark()
        if self._mark is not None:
            return
        bounds = self._cluster.bounds(self._target.topic)
        starts = {str(each): high for each, (_, high) in bounds.items()}
        settled: tuple[str, ...] = ()
        if at.t > NOTHING_YET:
            # Progress was lost, and with it where the lineage begins; not what it has seen to.
            self._refuse_empty(at.t, starts)
            if self._newer and self._target.form.envelope in KEYED:
                raise self._replaced(at.t, self._newer[-1])
            starts, settled = {}, self._unsettled(self._records())
        else:
            self._refuse_unsettled()
        outbox = self._opened()
        outbox.begin()
        self._leave(self._founding(at, starts, settled))

    def deliver(self, t: int, epoch: int, changes: Iterable[pa.RecordBatch]) -> None:
        outbox, mark = self._opened(), self._mark
        batches = filled(t, changes, first=mark is not None and mark.t == NOTHING_YET)
        invariant(mark is not None, f"{t} is to be delivered before progress was read")
        if mark is None or t <= mark.t or epoch < mark.epoch:
            raise SinkFencedError(
                f"topic {self._target.topic} is past transaction {t} of e{epoch}: another "
                "publisher was faster"
            )
        identity = self._refuse_other(mark)
        self._mark = None
        stamp = Stamp(self._address, t, epoch)
        left, settled = ([], mark.settled) if mark.t > NOTHING_YET else self._inherited()
        sent = False
        # Also at what an encoder raises.
        with _aborted_at(Exception, outbox):
            outbox.begin()
            for batch in deletions(self._target.form, stamp, left):
                outbox.send(self._target.topic, batch)
                sent = True
            for batch in encoded(self._target.form, stamp, batches):
                outbox.send(self._target.topic, batch)
                sent = True
        # A first one of an empty collection may have found nothing to delete, either: nothing has
        # to be in the topic, then.
        founded = mark.founded if sent else t
        after = msgspec.structs.replace(
            mark, t=t, epoch=epoch, founded=founded, settled=settled, identity=identity
        )
        self._leave(after)

    def read_back(self) -> ReadBack | None:
        """Whole transactions only: messages of upsert do not tell theirs, so nothing may have come
        while they were read."""
        for _ in range(_ATTEMPTS):
            mark = self._read_mark()
            if mark is None:
                return None
            self._insist(mark)
            starts = self._starts(mark)
            messages = self._cluster.committed(self._target.topic, starts)
            rows = folded(
                self._target.form.envelope, self._address.lineage, mark.t, self._columns, messages
            )
            if self._target.form.envelope != UPSERT:
                return ReadBack(mark.progress, rows)
            held = list(rows)
            if self._read_mark() == mark:
                return ReadBack(mark.progress, iter(held))
        raise SinkError(
            f"topic {self._target.topic} moves on faster than it can be read back: pause the sink"
        )

    def close(self) -> None:
        self._mark = None
        if self._outbox is not None:
            self._outbox.close()
        self._cluster.close()

    def _opened(self) -> Outbox:
        outbox = self._outbox
        invariant(outbox is not None, "a sink is prepared before it is used")
        assert outbox is not None  # noqa: S101 - what was just checked, for the type
        return outbox

    def _leave(self, mark: Mark) -> None:
        """Progress as the last record of a transaction, and its end."""
        outbox = self._opened()
        with _aborted_at(Exception, outbox):
            outbox.send(self._target.progress, Batch([self._key], [msgspec.json.encode(mark)]))
        # What a broker has refused is told here. Anything else may have been committed all the
        # same, and is for the next one's `init` to settle.
        with _aborted_at(SinkStoppedError, outbox):
            outbox.commit()
        self._mark = mark

    def _shut_out(self, lineages: Sequence[str]) -> None:
        """End what a publisher of the lineage before may still have open: its id is another one.

        If it was stopped for a while it would commit its messages after ours. Those of lineages
        before that were shut out by it, when it began. The store knows who that was, and so does
        the progress topic, if either was lost.
        """
        for lineage in lineages:
            if lineage in self._out:
                continue
            self._out.add(lineage)
            address = replace(self._address, lineage=lineage)
            older = self._cluster.outbox(transactional_id(address))
            try:
                older.init()
            finally:
                older.close()

    def _founding(
        self, at: Progress, starts: dict[str, int], settled: tuple[str, ...] = ()
    ) -> Mark:
        topic, envelope = self._target.topic, self._target.form.envelope
        identity = self._cluster.identity(topic) or 0
        return Mark(FORMAT, at.t, at.epoch, at.t, starts, topic, envelope, settled, identity)

    def _read_mark(self) -> Mark | None:
        return newest(self._records(), self._address.lineage)

    def _records(self) -> list[Record]:
        progress = self._target.progress
        if not self._cluster.partitions(progress):
            return []
        return records_of(self._address, progress, self._cluster.committed(progress))

    def _inherited(self) -> tuple[list[bytes], tuple[str, ...]]:
        """What a first transaction deletes, and for which lineages somebody had to say so."""
        if self._target.form.envelope not in KEYED:
            return [], ()
        records = self._records()
        settled = self._unsettled(records)
        starts = left_by(records, self._address.lineage, self._target.topic)
        if settled and self._target.existing == REPLACE:
            starts.append({})
        return self._keys_since(starts), settled

    def _unsettled(self, records: Sequence[Record]) -> tuple[str, ...]:
        if self._target.form.envelope not in KEYED:
            return ()
        return unsettled(records, self._address.lineage, self._older, self._target.topic)

    def _keys_since(self, starts: Sequence[Mapping[str, int]]) -> list[bytes]:
        """The keys that the topic holds, of what came since the first of these; without those of
        other writers, as far as messages tell."""
        if not starts:
            return []
        begins = {
            each: max(low, min(one.get(str(each), 0) for one in starts))
            for each, (low, _) in self._cluster.bounds(self._target.topic).items()
        }
        # What upsert writes says nothing of its writer, and a row may look like one that does.
        named = self._target.form.envelope == DEBEZIUM
        writer = (self._address.pipeline, self._address.sink) if named else None
        return keys_held(self._cluster.committed(self._target.topic, begins), writer)

    def _refuse_unsettled(self) -> None:
        """Stop if nobody knows whose keys the topic has, and nobody said what becomes of them."""
        if self._target.existing != REFUSE:
            return
        settled = self._unsettled(self._records())
        if settled and self._keys_since([{}]):
            raise SinkStoppedError(
                f"topic {self._target.topic} has keys, and progress topic {self._target.progress} "
                f"does not tell which of them are of lineage {', '.join(settled)}, which this sink "
                "has published before: it was lost, or is another one than it was, or the sink "
                "published elsewhere until now; bring it back "
                "(option progressTopic names it), or say existing 'replace', and all keys are "
                "deleted with the first delivery, or existing 'keep', and they stay"
            )

    def _refuse_outdated(self, mark: Mark) -> None:
        """Progress is apart from the messages: if it is behind, they need not be."""
        if mark.t < self._done:
            raise SinkStoppedError(
                f"progress topic {self._target.progress} says that {mark.t} was delivered last, "
                f"and {self._done} was: it is not the one that was used then, or has lost records; "
                "name that one (option progressTopic). If it is lost, name one that does not exist:"
                " then what the store has on record counts. If the topic was set back with it, "
                "publish to a new one"
            )

    def _refuse_replaced(self, mark: Mark) -> None:
        other = replaced_by(self._records(), self._address.lineage, mark, self._newer)
        if other:
            raise self._replaced(mark.t, other)

    def _replaced(self, t: int, other: str) -> SinkStoppedError:
        return SinkStoppedError(
            f"topic {self._target.topic} no longer has what was delivered up to {t}: "
            f"lineage {other} has replaced it; give the sink another topic, or another name"
        )

    def _refuse_policy(self, policy: str) -> None:
        if policy not in {_COMPACT, ""}:
            progress = self._target.progress
            raise SinkStoppedError(
                f"progress topic {progress} has cleanup.policy {policy}: its records go with time, "
                "and where to go on with them; set it to compact: kafka-configs.sh --alter "
                f"--topic {progress} --add-config cleanup.policy=compact"
            )

    def _insist(self, mark: Mark) -> None:
        """Stop if the topic can't be the one that the progress is about."""
        self._refuse_other(mark)
        bounds = self._cluster.bounds(self._target.topic)
        highs = {str(each): high for each, (_, high) in bounds.items()}
        short = any(highs.get(each, -1) < start for each, start in mark.starts.items())
        more = any(high > mark.starts.get(each, 0) for each, high in highs.items())
        if short or (mark.t > mark.founded and not more):
            raise self._made_anew(mark)

    def _refuse_other(self, mark: Mark) -> int:
        """Stop if the topic was made anew, which its offsets need not tell: who has it open writes
        on into the new one, and then that has as many. The identity of the topic as it is."""
        topic = self._target.topic
        identity = self._cluster.identity(topic)
        if identity is None:
            raise SinkError(f"topic {topic} is not there, or the broker does not know it yet")
        if identity and mark.identity and identity != mark.identity:
            raise SinkStoppedError(
                f"topic {topic} is another one than that to which everything up to {mark.t} was "
                "delivered: it was made anew; give the sink another name, which begins with all "
                "that there is. If it is a copy that has all of it, name a progressTopic that does "
                "not exist: then what the store has on record counts"
            )
        return identity or mark.identity

    def _made_anew(self, mark: Mark) -> SinkStoppedError:
        return SinkStoppedError(
            f"topic {self._target.topic} does not have what was delivered up to {mark.t}: it "
            "was made anew; bring it back, or give the sink another name, which begins with "
            "all that there is"
        )

    def _refuse_empty(self, t: int, ends: Mapping[str, int]) -> None:
        if not any(ends.values()):
            raise SinkStoppedError(
                f"topic {self._target.topic} is empty, but everything up to {t} was delivered: "
                "it was made anew, or this is another cluster; bring it back, or give the sink "
                "another name, which begins with all that there is"
            )

    def _starts(self, mark: Mark) -> dict[int, int]:
        """Where to read from; refused if retention has removed what is needed."""
        bounds = self._cluster.bounds(self._target.topic)
        starts = {each: mark.starts.get(str(each), 0) for each in bounds}
        for each, (low, high) in bounds.items():
            if low > starts[each]:
                raise SinkStoppedError(
                    f"topic {self._target.topic} can't be read back: partition {each} begins at "
                    f"{low}, and what this sink has delivered at {starts[each]}; retention has "
                    "removed what was in between"
                )
            starts[each] = min(starts[each], high)
        return starts


def open_sink(options: Mapping[str, str], what: Delivered, ports: SinkPorts) -> KafkaSink:
    target = target_of(options, what)
    return KafkaSink(KafkaCluster(target, ports.resolve, ports.reach), target, what)
