"""The judge of what was published: it sees a loss in the publisher's own reading, too."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from tests.kills.sent import Change, Sent
from tests.pipeline.scripted import published, publishing_rig
from tests.pipeline.shop import run

from strandline.handles.shard import Shard
from strandline.handles.store import Store
from strandline.pipeline.outgoing import Outgoing, Transaction
from strandline.pipeline.pending import Pending
from strandline.pipeline.replica import Replica
from strandline.testing.lab import Lab, new_store
from strandline.testing.scripted_sink import ScriptedTarget

TIMES = range(10)
Found = dict[int, Counter[Change]]


@pytest.fixture
def store() -> Iterator[Store]:
    lab = Lab()
    with new_store(lab) as made:
        yield made
    lab.close()


def sent(store: Store) -> tuple[Shard, Found]:
    """The shop's orders, and what arrived of them, by time."""
    target = ScriptedTarget()
    rig = publishing_rig(store, target)
    replica = Replica(rig)
    run(replica)
    published(store, rig, reached=TIMES[-1])
    shard = store.shard(replica.standing.bindings["orders"].shard)
    replica.close()
    (log,) = target.logs.values()
    found: Found = {}
    for landed in log.landed:
        for row in landed.rows:
            diff = row.pop("_diff")
            change = json.dumps(row, sort_keys=True), diff
            found.setdefault(landed.t, Counter())[change] += 1
    return shard, found


def judged(shard: Shard, found: Found) -> Sent:
    outcome = Sent()
    outcome.judge(shard, found)
    return outcome


def test_a_loss_in_what_feeds_the_sink_is_named(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Outgoing._transaction

    def lossy(self: Outgoing, rows: Pending, t: int) -> Iterator[Transaction]:
        if t % 3 == 1:
            rows.merge(t)
            Transaction(t, 0, rows.take(t)).drop()
        else:
            yield from real(self, rows, t)

    monkeypatch.setattr(Outgoing, "_transaction", lossy)
    shard, found = sent(store)
    assert sorted(found) == [0, 2, 3, 5, 6, 8, 9]
    outcome = judged(shard, found)
    assert [each.split(" lacks ")[0] for each in outcome.wrong] == ["1", "4", "7"]
    assert outcome.losses > 0
    assert outcome.duplicates == 0


def lose_a_change(found: Found) -> None:
    found[3].pop(next(iter(found[3])))


def double_a_change(found: Found) -> None:
    found[3][next(iter(found[3]))] += 1


def publish_a_time_that_is_none(found: Found) -> None:
    found[-5] = Counter([("{}", 1)])


@pytest.mark.parametrize(
    ("plant", "wrong"),
    [
        (lose_a_change, (1, 0)),
        (double_a_change, (0, 1)),
        (publish_a_time_that_is_none, (0, 1)),
    ],
)
def test_what_is_planted_is_counted_and_nothing_else(
    store: Store, plant: Callable[[Found], None], wrong: tuple[int, int]
) -> None:
    shard, found = sent(store)
    assert sorted(found) == list(TIMES)
    clean = judged(shard, found)
    assert (clean.wrong, clean.losses, clean.duplicates) == ([], 0, 0)
    assert clean.transactions == len(TIMES)
    plant(found)
    outcome = judged(shard, found)
    assert (outcome.losses, outcome.duplicates) == wrong
    assert len(outcome.wrong) == 1


def test_a_judge_that_reads_too_little_says_so(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard, found = sent(store)
    real = shard.subscribe
    # As if subscriptions lost the end: the sink would lose the same, and both would agree.
    monkeypatch.setattr(Shard, "subscribe", lambda _, as_of, *, until: real(as_of, until=until - 1))
    found[TIMES[-1]] = Counter()
    assert "is not what the shard holds" in judged(shard, found).wrong[0]
