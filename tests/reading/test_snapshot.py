"""Rows as of one time, through the whole reading side on a store in memory."""

from __future__ import annotations

from datetime import UTC, datetime

import duckdb
import pyarrow as pa
import pytest

from strandline.errors import (
    BoundsError,
    CancelledError,
    CorruptionError,
    HandleClosedError,
    LeaseLostError,
    NotAppliedError,
    NotFoundError,
    SchemaError,
    SinceError,
    UsageError,
)
from strandline.handles.write import Writer
from strandline.reading import snapshot as snapshot_module
from strandline.reading.descriptor import decode_descriptor, encode_descriptor
from strandline.reading.fetch import fetch_part
from strandline.reading.snapshot import Snapshot, take_snapshot
from strandline.shard import command as c
from strandline.shard.cancel import Cancel
from strandline.shard.leases import Leases
from strandline.shard.machine import Machine
from strandline.shard.state import Retention
from strandline.testing.lab import Lab

Rows = list[tuple[int, str | None]]


class Desk:
    """One shard, one writer, one process."""

    def __init__(self, lab: Lab, **settings: int) -> None:
        self.lab = lab
        self.env = lab.env(**settings)
        self.machine: Machine = lab.machine(env=self.env)
        self.leases: Leases = lab.leases(self.env)
        self.writer = Writer(self.machine, self.leases.writer(self.machine))

    def append(self, *updates: tuple[int, str | None, int]) -> None:
        columns = list(zip(*updates, strict=True)) or [(), (), ()]
        table = pa.table(
            {
                "id": pa.array(columns[0], pa.int64()),
                "name": pa.array(columns[1], pa.string()),
                "_diff": pa.array(columns[2], pa.int64()),
            }
        )
        self.writer.append(table)

    def snapshot(self, as_of: int | datetime | None = None, **options: object) -> Snapshot:
        return take_snapshot(self.machine, self.leases, as_of, **options)

    def rows(self, as_of: int | None = None) -> Rows:
        return rows_of(self.snapshot(as_of).to_arrow())


def rows_of(table: pa.Table) -> Rows:
    return sorted((row["id"], row["name"]) for row in table.to_pylist())


@pytest.fixture(params=[32 * 1024, 0], ids=["inline", "parts"])
def desk(lab: Lab, request: pytest.FixtureRequest) -> Desk:
    return Desk(lab, inline_max_bytes=request.param)


@pytest.fixture
def parts_desk(lab: Lab) -> Desk:
    return Desk(lab, inline_max_bytes=0)


def test_the_same_time_gives_the_same_rows_whatever_is_written_later(desk: Desk) -> None:
    desk.append((1, "a", 1), (2, "b", 1))
    desk.append((1, "a", -1), (1, "z", 1))
    desk.append((3, "c", 2))
    for _ in range(2):
        assert desk.rows(0) == [(1, "a"), (2, "b")]
        assert desk.rows(1) == [(1, "z"), (2, "b")]
        assert desk.rows(2) == [(1, "z"), (2, "b"), (3, "c"), (3, "c")]
    assert desk.rows() == desk.rows(2)


def test_every_form_has_the_same_rows(desk: Desk) -> None:
    desk.append((1, "a", 1), (2, None, 1))
    with desk.snapshot() as snapshot:
        assert snapshot.as_of == 0
        assert snapshot.schema.names == ["id", "name"]
        assert rows_of(snapshot.to_arrow()) == [(1, "a"), (2, None)]
        assert sorted(snapshot.to_pandas()["id"].tolist()) == [1, 2]
        assert sorted(snapshot.to_polars()["id"].to_list()) == [1, 2]
        with duckdb.connect() as connection:
            snapshot.to_duckdb(connection, "t")
            assert connection.sql("select sum(id) from t").fetchall() == [(3,)]
        assert snapshot.count() == 2
        updates = snapshot.updates()
        assert updates.column_names == ["id", "name", "_time", "_diff"]
        assert set(updates["_time"].to_pylist()) == {0}


