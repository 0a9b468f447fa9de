"""One replica after another, and several at once: one history."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from tests.pipeline.shop import TEXT, reopened, rig_of, rows, run

from strandline.connectors.source import Source
from strandline.errors import (
    FencedError,
    ReplayDivergedError,
    SchemaError,
    SourceGoneError,
    UsageError,
)
from strandline.handles.store import Store
from strandline.journal.handles import Handles
from strandline.journal.next import Want
from strandline.pipeline.auditor import Auditor
from strandline.pipeline.compute import Computed, Work
from strandline.pipeline.planner import Planner
from strandline.pipeline.replay import replay
from strandline.pipeline.replica import Replica
from strandline.pipeline.rig import Rig
from strandline.testing.computing import ArrowComputer
from strandline.testing.lab import Lab, new_store
from strandline.views.program import Program


@pytest.fixture
def lab() -> Iterator[Lab]:
    made = Lab()
    yield made
    made.close()


def test_views_are_what_their_queries_say_at_every_time(lab: Lab) -> None:
    with new_store(lab) as store:
        replica = Replica(rig_of(store))
        run(replica)
        assert replica.standing.next_t == 10
        for at in range(10):
            orders = rows(store, "orders", at)
            large = [
                {"id": row["id"], "twice": row["amount"] * 2}
                for row in orders
                if row["amount"] > 10
            ]
            assert rows(store, "large", at) == sorted(large, key=str)
            amounts = [row["amount"] for row in orders]
            assert rows(store, "totals", at) == [{"orders": len(orders), "amount": sum(amounts)}]
        replica.close()


def test_two_replicas_make_one_history(lab: Lab) -> None:
    with new_store(lab) as one, new_store(lab) as other:
        first, second = Replica(rig_of(one)), Replica(rig_of(other))
        run(first, second)
        assert first.standing.next_t == second.standing.next_t == 10
        with new_store(Lab()) as alone:
            run(Replica(rig_of(alone)))
            for at in range(10):
                assert rows(one, "orders", at) == rows(alone, "orders", at)
        first.close()
        second.close()


def test_whoever_comes_next_finishes_what_is_sealed(lab: Lab) -> None:
    with new_store(lab) as store:
        first = Replica(rig_of(store))
        while first.standing.sealed is None:
            first.step()
        sealed = first.standing.sealed.t
        first.close()
        second = Replica(rig_of(store))
        second.step()
        assert second.standing.committed.settled(sealed)
        assert second.standing.sealed is None
        second.close()


def test_another_program_is_refused_until_it_is_promoted(lab: Lab) -> None:
    with new_store(lab) as store:
        first = Replica(rig_of(store))
        run(first)
        other = Replica(rig_of(store, TEXT.replace("amount > 10", "amount > 20")))
        with pytest.raises(UsageError, match="runs program"):
            other.step()
        first.close()
        other.close()


def test_a_checkpoint_comes_between_transactions_and_says_how_far_it_is(lab: Lab) -> None:
    with new_store(lab) as store:
        replica = Replica(rig_of(store))
        while replica.standing.sealed is None:
            replica.step()
        replica.want(Want.CHECKPOINT)
        replica.step()
        assert replica.wants(), "the sealed transaction is finished first"
        assert replica.standing.last_kind == "COMMIT"
        replica.step()
        assert not replica.wants()
        assert replica.standing.checkpoints[-1].t == 0
        assert replica.standing.acknowledged["orders"] == {"0": 10}
        replica.close()


def test_a_checkpoint_that_is_asked_of_whoever_founds_a_pipeline_comes(lab: Lab) -> None:
    with new_store(lab) as store:
        replica = Replica(rig_of(store))
        replica.want(Want.CHECKPOINT)
        while replica.wants():
            replica.step()
        assert [each.t for each in replica.standing.checkpoints] == [None]
        run(replica)
        assert replica.standing.next_t == 10
        replica.close()


class Meanwhile(ArrowComputer):
    """While it computes, something else happens."""

    def __init__(self, store: Store, happens: Callable[[], object], **more: Any) -> None:
        super().__init__(store, **more)
        self._happens = happens

    def compute(self, work: Work) -> Computed:
        computed = super().compute(work)
        self._happens()
        return computed


class Before(Meanwhile):
    """The same, before it has read anything."""

    def compute(self, work: Work) -> Computed:
        self._happens()
        return ArrowComputer.compute(self, work)


def _lost_rows(store: Store) -> ArrowComputer:
    """A computer whose source has lost its rows."""
    return ArrowComputer(store, fetch=lambda _: [])


def test_a_replica_whose_peer_committed_something_else_stops_itself(lab: Lab) -> None:
    """S30: not told apart, two answers would become one history."""
    with new_store(lab) as one, new_store(lab) as other:
        wrong = Replica(replace(rig_of(other), computer=_lost_rows(other)))
        right = Replica(replace(rig_of(one), computer=Meanwhile(one, wrong.step)))
        while right.standing.sealed is None:
            right.step()
        with pytest.raises(
            ReplayDivergedError, match=r"transaction 0 .* endpoint orders is"
        ) as told:
            right.step()
        assert "collection orders was computed" in str(told.value)
        right.close()
        wrong.close()


NEWER = {"engine": "another one"}


def _newer(store: Store) -> Rig:
    return replace(rig_of(store), computer=ArrowComputer(store, versions=NEWER))


def test_other_versions_are_refused_until_they_are_promoted(lab: Lab) -> None:
    with new_store(lab) as store:
        first, other = Replica(rig_of(store)), Replica(_newer(store))
        first.step()
        for sealed in (False, True):
            with pytest.raises(UsageError, match="this is engine another one"):
                other.step()
            assert (first.standing.sealed is not None) == sealed
            first.step()
        other.want(Want.PROMOTE)
        while other.wants():
            other.step()
        assert (other.standing.epoch, other.standing.versions) == (2, NEWER)
        run(other)
        assert other.standing.next_t == 10
        with pytest.raises(FencedError):
            first.step()
        restarted = Replica(rig_of(store))
        with pytest.raises(UsageError, match="--read-only, or promote"):
            restarted.step()
        for each in (first, other, restarted):
            each.close()


def test_other_versions_may_look_on(lab: Lab) -> None:
    with new_store(lab) as store:
        first, auditor = Replica(rig_of(store)), Auditor(_newer(store))
        while first.standing.sealed is None:
            first.step()
        auditor.step()
        run(first)
        while auditor.step() == 0:
            pass
        assert auditor.audit.verified == 10
        assert auditor.audit.told == ()
        first.close()
        auditor.close()


LARGER = TEXT.replace("amount > 10", "amount > 20")
ALSO = TEXT + "CREATE MATERIALIZED VIEW small AS SELECT id, amount FROM orders WHERE id < 10;"


@pytest.mark.parametrize(
    ("declared", "otherwise", "reason"),
    [
        ("amount BIGINT", "amount STRING", "table orders: column 'amount' can't change"),
        ("customer BIGINT, ", "", "table orders: column 'customer' is missing"),
        ("PRIMARY KEY (id)", "PRIMARY KEY (id, customer)", "table orders: the key can't change"),
    ],
)
def test_a_program_whose_shards_can_not_be_opened_is_not_promoted(
    lab: Lab, declared: str, otherwise: str, reason: str
) -> None:
    with new_store(lab) as store:
        first = Replica(rig_of(store))
        first.step()
        run(first)
        text = TEXT.split("CREATE MATERIALIZED")[0].replace(declared, otherwise)
        with pytest.raises(SchemaError, match=f"nothing was: {reason}"):
            _promoted(store, text)
        # Who runs it runs on.
        run(first)
        assert first.standing.epoch == 1
        first.close()


def test_a_name_that_is_taken_is_found_out_before_a_pipeline_is(lab: Lab) -> None:
    with new_store(lab) as store:
        store.shard("shop.orders", pa.schema([("id", pa.int64())]))
        replica = Replica(rig_of(store))
        with pytest.raises(SchemaError, match="nothing was: table orders"):
            replica.step()
        assert replica.standing.epoch == 0


def _promoted(store: Store, text: str) -> Replica:
    replica = Replica(rig_of(store, text))
    replica.want(Want.PROMOTE)
    while replica.wants():
        replica.step()
    return replica


@pytest.mark.parametrize("text", [LARGER, ALSO])
def test_s74_what_is_sealed_is_finished_under_the_program_it_was_sealed_under(
    lab: Lab, text: str
) -> None:
    with new_store(lab) as store:
        first = Replica(rig_of(store))
        while first.standing.next_t < 3 or first.standing.sealed is None:
            first.step()
        sealed = first.standing.sealed.t
        first.close()
        second = _promoted(store, text)
        assert second.standing.committed.settled(sealed)
        assert second.standing.epoch == 2
        assert list(replay(rig_of(store), Planner(rig_of(store)), 0, sealed + 1))
        second.close()


@pytest.mark.parametrize("text", [LARGER, ALSO])
def test_a_new_view_is_built_at_the_switch_and_is_right_from_then_on(lab: Lab, text: str) -> None:
    """No row has to come for it, and it is the same whoever computes it."""
    with new_store(lab) as store, new_store(lab) as other:
        first = Replica(rig_of(store))
        run(first)
        switch = first.standing.next_t
        first.close()
        second = _promoted(store, text)
        run(second, Replica(rig_of(other, text)))
        assert second.standing.next_t == switch + 1, "one transaction, without any input"
        amounts = {row["id"]: row["amount"] for row in rows(store, "orders", switch)}
        name, expected = (
            ("large", [{"id": k, "twice": v * 2} for k, v in amounts.items() if v > 20])
            if text is LARGER
            else ("small", [{"id": k, "amount": v} for k, v in amounts.items() if k < 10])
        )
        shard = second.standing.bindings[name].shard
        found = store.shard(shard).snapshot(as_of=switch).to_arrow().to_pylist()
        assert expected
        assert sorted(found, key=str) == sorted(expected, key=str)
        for start in range(switch + 1):
            rig = rig_of(store, text)
            found = list(replay(rig, Planner(rig), start, switch + 1))
            assert [each.t for each in found] == list(range(start, switch + 1))
        second.close()


def test_a_view_that_comes_back_forgets_what_it_held_in_its_earlier_life(lab: Lab) -> None:
    with new_store(lab) as store:
        first = Replica(rig_of(store))
        while first.standing.next_t < 5 or first.standing.sealed is not None:
            first.step()
        first.close()
        second = _promoted(store, LARGER)
        run(second)
        second.close()
        third = _promoted(store, TEXT)
        run(third)
        at = third.standing.next_t - 1
        large = [
            {"id": row["id"], "twice": row["amount"] * 2}
            for row in rows(store, "orders", at)
            if row["amount"] > 10
        ]
        shard = third.standing.bindings["large"].shard
        found = store.shard(shard).snapshot(as_of=at).to_arrow().to_pylist()
        assert sorted(found, key=str) == sorted(large, key=str)
        third.close()


def test_nothing_is_landed_at_a_time_that_is_committed(lab: Lab) -> None:
    """S30: a shard that had no change at it would take one, and a committed answer would change."""
    with new_store(lab) as one, new_store(lab) as other:
        right = Replica(replace(rig_of(one), computer=_lost_rows(one)))
        wrong = Replica(replace(rig_of(other), computer=Meanwhile(other, right.step)))
        while wrong.standing.sealed is None:
            wrong.step()
        with pytest.raises(ReplayDivergedError, match="endpoint orders is"):
            wrong.step()
        assert right.standing.committed.settled(0)
        assert rows(one, "orders", 0) == []
        wrong.close()
        right.close()


def test_a_replica_that_was_overtaken_goes_on_whatever_is_gone_by_then(lab: Lab) -> None:
    with new_store(lab) as one, new_store(lab) as other:
        fast = Replica(rig_of(one))

        def gone(_: object) -> Iterator[object]:
            raise SourceGoneError("orders: offsets 0 to 10 are gone")

        slow = Replica(replace(rig_of(other), computer=Before(other, fast.step, fetch=gone)))
        while slow.standing.sealed is None:
            slow.step()
        assert slow.step() == 0
        assert slow.standing.committed.settled(0)
        slow.close()
        fast.close()


class Opened:
    """Opens sources of an earlier program, and knows which were closed."""

    def __init__(self) -> None:
        self.sources: list[Closing] = []

    def __call__(self, program: Program, names: frozenset[str]) -> dict[str, Source]:
        made = {k: Closing(v) for k, v in reopened(program, names).items()}
        self.sources += made.values()
        return made


class Closing:
    """A source that knows whether it was closed."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.closed = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def close(self) -> None:
        self.closed = True


