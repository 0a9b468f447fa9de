"""A program with sinks, end to end: what is published is what its collections hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.pipeline.shop import TEXT, rig_of, rows

from strandline.connectors.files_sink import read_published
from strandline.connectors.sink import NOTHING_YET
from strandline.journal.next import Want
from strandline.model.frontier import Frontier
from strandline.pipeline.publishing import Publishing
from strandline.pipeline.replica import Replica
from strandline.pipeline.runner import Runner
from strandline.pipeline.said import SinkStatus
from strandline.pipeline.states import SinkState, State
from strandline.testing.lab import Lab, new_store


@pytest.fixture
def lab() -> Iterator[Lab]:
    made = Lab()
    yield made
    made.close()


def said(name: str, state: SinkState, reached: int) -> SinkStatus:
    return SinkStatus(name, state, reached, 0, 0, 0, "", lineage="one")


@pytest.mark.parametrize(
    ("sinks", "expected"),
    [
        ([], (0, "")),
        ([("a", SinkState.PUBLISHING, 9)], (0, "a")),
        ([("a", SinkState.PUBLISHING, 7), ("b", SinkState.RETRYING, 4)], (5, "b")),
        ([("a", SinkState.STOPPED, 3)], (6, "a, which is stopped,")),
        ([("a", SinkState.PAUSED, -1)], (10, "a, which is paused,")),
        ([("a", SinkState.BLOCKED, 0)], (0, "")),
        ([("a", SinkState.BLOCKED, 0), ("b", SinkState.PUBLISHING, 8)], (1, "b")),
        ([("a", SinkState.BLOCKED, 0), ("b", SinkState.STOPPED, 2)], (7, "b, which is stopped,")),
    ],
)
def test_a_sink_that_stands_holds_commits_back_and_one_whose_view_raises_does_not(
    lab: Lab, sinks: list[tuple[str, SinkState, int]], expected: tuple[int, str]
) -> None:
    """What heals the view may be the very next transaction."""
    with new_store(lab) as store:
        publishing = Publishing(rig_of(store))
        publishing.status = lambda: [said(*each) for each in sinks]  # type: ignore[method-assign]
        assert publishing.behind(Frontier(10)) == expected
        assert publishing.behind(Frontier(0)) == (0, "")
        assert publishing.unsure(Frontier(10)) == (0, "")


def test_one_that_has_nothing_yet_is_behind_by_what_is_held_for_it(lab: Lab) -> None:
    """It begins with one delivery of all that there is by then."""
    new = said("a", SinkState.RETRYING, NOTHING_YET)
    with new_store(lab) as store:
        publishing = Publishing(rig_of(store))
        for sink, expected in (
            (replace(new, begins=10), 0),
            (replace(new, begins=7), 3),
            (replace(new, begins=7, since=8), 2),
            (replace(new, begins=7, reached=4), 5),
        ):
            publishing.status = lambda sink=sink: [sink]  # type: ignore[method-assign]
            assert publishing.behind(Frontier(10)) == (expected, "a")
            assert not publishing.settled(Frontier(10)), "it has yet to be delivered"


def test_a_sink_whose_view_raises_holds_nobody_back_and_is_waited_for_while_it_may_heal(
    lab: Lab,
) -> None:
    """Also where another replica publishes it."""
    with new_store(lab) as store:
        publishing = Publishing(rig_of(store))
        for state in (SinkState.BLOCKED, SinkState.WAITING):
            for raises, settled in ((9, True), (8, False)):
                sink = replace(said("a", state, 3), raises=raises)
                publishing.status = lambda sink=sink: [sink]  # type: ignore[method-assign]
                assert publishing.behind(Frontier(10)) == (0, "")
                assert publishing.settled(Frontier(10)) is settled
                assert publishing.blocked() == "sink a is blocked: its view raises"
        publishing.status = lambda: [said("a", SinkState.WAITING, 3)]  # type: ignore[method-assign]
        assert publishing.behind(Frontier(10)) == (6, "a")
        assert publishing.blocked() == ""


def test_a_sink_that_nobody_can_publish_is_left_and_is_named_if_it_lacks_anything(
    lab: Lab,
) -> None:
    with new_store(lab) as store:
        publishing = Publishing(rig_of(store))
        sink = replace(said("a", SinkState.WAITING, 3), cause="no function", left=True)
        publishing.status = lambda: [sink]  # type: ignore[method-assign]
        assert publishing.settled(Frontier(10))
        assert publishing.left(Frontier(10)) == "sink a is published by nobody: no function"
        assert publishing.left(Frontier(4)) == publishing.left(Frontier(0)) == ""
        assert publishing.behind(Frontier(10)) == (6, "a, which nobody publishes,")
        raising = replace(said("b", SinkState.BLOCKED, 3), raises=9)
        publishing.status = lambda: [sink, raising]  # type: ignore[method-assign]
        assert publishing.left(Frontier(10)) == (
            "sink b is blocked: its view raises; sink a is published by nobody: no function"
        )


def test_of_one_that_has_not_looked_nobody_knows_and_one_that_was_replaced_is_not_asked(
    lab: Lab,
) -> None:
    new = replace(said("a", SinkState.STARTING, NOTHING_YET), lineage="")
    old = replace(said("b", SinkState.STARTING, NOTHING_YET), replaced=True)
    with new_store(lab) as store:
        publishing = Publishing(rig_of(store))
        publishing.status = lambda: [old, new]  # type: ignore[method-assign]
        assert publishing.behind(Frontier(10)) == (0, "")
        assert publishing.unsure(Frontier(10)) == (10, "a")
        publishing.status = lambda: [old, replace(new, since=8)]  # type: ignore[method-assign]
        assert publishing.unsure(Frontier(10)) == (2, "a")


def program(folder: Path) -> str:
    return (
        TEXT
        + f"""
