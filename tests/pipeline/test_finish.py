"""What is sealed becomes what its answer says, whoever finishes it and whenever rows arrive."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from tests.pipeline.shop import rig_of, rows, run, topic_of, topic_rig

from strandline.errors import FencedError, ReplayDivergedError, SourceGoneError
from strandline.handles.store import Store
from strandline.journal.log import Journal, Lost
from strandline.journal.next import Want
from strandline.journal.record import Abort, Amend, Answer, Commit, Record
from strandline.journal.standing import Standing
from strandline.parts.consolidate import as_updates
from strandline.pipeline.compute import Computed, Delta, Work
from strandline.pipeline.meaning import ERROR_SCHEMA, updates_digest
from strandline.pipeline.planner import Planner
from strandline.pipeline.replay import replay
from strandline.pipeline.replica import Replica
from strandline.pipeline.rig import Rig
from strandline.testing.computing import ArrowComputer
from strandline.testing.lab import Lab, new_store
from strandline.testing.scripted_source import ScriptedTopic

NEWER = {"engine": "another one"}


class DiedError(Exception):
    """What a process does where a test says so."""


class Told(Journal):
    """A journal that tells what is about to be proposed, and what was."""

    def __init__(self, env: Any) -> None:
        super().__init__(env, "shop")
        self.before: Callable[[Record], object] = lambda _: None
        self.after: Callable[[Record], object] = lambda _: None

    def propose(self, standing: Standing, records: Sequence[Record]) -> Standing | Lost:
        self.before(records[0])
        outcome = super().propose(standing, records)
        self.after(records[0])
        return outcome


class Counting(ArrowComputer):
    """Counts, and may do something else on the way."""

    def __init__(self, store: Store, *, meanwhile: Callable[[], object] = int, **more: Any) -> None:
        super().__init__(store, **more)
        self.count = 0
        self._meanwhile = meanwhile

    def compute(self, work: Work) -> Computed:
        self.count += 1
        self._meanwhile()
        return super().compute(work)


class Adding(ArrowComputer):
    """Computes the truth, and rows in a shard that nobody touches."""

    def compute(self, work: Work) -> Computed:
        found = super().compute(work)
        row = {"id": b"1", "partition": "0", "offset": 0, "reason": "", "value": b""}
        made = pa.Table.from_pylist([row], ERROR_SCHEMA.arrow())
        updates = as_updates(made, made.column_names)
        extra = Delta(updates_digest(updates, ERROR_SCHEMA), updates)
        return Computed(found.inputs, {**found.deltas, "orders_errors": extra})


@pytest.fixture
def lab() -> Iterator[Lab]:
    made = Lab()
    yield made
    made.close()


@pytest.fixture
def store(lab: Lab) -> Iterator[Store]:
    with new_store(lab) as opened:
        yield opened


@pytest.fixture
def other(lab: Lab) -> Iterator[Store]:
    with new_store(lab) as opened:
        yield opened


def _told(store: Store, **more: Any) -> tuple[Replica, Told]:
    journal = Told(store.env)
    return Replica(replace(rig_of(store), journal=journal, **more)), journal


def _sealed(replica: Replica) -> Replica:
    while replica.standing.sealed is None:
        replica.step()
    return replica


def _dies(at: type[Record]) -> Callable[[Record], None]:
    def die(record: Record) -> None:
        if isinstance(record, at):
            raise DiedError

    return die


def _held(store: Store) -> dict[str, object]:
    return {name: store.machine(name).refresh().total.count for name in store.shards()}


def _finishes(replica: Replica) -> None:
    replica.step()
    assert replica.standing.committed.settled(0)
    assert replica.standing.sealed is None


def test_an_answer_is_on_record_before_anything_lands(store: Store) -> None:
    replica, journal = _told(store)
    seen = []

    def look(record: Record) -> None:
        seen.append((type(record), any(_held(store).values())))

    journal.before = look
    _sealed(replica)
    seen.clear()
    _finishes(replica)
    assert seen == [(Answer, False), (Commit, True)]
    replica.close()


def test_what_nobody_answered_never_lands_not_even_while_others_commit(
    store: Store, other: Store
) -> None:
    """The rows would go to a shard that the answer leaves alone: nothing in it would stop them."""
    right, journal = _told(store)
    wrong = Replica(replace(rig_of(other), computer=Adding(other)))

    def meanwhile(record: Record) -> None:
        if isinstance(record, Answer):
            with pytest.raises(ReplayDivergedError, match="collection orders_errors was computed"):
                wrong.step()

    _sealed(right)
    journal.after = meanwhile
    _finishes(right)
    assert _held(store)["shop.orders_errors"] == 0
    assert all(each.time == 0 for each in store.machine("shop.orders").refresh().moments)
    run(right)
    right.close()
    wrong.close()


def test_who_answers_first_is_right_and_the_rest_is_told(store: Store, other: Store) -> None:
    first, _ = _told(store, computer=Adding(store))
    _sealed(first)
    _finishes(first)
    assert _held(store)["shop.orders_errors"] == 1
    first.close()
    rig = rig_of(other)
    with pytest.raises(ReplayDivergedError, match="orders_errors is recorded"):
        list(replay(rig, Planner(rig), 0, 1))


def _newer(store: Store, computer: type[ArrowComputer] = ArrowComputer, **more: Any) -> Replica:
    """A replica of other versions, which is to be promoted and finishes what it finds."""
    rig: Rig = replace(rig_of(store), computer=computer(store, versions=NEWER, **more))
    replica = Replica(rig)
    replica.want(Want.PROMOTE)
    return replica


def _abandoned(store: Store, *, landed: bool) -> None:
    """Answered by a replica that died before it landed anything, or when all had landed."""
    replica, journal = _told(store)
    _sealed(replica)
    if landed:
        journal.before = _dies(Commit)
    else:
        journal.after = _dies(Answer)
    with pytest.raises(DiedError):
        replica.step()
    assert any(_held(store).values()) == landed
    replica.close()


@pytest.mark.parametrize("landed", [False, True])
def test_other_versions_with_the_same_answer_finish_it(
    store: Store, other: Store, *, landed: bool
) -> None:
    _abandoned(store, landed=landed)
    newer = _newer(other)
    _finishes(newer)
    assert newer.noted == ()
    newer.close()


def _no_rows(_: object) -> list[pa.RecordBatch]:
    return []


def test_other_versions_adopt_an_answer_that_has_landed(store: Store, other: Store) -> None:
    _abandoned(store, landed=True)
    newer = _newer(other, fetch=_no_rows)
    _finishes(newer)
    assert any("endpoint orders" in each for each in newer.noted)
    assert rows(store, "orders", 0)
    newer.close()


def test_other_versions_that_can_t_make_the_answer_name_who_can(store: Store, other: Store) -> None:
    _abandoned(store, landed=False)
    newer = _newer(other, fetch=_no_rows)
    with pytest.raises(ReplayDivergedError) as told:
        newer.step()
    for phrase in ("transaction 0 was answered by engine arrow", "engine another one, can't make"):
        assert phrase in str(told.value)
    assert "Finish 0 with a replica of those versions" in str(told.value)
    assert not newer.standing.committed.settled(0)
    assert not any(_held(store).values())
    older = Replica(rig_of(store))
    _finishes(older)
    newer.step()
    assert newer.standing.epoch == 2
    older.close()
    newer.close()


def test_other_versions_land_what_is_the_same_in_theirs(store: Store, other: Store) -> None:
    """The rest is left to who can make it, and nothing of it is landed otherwise."""
    _abandoned(store, landed=False)
    newer = _newer(other, Adding)
    _finishes(newer)
    assert any("orders_errors was computed" in each for each in newer.noted)
    assert _held(store)["shop.orders_errors"] == 0
    assert rows(store, "orders", 0)
    newer.close()


def _gone(_: object) -> Iterator[pa.RecordBatch]:
    raise SourceGoneError("offsets 0 to 10 are gone")


def test_what_has_landed_whole_is_committed_though_its_rows_are_gone(
    store: Store, other: Store
) -> None:
    _abandoned(store, landed=True)
    replica = Replica(replace(rig_of(other), computer=ArrowComputer(other, fetch=_gone)))
    _finishes(replica)
    assert rows(store, "orders", 0)
    replica.close()


@pytest.mark.parametrize(
    ("answered", "said"),
    [(False, "or go on without them: strandline transaction amend"), (True, "can't be amended")],
)
def test_rows_that_are_gone_stop_the_pipeline_with_the_next_command(
    store: Store, other: Store, *, answered: bool, said: str
) -> None:
    if answered:
        _abandoned(store, landed=False)
    else:
        _sealed(Replica(rig_of(store))).close()
    replica = Replica(replace(rig_of(other), computer=ArrowComputer(other, fetch=_gone)))
    with pytest.raises(SourceGoneError, match="transaction 0 can't be computed: offsets") as told:
        replica.step()
    assert said in str(told.value)
    replica.close()


def test_what_is_amended_while_it_is_computed_is_computed_again(store: Store, other: Store) -> None:
    """What was computed from the range as it was is nobody's, and no divergence either."""
    journal = Journal(store.env, "shop")

    def amend() -> None:
        standing = journal.refresh()
        assert standing.sealed is not None
        if standing.sealed.t == 0 and not standing.sealed.amends:
            journal.propose(standing, [Amend(0, "orders", {"0": (5, 10)}, (), "half is gone")])

    computer = Counting(store, meanwhile=amend)
    replica = _sealed(Replica(replace(rig_of(store), computer=computer)))
    replica.step()
    assert not replica.standing.committed.settled(0)
    _finishes(replica)
    assert computer.count == 2
    half = {row["id"] for row in rows(store, "orders", 0)}
    assert replica.standing.positions == {"orders": {"0": 10}}
    with new_store(Lab()) as alone:
        whole = Replica(rig_of(alone))
        _sealed(whole).step()
        assert half < {row["id"] for row in rows(alone, "orders", 0)}
        whole.close()
    run(replica)
    assert replica.standing.next_t == 10
    replica.close()