EIGHT = TEXT.replace("seed '7'", "seed '8'")
OTHER = "CREATE TABLE other (id BIGINT, PRIMARY KEY (id)) USING generator OPTIONS (rows '0');"


@pytest.mark.parametrize("between", [[], [OTHER]])
def test_another_source_of_a_table_is_read_from_its_beginning(lab: Lab, between: list[str]) -> None:
    with new_store(lab) as store, new_store(Lab()) as alone:
        run(Replica(rig_of(store)))
        for text in [*between, EIGHT]:
            second = _promoted(store, text)
            run(second)
            second.close()
        assert second.standing.positions["orders"] == {"0": 100}
        assert second.standing.next_t == 20
        run(Replica(rig_of(alone, EIGHT)))
        once = {row["id"]: row for row in rows(alone, "orders", 9)}
        found = {row["id"]: row for row in rows(store, "orders", 19)}
        assert found | once == found


def test_the_same_source_of_a_table_goes_on_where_it_was(lab: Lab) -> None:
    with new_store(lab) as store:
        run(Replica(rig_of(store)))
        for text in (OTHER, TEXT.replace("rows '100'", "rows '120'")):
            second = _promoted(store, text)
            run(second)
            second.close()
        assert second.standing.positions["orders"] == {"0": 120}
        assert second.standing.next_t == 12


