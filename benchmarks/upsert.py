"""How long an upsert takes, beside Delta's MERGE, and how that grows with the table.

Batches of 100 to 200,000 changed keys, spread over the whole table, into 5 M and 50 M rows; nine in
ten replace a row. Ours and Delta's take turns on the same batches. Delta has deletion vectors on.
How our time grows is measured by itself, the two tables in turns.

    make bench NAME=upsert
    make bench NAME=upsert ARGS="--large 0"      the small table alone
    make bench NAME=upsert ARGS="--growth"       how it grows alone, without Delta
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from delta import Delta
from orders import (
    LAYOUT,
    Changes,
    compact,
    load,
    median,
    parser,
    say,
    seconds,
    spark_session,
    turns,
    workspace,
    write_orders,
)
from report import Point, finish, show

import strandline

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from strandline.spark import Table

SIZES = (100, 1_000, 10_000, 200_000)
GROWTH_SIZE = 1_000


@dataclass(frozen=True, slots=True)
class Pair:
    """Medians of ours and the peer's, in seconds; `spread` is ours, least and most."""

    ours: float
    peer: float
    spread: tuple[float, float]


def measure(
    spark: SparkSession, options: argparse.Namespace, folder: Path, count: int, sizes: list[int]
) -> dict[int, Pair]:
    """All sizes into one table, ours and Delta's in turns."""
    plain = write_orders(spark, count, folder / "plain")
    changes = Changes(folder / "changes", count)
    with (
        strandline.open(str(folder / "lake")) as store,
        Delta(options, folder / "delta") as delta,
        load(spark, store, "orders", plain) as table,
    ):
        say("loading Delta's table")
        delta.load("orders", plain)
        one_pair(spark, table, delta, changes.write(min(sizes)))
        found = {}
        for size in sizes:
            times = []
            # The first of each size warms both up.
            for number in range(options.repeat + 1):
                pair = one_pair(spark, table, delta, changes.write(size))
                if number:
                    times.append(pair)
            ours = [pair[0] for pair in times]
            found[size] = Pair(
                median(ours), median([pair[1] for pair in times]), (min(ours), max(ours))
            )
            say(f"{size:,} keys into {count:,} rows: {found[size]}")
    return found


def one_pair(spark: SparkSession, table: Table, delta: Delta, batch: Path) -> tuple[float, float]:
    size = int(batch.stem.partition("-")[2])
    ours = seconds(lambda: upsert(spark, table, batch))
    merged = delta.merge("orders", batch)
    if merged["rows"] != size - size // 10 or not merged["vectors"]:
        raise SystemExit(f"Delta did not do what it was told: {merged}")
    return ours, merged["seconds"]


def upsert(spark: SparkSession, table: Table, batch: Path) -> None:
    size = int(batch.stem.partition("-")[2])
    landed = table.upsert(spark.read.schema(LAYOUT).parquet(str(batch)))
    assert not isinstance(landed, strandline.UpperMismatch)
    if landed.upserted != size:
        raise SystemExit(f"{landed.upserted} of {size} rows were upserted")


def growth(spark: SparkSession, options: argparse.Namespace, folder: Path) -> list[Point]:
    """The same upsert into both tables in turns: nothing else differs.

    First with most blocks of the large table not cached yet; then, after an upsert that touches
    all of them, as it is from then on.
    """
    with ExitStack() as stack:
        calls: dict[str, Callable[[], object]] = {}
        large: list[Callable[[], None]] = []
        for name, count in (("small", options.rows), ("large", options.large)):
            home = folder / f"{count}"
            made = (home / "lake").exists()
            store = stack.enter_context(strandline.open(str(home / "lake")))
            if made:
                table = stack.enter_context(store.table("orders"))
                compact(table, spark)
            else:
                plain = write_orders(spark, count, home / "plain")
                table = stack.enter_context(load(spark, store, "orders", plain))
            changes = Changes(home / "growth", count)

            def call(size: int, table: Table = table, changes: Changes = changes) -> None:
                upsert(spark, table, changes.write(size))

            calls[name] = partial(call, GROWTH_SIZE)
            large.append(partial(call, min(max(SIZES), options.rows // 2)))
        cold = turns(calls, options.repeat)
        for touch_all in large:
            touch_all()
        warm = turns(calls, 2 * options.repeat)
    say(f"{GROWTH_SIZE:,} keys, in turns: {cold}, then {warm}")
    points = []
    for title, found in (("large table / small table", warm), ("the same, blocks cold", cold)):
        ratio = found["large"] / found["small"]
        goal, met = ("< 1.5", ratio < 1.5) if found is warm else ("shown", True)
        name = f"upsert: {GROWTH_SIZE} keys, {title}"
        points.append(Point(name, found["large"], found["small"], ratio, goal, met))
    return points


def main() -> None:
    made = parser(__doc__ or "")
    made.add_argument("--rows", type=int, default=5_000_000)
    made.add_argument("--large", type=int, default=50_000_000, help="0 leaves it out")
    made.add_argument("--growth", action="store_true", help="how it grows alone, without Delta")
    options = made.parse_args()
    if options.quick:
        options.rows, options.large, options.repeat = 200_000, 400_000, 2
    found: dict[int, dict[int, Pair]] = {}
    grown: list[Point] = []
    with workspace() as folder, spark_session(options) as spark:
        sizes = [size for size in SIZES if size <= options.rows // 2]
        for count in (options.rows, options.large):
            if count and not options.growth:
                found[count] = measure(spark, options, folder / f"{count}", count, sizes)
        if options.large:
            grown = growth(spark, options, folder)
    show(
        "seconds for an upsert, medians in turns",
        ["rows", "changed keys", "ours", "least - most", "Delta MERGE", "times faster"],
        [
            [
                f"{count:,}",
                f"{size:,}",
                f"{pair.ours:.3f}",
                f"{pair.spread[0]:.3f} - {pair.spread[1]:.3f}",
                f"{pair.peer:.3f}",
                f"{pair.peer / pair.ours:.1f}",
            ]
            for count, pairs in found.items()
            for size, pair in pairs.items()
        ],
    )
    finish([*points(found), *grown])


def points(found: dict[int, dict[int, Pair]]) -> list[Point]:
    made = []
    for count, pairs in found.items():
        for size, pair in pairs.items():
            ratio, goal = pair.peer / pair.ours, 10 if size <= 10_000 else 5
            name = f"upsert: {size} keys into {count} rows, Delta / ours"
            made.append(Point(name, pair.ours, pair.peer, ratio, f">= {goal}", ratio >= goal))
    return made


if __name__ == "__main__":
    main()
