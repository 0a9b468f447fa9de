"""What anybody sees of a pipeline: as well as the best of its replicas, and never better."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.pipeline.shop import TEXT, rig_of, run

from strandline.connectors.position import Range
from strandline.errors import (
    CancelledError,
    JournalError,
    NotAppliedError,
    NotFoundError,
    SinceError,
    SourceError,
)
from strandline.handles.store import Store
from strandline.journal.next import Want
from strandline.pipeline.place import placed
from strandline.pipeline.planner import Planner
from strandline.pipeline.replay import replay
from strandline.pipeline.replica import Replica
from strandline.pipeline.report import (
    PipelineStatus,
    Unreadable,
    each_for_itself,
    history_of,
    overall,
    sink_sights,
    status_of,
)
from strandline.pipeline.said import Said, Seen
from strandline.pipeline.states import State
from strandline.shard.state import State as ShardState
from strandline.testing.lab import Lab, new_store


@pytest.fixture
def store() -> Iterator[Store]:
    lab = Lab()
    with new_store(lab) as made:
        yield made
    lab.close()


def replica(name: str, state: str, *, read_only: bool = False, cause: str = "") -> Seen:
    said = Said(name, "host", 1, read_only, 0, 0, state=state, cause=cause)
    return Seen(name, state, 9_000, said)


@pytest.mark.parametrize(
    ("states", "state"),
    [
        (["running", "failed"], "running"),
        (["stalled", "starting"], "starting"),
        (["paused", "silent"], "paused"),
        (["silent", "stopped"], "silent"),
        (["failed", "stopped"], "failed"),
        (["stopped"], "stopped"),
        ([], "stopped"),
    ],
)
def test_the_best_replica_decides(states: list[str], state: str) -> None:
    replicas = tuple(replica(str(at), each) for at, each in enumerate(states))
    assert overall(replicas)[0] == state


@pytest.mark.parametrize("error", [NotAppliedError("away"), CancelledError("enough")])
def test_what_is_not_the_pipelines_own_trouble_is_raised(error: Exception) -> None:
    def ask() -> PipelineStatus:
        raise error

    with pytest.raises(type(error)):
        each_for_itself("shop", ask)


def test_a_pipeline_that_can_not_be_read_is_told_with_its_reason() -> None:
    def ask() -> PipelineStatus:
        raise JournalError("entry v4 is damaged")

    assert each_for_itself("shop", ask) == Unreadable(
        "shop", "it can't be read: entry v4 is damaged"
    )


def test_every_state_has_a_place() -> None:
    for state in [*State, "silent"]:
        assert overall((replica("a", state),))[0] == state


def test_read_only_replicas_run_nothing() -> None:
    assert overall((replica("a", "running", read_only=True),))[0] == "stopped"


def test_the_cause_is_that_of_the_replica() -> None:
    assert overall((replica("a", "failed", cause="SourceGoneError: x"),))[1] == "SourceGoneError: x"
    assert "silent since 9 s" in overall((replica("a", "silent"),))[1]


def test_a_pipeline_that_was_never_run_is_not_there(store: Store) -> None:
    with pytest.raises(NotFoundError, match="no pipeline shop"):
        status_of(rig_of(store).journal)


class Unreachable:
    replayable = True

    def plan(self, *_: object) -> Range | None:
        raise SourceError("no broker")


def test_a_source_that_does_not_answer_says_nothing(store: Store) -> None:
    rig = rig_of(store)
    one = Replica(rig)
    while one.standing.next_t < 4:
        one.step()
    assert status_of(rig.journal, rig.sources).endpoints[0].behind == 60
    assert status_of(rig.journal).endpoints[0].behind is None
    assert status_of(rig.journal, {"orders": Unreachable()}).endpoints[0].behind is None
    one.close()


def test_what_shards_have_merged_can_not_be_computed_again(store: Store) -> None:
    rig = rig_of(store, retain=2)
    one = Replica(rig)

    def look(name: str) -> ShardState:
        return store.machine(name).refresh()

    run(one)
    assert status_of(rig.journal, look=look).verifiable_from == 0
    one.want(Want.CHECKPOINT)
    while one.wants():
        one.step()
    store.shard("shop.orders").compact(full=True)
    oldest = store.shard("shop.orders").state().readable_from()
    assert oldest > 0
    first = status_of(rig.journal, look=look).verifiable_from
    assert (first, status_of(rig.journal).verifiable_from) == (oldest + 1, 0)
    last = one.standing.next_t
    assert len(list(replay(rig, Planner(rig), first, last))) == last - first
    with pytest.raises(SinceError):
        list(replay(rig, Planner(rig), first - 1, last))
    one.close()


def test_status_tells_of_the_lineage_that_is_published(store: Store, tmp_path: Path) -> None:
    """Also once the table declares another column, and begins anew."""
    sinks = f"""
    CREATE SINK out_orders FROM orders USING files OPTIONS (path '{tmp_path}/orders');
    CREATE SINK out_large FROM large USING files OPTIONS (path '{tmp_path}/large');
    """
    wider = TEXT.replace("amount BIGINT,", "amount BIGINT, note STRING,")
    assert wider != TEXT
    seen = []
    for text in (TEXT + sinks, wider + sinks):
        rig = rig_of(store, text)
        one = Replica(rig)
        if seen:
            one.want(Want.PROMOTE)
        run(one)
        sights = sink_sights(rig.journal, lambda name: store.machine(name).refresh(), rig.program)
        places = [placed(store, rig.journal.standing, each) for each in rig.sinks]
        assert [each.lineage for each in sights] == [each and each.lineage for each in places]
        seen.append([each.lineage for each in sights])
        one.close()
    assert seen[0][0] != seen[1][0], "the table's"
    assert len({each for both in seen for each in both}) >= 3


def test_history_goes_back_as_far_as_the_journal(store: Store) -> None:
    rig = rig_of(store, retain=1)
    one = Replica(rig)
    for at in (4, 6, 9):
        while one.standing.next_t < at:
            one.step()
        assert [each.t for each in history_of(rig.journal, 3)] == [at - 1, at - 2, at - 3][:at]
        one.want(Want.CHECKPOINT)
        while one.wants():
            one.step()
    run(one)
    oldest = status_of(rig.journal).verifiable_from
    assert oldest == 6
    assert [each.t for each in history_of(rig.journal, 99)] == list(range(9, oldest - 1, -1))
    one.close()
