"""The loop of writers that own no time: what it decides, and what races leave behind."""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pytest

import strandline
from strandline.errors import BoundsError, ReplicaDivergedError
from strandline.handles.write import Appended
from strandline.model.digest import Digest
from strandline.model.frontier import Frontier
from strandline.model.ids import SeqNo
from strandline.shard import command as c
from strandline.shard.command import Repeated, UpperMismatch
from strandline.shard.txn import Txn
from strandline.spark import perform
from strandline.spark.attempts import (
    Resolving,
    Tried,
    append_next,
    in_vain,
    once,
    resolve,
    settled,
    until_settled,
    upsert_next,
)
from strandline.spark.blocks import Blocks
from strandline.spark.cache import BlockCache
from strandline.spark.desk import Desk
from strandline.spark.instruction import Errand
from strandline.spark.landed import Load
from strandline.spark.plan import Gathered, ranges

COLUMNS = pa.schema([("k", pa.int64()), ("v", pa.string())])
WON = Appended(SeqNo(1), Frontier(1), 0, 1)
LOST = UpperMismatch(Frontier(5))
KNOWN = Repeated("app", 1, 1)


class Raced(Desk):
    """A desk whose table others write to as soon as somebody has looked at it."""

    rivals: list

    def writable(self):
        state = super().writable()
        self.overtake()
        return state

    @contextmanager
    def view(self):
        with super().view() as view:
            yield view
        self.overtake()

    def overtake(self) -> None:
        if self.rivals:
            self.rivals.pop(0)()


@pytest.fixture
def desk(tmp_path):
    settings = strandline.Settings(listed_parts=2)
    with strandline.open(str(tmp_path / "lake"), upkeep=False, settings=settings) as store:
        made = Raced(store, store.shard("t", schema=COLUMNS, key=["k"]), ("", 0))
        made.rivals = []
        yield made
        made.close()


def rows(keys, value):
    return pa.table({"k": list(keys), "v": [value] * len(keys)})


def stand_of(desk):
    return desk.stand(desk.shard.state().schema)


def appended(desk, *values, most=0):
    """What tasks give back that had a row each."""
    bench = stand_of(desk).bench
    tasks = [rows([at], value).to_batches() for at, value in enumerate(values)]
    return Load.of([perform.append(bench, each, None, most) for each in tasks])


def upserting(desk, folder, came, most, txn=None):
    """An upsert whose differences are found here; `most` bytes of them come back as rows."""
    stand = stand_of(desk)
    schema = stand.bench.ground.schema
    gathered = Gathered.of([came], (), schema)
    blocks = Blocks(desk.env.blob, BlockCache(folder / "cache", 10**8))

    def differences(state):
        lower = state.upper.time or 0
        as_of = lower - 1 if lower else None
        works = ranges(gathered, desk.stored(state, as_of, gathered), 1)
        told = [Errand(tuple(work), as_of, time=lower, inline_max=most) for work in works]
        return Load.of([perform.upsert(stand.bench, blocks, errand) for errand in told])

    return Resolving(desk.view, differences, txn)


def append(desk, came, **told):
    def rival() -> None:
        with desk.shard.writer() as writer:
            writer.append(came, **told)

    return rival


def content(desk):
    return {row["k"]: row["v"] for row in desk.shard.snapshot().to_arrow().to_pylist()}


def objects(desk):
    """All but grounds, which writers keep."""
    keys = [entry.key for entry in desk.env.blob.list(f"{desk.shard.id}/")]
    return sorted(key for key in keys if not key.endswith(".ground"))


@pytest.mark.parametrize(
    ("outcome", "lasting", "ends", "dropped"),
    [
        (WON, False, True, False),
        (WON, True, True, False),
        (None, False, True, False),
        (KNOWN, False, True, True),
        (KNOWN, True, True, True),
        (LOST, False, False, True),
        (LOST, True, False, False),
    ],
)
def test_what_follows_from_an_attempt(desk, outcome, lasting, ends, dropped):
    load = appended(desk, "a")
    tried = Tried(load, outcome, lasting=lasting)
    done = settled(tried, 4)
    assert (done is not None) is ends
    if done is not None:
        assert (done.load, done.outcome, done.attempts) == (load, outcome, 4)
    keys = [part.key for part in load.parts]
    assert in_vain(tried) == (keys if dropped else [])
    assert once(desk, tried) is tried
    assert objects(desk) == ([] if dropped else keys)


