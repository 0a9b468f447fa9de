"""What a shard costs that refers to many parts: to open, to commit on, to prune.

The parts are described, not written: only metadata is measured. Commits and opens at 10,
1,000, 10,000 and 100,000 parts; pruning and memory at the largest.

    make bench NAME=metadata
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from report import Point, finish, show

import strandline
from strandline.handles.stage import Stage
from strandline.model.digest import Digest
from strandline.parts.filters import parse_filter
from strandline.parts.part import Batch, Part
from strandline.parts.stats import encode_stats, measure as measure_columns
from strandline.reading.listing import Want, list_snapshot
from strandline.shard.chunks import Chunks
from strandline.shard.command import AddManifest
from strandline.shard.versions import put_manifest

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("amount", pa.float64())])
ROWS_PER_PART = 1_000


def describe(shard: str, writer: str, count: int) -> list[Part]:
    """Parts that tile the place of a hash, each with statistics of its own."""
    step = 2**64 // count
    parts = []
    for number in range(count):
        first = number * ROWS_PER_PART
        few = pa.table(
            {
                "id": [first, first + ROWS_PER_PART - 1],
                "name": [f"customer {first:012d}", f"customer {first + 999:012d}"],
                "amount": [0.0, float(number)],
            },
            schema=SCHEMA,
        )
        digest = Digest.of(np.array([number], np.uint64), np.array([1], np.int64))
        parts.append(
            Part(
                key=f"{shard}/{writer}/{number:032x}.parquet",
                size=20_000,
                checksum=number,
                rows=ROWS_PER_PART,
                digest=digest.pack(),
                t_min=0,
                t_max=0,
                base=False,
                level=1,
                place_lo=number * step,
                place_hi=(number + 1) * step - 1,
                schema=1,
                stats=encode_stats(measure_columns(enumerate(few.columns, 1), ROWS_PER_PART)),
            )
        )
    return parts


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6


def measure(folder: Path, count: int, commits: int) -> dict[str, float]:
    path = str(folder / f"lake-{count}")
    rows = pa.table({"id": [1], "name": ["x"], "amount": [1.0]}, schema=SCHEMA)
    with strandline.open(path, upkeep=False) as store:
        shard = store.shard("wide", schema=SCHEMA, key=["id"])
        with shard.writer() as writer:
            state = shard.state()
            parts = describe(state.id, writer.id, count)
            total = Digest.ZERO
            for part in parts:
                total = total + part.total
            chunks, _ = Stage(store.env, "wide", writer.id).put_chunks(parts, state)
            listed = () if chunks else tuple(parts)
            writer.commit_parts(
                Batch(0, 1, parts=listed, chunks=chunks), {0: total}, lower=0, upper=1
            )
            manifest = put_manifest(store.env, shard.state())
            store.machine("wide").demand(AddManifest(manifest))
            times = []
            for _ in range(commits):
                begin = time.perf_counter()
                writer.append(rows)
                times.append((time.perf_counter() - begin) * 1000)
    opens = []
    for _ in range(5):
        with strandline.open(path, upkeep=False) as store:
            begin = time.perf_counter()
            store.shard("wide").state()
            opens.append((time.perf_counter() - begin) * 1000)
    return {"commit": statistics.median(times), "open": statistics.median(opens)}


def measure_pruning(folder: Path, count: int) -> dict[str, float]:
    with strandline.open(str(folder / f"lake-{count}"), upkeep=False) as store:
        before = resident_mb()
        state = store.shard("wide").state()
        chunks = Chunks(store.env, "wide")
        wanted = parse_filter([("amount", ">", count - 3.0)], state.schema)

        def prune() -> int:
            listing = list_snapshot(
                state,
                0,
                Want(filter=wanted),
                lambda chunk: chunks.table(chunk, shard_id=state.id, stats=True),
            )
            return len(listing.pieces)

        begin = time.perf_counter()
        kept = prune()
        cold = (time.perf_counter() - begin) * 1000
        warm = []
        for _ in range(9):
            begin = time.perf_counter()
            prune()
            warm.append((time.perf_counter() - begin) * 1000)
        return {
            "kept": kept,
            "cold": cold,
            "warm": statistics.median(warm),
            "memory": resident_mb() - before,
            "process": resident_mb(),
        }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--commits", type=int, default=200)
    options = parser.parse_args()
    sizes = [10, 1_000, 10_000, 100_000]
    with tempfile.TemporaryDirectory(prefix="strandline-bench-") as name:
        folder = Path(name)
        found = {count: measure(folder, count, options.commits) for count in sizes}
        pruned = measure_pruning(folder, sizes[-1])
    show(
        "milliseconds by number of parts (median)",
        ["parts", "commit", "open"],
        [[f"{n:,}", f"{found[n]['commit']:.2f}", f"{found[n]['open']:.2f}"] for n in sizes],
    )
    show(
        "100,000 parts",
        ["", ""],
        [
            ["parts kept by the filter", f"{pruned['kept']:.0f}"],
            ["pruning, first time, lists loaded (ms)", f"{pruned['cold']:.1f}"],
            ["pruning, lists in memory (ms)", f"{pruned['warm']:.1f}"],
            ["memory for lists and statistics (MB)", f"{pruned['memory']:.0f}"],
            ["memory of the whole process (MB)", f"{pruned['process']:.0f}"],
        ],
    )
    small, large = found[sizes[0]], found[sizes[-1]]
    commit = large["commit"] / small["commit"]
    finish(
        [
            Point(
                "metadata: commit at 100,000 parts / at 10",
                large["commit"],
                small["commit"],
                commit,
                "<= 2",
                commit <= 2,
            ),
            Point(
                "metadata: open at 100,000 parts / at 10",
                large["open"],
                small["open"],
                large["open"] / small["open"],
                "reported",
                True,
            ),
            Point(
                "metadata: pruning 100,000 parts, lists in memory, ms",
                pruned["warm"],
                50,
                pruned["warm"] / 50,
                "< 50 ms",
                pruned["warm"] < 50,
            ),
            Point(
                "metadata: pruning 100,000 parts, first time, lists loaded, ms",
                pruned["cold"],
                50,
                pruned["cold"] / 50,
                "shown",
                True,
            ),
            Point(
                "metadata: memory of the process, MB",
                pruned["process"],
                300,
                pruned["process"] / 300,
                "< 300 MB",
                pruned["process"] < 300,
            ),
        ]
    )


if __name__ == "__main__":
    main()
