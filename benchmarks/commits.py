"""How fast small appends commit: alone, racing, and after many of them.

Appends of 100 rows to the local store, beside deltalake and pyiceberg (SQL catalog) doing the
same, and beside the limit: the same rows as one synced SQLite insert. All in one run on one
disk; only the ratios travel.

    make bench NAME=commits
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import sqlite3
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from report import Point, finish, show

import strandline

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.table import Table as IcebergTable

ROWS = 100
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("customer", pa.int64()),
        ("amount", pa.float64()),
        ("name", pa.string()),
        ("placed", pa.int64()),
    ]
)

AT_ONCE = {"commit.retry.min-wait-ms": "1", "commit.retry.max-wait-ms": "20"}
"""pyiceberg waits 100 ms and more after a lost commit, which is not what is compared here."""


def batch(number: int) -> pa.Table:
    ids = range(number * ROWS, (number + 1) * ROWS)
    return pa.table(
        {
            "id": ids,
            "customer": [i % 977 for i in ids],
            "amount": [i * 0.25 for i in ids],
            "name": [f"customer {i % 977}" for i in ids],
            "placed": [1_790_000_000_000 + i for i in ids],
        },
        schema=SCHEMA,
    )


def timed(call: Callable[[int], object], count: int, start: int = 0) -> list[float]:
    """Milliseconds per call; the rows are made outside of the clock."""
    times = []
    for number in range(start, start + count):
        rows = batch(number)
        begin = time.perf_counter()
        call(rows)  # type: ignore[arg-type]
        times.append((time.perf_counter() - begin) * 1000)
    return times


def measure_sqlite(folder: Path, count: int) -> list[float]:
    connection = sqlite3.connect(folder / "limit.db", isolation_level=None)
    connection.execute("pragma journal_mode=wal")
    connection.execute("pragma synchronous=full")
    connection.execute("create table t (n integer primary key, rows blob)")

    def insert(rows: pa.Table) -> None:
        payload = rows.to_batches()[0].serialize().to_pybytes()
        connection.execute("insert into t (rows) values (?)", (payload,))

    return timed(insert, count)  # type: ignore[arg-type]


def measure_delta(folder: Path, count: int) -> list[float]:
    from deltalake import write_deltalake  # noqa: PLC0415 - the peer is optional

    path = str(folder / "delta")
    return timed(lambda rows: write_deltalake(path, rows, mode="append"), count)


def iceberg_catalog(warehouse: str) -> SqlCatalog:
    from pyiceberg.catalog.sql import SqlCatalog  # noqa: PLC0415 - the peer is optional

    return SqlCatalog(
        "bench", uri=f"sqlite:///{warehouse}/catalog.db", warehouse=f"file://{warehouse}"
    )


def iceberg_table(warehouse: Path) -> IcebergTable:
    warehouse.mkdir()
    catalog = iceberg_catalog(str(warehouse))
    catalog.create_namespace("bench")
    return catalog.create_table("bench.orders", schema=SCHEMA, properties=AT_ONCE)


def measure_iceberg(folder: Path, count: int) -> list[float]:
    return timed(iceberg_table(folder / "iceberg").append, count)


def racer(path: str, worker: int, count: int, gate: object, results: object) -> None:
    """One of several processes that append to one shard; independent writers never lose."""
    with strandline.open(path) as store, store.shard("race").writer() as writer:
        rows = [batch(worker * 1_000_000 + i) for i in range(count)]
        gate.wait()  # type: ignore[attr-defined]
        begin = time.perf_counter()
        for each in rows:
            writer.append(each)
        results.put((worker, begin, time.perf_counter()))  # type: ignore[attr-defined]


def race(racing: Callable[..., None], path: str, workers: int, count: int) -> float:
    """Appends per second over all processes, from the first start to the last end."""
    context = multiprocessing.get_context("spawn")
    gate, results = context.Barrier(workers), context.Queue()
    started = [
        context.Process(target=racing, args=(path, worker, count, gate, results))
        for worker in range(workers)
    ]
    for each in started:
        each.start()
    spans = [results.get() for _ in started]
    for each in started:
        each.join()
    return workers * count / (max(s[2] for s in spans) - min(s[1] for s in spans))


def measure_race(folder: Path, workers: int, count: int) -> float:
    path = str(folder / "race")
    with strandline.open(path) as store:
        store.shard("race", schema=SCHEMA, key=["id"])
        per_second = race(racer, path, workers, count)
        total = store.shard("race").snapshot().to_arrow().num_rows
    if total != workers * count * ROWS:
        raise SystemExit(f"rows lost in the race: {total} of {workers * count * ROWS}")
    return per_second


def race_delta(folder: Path, workers: int, count: int) -> float:
    from deltalake import write_deltalake  # noqa: PLC0415 - the peer is optional

    path = str(folder / "delta-race")
    write_deltalake(path, batch(0), mode="append")
    return race(delta_racer, path, workers, count)


def delta_racer(path: str, worker: int, count: int, gate: object, results: object) -> None:
    from deltalake import write_deltalake  # noqa: PLC0415 - the peer is optional

    rows = [batch(worker * 1_000_000 + i) for i in range(count)]
    gate.wait()  # type: ignore[attr-defined]
    begin = time.perf_counter()
    for each in rows:
        write_deltalake(path, each, mode="append")
    results.put((worker, begin, time.perf_counter()))  # type: ignore[attr-defined]


def race_iceberg(folder: Path, workers: int, count: int) -> float:
    path = folder / "iceberg-race"
    iceberg_table(path)
    per_second = race(iceberg_racer, str(path), workers, count)
    total = iceberg_catalog(str(path)).load_table("bench.orders").scan().count()
    if total != workers * count * ROWS:
        raise SystemExit(f"pyiceberg lost rows in the race: {total} of {workers * count * ROWS}")
    return per_second


def iceberg_racer(path: str, worker: int, count: int, gate: object, results: object) -> None:
    """Appends again what lost more commits than pyiceberg tries by itself: it raises then.

    Older releases try once. SQLite's own "database is locked" counts as a lost commit, too.
    """
    from pyiceberg.exceptions import CommitFailedException  # noqa: PLC0415 - the peer is optional
    from sqlalchemy.exc import OperationalError  # noqa: PLC0415 - comes with the peer

    logging.getLogger("pyiceberg").setLevel(logging.ERROR)  # It tells of each commit it lost.
    catalog = iceberg_catalog(path)
    table = catalog.load_table("bench.orders")
    rows = [batch(worker * 1_000_000 + i) for i in range(count)]
    gate.wait()  # type: ignore[attr-defined]
    begin = time.perf_counter()
    for each in rows:
        while True:
            try:
                table.append(each)
                break
            except (CommitFailedException, OperationalError):
                table = catalog.load_table("bench.orders")
    results.put((worker, begin, time.perf_counter()))  # type: ignore[attr-defined]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--appends", type=int, default=10_000)
    parser.add_argument("--peers", type=int, default=100)
    parser.add_argument("--race", type=int, default=250)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="strandline-bench-") as name:
        folder = Path(name)
        with strandline.open(str(folder / "lake")) as store:
            shard = store.shard("orders", schema=SCHEMA, key=["id"])
            with shard.writer() as writer:
                ours = timed(writer.append, options.appends)
            rows = shard.snapshot().to_arrow().num_rows
        if rows != options.appends * ROWS:
            raise SystemExit(f"rows lost: {rows} of {options.appends * ROWS}")
        limit = measure_sqlite(folder, 1_000)
        delta = measure_delta(folder, options.peers)
        iceberg = measure_iceberg(folder, options.peers)
        race = measure_race(folder, 4, options.race)
        racing_peers = max(10, options.peers // 4)
        raced = {
            "deltalake": race_delta(folder, 4, racing_peers),
            "pyiceberg": race_iceberg(folder, 4, racing_peers),
        }
        os.sync()
    early, late = ours[20:220], ours[-200:]
    middle = statistics.median
    show(
        "milliseconds per append of 100 rows (median, mean, 99th percentile)",
        ["", "median", "mean", "p99", "appends"],
        [
            _row("strandline, first 200", early),
            _row(f"strandline, last 200 of {len(ours):,}", late),
            _row("one synced SQLite insert (the limit)", limit),
            _row("deltalake, first 20", delta[:20]),
            _row("deltalake, last 20", delta[-20:]),
            _row("pyiceberg, first 20", iceberg[:20]),
            _row("pyiceberg, last 20", iceberg[-20:]),
        ],
    )
    show(
        "four processes racing on one table, appends per second",
        ["", "per second"],
        [[name, f"{per_second:.0f}"] for name, per_second in {"strandline": race, **raced}.items()],
    )
    peer = min(middle(delta), middle(iceberg))
    racing = max(raced, key=raced.__getitem__)
    mean = statistics.fmean
    finish(
        [
            _point("commits: better peer / ours, one writer", middle(late), peer, 6, up=True),
            _point("commits: ours / synced insert", middle(late), middle(limit), 5, up=False),
            _point("commits: ours / synced insert, mean", mean(late), mean(limit), 5, up=False),
            _point("commits: after 10,000 / after 100", middle(late), middle(early), 1.3, up=False),
            Point(
                f"commits: four racing processes, ours / {racing}, the better peer",
                race,
                raced[racing],
                race / raced[racing],
                ">= 6",
                race / raced[racing] >= 6,
            ),
        ]
    )


def _row(name: str, times: list[float]) -> list[str]:
    ordered = sorted(times)
    p99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    return [
        name,
        f"{statistics.median(times):.2f}",
        f"{statistics.fmean(times):.2f}",
        f"{p99:.2f}",
        str(len(times)),
    ]


def _point(name: str, ours: float, peer: float, goal: float, *, up: bool) -> Point:
    ratio = peer / ours if up else ours / peer
    met = ratio >= goal if up else ratio <= goal
    return Point(name, ours, peer, ratio, f"{'>=' if up else '<='} {goal:g}", met)


if __name__ == "__main__":
    main()
