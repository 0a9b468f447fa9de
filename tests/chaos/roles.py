"""What the processes of a chaos run do, each until it is killed.

appender     takes the next time of `events`, with others
racer        races for one time of `race`, and retracts what it wrote before
replica      writes the agreed stream, as another one does
reader       takes snapshots at any readable time, some twice
opener       opens readers that hold a time, reads it, and lets go or forgets to
subscriber   follows a shard for a while
compactor    rounds of upkeep, and full compactions
collector    deletes garbage, and sweeps for orphans
clerk        a few appends on a disk that fails; see `test_failing_disk`
"""

from __future__ import annotations

from collections.abc import Callable

from tests.chaos.content import NO_IDS, SHARDS, Span, agreed, digest_of_table, rows
from tests.chaos.journal import now
from tests.chaos.life import Life

import strandline
from strandline.errors import (
    ConflictError,
    LeaseLostError,
    MaybeAppliedError,
    NotAppliedError,
    SinceError,
    StoreError,
)
from strandline.handles.shard import Reader, Shard


def appender(life: Life) -> None:
    shard = life.shards["events"]
    with shard.writer("chaos") as writer:
        for _ in range(life.random.randint(1, 60)):
            if not life.going():
                return
            new = life.span()
            number = life.intend("events", None, new, NO_IDS)
            with life.trying(number):
                answer = writer.append(rows(new).drop_columns(["_diff"]))
            life.journal.swear("ack", number, (answer.upper.time or 0) - 1, now())
            life.rest(100)


def racer(life: Life) -> None:
    shard = life.shards["race"]
    mine: list[Span] = []
    _, upper = life.seen(shard)
    with shard.writer("chaos") as writer:
        for _ in range(life.random.randint(1, 60)):
            if not life.going():
                return
            new = life.span()
            gone = mine[0] if mine and life.random.random() < 0.5 else NO_IDS
            table = rows(new, gone)
            number = life.intend("race", upper, new, gone)
            with life.trying(number):
                if life.random.random() < 0.3:
                    prepared = writer.prepare(table, lower=upper, upper=upper + 1)
                    life.rest(10)
                    answer = writer.commit(prepared)
                else:
                    answer = writer.compare_and_append(table, lower=upper, upper=upper + 1)
            if isinstance(answer, strandline.UpperMismatch):
                upper = answer.upper.time or 0
                life.journal.swear("mismatch", number, upper, now())
                continue
            life.journal.swear("ack", number, upper, now())
            upper += 1
            mine.append(new)
            if gone.count:
                del mine[0]
            life.rest(100)


def replica(life: Life) -> None:
    shard = life.shards["agreed"]
    _, time_ = life.seen(shard)
    with shard.writer("chaos") as writer:
        for _ in range(life.random.randint(1, 60)):
            if not life.going():
                return
            new, gone = agreed(time_)
            table = rows(new, gone)
            number = life.intend("agreed", time_, new, gone)
            with life.trying(number):
                answer = writer.compare_and_append(table, lower=time_, upper=time_ + 1)
            if isinstance(answer, strandline.UpperMismatch):
                life.journal.swear("mismatch", number, answer.upper.time, now())
                try:
                    writer.verify(table, lower=time_, upper=time_ + 1)
                except SinceError:
                    life.journal.note("since", "agreed", time_)
                time_ = answer.upper.time or 0
                continue
            life.journal.swear("ack", number, time_, now())
            time_ += 1
            life.rest(150)


def reader(life: Life) -> None:
    """Snapshots at any readable time; some are kept for a while before they are read."""
    known: list[tuple[str, int]] = []
    for _ in range(40):
        if not life.going():
            return
        if known and life.random.random() < 0.4:
            name, as_of = life.random.choice(known)
        else:
            name = life.random.choice(list(SHARDS))
            since, upper = life.seen(life.shards[name])
            if not upper:
                life.rest(50)
                continue
            as_of = life.random.randint(since, upper - 1)
        try:
            with life.shards[name].snapshot(as_of) as snapshot:
                if life.random.random() < 0.3:
                    life.rest(600)
                life.served(name, as_of, digest_of_table(snapshot.to_arrow()))
            known.append((name, as_of))
        except SinceError:
            life.journal.note("since", name, as_of)
        life.rest(30)


