"""A program with sinks, end to end: what is published is what its collections hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.pipeline.shop import TEXT, rig_of, rows

from strandline.connectors.files_sink import read_published
from strandline.connectors.sink import NOTHING_YET
from strandline.journal.next import Want
from strandline.pipeline.publish import SinkState
from strandline.pipeline.publishing import Publishing
from strandline.pipeline.replica import Replica
from strandline.pipeline.runner import Runner
from strandline.pipeline.states import State
from strandline.testing.lab import Lab, new_store


@pytest.fixture
def lab() -> Iterator[Lab]:
    made = Lab()
    yield made
    made.close()


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