def test_what_a_peer_amended_and_finished_meanwhile_is_no_divergence(
    store: Store, other: Store
) -> None:
    fast = Replica(rig_of(other))

    def overtake() -> None:
        journal = Journal(other.env, "shop")
        if journal.refresh().next_t == 0:
            journal.propose(journal.standing, [Amend(0, "orders", None, (), "gone")])
            while not fast.standing.committed.settled(0):
                fast.step()

    slow = Replica(replace(rig_of(store), computer=Counting(store, meanwhile=overtake)))
    _sealed(slow)
    assert slow.step() == 0
    assert slow.noted == ()
    assert rows(store, "orders", 0) == []
    slow.close()
    fast.close()


@pytest.mark.parametrize("at", [Answer, Commit])
def test_a_record_between_costs_no_second_computation(store: Store, at: type[Record]) -> None:
    computer = Counting(store)
    replica, journal = _told(store, computer=computer)
    elsewhere = Journal(store.env, "shop")

    def between(record: Record) -> None:
        standing = elsewhere.refresh()
        if isinstance(record, at) and "h1" not in standing.closed:
            elsewhere.propose(standing, [Abort("h1", "idle")])

    _sealed(replica)
    journal.before = between
    _finishes(replica)
    assert computer.count == 1
    assert replica.standing.closed == {"h1": None}
    replica.close()


