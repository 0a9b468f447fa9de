"""A sink whose program has changed: what the older lineage left goes, and only one publishes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyiceberg.catalog import load_catalog
from tests.pipeline.scripted import calm, publisher_of, until
from tests.pipeline.shop import TEXT, rig_of, run

from strandline.connectors.files_sink import read_published
from strandline.connectors.sink import Delivered
from strandline.handles.store import Store
from strandline.journal.next import Want
from strandline.pipeline.claims import Claims, claim_of
from strandline.pipeline.delivery import Mark
from strandline.pipeline.place import Target, placed
from strandline.pipeline.publish import Publisher
from strandline.pipeline.publishing import Publishing
from strandline.pipeline.read_back import Reading, compared
from strandline.pipeline.replica import Replica
from strandline.pipeline.rig import Rig
from strandline.pipeline.runner import Runner
from strandline.pipeline.states import SinkState
from strandline.testing.lab import Lab, new_store
from strandline.testing.scripted_sink import ScriptedSink, ScriptedTarget

EMPTY = TEXT.replace("> 10;", "> 1000000;")
CHANGED = TEXT.replace("> 10;", "> 5;")
RAISING = TEXT.replace("amount * 2 AS", "CAST(10 / (amount - amount) AS BIGINT) AS")
assert TEXT not in {EMPTY, CHANGED, RAISING}
ENDS = (SinkState.STOPPED, SinkState.PUBLISHING)


@pytest.fixture
def lab() -> Iterator[Lab]:
    made = Lab()
    yield made
    made.close()


def scripted(rig: Rig, target: ScriptedTarget, before: Callable[[str], str | None] = calm) -> Rig:
    """The same with a sink of its view `large`."""

    def opened(what: Delivered) -> ScriptedSink:
        return ScriptedSink(target, what, before)

    return replace(rig, sinks=[Target("out", "large", {"connector": "scripted"}, opened)])


def promoted(rig: Rig) -> Replica:
    """Everything is committed under this program."""
    replica = Replica(rig)
    if rig.journal.refresh().epoch:
        replica.want(Want.PROMOTE)
    run(replica)
    return replica


def publish(store: Store, rig: Rig) -> None:
    publisher = publisher_of(rig)
    publisher.start()
    last = rig.journal.refresh().next_t - 1
    try:
        until(lambda: publisher.status().reached >= last, store)
    finally:
        publisher.stop()


def landed(target: ScriptedTarget) -> list[list[tuple[int, int]]]:
    """By lineage, the times and the numbers of rows that have arrived."""
    return [[(each.t, len(each.rows)) for each in log.landed] for log in target.logs.values()]


def test_a_lineage_that_begins_empty_says_so_once(lab: Lab) -> None:
    target = ScriptedTarget()
    with new_store(lab) as store:
        for text in (TEXT, EMPTY, EMPTY):
            rig = scripted(rig_of(store, text), target)
            replica = promoted(rig)
            publish(store, rig)
            replica.close()
        older, newer = landed(target)
        assert sum(rows for _, rows in older) > 0
        ((t, rows),) = newer
        assert rows == 0
        claim = claim_of(store.env, "shop", "out")
        assert list(claim.marks.values())[-1].done == t


def test_a_sink_that_is_new_says_nothing_of_an_empty_view(lab: Lab) -> None:
    target = ScriptedTarget()
    with new_store(lab) as store:
        for text in (EMPTY, EMPTY.replace("> 1000000;", "> 2000000;")):
            rig = scripted(rig_of(store, text), target)
            replica = promoted(rig)
            publish(store, rig)
            replica.close()
        assert landed(target) == [[], []], "the older one has left nothing, either"
        marks = claim_of(store.env, "shop", "out").marks.values()
        assert {(each.intent, each.done) for each in marks} == {(-1, -1)}


def test_a_death_before_the_empty_beginning_counts_is_made_good(lab: Lab) -> None:
    target = ScriptedTarget()
    deaths: list[str] = []

    def before(step: str) -> str | None:
        if len(target.logs) == 2 and step in {"begin", "flush", "commit"} and step not in deaths:
            deaths.append(step)
            raise OSError("it is gone")
        return None

    with new_store(lab) as store:
        for text in (TEXT, EMPTY):
            rig = scripted(rig_of(store, text), target, before)
            replica = promoted(rig)
            for _ in range(4 if text == EMPTY else 1):
                publisher = publisher_of(rig)
                publisher.start()
                until(lambda it=publisher: it.status().state in ENDS, store)
                publisher.stop()
            publish(store, rig)
            replica.close()
        assert deaths == ["begin", "flush", "commit"]
        assert [rows for _, rows in landed(target)[1]] == [0]


def test_a_changed_view_replaces_its_target_s_rows_in_one_delivery(lab: Lab) -> None:
    """At the time of the change: before it the view was not yet, and its target is not emptied."""
    target = ScriptedTarget()
    with new_store(lab) as store:
        for text in (TEXT, CHANGED):
            rig = scripted(rig_of(store, text), target)
            replica = promoted(rig)
            publish(store, rig)
            replica.close()
        older, newer = landed(target)
        assert [t for t, _ in older] == list(range(10))
        assert newer == [(10, 19)]
        place = placed(store, rig.journal.refresh(), rig.sinks[0])
        assert place is not None
        assert place.since == 10
        assert compared(Reading(store, "shop", rig.sinks[0], place)).equal


def test_a_changed_view_that_raises_leaves_the_old_rows(lab: Lab) -> None:
    target = ScriptedTarget()
    with new_store(lab) as store:
        rig = scripted(rig_of(store), target)
        replica = promoted(rig)
        publish(store, rig)
        replica.close()
        (older,) = landed(target)
        rig = scripted(rig_of(store, RAISING), target)
        replica = promoted(rig)
        publisher = publisher_of(rig)
        publisher.start()
        until(lambda: publisher.status().state is SinkState.BLOCKED, store)
        publisher.stop()
        assert "division by zero" in publisher.status().cause
        assert landed(target) == [older, []]
        assert list(claim_of(store.env, "shop", "out").marks.values())[-1].intent == -1
        replica.close()


def program(folder: Path, text: str) -> str:
    return (
        text
        + f"""