def test_it_tries_until_nobody_is_faster_and_counts(desk):
    outcomes = [LOST, LOST, LOST, WON]
    done = until_settled(desk, lambda: Tried(Load.of(()), outcomes.pop(0)))
    assert (done.outcome, done.attempts, outcomes) == (WON, 4, [])


def test_an_error_ends_it(desk):
    desk.rivals = [append(desk, rows([9], "theirs")), lambda: desk.shard.writer().advance(None)]
    with pytest.raises(BoundsError, match="closed"):
        append_next(desk, stand_of(desk), appended(desk, "ours"))
    assert content(desk) == {9: "theirs"}


def test_an_upsert_ends_too_if_the_table_was_closed_meanwhile(desk, tmp_path):
    desk.rivals = [lambda: desk.shard.writer().advance(None)]
    with pytest.raises(BoundsError, match="closed"):
        upsert_next(desk, stand_of(desk), upserting(desk, tmp_path, rows([1], "ours"), 0))
    assert objects(desk) == []


@pytest.mark.parametrize("tasks", [1, 5], ids=["listed", "in chunks"])
def test_an_append_that_loses_keeps_its_parts_and_gets_a_new_time(desk, tasks):
    load = appended(desk, *["ours"] * tasks)
    parts = {part.key for part in load.parts}
    desk.rivals = [append(desk, rows([n], "theirs")) for n in (100, 101)]
    done = append_next(desk, stand_of(desk), load)
    assert isinstance(done.outcome, Appended)
    assert (done.attempts, done.outcome.upper.time) == (3, 3)
    assert desk.shard.snapshot(1).count() == 2
    assert desk.shard.snapshot(2).count() == 2 + tasks
    assert done.load.total(desk.shard.state().schema)[0] == tasks
    (batch,) = [each for each in desk.shard.state().batches if each.lower == 2]
    # The lists of the attempts that lost are gone; parts are put once.
    assert set(objects(desk)) - parts == set(batch.object_keys()) - parts
    assert desk.env.metrics.value("append_mismatches", "t") == 2


@pytest.mark.parametrize("most", [0, 10**6], ids=["parts", "rows"])
def test_an_upsert_that_loses_looks_again_and_leaves_nothing_behind(desk, tmp_path, most):
    append(desk, rows([1, 2], "old"))()
    retracting = rows([1, 1], "theirs").set_column(1, "v", pa.array(["old", "theirs"]))
    rivals = [retracting.append_column("_diff", pa.array([-1, 1])), rows([3], "theirs")]
    desk.rivals = [append(desk, each) for each in rivals]
    came = upserting(desk, tmp_path, rows([1, 3], "ours"), most)
    done = upsert_next(desk, stand_of(desk), came)
    assert isinstance(done.outcome, Appended)
    assert (done.attempts, done.outcome.upper.time) == (3, 4)
    assert content(desk) == {1: "ours", 2: "old", 3: "ours"}
    assert objects(desk) == sorted(part.key for part in done.load.parts)


def test_an_upsert_takes_its_time_from_the_state_it_looks_at(desk, tmp_path):
    """History may be merged past the time before an upper that was seen earlier."""
    came = upserting(desk, tmp_path, rows([0], "ours"), 10**6)

    @contextmanager
    def late():
        for n in range(3):
            append(desk, rows([n], "theirs"))()
        desk.shard.retain("0s")
        desk.shard.machine.demand(c.AdvanceSince(now_ms=10**15))
        with desk.view() as view:
            yield view

    done = upsert_next(desk, stand_of(desk), Resolving(late, came.differences))
    assert done.attempts == 1
    assert content(desk) == {0: "ours", 1: "theirs", 2: "theirs"}


def test_what_an_upsert_looks_at_outlives_its_compaction(desk, tmp_path):
    for n in range(3):
        append(desk, rows(range(n * 3_000, n * 3_000 + 3_000), "old"))()
    before = objects(desk)
    came = upserting(desk, tmp_path, rows([1, 4_000, 8_000, 9_000], "ours"), 10**6)

    def late(state):
        desk._store.leases.sync(desk.shard.machine)
        desk.shard.retain("1 versions")
        desk.shard.compact(full=True)
        return came.differences(state)

    done = upsert_next(desk, stand_of(desk), Resolving(desk.view, late))
    assert done.attempts == 1
    assert len(content(desk)) == desk.shard.snapshot().count() == 9_001
    assert set(objects(desk)) > set(before)