def opener(life: Life) -> None:
    """Readers that hold a time, for a while; what they hold must stay readable."""
    name = life.random.choice(list(SHARDS))
    shard = life.shards[name]
    since, upper = life.seen(shard)
    if not upper:
        life.rest(50)
        return
    lease_ms = life.random.choice((None, None, 1000))
    try:
        held = shard.reader(life.random.randint(since, upper - 1), lease_ms=lease_ms)
    except SinceError:
        life.journal.note("since", name, since)
        return
    other = held.clone("chaos") if life.random.random() < 0.3 else None
    for _ in range(life.random.randint(1, 4)):
        life.rest(400)
        time_ = life.random.randint(held.since, upper - 1)
        _read_held(life, shard, held, time_)
        held.downgrade(time_, durable=life.random.random() < 0.3)
    if other is not None:
        _read_held(life, shard, other, other.since)
    if life.random.random() < 0.8:
        held.close()


def _read_held(life: Life, shard: Shard, held: Reader, time_: int) -> None:
    try:
        life.served(shard.name, time_, digest_of_table(held.snapshot(time_).to_arrow()))
    except SinceError as error:
        if held.id in shard.state().readers:
            raise
        raise LeaseLostError(str(error)) from error


def subscriber(life: Life) -> None:
    name = life.random.choice(list(SHARDS))
    shard = life.shards[name]
    since, upper = life.seen(shard)
    if not upper:
        life.rest(50)
        return
    as_of = life.random.choice((upper - 1, life.random.randint(since, upper - 1)))
    snapshot = life.random.random() < 0.5
    slow = life.random.random() < 0.3
    end = now() + int(life.random.uniform(0.2, 4) * 1e9)
    try:
        with shard.subscribe(as_of, snapshot=snapshot) as subscription:
            life.journal.note("subscribed", name, as_of, snapshot)
            while now() < end and life.going():
                event = subscription.poll(timeout_ms=100)
                if isinstance(event, strandline.Updates):
                    digest_of_table(event.rows)
                    ids, times, diffs = event.rows["id"], event.times, event.diffs
                    life.journal.note("rows", ids.to_pylist(), times.tolist(), diffs.tolist())
                elif isinstance(event, strandline.Progress):
                    life.journal.note("progress", event.frontier.time)
                if slow:
                    life.rest(60)
    except SinceError:
        life.journal.note("since", name, as_of)


def compactor(life: Life) -> None:
    for name, shard in life.shards.items():
        if not life.going():
            return
        try:
            if life.random.random() < 0.1:
                shard.compact(full=True)
            else:
                life.store.upkeep.run_once(shard.machine)
        except ConflictError:
            life.journal.note("again", name)
        life.journal.note("tended", name)
        life.rest(60)


def collector(life: Life) -> None:
    collects = life.store.upkeep.collector
    for name, shard in life.shards.items():
        if not life.going():
            return
        collects.collect(shard.machine)
        if life.random.random() < 0.3:
            found = collects.sweep(shard.machine, delete=True)
            life.journal.note("swept", name, len(found))
        life.journal.note("tended", name)
        life.rest(60)


def clerk(life: Life) -> None:
    """A few appends and one compaction, on a disk that fails; then it is done."""
    shard = life.shards["events"]
    with shard.writer("chaos") as writer:
        for count in (1, 400, 3, 60, 1, 400, 20, 3):
            new = life.span(count)
            number = life.intend("events", None, new, NO_IDS)
            try:
                answer = writer.append(rows(new).drop_columns(["_diff"]))
            except NotAppliedError as error:
                life.journal.note("failed", type(error).__name__, str(error))
                life.journal.note("refused", number, now())
            except MaybeAppliedError as error:
                life.journal.note("failed", type(error).__name__, str(error))
            else:
                life.journal.note("ack", number, (answer.upper.time or 0) - 1, now())
    try:
        shard.compact(full=True)
    except StoreError as error:
        life.journal.note("failed", type(error).__name__, str(error))
    life.stopped = True


ROLES: dict[str, Callable[[Life], None]] = {
    "appender": appender,
    "racer": racer,
    "replica": replica,
    "reader": reader,
    "opener": opener,
    "subscriber": subscriber,
    "compactor": compactor,
    "collector": collector,
    "clerk": clerk,
}
