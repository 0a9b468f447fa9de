"""Whether the answer depends on how Spark divides the work: one history, computed again and again.

A history of upserts, deletes, rows that can't be decoded, a linear view, one that raises and one
that is computed anew is made once. Then all of it is replayed by other Sparks: with 1, 2 and 4
tasks and partitions, with adaptive execution on and off, and on a cluster of two hosts that starts
slow tasks a second time. Every digest of every input and of every change must be the one on record.
A replay of a record that was changed on purpose has to fail, or all of this proves nothing.

    make bench NAME=determinism
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
from orders import parser, say, workspace
from report import Point, finish, show

import strandline
from strandline.errors import ReplayDivergedError
from strandline.journal.log import Journal
from strandline.model.digest import Digest
from strandline.pipeline import replay as replaying
from strandline.pipeline.settings import PipelineSettings
from strandline.spark import session
from strandline.spark.engines import spark_engine

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.spark.cluster import ELSEWHERE, LOOPBACK, ROOT, Standalone
from tests.spark.test_speculation import EAGER

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from strandline import Store
    from strandline.journal.record import Commit
    from strandline.pipeline.pipeline import Pipeline

SQL = """
CREATE TABLE orders (id BIGINT, customer BIGINT, amount DECIMAL(12,2), PRIMARY KEY (id))
  USING generator
  OPTIONS (seed '7', keys '{keys}', skew '1', deletes '0.05', rowsPerSecond '0', rows '{rows}');
CREATE TABLE notes (id BIGINT, text STRING, seen BIGINT, PRIMARY KEY (id))
  USING files OPTIONS (path '{notes}', format 'json', envelope 'upsert', sequenceBy 'seen');
CREATE MATERIALIZED VIEW large AS SELECT id, customer, amount FROM orders WHERE amount >= 5000;
CREATE MATERIALIZED VIEW shares AS
  SELECT id, CAST(seen AS DECIMAL(9,2)) / (id - 7) AS share FROM notes;
CREATE MATERIALIZED VIEW totals REFRESH FULL AS
  SELECT customer % 100 AS region, COUNT(*) AS orders, SUM(amount) AS amount, MIN(id) AS first
  FROM orders GROUP BY customer % 100;
CREATE MATERIALIZED VIEW noted REFRESH FULL AS
  SELECT n.id, n.text, o.amount FROM notes n JOIN orders o ON n.id = o.id;
"""
FACTS = {"spark.ui.showConsoleProgress": False}


@dataclass(frozen=True, slots=True)
class Variant:
    """A Spark that computes history again."""

    name: str
    master: str
    settings: dict[str, str]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of it."""

    transactions: int
    digests: int
    different: int
    seconds: float
    doubled: int = 0
    """Tasks that were started a second time."""


def variants(*, quick: bool) -> Iterator[Variant]:
    for tasks in (1, 2, 4):
        for adaptive in ("true", "false"):
            if quick and (tasks, adaptive) not in {(1, "true"), (4, "false")}:
                continue
            settings = {
                "spark.sql.shuffle.partitions": str(tasks),
                "spark.sql.leafNodeDefaultParallelism": str(tasks),
                "spark.sql.adaptive.enabled": adaptive,
            }
            words = (
                f"{tasks} partition{'s' * (tasks > 1)}, AQE {'on' if adaptive == 'true' else 'off'}"
            )
            yield Variant(words, f"local[{tasks}]", settings)


def main() -> None:
    made = parser(__doc__ or "")
    made.add_argument("--transactions", type=int, default=40)
    made.add_argument("--rows", type=int, default=20_000, help="that a transaction takes")
    options = made.parse_args()
    if options.quick:
        options.transactions, options.rows = 6, 1_000
    found: dict[str, Outcome] = {}
    with workspace() as folder:
        write_notes(folder / "notes", options)
        lake = folder / "lake"
        sql = SQL.format(
            keys=options.rows, rows=options.rows * options.transactions, notes=folder / "notes"
        )
        first = Variant("", f"local[{options.cores}]", {})
        with running(first, options) as spark, strandline.open(str(lake)) as store:
            make(store, spark, sql, options)
            caught = lies_are_caught(store, spark)
        for variant in variants(quick=options.quick):
            found[variant.name] = computed_again(variant, lake, options)
        found["speculation, two hosts"] = speculated(folder, lake, options)
    tell(found, caught=caught)


def write_notes(folder: Path, options: argparse.Namespace) -> None:
    """A file for each transaction; some lines are not JSON, and most of those heal later."""
    folder.mkdir()
    for number in range(options.transactions):
        lines = []
        for at in range(200):
            row = {"id": (number * 37 + at) % 1000, "text": f"note {number}", "seen": number}
            lines.append(json.dumps(row) if (at + number) % 50 else f'{{"id": {row["id"]}, "seen":')
        (folder / f"{number:04}.json").write_text("\n".join(lines) + "\n")


