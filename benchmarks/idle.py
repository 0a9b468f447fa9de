"""What an idle store costs: 200 shards, 200 idle readers, metadata writes per minute.

Writes are counted in the store itself (the versions of every key), not by our own counters.
The lease is shortened so that a minute of leases passes in seconds; the rate is scaled back.

    make bench NAME=idle
"""

from __future__ import annotations

import argparse
import sqlite3
import tempfile
import time
from pathlib import Path

import pyarrow as pa
from report import Point, finish, show

import strandline
from strandline.store.locate import CONSENSUS_FILE

SCHEMA = pa.schema([("id", pa.int64())])


def heads(path: Path) -> dict[str, int]:
    connection = sqlite3.connect(path / CONSENSUS_FILE)
    rows = connection.execute("select key, max(seqno) from versions group by key").fetchall()
    connection.close()
    return dict(rows)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--shards", type=int, default=200)
    parser.add_argument("--lease-ms", type=int, default=2_000)
    parser.add_argument("--leases", type=int, default=8)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="strandline-bench-") as name:
        path = Path(name) / "lake"
        with strandline.open(
            str(path), settings=strandline.Settings(lease_ms=options.lease_ms)
        ) as store:
            shards = [
                store.shard(f"idle_{number}", schema=SCHEMA) for number in range(options.shards)
            ]
            for shard in shards:
                with shard.writer() as writer:
                    writer.append(pa.table({"id": [1]}))
            readers = [shard.reader() for shard in shards]
            # What the appends above left to do is done within a few ticks.
            time.sleep(options.lease_ms * 2 / 1000)
            before = heads(path)
            begin = time.perf_counter()
            time.sleep(options.lease_ms * options.leases / 1000)
            after = heads(path)
            seconds = time.perf_counter() - begin
            for reader in readers:
                reader.close()
    moved = {
        key: after[key] - before.get(key, -1) for key in after if after[key] != before.get(key)
    }
    beats = sum(count for key, count in moved.items() if key.startswith("pulse/"))
    others = sum(count for key, count in moved.items() if not key.startswith("pulse/"))
    ticks = seconds * 1000 / (options.lease_ms / 4)
    per_tick = (beats + others) / ticks
    # A lease of a minute has four ticks a minute.
    show(
        f"{options.shards} shards, {options.shards} idle readers, one process, "
        f"{seconds:.0f} s = {ticks:.0f} ticks",
        ["", "metadata writes"],
        [
            ["heartbeats", str(beats)],
            ["everything else", str(others)],
            ["per tick (a quarter of a lease)", f"{per_tick:.2f}"],
            ["per minute at the default lease of 60 s", f"{per_tick * 4:.1f}"],
        ],
    )
    finish(
        [
            Point(
                "idle: metadata writes per process and tick",
                per_tick,
                1,
                per_tick,
                "<= 1.1, heartbeats only",
                per_tick <= 1.1 and others == 0,
            )
        ]
    )


if __name__ == "__main__":
    main()