def test_s81_an_old_generation_that_was_paused_before_its_commit_commits_nothing(
    store: Store, other: Store
) -> None:
    old, journal = _told(store)
    newer = _newer(other)

    def paused(record: Record) -> None:
        if isinstance(record, Commit) and newer.standing.epoch < 2:
            while newer.wants():
                newer.step()

    _sealed(old)
    journal.before = paused
    old.step()
    with pytest.raises(FencedError):
        old.step()
    commits = [each for _, each in Journal(store.env, "shop").records() if isinstance(each, Commit)]
    assert [(each.t, each.epoch) for each in commits] == [(0, 1)]
    run(newer)
    assert newer.standing.next_t == 10
    old.close()
    newer.close()


def test_a_paused_replica_whose_shard_was_widened_meanwhile_goes_on(
    store: Store, other: Store
) -> None:
    more = [{"id": 3, "n": 3, "x": 1}, {"id": 4, "n": 4}]
    topic = topic_of({"id": 1, "n": 1}, {"id": 2, "n": 2}, *more)
    journal = Told(store.env)
    slow = Replica(replace(topic_rig(store, topic), journal=journal))
    fast = Replica(topic_rig(other, topic))
    _sealed(slow)

    def overtaken(record: Record) -> None:
        if isinstance(record, Answer):
            journal.after = lambda _: None
            run(fast)
            store.machine("shop.t").refresh()

    journal.after = overtaken
    slow.step()
    run(slow)
    assert slow.standing.next_t == 2
    assert rows(store, "t", 1)[2] == {"id": 3, "n": 3, "x": 1}
    slow.close()
    fast.close()


def _staged(store: Store) -> tuple[Replica, ScriptedTopic, str]:
    topic = topic_of({"id": 1, "n": 1})
    replica = _sealed(Replica(topic_rig(store, topic, staged=True)))
    return replica, topic, replica.standing.sealed.inputs[0].staged[0].key


def test_what_has_landed_whole_is_committed_though_what_was_staged_is_gone(store: Store) -> None:
    replica, topic, key = _staged(store)
    replica.close()
    journal = Told(store.env)
    journal.before = _dies(Commit)
    dying = Replica(replace(topic_rig(store, topic, staged=True), journal=journal))
    with pytest.raises(DiedError):
        dying.step()
    store.env.blob.delete(key)
    second = Replica(topic_rig(store, topic, staged=True))
    second.step()
    assert second.standing.committed.settled(0)
    assert rows(store, "t", 0) == [{"id": 1, "n": 1}]
    second.close()


def test_staged_rows_that_are_gone_name_the_command_that_helps(store: Store) -> None:
    replica, _, key = _staged(store)
    store.env.blob.delete(key)
    with pytest.raises(SourceGoneError, match="transaction amend"):
        replica.step()
    replica.close()


def test_what_a_peer_landed_whole_meanwhile_is_committed_without_its_rows(
    store: Store, other: Store
) -> None:
    topic = topic_of({"id": 1, "n": 1})
    journal = Told(other.env)
    journal.before = _dies(Commit)
    fast = Replica(replace(topic_rig(other, topic), journal=journal))
    _sealed(fast)

    def meanwhile() -> None:
        with pytest.raises(DiedError):
            fast.step()
        raise SourceGoneError("offsets 0 to 1 are gone")

    computer = Counting(store, meanwhile=meanwhile)
    slow = Replica(replace(topic_rig(store, topic), computer=computer))
    slow.step()
    assert slow.standing.committed.settled(0)
    slow.close()
    fast.close()