CREATE SINK out_orders FROM orders USING files OPTIONS (path '{folder}/orders', format 'json');
CREATE SINK out_large FROM large USING files OPTIONS (path '{folder}/large');
"""
    )


def content(folder: Path, upto: int) -> list[dict[str, object]]:
    """What a reader of a folder has at a time, sorted."""
    total: Counter[tuple[tuple[str, object], ...]] = Counter()
    for each in read_published(folder):
        if each.t <= upto:
            for row in each.to_arrow().to_pylist():
                diff = row.pop("_diff")
                total[tuple(row.items())] += diff
    assert all(count >= 0 for count in total.values())
    return sorted((dict(row) for row in total.elements()), key=str)


def test_a_program_with_sinks_publishes_each_transaction_once(lab: Lab, tmp_path: Path) -> None:
    with new_store(lab) as store:
        rig = rig_of(store, program(tmp_path))
        publishing = Publishing(rig)
        runner = Runner(Replica(rig), store.env, rig.settings, publishing)
        status = runner.run(until_idle=True)
        assert status.state is State.STOPPED
        assert [each.name for each in status.sinks] == ["out_orders", "out_large"]
        assert {(each.reached, each.cause) for each in status.sinks} == {(9, "")}
        assert {each.state for each in runner.status().sinks} == {SinkState.ENDED}
        for name in ("orders", "large"):
            times = [each.t for each in read_published(tmp_path / name)]
            assert times == sorted(set(times))
            for at in range(10):
                assert content(tmp_path / name, at) == rows(store, name, at)


def test_a_view_that_is_rolled_back_is_published_as_what_it_is(lab: Lab, tmp_path: Path) -> None:
    first, second = program(tmp_path), program(tmp_path).replace("> 10;", "> 30;")
    assert first != second
    last, lineages = None, []
    with new_store(lab) as store:
        for number, text in enumerate((first, second, first)):
            rig = rig_of(store, text.replace("rows '100'", f"rows '{20 + 20 * number}'"))
            replica = Replica(rig)
            if number:
                replica.want(Want.PROMOTE)
            Runner(replica, store.env, rig.settings, Publishing(rig)).run(until_idle=True)
            at = replica.standing.next_t - 1
            shard = store.shard(replica.standing.bindings["large"].shard)
            held = sorted(shard.snapshot(as_of=at).to_arrow().to_pylist(), key=str)
            assert content(tmp_path / "large", at) == held
            more = list(
                read_published(tmp_path / "large", after=NOTHING_YET if last is None else last)
            )
            assert more == list(read_published(tmp_path / "large")), "another one, from its start"
            last = more[-1]
            lineages.append(last.lineage)
            assert list(read_published(tmp_path / "large", after=last)) == []
            replica.close()
    assert len(set(lineages)) == 3