def test_columns_and_filters_are_applied(desk: Desk) -> None:
    for number in range(5):
        desk.append((number, f"n{number}", 1))
    found = desk.snapshot(columns=["name"], filter=[("id", ">=", 3)]).to_arrow()
    assert found.column_names == ["name"]
    assert sorted(found["name"].to_pylist()) == ["n3", "n4"]
    assert desk.snapshot(filter=[("id", "=", 2)]).count() == 1


@pytest.mark.parametrize(
    "options",
    [
        {"columns": ["nobody"]},
        {"columns": []},
        {"columns": "id"},
        {"columns": ["id", "id"]},
        {"filter": [("nobody", "=", 1)]},
        {"filter": [("id", "=", "text")]},
    ],
)
def test_what_does_not_fit_the_schema_is_refused_and_nothing_stays_pinned(
    desk: Desk, options: dict[str, object]
) -> None:
    desk.append((1, "a", 1))
    with pytest.raises(SchemaError):
        desk.snapshot(**options)
    assert desk.leases.own_reader(desk.machine).holds.pins == 0


def test_statistics_prune_parts_and_an_undecodable_one_is_read(parts_desk: Desk) -> None:
    for number in range(20):
        parts_desk.append((number, f"n{number}", 1))
    assert rows_of(parts_desk.snapshot(filter=[("name", "=", "n7")]).to_arrow()) == [(7, "n7")]
    assert parts_desk.env.metrics.value("parts_pruned", "orders") == 19


def test_retracted_more_often_than_inserted_is_shown_as_updates_only(desk: Desk) -> None:
    desk.append((1, "a", -1))
    snapshot = desk.snapshot()
    with pytest.raises(UsageError, match="retracted more often"):
        snapshot.to_arrow()
    assert snapshot.updates()["_diff"].to_pylist() == [-1]
    assert snapshot.count() == -1


def test_a_time_before_since_is_refused_with_the_oldest_readable_one(desk: Desk) -> None:
    for number in range(4):
        desk.append((number, "x", 1))
    desk.machine.demand(c.Retain(Retention(None, 1)))
    desk.machine.demand(c.AdvanceSince(now_ms=1))
    with pytest.raises(SinceError, match="oldest time that can be read is 3") as caught:
        desk.snapshot(1)
    assert caught.value.oldest == 3
    assert len(desk.rows(3)) == 4


def test_s38_a_snapshot_of_a_time_to_come_waits_for_it_and_holds_it(desk: Desk) -> None:
    found: list[Rows] = []
    desk.append((1, "a", 1))
    task = desk.env.tasks.start("reader", lambda: found.append(desk.rows(2)))
    desk.machine.wait_for(lambda state: any(r.since == 2 for r in state.readers.values()))
    for number in range(2, 5):
        desk.append((number, "x", 1))
    assert task.join(10_000)
    assert found == [[(1, "a"), (2, "x"), (3, "x")]]
    assert all(r.since is None for r in desk.machine.refresh().readers.values())


def test_a_wait_ends_with_its_time_or_its_cancellation(desk: Desk) -> None:
    with pytest.raises(NotAppliedError, match="not settled past 7 within 20 ms"):
        desk.snapshot(7, timeout_ms=20)
    cancel = Cancel(desk.env.tasks.event())
    cancel.cancel()
    with pytest.raises(CancelledError):
        desk.snapshot(7, cancel=cancel)
    assert desk.machine.refresh().readers.keys() == {desk.leases.own_reader(desk.machine).id}