CREATE SINK as_files FROM large USING files OPTIONS (path '{folder}/files');
CREATE SINK as_table FROM large USING iceberg OPTIONS (table 'shop.large', catalog.type 'sql',
  catalog.uri 'sqlite:///{folder}/catalog.db', catalog.warehouse '{folder}/warehouse');
"""
    )


def test_targets_are_empty_when_the_changed_view_is(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "warehouse").mkdir()
    told = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db"}
    sizes = []
    with new_store(lab) as store:
        for number, text in enumerate((TEXT, EMPTY)):
            rig = rig_of(store, program(tmp_path, text))
            replica = Replica(rig)
            if number:
                replica.want(Want.PROMOTE)
            Runner(replica, store.env, rig.settings, Publishing(rig)).run(until_idle=True)
            table = load_catalog("strandline", **told).load_table("shop.large")
            *_, last = read_published(tmp_path / "files")
            sizes.append((table.scan().to_arrow().num_rows, last.lineage))
            for target in rig.sinks:
                place = placed(store, rig.journal.refresh(), target)
                assert place is not None
                found = compared(Reading(store, "shop", target, place))
                assert (found.equal, found.target.count) == (True, sizes[-1][0])
                assert found.at is not None, "it has said so"
            replica.close()
    (before, older), (after, newer) = sizes
    assert before > after == 0
    assert older != newer, "who follows the manifests is told"


def test_files_that_go_back_to_an_earlier_format_stop_by_name(lab: Lab, tmp_path: Path) -> None:
    """Readers follow the newest lineage: they would never see what comes to the older one."""
    seen = []
    with new_store(lab) as store:
        for kind, count in (("parquet", 40), ("json", 60), ("parquet", 100)):
            text = TEXT.replace("'100'", f"'{count}'") + (
                f"CREATE SINK out FROM large USING files OPTIONS "
                f"(path '{tmp_path}/files', format '{kind}');"
            )
            rig = rig_of(store, text)
            replica = promoted(rig)
            publisher = publisher_of(rig)
            publisher.start()
            last = rig.journal.refresh().next_t - 1
            until(
                lambda it=publisher, t=last: (
                    it.status().state is SinkState.STOPPED or it.status().reached >= t
                ),
                store,
            )
            publisher.stop()
            replica.close()
            *_, newest = read_published(tmp_path / "files")
            seen.append((publisher.status().state, newest.t == last, newest.kind))
    assert seen == [
        (SinkState.ENDED, True, "parquet"),
        (SinkState.ENDED, True, "json"),
        (SinkState.STOPPED, False, "json"),
    ]
    cause = publisher.status().cause
    assert f"{tmp_path}/files has a newer lineage, {newest.lineage}" in cause


def test_a_publisher_of_another_program_publishes_nothing(lab: Lab) -> None:
    """Its sinks are of a program that runs no more, or not yet."""
    target = ScriptedTarget()
    with new_store(lab) as store:
        rig = scripted(rig_of(store), target)
        replica = promoted(rig)
        other = Publisher(store, rig.journal, rig.sinks[0], rig.settings, "b", "another program")
        other.start()
        store.env.tasks.sleep(600)
        assert claim_of(store.env, "shop", "out").owner == ""
        other.stop()
        assert landed(target) == []
        publish(store, rig)
        assert len(landed(target)) == 1
        replica.close()


def test_a_publisher_whose_program_was_replaced_lets_go(lab: Lab) -> None:
    target, newer = ScriptedTarget(), ScriptedTarget()
    with new_store(lab) as store:
        rig = scripted(rig_of(store, TEXT.replace("'100'", "'50'")), target)
        replica = promoted(rig)
        publisher = Publisher(store, rig.journal, rig.sinks[0], rig.settings, "a", rig.program.hash)
        publisher.start()
        until(lambda: publisher.status().reached == 4, store)
        replica.close()
        promoted(scripted(rig_of(store, EMPTY), newer)).close()
        rig.journal.refresh()
        until(lambda: claim_of(store.env, "shop", "out").owner == "", store)
        publisher.stop()
        assert [each[-1][0] <= 4 for each in landed(target)] == [True]


def test_what_a_publisher_has_open_keeps_its_epoch(lab: Lab) -> None:
    """One that goes on after a promotion has not been asked whether it may: whoever opens the
    target in the new epoch has."""
    target = ScriptedTarget()
    with new_store(lab) as store:
        rig = scripted(rig_of(store, TEXT.replace("'100'", "'50'")), target)
        replica = promoted(rig)
        publisher = publisher_of(rig)
        publisher.start()
        until(lambda: publisher.status().reached == 4, store)
        replica.close()
        again = promoted(scripted(rig_of(store), ScriptedTarget()))
        assert rig.journal.refresh().epoch == 2
        until(lambda: publisher.status().reached == 9, store)
        publisher.stop()
        (log,) = target.logs.values()
        assert log.landed[-1].t > 4
        assert {each.epoch for each in log.landed} == {1}
        again.close()


def test_the_highest_epoch_of_any_lineage_fences(lab: Lab) -> None:
    """A replica that has not heard of a promotion would begin the old lineage anew."""
    target = ScriptedTarget()
    with new_store(lab) as store:
        rig = scripted(rig_of(store), target)
        replica = promoted(rig)
        claims = Claims(store.env, "shop", "out", name="newer", lease_ms=1_000)
        assert claims.take() is not None
        claims.record("another lineage", lambda _: Mark(5, 3, 3, 3))
        claims.release()
        publisher = publisher_of(rig)
        publisher.start()
        until(lambda: publisher.status().retries > 1, store)
        assert publisher.status().state is SinkState.RETRYING
        assert "e5 publishes: this replica is older" in publisher.status().cause
        until(lambda: claim_of(store.env, "shop", "out").owner == "", store)
        publisher.stop()
        assert landed(target) == [], "nothing was opened"
        replica.close()


def test_what_nobody_foresaw_stops_the_sink_and_another_replica_takes_over(lab: Lab) -> None:
    target = ScriptedTarget()

    def before(step: str) -> None:
        if step == "commit":
            raise ValueError("a client's own")

    with new_store(lab) as one, new_store(lab) as two:
        rig = scripted(rig_of(one), target, before)
        replica = promoted(rig)
        first = publisher_of(rig)
        first.start()
        until(lambda: first.status().state is SinkState.STOPPED, one)
        assert first.status().cause == "sink out: ValueError: a client's own"
        until(lambda: claim_of(one.env, "shop", "out").owner == "", one)
        publish(two, scripted(rig_of(two), target))
        assert landed(target)[0][-1][0] == 9
        first.stop()
        replica.close()