@pytest.mark.parametrize("most", [0, 10**6], ids=["parts", "rows"])
def test_a_batch_that_another_attempt_of_it_overtakes_counts_once(desk, tmp_path, most):
    same = Txn("app", 3, Digest.of(np.array([7], np.uint64), np.ones(1, np.int64)))
    desk.rivals = [append(desk, rows([1], "ours"), txn=same)]
    done = upsert_next(
        desk, stand_of(desk), upserting(desk, tmp_path, rows([1], "ours"), most, same)
    )
    assert isinstance(done.outcome, Repeated)
    assert desk.shard.upper.time == 1
    assert content(desk) == {1: "ours"}
    assert objects(desk) == []
    other = upserting(desk, tmp_path, rows([1], "others"), most, Txn("app", 3, Digest.ZERO))
    with pytest.raises(ReplicaDivergedError, match="batch 3 of application app"):
        upsert_next(desk, stand_of(desk), other)
    assert content(desk) == {1: "ours"}


@pytest.mark.parametrize("most", [0, 10**6], ids=["parts", "rows"])
def test_an_appended_batch_that_another_attempt_of_it_overtakes_counts_once(desk, most):
    desk.rivals = [append(desk, rows([0], "ours"), txn=("app", 3))]
    if most:
        desk.overtake()
    done = append_next(desk, stand_of(desk), appended(desk, "ours", most=most), Txn("app", 3))
    assert isinstance(done.outcome, Repeated)
    assert desk.shard.snapshot().count() == 1
    assert objects(desk) == []
    with pytest.raises(ReplicaDivergedError):
        append_next(desk, stand_of(desk), appended(desk, "others", most=most), Txn("app", 3))
    assert content(desk) == {0: "ours"}


def test_nobody_looks_at_a_batch_when_a_newer_one_counts(desk, tmp_path):
    append(desk, rows([1], "newer"), txn=("app", 4))()
    came = upserting(desk, tmp_path, rows([1], "older"), 0, Txn("app", 3, Digest.ZERO))

    def unexpected(state):
        raise AssertionError(state)

    done = upsert_next(desk, stand_of(desk), Resolving(desk.view, unexpected, came.txn))
    assert (done.outcome, done.attempts) == (Repeated("app", 3, 4), 1)
    assert content(desk) == {1: "newer"}


def test_nothing_to_say_is_a_version_only_if_it_has_to_be_remembered(desk, tmp_path):
    append(desk, rows([1], "same"))()
    for txn, upper in ((None, 1), (Txn("app", 0, Digest.ZERO), 2)):
        done = upsert_next(
            desk, stand_of(desk), upserting(desk, tmp_path, rows([1], "same"), 0, txn)
        )
        assert (done.outcome is None) is (txn is None)
        assert desk.shard.upper.time == upper
    assert append_next(desk, stand_of(desk), Load.of(())).outcome is None
    assert desk.shard.upper.time == 2


@pytest.mark.parametrize("kind", ["parts", "upsert"])
def test_a_batch_that_counted_is_known_again_where_nothing_can_be_written_any_more(
    desk, tmp_path, kind
):
    def tried(value):
        if kind == "parts":
            return append_next(desk, stand_of(desk), appended(desk, value), Txn("app", 0))
        digest = Digest.of(np.array([len(value)], np.uint64), np.ones(1, np.int64))
        came = upserting(desk, tmp_path, rows([0], value), 0, Txn("app", 0, digest))
        return upsert_next(desk, stand_of(desk), came)

    tried("ours")
    with desk.shard.writer() as writer:
        writer.advance(None)
    assert tried("ours").outcome == Repeated("app", 0, 0)
    with pytest.raises(ReplicaDivergedError):
        tried("others")
    assert content(desk) == {0: "ours"}


def test_a_replica_is_told_that_it_lost_before_it_looks(desk, tmp_path):
    append(desk, rows([1], "theirs"))()
    came = upserting(desk, tmp_path, rows([1], "ours"), 0)
    tried = resolve(desk, stand_of(desk), came, (0, 1))
    assert tried.outcome == UpperMismatch(Frontier(1))
    assert not tried.load.parts