@pytest.mark.parametrize("where", ["before the lease", "while it waits"])
def test_a_wait_never_ends_in_another_shard_of_the_same_name(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    desk.append((1, "old", 1))
    register = desk.leases.reader

    def anew() -> None:
        desk.machine.demand(c.Drop())
        machine = desk.lab.machine(env=desk.env)
        writer = Writer(machine, desk.leases.writer(machine))
        for _ in range(4):
            writer.append(pa.table({"id": [1], "name": ["new"]}))

    def late(*arguments: object, **options: object) -> object:
        if options.get("since") is not None:
            anew()
        return register(*arguments, **options)

    if where == "before the lease":
        monkeypatch.setattr(desk.leases, "reader", late)
    else:
        monkeypatch.setattr(snapshot_module, "wait_past", lambda *_, **__: anew())
    with pytest.raises(NotFoundError, match="created anew"):
        desk.snapshot(2)


def test_reading_by_instant(desk: Desk) -> None:
    for number in range(3):
        desk.lab.clock.now = 1_000_000 + number * 1000
        desk.append((number, "x", 1))

    def at(instant_ms: int) -> datetime:
        return datetime.fromtimestamp(instant_ms / 1000, UTC)

    assert desk.snapshot(at(1_000_000)).as_of == 0
    assert desk.snapshot(at(1_001_500)).as_of == 1
    assert desk.snapshot(at(9_000_000)).as_of == 2
    with pytest.raises(SinceError):
        desk.snapshot(at(999_999))
    with pytest.raises(BoundsError, match="no time zone"):
        desk.snapshot(datetime(2024, 1, 1))  # noqa: DTZ001 - that is the point


def test_pins_stay_until_the_bytes_arrived(parts_desk: Desk) -> None:
    parts_desk.append((1, "a", 1))
    parts_desk.append((2, "b", 1))
    holds = parts_desk.leases.own_reader(parts_desk.machine).holds
    snapshot = parts_desk.snapshot()
    assert holds.pins == 1
    snapshot.to_arrow()
    assert holds.pins == 0
    handed = parts_desk.snapshot()
    first, second = handed.parts()
    handed.arrived(first)
    handed.arrived(first)
    assert holds.pins == 1
    handed.arrived(second)
    assert holds.pins == 0


def test_a_descriptor_travels_and_needs_nothing_but_the_objects(desk: Desk) -> None:
    desk.append((1, "a", 1), (2, "b", 1))
    desk.append((1, "a", -1))
    with desk.snapshot(1, filter=[("name", "in", ["a"])], columns=["id"]) as snapshot:
        tables = [
            fetch_part(desk.lab.blob, decode_descriptor(encode_descriptor(part)))
            for part in snapshot.parts()
        ]
    updates = [row for table in tables for row in table.to_pylist()]
    assert sorted(row["_diff"] for row in updates) == [-1, 1]
    assert {(row["id"], row["_time"]) for row in updates} == {(1, 1)}


def test_s49_a_missing_part_is_diagnosed(parts_desk: Desk) -> None:
    parts_desk.append((1, "a", 1))
    held = parts_desk.snapshot()
    key = held.parts()[0].piece.key
    parts_desk.lab.blob.delete(key)
    with pytest.raises(CorruptionError, match=f"{key}.*hold did not protect"):
        held.to_arrow()
    lost = parts_desk.snapshot()
    reader = parts_desk.leases.own_reader(parts_desk.machine).id
    parts_desk.machine.demand(c.Release(readers=(reader,)))
    with pytest.raises(LeaseLostError, match=f"{key}.*lost"):
        lost.to_arrow()


def test_a_damaged_part_is_named(parts_desk: Desk) -> None:
    parts_desk.append((1, "a", 1))
    key = parts_desk.snapshot().parts()[0].piece.key
    objects = parts_desk.lab.blob._objects
    objects[key] = objects[key][:-1] + bytes([objects[key][-1] ^ 1])
    with pytest.raises(CorruptionError, match=f"{key} is damaged"):
        parts_desk.rows()


def test_a_closed_snapshot_says_so(desk: Desk) -> None:
    desk.append((1, "a", 1))
    snapshot = desk.snapshot()
    snapshot.close()
    snapshot.close()
    with pytest.raises(HandleClosedError):
        snapshot.to_arrow()


def test_x7_a_notebook_sees_rows_and_no_markup_of_theirs(desk: Desk) -> None:
    desk.append((1, "<img src=x onerror=alert(1)>", 1), (2, None, 1))
    shown = desk.snapshot()._repr_html_()
    assert "orders as of 0: 2 rows" in shown
    assert "&lt;img" in shown
    assert "<img" not in shown