@contextmanager
def running(variant: Variant, options: argparse.Namespace) -> Iterator[SparkSession]:
    settings = {"spark.driver.memory": options.memory, **FACTS, **variant.settings}
    spark = session("determinism", master=variant.master, settings=settings)
    try:
        yield spark
    finally:
        spark.stop()


CHECKED = ("orders", "notes", "notes_errors", "large", "shares", "shares_errors", "totals", "noted")


def opened(store: Store, spark: SparkSession, sql: str | None, rows: int = 0) -> Pipeline:
    settings = PipelineSettings(rows_max=rows or 1, delay_ms=0)
    return store.pipeline("shop", sql, settings=settings, engine=spark_engine(spark))


def make(store: Store, spark: SparkSession, sql: str, options: argparse.Namespace) -> None:
    say(f"making {options.transactions} transactions")
    with opened(store, spark, sql, options.rows) as shop:
        shop.run(until_idle=True)
        counts = {name: shop.collection(name).snapshot().count() for name in CHECKED}
    if not all(counts.values()):
        raise SystemExit(f"a collection that should have rows has none: {counts}")
    say(f"rows at the end: {counts}")


def lies_are_caught(store: Store, spark: SparkSession) -> bool:
    """Whether a digest on record that is not what was computed stops a replay."""
    real = replaying.recorded

    def lying(*told: object) -> Iterator[replaying.Recorded]:
        for each in real(*told):  # type: ignore[arg-type]
            name = min(each.commit.deltas)
            wrong = Digest.unpack(each.commit.deltas[name]) + Digest.unpack(
                each.commit.deltas[name]
            )
            deltas = {**each.commit.deltas, name: wrong.pack()}
            commit: Commit = msgspec.structs.replace(each.commit, deltas=deltas)
            yield replaying.Recorded(each.standing, each.sealed, commit)

    replaying.recorded = lying
    try:
        with opened(store, spark, None) as shop:
            for _ in shop.replay(0, 1):
                return False
    except ReplayDivergedError:
        return True
    finally:
        replaying.recorded = real
    return False


def computed_again(variant: Variant, lake: Path, options: argparse.Namespace) -> Outcome:
    say(f"replaying: {variant.name}")
    with running(variant, options) as spark, strandline.open(str(lake), upkeep=False) as store:
        begin = time.perf_counter()
        with opened(store, spark, None) as shop:
            end = shop.committed.time or 0
            digests = sum(
                len(each.commit.inputs) + len(each.commit.deltas)
                for each in replaying.recorded(Journal(store.env, shop.name), 0, end)
            )
            done = different = 0
            try:
                for each in shop.replay():
                    done += 1
                    different += len(each.noted)
            except ReplayDivergedError as error:
                say(f"DIFFERENT: {error}")
                different += 1
        return Outcome(done, digests, different, time.perf_counter() - begin)


def speculated(folder: Path, lake: Path, options: argparse.Namespace) -> Outcome:
    """On a real cluster, as Spark starts a task a second time only on another host."""
    home, events = folder / "cluster", folder / "events"
    home.mkdir()
    events.mkdir()
    cluster = Standalone(home, hosts=(LOOPBACK, ELSEWHERE))
    settings = {
        **EAGER,
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.executor.memory": "512m",
        "spark.executorEnv.PYTHONPATH": f"{ROOT}/src:{Path(pa.__file__).parents[1]}",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
    }
    try:
        cluster.start()
        variant = Variant("speculation on a cluster of two hosts", cluster.url, settings)
        found = computed_again(variant, lake, options)
    finally:
        cluster.close()
    doubled = sum(
        json.loads(line).get("Task Info", {}).get("Speculative", False)
        for log in events.iterdir()
        for line in log.read_text().splitlines()
        if '"SparkListenerTaskStart"' in line
    )
    return Outcome(found.transactions, found.digests, found.different, found.seconds, doubled)


def tell(found: dict[str, Outcome], *, caught: bool) -> None:
    show(
        "the same history, computed again",
        ["Spark", "transactions", "digests", "different", "tasks twice", "seconds"],
        [
            [
                name,
                *(f"{each:,}" for each in (one.transactions, one.digests, one.different)),
                f"{one.doubled:,}",
                f"{one.seconds:.1f}",
            ]
            for name, one in found.items()
        ],
    )
    transactions = max(one.transactions for one in found.values())
    different = sum(one.different for one in found.values())
    whole = all(one.transactions == transactions for one in found.values())
    digests = sum(one.digests for one in found.values())
    last = list(found.values())[-1].doubled
    finish(
        [
            Point(
                f"determinism: digests that differ, {len(found)} Sparks",
                different,
                digests,
                different / digests,
                "0",
                whole and not different,
            ),
            Point(
                "determinism: a changed record is caught", int(caught), 1, int(caught), "1", caught
            ),
            Point("determinism: tasks run twice", last, 0, last, "> 0", last > 0),
        ]
    )


if __name__ == "__main__":
    main()
