"""Appending: what counts, what does not, and that nothing is lost or written twice."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
import pytest

from strandline.errors import (
    BoundsError,
    FencedError,
    HandleClosedError,
    LeaseLostError,
    MaybeAppliedError,
    NotAppliedError,
    ReplicaDivergedError,
    SchemaError,
    UsageError,
)
from strandline.handles.write import Appended, Writer
from strandline.model.frontier import TIME_MAX, Frontier
from strandline.parts.inline import decode_inline
from strandline.parts.parquet import Owner, decode_part
from strandline.shard import command as c
from strandline.shard.machine import Machine
from strandline.shard.state import State, check_whole
from strandline.shard.timeline import PlainTimeline
from strandline.shard.txn import Txn
from strandline.system import SystemTasks
from strandline.testing.lab import COLUMNS, Lab


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "name": [f"n{n}" for n in ids]})


def writer_on(lab: Lab, **settings: int) -> Writer:
    machine = lab.machine(env=lab.env(**settings))
    return Writer(machine, lab.leases(machine.env).writer(machine))


def stored(lab: Lab, state: State) -> list[tuple[int, str, int, int]]:
    """Every update of a state, read back from where it lies."""
    found: list[pa.Table] = []
    for batch in state.batches:
        assert not batch.chunks
        if batch.inline is not None:
            found.append(decode_inline(batch.inline, state.schema, shard=state.name))
        for part in batch.parts:
            encoded = lab.blob.get(part.key)
            assert encoded is not None
            owner = Owner(state.id, part.key)
            found.append(decode_part(encoded, part, state.schema, owner=owner))
    return sorted(tuple(row.values()) for table in found for row in table.to_pylist())


def newest(lab: Lab) -> State:
    state = Machine(lab.env(), "orders").refresh()
    check_whole(state)
    return state


def test_an_append_counts_once_its_lower_is_the_upper(lab: Lab):
    writer = writer_on(lab)
    lab.clock.now = 5_000_000
    outcome = writer.compare_and_append(rows(1, 2), lower=0, upper=1)
    assert isinstance(outcome, Appended)
    assert (outcome.upper, outcome.rows, outcome.instant_ms) == (Frontier(1), 2, 5_000_000)
    state = newest(lab)
    assert state.seqno == outcome.seqno
    assert stored(lab, state) == [(1, "n1", 0, 1), (2, "n2", 0, 1)]
    assert list(lab.blob.list("")) == [], "a few rows need no object"


@pytest.mark.parametrize("inline_max_bytes", [32 * 1024, 0], ids=["inline", "parts"])
def test_a_mismatch_says_the_upper_and_changes_nothing(lab: Lab, inline_max_bytes: int):
    ours = writer_on(lab, inline_max_bytes=inline_max_bytes)
    theirs = writer_on(lab, inline_max_bytes=inline_max_bytes)
    theirs.compare_and_append(rows(1), lower=0, upper=1)
    before = newest(lab)
    objects = list(lab.blob.list(""))
    assert ours.compare_and_append(rows(9), lower=0, upper=1) == c.UpperMismatch(Frontier(1))
    assert ours.compare_and_append(rows(9), lower=5, upper=6) == c.UpperMismatch(Frontier(1))
    assert newest(lab).batches == before.batches
    assert list(lab.blob.list("")) == objects


def test_a_lost_race_leaves_no_objects_behind(lab: Lab):
    ours, theirs = writer_on(lab, inline_max_bytes=0), writer_on(lab)
    ours._machine.refresh()
    theirs.append(rows(2))
    ours.append(rows(1))
    assert len(list(lab.blob.list(""))) == 1, "only what the second attempt put"


def test_what_was_committed_is_not_deleted_when_it_is_committed_again(lab: Lab):
    writer = writer_on(lab, inline_max_bytes=0)
    prepared = writer.prepare(rows(1), lower=0, upper=1)
    assert isinstance(writer.commit(prepared), Appended)
    writer.append(rows(2))
    # The token of the first append is no longer the last one, so it looks like a lost race.
    assert writer.commit(prepared) == c.UpperMismatch(Frontier(2))
    assert [row[0] for row in stored(lab, newest(lab))] == [1, 2]


def test_advancing_beside_others_never_fails(lab: Lab):
    ours, theirs = writer_on(lab), writer_on(lab)
    ours._machine.refresh()
    theirs.advance(9)
    assert ours.advance(5) == Frontier(9), "an old view is looked up, not appended from"
    assert newest(lab).upper == Frontier(9)


def test_what_was_prepared_too_early_may_be_committed_later_and_only_once(lab: Lab):
    ours, theirs = writer_on(lab, inline_max_bytes=0), writer_on(lab)
    prepared = ours.prepare(rows(1), lower=1, upper=2)
    assert ours.commit(prepared) == c.UpperMismatch(Frontier(0))
    theirs.append(rows(2))
    first = ours.commit(prepared)
    lab.clock.now += 1000
    theirs.append(rows(3))
    assert isinstance(first, Appended)
    assert ours.commit(prepared) == first, "the same append, found by its token"
    assert [row[0] for row in stored(lab, newest(lab))] == [1, 2, 3]


def test_a_prepared_append_belongs_to_its_writer(lab: Lab):
    prepared = writer_on(lab).prepare(rows(1), lower=0, upper=1)
    with pytest.raises(UsageError, match="prepared by writer"):
        writer_on(lab).commit(prepared)


def test_updates_may_span_times_and_retract(lab: Lab):
    writer = writer_on(lab)
    table = rows(1, 1, 2).append_column("_time", [[0, 4, 2]]).append_column("_diff", [[1, -1, 3]])
    outcome = writer.compare_and_append(table, lower=0, upper=9)
    assert isinstance(outcome, Appended)
    state = newest(lab)
    assert stored(lab, state) == [(1, "n1", 0, 1), (1, "n1", 4, -1), (2, "n2", 2, 3)]
    assert [moment.time for moment in state.moments] == [0, 2, 4, 8]


def test_empty_appends_move_time_and_hold_nothing(lab: Lab):
    writer = writer_on(lab)
    assert isinstance(writer.compare_and_append([], lower=0, upper=7), Appended)
    assert writer.advance(9) == Frontier(9)
    assert writer.advance(3) == Frontier(9)
    assert newest(lab).batches == ()


def test_a_closed_shard_takes_nothing_more(lab: Lab):
    writer = writer_on(lab)
    table = rows(1).append_column("_time", [[4]])
    assert isinstance(writer.compare_and_append(table, lower=0, upper=None), Appended)
    state = newest(lab)
    assert (state.upper, state.batches[0].upper) == (Frontier.closed(), 5)
    assert writer.advance(None) == Frontier.closed()
    assert writer.compare_and_append(rows(1), lower=5, upper=6) == c.UpperMismatch(Frontier(None))
    with pytest.raises(BoundsError, match="orders is closed"):
        writer.append(rows(2))


def test_append_ends_where_times_end(lab: Lab):
    writer = writer_on(lab)
    assert writer.advance(TIME_MAX - 1) == Frontier(TIME_MAX - 1)
    assert writer.append(rows(1)).upper == Frontier(TIME_MAX)
    with pytest.raises(BoundsError, match="there is no time after it"):
        writer.append(rows(2))
    assert writer.advance(None) == Frontier.closed()


def test_append_takes_the_next_time_and_never_drops(lab: Lab):
    tasks = SystemTasks()
    writers = [writer_on(lab, inline_max_bytes=size) for size in (0, 32_768, 32_768)]

    def work(at: int, writer: Writer) -> None:
        for n in range(10):
            writer.append(rows(100 * at + n))

    running = [
        tasks.start("w", lambda at=at, writer=writer: work(at, writer))
        for at, writer in enumerate(writers)
    ]
    for task in running:
        assert task.join(60_000)
    state = newest(lab)
    found = stored(lab, state)
    assert sorted(r[0] for r in found) == [100 * at + n for at in range(3) for n in range(10)]
    assert sorted(r[2] for r in found) == list(range(30))
    assert state.upper == Frontier(30)
    named = {part.key for batch in state.batches for part in batch.parts}
    assert {entry.key for entry in lab.blob.list("")} == named


def test_tasks_may_share_a_writer(lab: Lab):
    tasks, writer = SystemTasks(), writer_on(lab)

    def work(at: int) -> None:
        for n in range(10):
            writer.append(rows(100 * at + n))

    for task in [tasks.start("w", lambda at=at: work(at)) for at in range(3)]:
        assert task.join(60_000)
    assert len(stored(lab, newest(lab))) == 30


def test_append_chooses_the_time_itself(lab: Lab):
    with pytest.raises(BoundsError, match="append chooses the time"):
        writer_on(lab).append(rows(1).append_column("_time", [[0]]))


def test_rows_that_do_not_fit_are_refused_and_nothing_happens(lab: Lab):
    writer = writer_on(lab)
    with pytest.raises(SchemaError, match="nope"):
        writer.append(pa.table({"id": [1], "name": ["a"], "nope": [1]}))
    with pytest.raises(BoundsError, match="row 0"):
        writer.compare_and_append(rows(1).append_column("_time", [[7]]), lower=0, upper=5)
    with pytest.raises(BoundsError):
        writer.compare_and_append(rows(1), lower=3, upper=3)
    assert newest(lab).upper == Frontier(0)


def test_a_schema_that_grew_meanwhile_is_noticed(lab: Lab):
    writer = writer_on(lab)
    writer.append(rows(1))
    other = Machine(lab.env(), "orders")
    grown = other.state.schema.evolve(COLUMNS.append(pa.field("new", pa.int64())))
    other.demand(c.Evolve(other.state.schema.version, grown))
    writer.append(rows(2).append_column("new", [[5]]))
    assert [row[:3] for row in stored(lab, newest(lab))] == [(1, "n1", None), (2, "n2", 5)]


def test_many_rows_become_parts_cut_at_places(lab: Lab):
    writer = writer_on(lab, part_target_rows=1000, inline_max_bytes=1024)
    outcome = writer.compare_and_append(rows(*range(5000)), lower=0, upper=1)
    assert isinstance(outcome, Appended)
    state = newest(lab)
    parts = state.batches[0].parts
    assert len(parts) == 5
    assert [p.place_lo for p in parts] == sorted(p.place_lo for p in parts)
    assert all(one.place_hi < other.place_lo for one, other in pairwise(parts))
    assert [row[0] for row in stored(lab, state)] == list(range(5000))
    assert all(p.key.startswith(f"{state.id}/{writer.id}/") for p in parts)


def test_a_closed_writer_is_refused_and_gives_its_lease_back(lab: Lab):
    with writer_on(lab) as writer:
        assert writer.id in newest(lab).writers
    assert newest(lab).writers == {}
    writer.close()
    with pytest.raises(HandleClosedError):
        writer.append(rows(1))


def test_a_lost_lease_is_an_error_and_nothing_counts(lab: Lab):
    writer = writer_on(lab)
    other = Machine(lab.env(), "orders")
    other.demand(c.Release(writers=(writer.id,)))
    for call in (
        lambda: writer.append(rows(1)),
        lambda: writer.compare_and_append(rows(1), lower=0, upper=1),
        lambda: writer.compare_and_append(rows(1), lower=5, upper=6),
    ):
        with pytest.raises(LeaseLostError):
            call()
    assert newest(lab).batches == ()


def test_an_older_epoch_is_fenced(lab: Lab):
    writer = writer_on(lab)
    Machine(lab.env(), "orders").demand(c.Fence(3))
    with pytest.raises(FencedError):
        writer.compare_and_append(rows(1), lower=0, upper=1)
    outcome = writer.compare_and_append(rows(1), lower=0, upper=1, epoch=3)
    assert isinstance(outcome, Appended)
    assert newest(lab).batches[0].epoch == 3


def test_an_attached_shard_takes_appends_only_through_its_timeline(lab: Lab):
    writer = writer_on(lab)
    machine = Machine(lab.env(), "orders")
    PlainTimeline(machine.env, "shop").attach(machine)
    with pytest.raises(UsageError, match="attached to timeline shop"):
        writer.append(rows(1))
    with pytest.raises(UsageError, match="attached to timeline shop"):
        writer.compare_and_append(rows(1), lower=0, upper=1)
    with pytest.raises(UsageError, match="shop"):
        writer.append_through("other", 0, rows(1), lower=0, upper=1)
    outcome = writer.append_through("shop", 0, rows(1), lower=4, upper=5)
    assert isinstance(outcome, Appended)
    assert writer.append_through("shop", 0, rows(1), lower=4, upper=5) == c.UpperMismatch(
        Frontier(5)
    )


def test_parts_that_others_put_for_a_writer_are_committed_by_it(lab: Lab):
    ours, theirs = writer_on(lab, inline_max_bytes=0), writer_on(lab)
    made = ours.prepare(rows(1, 2), lower=0, upper=1)
    assert made.batch is not None
    with pytest.raises(UsageError, match="does not lie under"):
        theirs.commit_parts(made.batch, made.digests, lower=0, upper=1)
    outcome = ours.commit_parts(made.batch, made.digests, lower=0, upper=1)
    assert isinstance(outcome, Appended)
    assert len(stored(lab, newest(lab))) == 2


class Troubled:
    """A store whose calls of one method go wrong as told: (happens, error)."""

    def __init__(
        self, inner: object, method: str, script: list[tuple[bool, type[Exception] | None]]
    ) -> None:
        self._inner = inner
        self._method = method
        self._script = script

    def __getattr__(self, name: str) -> object:
        call = getattr(self._inner, name)
        if name != self._method:
            return call

        def troubled(*args: object) -> object:
            happens, error = self._script.pop(0) if self._script else (True, None)
            result = call(*args) if happens else None
            if error is not None:
                raise error("planted")
            return result

        return troubled


@pytest.mark.parametrize(
    "fate",
    [(True, MaybeAppliedError), (False, MaybeAppliedError), (False, NotAppliedError)],
    ids=["happened, unheard", "did not happen, unheard", "did not happen"],
)
@pytest.mark.parametrize("inline_max_bytes", [32_768, 0], ids=["inline", "parts"])
def test_a_commit_of_unknown_fate_counts_exactly_once(
    lab: Lab, inline_max_bytes: int, fate: tuple[bool, type[Exception]]
):
    writer = writer_on(lab, inline_max_bytes=inline_max_bytes)
    env = writer._machine.env
    object.__setattr__(env, "consensus", Troubled(env.consensus, "compare_and_set", [fate]))
    outcome = writer.append(rows(1))
    assert outcome.upper == Frontier(1)
    state = newest(lab)
    assert stored(lab, state) == [(1, "n1", 0, 1)]
    assert outcome.seqno.number == state.writers[writer.id].seqno


@pytest.mark.parametrize("happens", [True, False])
def test_a_put_of_unknown_fate_is_made_again_under_a_new_name(lab: Lab, *, happens: bool):
    writer = writer_on(lab, inline_max_bytes=0)
    env = writer._machine.env
    object.__setattr__(
        env,
        "blob",
        Troubled(env.blob, "put", [(happens, MaybeAppliedError), (False, NotAppliedError)]),
    )
    writer.append(rows(1))
    state = newest(lab)
    assert stored(lab, state) == [(1, "n1", 0, 1)]
    named = {part.key for batch in state.batches for part in batch.parts}
    there = {entry.key for entry in lab.blob.list("")}
    assert named <= there
    assert len(there - named) == happens, "the first one is an orphan, if it happened"


def test_a_replica_finds_its_own_rows_or_stops(lab: Lab):
    ours, theirs = writer_on(lab), writer_on(lab)
    theirs.append(rows(1))
    assert ours.compare_and_append(rows(1), lower=0, upper=1) == c.UpperMismatch(Frontier(1))
    assert ours.verify(rows(1), lower=0, upper=1) == Frontier(1)
    with pytest.raises(ReplicaDivergedError, match="time 0"):
        ours.verify(rows(2), lower=0, upper=1)


def test_metrics_count_what_happened(lab: Lab):
    writer = writer_on(lab, inline_max_bytes=0)
    writer.append(rows(1, 2))
    writer.compare_and_append(rows(1), lower=0, upper=1)
    value = writer._machine.env.metrics.value
    assert value("appends", "orders") == 1
    assert value("append_rows", "orders") == 2
    assert value("append_mismatches", "orders") == 1
    assert value("parts_written", "orders") == 1
    assert value("bytes_written", "orders") > 0


def test_whoever_keeps_house_is_told_of_appends(lab: Lab):
    machine = lab.machine()
    told = []
    writer = Writer(machine, lab.leases(machine.env).writer(machine), lambda: told.append(1))
    writer.append(rows(1))
    assert told == [1]


# Transactions of applications.


@pytest.mark.parametrize("inline", [32_768, 0])
def test_a_batch_that_is_tried_again_counts_once(lab: Lab, inline: int):
    first, second = (writer_on(lab, inline_max_bytes=inline) for _ in range(2))
    assert isinstance(first.append(rows(1, 2), txn=("query", 0)), Appended)
    first.append(rows(3))
    kept = {entry.key for entry in lab.blob.list("")}
    again = second.append(rows(2, 1), txn=("query", 0))
    assert again == c.Repeated("query", 0, 0)
    at_zero = second.compare_and_append(rows(1, 2), lower=0, upper=1, txn=Txn("query", 0))
    assert at_zero == again
    assert {entry.key for entry in lab.blob.list("")} == kept, "nothing was put for it"
    assert [row[0] for row in stored(lab, newest(lab))] == [1, 2, 3]
    assert second._machine.env.metrics.value("append_repeats", "orders") == 2


def test_another_content_of_the_newest_batch_is_refused_and_an_older_one_is_not_compared(lab: Lab):
    writer = writer_on(lab)
    writer.append(rows(1), txn=("query", 0))
    with pytest.raises(ReplicaDivergedError, match="batch 0 of application query"):
        writer.append(rows(2), txn=("query", 0))
    writer.append(rows(2), txn=("query", 1))
    assert writer.append(rows(9), txn=("query", 0)) == c.Repeated("query", 0, 1)
    assert [row[0] for row in stored(lab, newest(lab))] == [1, 2]


@pytest.mark.parametrize("happens", [True, False])
def test_the_next_process_finds_a_batch_of_unknown_fate(lab: Lab, *, happens: bool):
    """The first one died before it heard what came of its append."""
    dying = writer_on(lab, commit_deadline_ms=0, inline_max_bytes=0)
    env = dying._machine.env
    fates = [(happens, MaybeAppliedError)]
    object.__setattr__(env, "consensus", Troubled(env.consensus, "compare_and_set", fates))
    with pytest.raises(MaybeAppliedError):
        dying.append(rows(1), txn=("query", 0))
    outcome = writer_on(lab).append(rows(1), txn=("query", 0))
    assert isinstance(outcome, c.Repeated if happens else Appended)
    assert [row[0] for row in stored(lab, newest(lab))] == [1]


def test_batches_of_two_processes_race_and_one_counts(lab: Lab):
    tasks = SystemTasks()
    writers = [writer_on(lab, inline_max_bytes=size) for size in (0, 32_768)]
    outcomes: list[object] = []

    def work(writer: Writer) -> None:
        outcomes.extend(writer.append(rows(n), txn=("query", n)) for n in range(10))

    for task in [tasks.start("w", lambda w=writer: work(w)) for writer in writers]:
        assert task.join(60_000)
    state = newest(lab)
    assert [row[0] for row in stored(lab, state)] == list(range(10))
    assert sum(isinstance(each, Appended) for each in outcomes) == 10
    named = {part.key for batch in state.batches for part in batch.parts}
    assert {entry.key for entry in lab.blob.list("")} == named, "what came too late was discarded"


def test_parts_of_a_batch_that_counted_are_not_appended_again(lab: Lab):
    writer = writer_on(lab, inline_max_bytes=0)
    one, two = (writer.prepare(rows(1), lower=at, upper=at + 1) for at in (0, 1))
    for prepared, expected in ((one, Appended), (two, c.Repeated)):
        outcome = writer.commit_parts(
            prepared.batch,
            prepared.digests,
            lower=prepared.lower,
            upper=prepared.upper,
            txn=("query", 4),
        )
        assert type(outcome) is expected
    assert [row[0] for row in stored(lab, newest(lab))] == [1]


def test_a_batch_that_counted_is_repeated_although_the_shard_is_closed(lab: Lab):
    writer = writer_on(lab)
    writer.append(rows(1), txn=("query", 0))
    writer.advance(None)
    assert writer.append(rows(1), txn=("query", 0)) == c.Repeated("query", 0, 0)
    with pytest.raises(BoundsError, match="closed"):
        writer.append(rows(1), txn=("query", 1))


def test_bad_transactions_are_refused_and_nothing_happens(lab: Lab):
    writer = writer_on(lab)
    for txn in (("", 0), ("query", -1), ("a\nb", 0)):
        with pytest.raises(UsageError):
            writer.append(rows(1), txn=txn)
    assert newest(lab).txns == {}
