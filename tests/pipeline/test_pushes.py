"""Pushed rows: told when sealed, once whatever is repeated, and never waited for in vain."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tests.pipeline.shop import rig_of, rows, run

from strandline.connectors.push import PushSource
from strandline.connectors.source import Limits
from strandline.errors import (
    ConflictError,
    MaybeAppliedError,
    NotAppliedError,
    StrandlineError,
    UsageError,
)
from strandline.handles.store import Store
from strandline.pipeline.pushes import PushDesk, Pushed
from strandline.pipeline.replica import Replica
from strandline.shard.env import Env
from strandline.testing.lab import Lab, new_store

TEXT = """
CREATE TABLE orders (id BIGINT, amount BIGINT, PRIMARY KEY (id)) USING http;
CREATE TABLE lines (id BIGINT) USING http;
"""


@pytest.fixture
def store() -> Iterator[Store]:
    lab = Lab()
    with new_store(lab) as made:
        yield made
    lab.close()


class Beside:
    """A call that blocks, in a task of its own."""

    def __init__(self, env: Env, call: Callable[[], Pushed]) -> None:
        self._call = call
        self.answer: Pushed | Exception | None = None
        self._task = env.tasks.start("push", self._run)

    def _run(self) -> None:
        try:
            self.answer = self._call()
        except StrandlineError as error:
            self.answer = error

    def join(self) -> Pushed | Exception | None:
        assert self._task.join(60_000)
        return self.answer


def push(desk: PushDesk, *values: bytes, timeout_ms: int = 60_000, **named: object) -> Pushed:
    return desk.push(values, sealed=named.pop("sealed", {}), timeout_ms=timeout_ms, **named)


def buffered(desk: PushDesk, count: int) -> None:
    """Wait until so many pushes are in the buffer."""
    while len(desk._source._pushes) < count:
        desk._env.tasks.sleep(1)


def test_a_producer_is_told_once_its_rows_are_sealed_and_they_are_read_then(store: Store) -> None:
    rig = rig_of(store, TEXT)
    replica = Replica(rig)
    run(replica)
    pushed = Beside(store.env, lambda: push(rig.desks["orders"], b'{"id": 1, "amount": 7}'))
    buffered(rig.desks["orders"], 1)
    run(replica)
    assert pushed.join() == Pushed(1, duplicate=False)
    assert rows(store, "orders", 0) == [{"id": 1, "amount": 7}]
    assert replica.standing.positions["orders"] == {"staged": 1}
    replica.close()


def test_a_retry_at_another_replica_counts_once(store: Store) -> None:
    """Both have the same push in their buffers before either seals it."""
    rigs = [rig_of(store, TEXT), rig_of(store, TEXT)]
    replicas = [Replica(rig) for rig in rigs]
    run(*replicas)
    told = [
        Beside(
            store.env,
            lambda rig=rig: push(rig.desks["lines"], b'{"id": 1}', producer="till", sequence=0),
        )
        for rig in rigs
    ]
    for rig in rigs:
        buffered(rig.desks["lines"], 1)
    run(*replicas)
    assert [each.join() for each in told] == [Pushed(1, duplicate=False)] * 2
    assert rows(store, "lines", replicas[0].standing.next_t - 1) == [{"id": 1}]
    later = replicas[1].standing.producers["lines"]
    assert later == {"till": 0}
    desk = rigs[1].desks["lines"]
    again = push(desk, b'{"id": 1}', producer="till", sequence=0, sealed=later)
    assert again == Pushed(1, duplicate=True)
    for replica in replicas:
        replica.close()


def test_rows_without_a_producer_are_sealed_once_though_no_answer_came(store: Store) -> None:
    rig = rig_of(store, TEXT)
    replica = Replica(rig)
    run(replica)
    told = Beside(store.env, lambda: push(rig.desks["lines"], b'{"id": 1}'))
    buffered(rig.desks["lines"], 1)
    propose, lost = rig.journal.propose, []

    def unheard(*given: object) -> object:
        result = propose(*given)
        if not lost:
            lost.append(result)
            raise MaybeAppliedError("no answer")
        return result

    rig.journal.propose = unheard
    with pytest.raises(MaybeAppliedError):
        run(replica)
    run(replica)
    assert told.join() == Pushed(1, duplicate=False)
    assert rows(store, "lines", 0) == [{"id": 1}]
    assert replica.standing.next_t == 1
    replica.close()


def test_who_loses_the_race_seals_its_rows_next_and_leaves_nothing_staged(store: Store) -> None:
    rig = rig_of(store, TEXT)
    replica = Replica(rig)
    run(replica)
    told = Beside(store.env, lambda: push(rig.desks["lines"], b'{"id": 1}'))
    buffered(rig.desks["lines"], 1)
    other = rig_of(store, TEXT)
    theirs = Beside(store.env, lambda: push(other.desks["lines"], b'{"id": 2}'))
    buffered(other.desks["lines"], 1)
    stale = rig.journal.refresh()
    run(Replica(other))
    from strandline.pipeline.planner import Planner

    planner = Planner(rig)
    before = {each.key for each in store.env.blob.list("journal/shop/")}
    planner.plan(stale)
    assert {each.key for each in store.env.blob.list("journal/shop/")} == before
    run(replica)
    assert [told.join(), theirs.join()] == [Pushed(1, duplicate=False)] * 2
    assert rows(store, "lines", 1) == [{"id": 1}, {"id": 2}]
    replica.close()


def test_what_was_sealed_since_the_caller_looked_is_no_gap(store: Store) -> None:
    desk = PushDesk(store.env, PushSource())
    for at in range(2):
        told = Beside(store.env, lambda: push(desk, b"{}", sealed={}))
        buffered(desk, 1)
        desk.sealed(desk.staged({}, Limits(), {}))
        assert told.join() == Pushed(1, duplicate=False), at


def test_gaps_full_buffers_and_ended_replicas_are_told_apart(store: Store) -> None:
    desk = PushDesk(store.env, PushSource(rows_max=1))
    with pytest.raises(ConflictError, match="too early: the last one that is known is 3"):
        push(desk, b"{}", producer="till", sequence=9, sealed={"till": 3})
    with pytest.raises(ConflictError, match="too early: its first one is 0"):
        push(desk, b"{}", producer="till", sequence=1, sealed={})
    with pytest.raises(MaybeAppliedError, match="not sealed yet"):
        push(desk, b"{}", timeout_ms=1)
    with pytest.raises(NotAppliedError, match="try again later"):
        push(desk, b"{}", timeout_ms=1)
    waiting = Beside(store.env, lambda: push(desk, b"{}", producer="a", sequence=0, sealed={}))
    assert isinstance(waiting.join(), NotAppliedError)
    desk.close()
    with pytest.raises(NotAppliedError, match="no replica runs"):
        push(desk, b"{}")
    desk.open()
    staging = desk.staged({}, Limits(), {})
    desk.sealed(staging)
    ends = Beside(store.env, lambda: push(desk, b"{}"))
    buffered(desk, 1)
    desk.close()
    assert isinstance(ends.join(), MaybeAppliedError)


def test_a_producer_without_a_number_is_refused(store: Store) -> None:
    with pytest.raises(UsageError, match="neither"):
        push(PushDesk(store.env, PushSource()), b"{}", producer="till")


def test_a_name_that_is_given_to_pushes_without_one_is_refused(store: Store) -> None:
    with pytest.raises(UsageError, match="begin with anonymous"):
        push(PushDesk(store.env, PushSource()), b"{}", producer="anonymous.till", sequence=0)


def test_a_push_without_rows_is_refused_and_uses_no_number(store: Store) -> None:
    """Nothing of it would be sealed: its producer's next one would be too early elsewhere."""
    desk = PushDesk(store.env, PushSource())
    with pytest.raises(UsageError, match="push 0 of till has no rows"):
        push(desk, producer="till", sequence=0)
    with pytest.raises(UsageError, match="no rows"):
        push(desk)
    with pytest.raises(UsageError, match="neither"):
        push(desk, producer="till")
    told = Beside(store.env, lambda: push(desk, b"{}", producer="till", sequence=0))
    buffered(desk, 1)
    desk.sealed(desk.staged({}, Limits(), {}))
    assert told.join() == Pushed(1, duplicate=False)
