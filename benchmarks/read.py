"""How fast a compacted shard reads, and what compaction costs to write.

A snapshot of 5 M rows after 200 appends and compaction, beside plain pyarrow.parquet reading
the very same part files. Then the write amplification of 1,000 small batches of retractions
and insertions with compaction on: bytes written to disk over bytes that the batches hold.

    make bench NAME=read
"""

from __future__ import annotations

import argparse
import gc
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from report import Point, finish, show

import strandline
from strandline.store.locate import BLOB_FOLDER

if TYPE_CHECKING:
    from collections.abc import Callable

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("customer", pa.int64()),
        ("amount", pa.float64()),
        ("name", pa.string()),
        ("placed", pa.int64()),
    ]
)


def rows(first: int, count: int, seed: int) -> pa.Table:
    random = np.random.default_rng(seed)
    ids = np.arange(first, first + count)
    customers = random.integers(0, 100_000, count)
    names = pa.array(np.char.add("c", (customers % 5_000).astype(str)))
    return pa.table(
        {
            "id": ids,
            "customer": customers,
            "amount": random.random(count) * 1_000,
            "name": names,
            "placed": random.integers(0, 2**40, count),
        },
        schema=SCHEMA,
    )


def seconds(call: Callable[[], object], times: int) -> float:
    found = []
    for _ in range(times):
        gc.collect()
        begin = time.perf_counter()
        keep = call()
        found.append(time.perf_counter() - begin)
        del keep
    return statistics.median(found)


def measure_read(folder: Path, total: int, appends: int) -> tuple[float, float, float, int]:
    path = folder / "lake"
    each = total // appends
    with strandline.open(str(path)) as store:
        shard = store.shard("orders", schema=SCHEMA, key=["id"])
        shard.retain("1 version")
        with shard.writer() as writer:
            for number in range(appends):
                writer.append(rows(number * each, each, number))
        shard.compact(full=True)
        state = shard.state()
        files = [
            str(path / BLOB_FOLDER / part.key) for batch in state.batches for part in batch.parts
        ]
        ours = seconds(lambda: shard.snapshot().to_arrow(), 5)
        plain = seconds(lambda: pa.concat_tables([pq.read_table(file) for file in files]), 5)
        dataset = seconds(lambda: pq.read_table(files), 5)
        counted = shard.snapshot().to_arrow().num_rows
        if counted != appends * each:
            raise SystemExit(f"rows lost: {counted} of {appends * each}")
    return ours, plain, dataset, len(files)


def measure_amplification(folder: Path, batches: int, changed: int) -> tuple[float, float]:
    """Small batches that retract and insert 200 rows of 100,000; returns written and held MB."""
    path = folder / "amplified"
    # Inline rows are written to the metadata and once more with the part they move into; both
    # count. The store's own counters see every object that is written.
    with strandline.open(str(path)) as store:
        shard = store.shard("stock", schema=SCHEMA, key=["id"])
        shard.retain("1 version")
        table = rows(0, 100_000, 1)
        held = 0
        with shard.writer() as writer:
            writer.append(table)
            shard.compact()
            before = store.env.metrics.value("bytes_written", "stock")
            before += store.env.metrics.value("compaction_bytes", "stock")
            current = table
            inline = 0
            for number in range(batches):
                first = (number * changed) % 100_000
                old = current.slice(first, changed)
                new = rows(first, changed, 1_000 + number)
                diffs = pa.array([-1] * changed + [1] * changed, pa.int64())
                both = pa.concat_tables([old, new]).append_column("_diff", diffs)
                writer.append(both)
                current = pa.concat_tables(
                    [current.slice(0, first), new, current.slice(first + changed)]
                ).combine_chunks()
                size = sum(b.serialize().size for b in both.combine_chunks().to_batches())
                held += size
                if size <= store.env.settings.inline_max_bytes:
                    inline += size
                if number % 50 == 0:
                    shard.compact()
        shard.compact()
        after = store.env.metrics.value("bytes_written", "stock")
        after += store.env.metrics.value("compaction_bytes", "stock")
        left = shard.snapshot().to_arrow().num_rows
        if left != 100_000:
            raise SystemExit(f"rows lost: {left} of 100000")
    return (after - before + inline) / 1e6, held / 1e6


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--appends", type=int, default=200)
    parser.add_argument("--batches", type=int, default=1_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="strandline-bench-") as name:
        folder = Path(name)
        ours, plain, dataset, files = measure_read(folder, options.rows, options.appends)
        written, held = measure_amplification(folder, options.batches, 100)
    peer = min(plain, dataset)
    show(
        f"{options.rows:,} rows after {options.appends} appends and compaction: {files} part files",
        ["", "seconds"],
        [
            ["snapshot().to_arrow()", f"{ours:.3f}"],
            ["pyarrow.parquet, file by file", f"{plain:.3f}"],
            ["pyarrow.parquet, as a dataset", f"{dataset:.3f}"],
        ],
    )
    show(
        f"{options.batches} batches of 100 retractions and 100 insertions",
        ["", "MB"],
        [
            ["held by the batches", f"{held:.1f}"],
            ["written to disk", f"{written:.1f}"],
            ["amplification", f"{written / held:.1f}"],
        ],
    )
    finish(
        [
            Point(
                "read: ours / plain pyarrow", ours, peer, ours / peer, "<= 1.3", ours / peer <= 1.3
            ),
            Point(
                "read: write amplification",
                written,
                held,
                written / held,
                "<= 20",
                written / held <= 20,
            ),
        ]
    )


if __name__ == "__main__":
    main()