@pytest.mark.parametrize(
    ("said", "now"),
    [
        ("keys '20'", "keys '50'"),
        ("deletes '0.1'", "deletes '0.9'"),
        ("amount BIGINT,", "amount BIGINT, note STRING,"),
    ],
)
def test_s74_what_is_sealed_has_the_rows_that_its_own_program_reads(
    lab: Lab, said: str, now: str
) -> None:
    text = TEXT.replace(said, now)
    with new_store(lab) as store, new_store(Lab()) as alone:
        first = Replica(rig_of(store))
        while first.standing.next_t < 2 or first.standing.sealed is None:
            first.step()
        first.close()
        opened = Opened()
        second = Replica(replace(rig_of(store, text), reopen=opened))
        second.want(Want.PROMOTE)
        while second.wants():
            second.step()
        run(Replica(rig_of(alone)))
        expected = rows(alone, "orders", 2)
        assert [{k: row[k] for k in expected[0]} for row in rows(store, "orders", 2)] == expected
        rig = replace(rig_of(store, text), reopen=opened)
        assert [each.t for each in replay(rig, Planner(rig), 0, 3)] == [0, 1, 2]
        assert opened.sources
        assert all(each.closed for each in opened.sources)
        second.close()


def test_s74_a_source_that_nothing_sealed_is_read_from_is_not_opened_again(lab: Lab) -> None:
    """It may be gone, and whoever is to finish what is sealed does not need it."""
    text = TEXT.replace("rows '100'", "rows '0'")
    with new_store(lab) as store:
        first = Replica(rig_of(store, text))
        while first.standing.epoch == 0:
            first.step()
        handles = Handles(store.env, "shop")
        handles.freeze(handles.open(lambda: first.standing), commit=True)
        while first.standing.sealed is None:
            first.step()
        first.close()
        opened = Opened()
        second = Replica(replace(rig_of(store, text.replace("'20'", "'50'")), reopen=opened))
        second.want(Want.PROMOTE)
        while second.wants():
            second.step()
        assert second.standing.next_t == 1
        assert not opened.sources
        second.close()


def test_s74_what_is_sealed_is_read_from_the_source_that_it_was_sealed_from(lab: Lab) -> None:
    with new_store(lab) as store, new_store(Lab()) as alone:
        first = Replica(rig_of(store))
        while first.standing.sealed is None:
            first.step()
        first.close()
        second = Replica(replace(rig_of(store, EIGHT), reopen=reopened))
        second.want(Want.PROMOTE)
        while second.wants():
            second.step()
        run(Replica(rig_of(alone)))
        assert rows(store, "orders", 0) == rows(alone, "orders", 0)
        second.close()
