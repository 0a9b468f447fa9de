"""The main job: a shop kept by two replicas, one of them killed with -9, and replayed.

    make demo            or: python examples/demo.py --transactions 30 --rows 10000

Three processes in a temporary folder: two replicas, each with a Spark of its own, and this one,
which only watches. Each claim is checked when it is made; the first one that does not hold ends
the demonstration with an error.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table as Grid

import strandline
import strandline.spark
from strandline.connectors.generator import recipe
from strandline.pipeline.settings import PipelineSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from strandline.pipeline.pipeline import Pipeline
    from strandline.pipeline.report import TransactionSummary

SQL = """\
CREATE TABLE orders
  (id BIGINT, customer BIGINT, amount DECIMAL(12,2), PRIMARY KEY (id))
  USING generator
  OPTIONS (seed '7', keys '{keys}', deletes '0.05',
           rowsPerSecond '0', rows '{rows}');

CREATE MATERIALIZED VIEW large AS
  SELECT id, customer, amount FROM orders WHERE amount >= 5000;
"""
LARGE = 5000
ORDERS = "shop.orders"
NAMES = ("a", "b")
LOOK_S = 0.01
PATIENCE_S = 200

screen = Console(highlight=False)


class BrokenPromiseError(Exception):
    """Something that Strandline promises did not hold."""


def chapter(number: int, title: str, text: str) -> None:
    screen.print(f"\n[bold cyan]{number}  {title}[/]")
    screen.print(text, style="dim")


def promise(text: str, *, holds: bool) -> None:
    if not holds:
        screen.print(f"   [bold red]✗ {text}[/]")
        raise BrokenPromiseError(text)
    screen.print(f"   [green]✓[/] {text}")


def looking(what: str) -> Iterator[None]:
    """The rounds of a wait for `what`, with a pause between them and an end."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        yield
        time.sleep(LOOK_S)
    raise BrokenPromiseError(f"{what} did not come within {PATIENCE_S} seconds")


# ---- what a replica does: the same as `strandline run shop.sql --replica a`


def run_replica(folder: str, name: str, sql: str, rows: int) -> None:
    """Run when told so, say who appended what, and compute all of it again at the end."""
    # A Java that lives for a minute is faster when it compiles less.
    java = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}
    strandline.spark.session(f"replica {name}", settings=java)
    settings = PipelineSettings(rows_max=rows, delay_ms=0)
    with (
        strandline.open(folder) as store,
        store.pipeline("shop", sql, replica=name, settings=settings) as shop,
    ):
        tell(ready=True)
        if not sys.stdin.readline():
            return
        shop.start()
        threading.Thread(target=tell_who_won, args=(store, shop), daemon=True).start()
        if not sys.stdin.readline():
            return
        shop.stop()
        for each in shop.replay():
            tell(replayed=each.t, rows=each.rows, differences=list(each.noted))
        tell(done=True)


def tell_who_won(store: strandline.Store, shop: Pipeline) -> None:
    """After each commit: whether the change of the orders was appended here or by the other one."""
    seen, won = 0, 0.0
    while (now := shop.here) is not None:
        time.sleep(LOOK_S)
        committed = now.committed.time or 0
        if committed > seen:
            before, won = won, store.env.metrics.value("appends", ORDERS)
            tell(t=committed - 1, won=won > before)
            seen = committed


def tell(**what: object) -> None:
    print(json.dumps(what), flush=True)


# ---- what this process sees of them


class Replica:
    """A replica in a process of its own, which waits for `go`."""

    def __init__(self, folder: Path, name: str, sql: str, rows: int) -> None:
        self.name = name
        self.won: set[int] = set()
        self.heard = -1
        """The last transaction that it has spoken about."""
        self.ready = self.done = False
        self.replayed: list[dict[str, object]] = []
        self._log = folder / f"{name}.log"
        told = ["--replica", name, "--folder", str(folder / "lake"), "--rows", str(rows)]
        with self._log.open("wb") as log:
            self.running = subprocess.Popen(
                [sys.executable, __file__, *told, "--sql", sql],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        threading.Thread(target=self._listen, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End it, whatever it does."""
        if self.running.poll() is None:
            self.kill()

    def go_on(self) -> None:
        assert self.running.stdin is not None
        print("go", file=self.running.stdin, flush=True)

    def wait(self, what: str, holds: Callable[[], bool]) -> None:
        for _ in looking(what):
            if holds():
                return
            if self.running.poll() is not None and not holds():
                said = self._log.read_text(errors="replace")[-4000:]
                raise BrokenPromiseError(f"replica {self.name} ended by itself: {said}")

    def kill(self) -> None:
        """`kill -9` of the process and of all that it started: Java, Python workers."""
        os.killpg(self.running.pid, signal.SIGKILL)
        self.running.wait()

    def _listen(self) -> None:
        assert self.running.stdout is not None
        for line in self.running.stdout:
            said = json.loads(line)
            if "t" in said:
                self.heard = said["t"]
                self.won |= {said["t"]} if said["won"] else set()
            if "replayed" in said:
                self.replayed.append(said)
            self.ready |= "ready" in said
            self.done |= "done" in said


class Watcher:
    """Prints each transaction when it is committed."""

    def __init__(self, shop: Pipeline, replicas: list[Replica]) -> None:
        self.shop = shop
        self._replicas = replicas
        self._told = 0
        self.killed_in = -1
        """The transaction in the middle of which a replica was killed."""
        self.seen: list[TransactionSummary] = []

    @property
    def committed(self) -> int:
        return self.shop.committed.time or 0

    def until(self, transactions: int) -> None:
        """Watch until so many are committed."""
        for replica in self._replicas:
            if replica.running.poll() is None:
                replica.wait(f"transaction {transactions - 1}", lambda: self._look(transactions))
                return

    def _look(self, transactions: int) -> bool:
        new = self.committed - len(self.seen)
        if new:
            self.seen += self.shop.history(new)[::-1]
        # One behind, so that both replicas had the time to say who was faster.
        enough = len(self.seen) >= transactions
        self._tell(len(self.seen) if enough else len(self.seen) - 1)
        return enough

    def _tell(self, upto: int) -> None:
        for each in self.seen[self._told : upto]:
            for _ in looking("a winner"):
                if winner := self.winner(each.t):
                    break
            took = each.instant_ms - each.began_ms
            change = each.changes.get("orders", 0)
            side = "" if winner == NAMES[0] else " " * 10
            screen.print(
                f"   {each.t:>4}  {each.rows:>8,} rows  {change:>+8,} orders  {took:>6,} ms   "
                f"{side}[bold]{winner}[/]"
            )
        self._told = max(self._told, upto)

    def winner(self, t: int) -> str:
        """Whose append of the orders counted; empty while somebody has yet to say."""
        for each in self._replicas:
            if t in each.won:
                return each.name
        alive = [each for each in self._replicas if each.running.poll() is None]
        if any(each.heard < t for each in alive):
            return ""
        # It was none of those who live. Who dies says nothing.
        dead = [each.name for each in self._replicas if each not in alive]
        return dead[0] if dead and t <= self.killed_in else "?"

    def rate(self, first: int, stop: int) -> float:
        """Rows a second over some transactions."""
        some = self.seen[first:stop]
        return sum(each.rows for each in some) * 1000 / (some[-1].instant_ms - some[0].began_ms)


# ---- the chapters


def show_program(sql: str) -> None:
    chapter(1, "A program", "Orders are made up from a seed; one in twenty rows deletes its order.")
    screen.print(Syntax(sql.rstrip(), "sql", theme="ansi_dark", padding=(0, 3)))


def race(watcher: Watcher, replicas: list[Replica], upto: int) -> None:
    chapter(
        2,
        "Two replicas, one history",
        "Both run the whole program. What goes into a transaction is agreed on first; then both "
        "compute it, and whoever is faster appends it. The other one compares digests and goes on.",
    )
    screen.print("   [bold]time        came in           change      took   appended by[/]")
    for replica in replicas:
        replica.go_on()
    watcher.until(upto)


def kill(watcher: Watcher, replicas: list[Replica], upto: int) -> Replica:
    """Kill whoever was faster last, in the middle of a transaction; returns the survivor."""
    faster = watcher.winner(len(watcher.seen) - 1)
    victim, survivor = sorted(replicas, key=lambda each: each.name != faster)
    sealed = -1
    for _ in looking("a sealed transaction"):
        found = watcher.shop.status().sealed
        if found is not None:
            sealed = found
            break
    begin = time.perf_counter()
    victim.kill()
    chapter(
        3,
        f"kill -9 {victim.running.pid}",
        f"Replica {victim.name} is dead, with transaction {sealed} agreed on and not committed.",
    )
    watcher.killed_in = sealed
    survivor.wait("the survivor's frontier", lambda: watcher.committed > sealed)
    moved = (time.perf_counter() - begin) * 1000
    promise(
        f"the survivor's frontier moved after {moved:,.0f} ms: {{{watcher.committed}}}, by "
        f"replica {survivor.name} alone",
        holds=watcher.committed > sealed and victim.running.poll() == -signal.SIGKILL,
    )
    watcher.until(upto)
    return survivor


def told_of(watcher: Watcher, replicas: list[Replica], killed_at: int, stop: int) -> None:
    times = [each.t for each in watcher.seen]
    promise(f"{stop} transactions, none lost, none twice", holds=times == list(range(stop)))
    wins = " and ".join(f"{each.name} {len(each.won)}" for each in replicas)
    screen.print(f"   appended by {wins}")
    # The first transactions warm up.
    both, one = watcher.rate(2, killed_at), watcher.rate(killed_at + 1, stop)
    screen.print(f"   {both:,.0f} rows a second by two replicas, {one:,.0f} by the survivor alone")


def check(watcher: Watcher, options: dict[str, str], killed_at: int) -> None:
    chapter(
        4,
        "Is it right?",
        "The same rows through a loop of plain Python, beside the table and its view. Read "
        "without Spark, as they are now and as they were when the replica died.",
    )
    grid = Grid("as of", "orders", "large ones", "worth", box=None, padding=(0, 3))
    for as_of in (killed_at, len(watcher.seen) - 1):
        rows = sum(each.rows for each in watcher.seen[: as_of + 1])
        orders = expected(options, rows)
        large = {row for row in orders if row[2] >= LARGE}
        table, view = (read(watcher.shop, name, as_of) for name in ("orders", "large"))
        promise(
            f"as of {as_of}: {rows:,} rows came in, and every order is as the last of them says",
            holds=orders == table and large == view,
        )
        worth = f"{sum(row[2] for row in large):,}"
        grid.add_row(str(as_of), f"{len(orders):,}", f"{len(large):,}", worth)
    screen.print(grid)


def expected(options: dict[str, str], rows: int) -> set[tuple[object, ...]]:
    """What there should be after so many rows: the last one of each key, unless it deletes."""
    found: dict[int, tuple[object, ...] | None] = {}
    for row in recipe(options).rows(0, rows).to_pylist():
        order = (row["id"], row["customer"], row["amount"])
        found[row["id"]] = None if row["_delete"] else order
    return {row for row in found.values() if row is not None}


def read(shop: Pipeline, name: str, as_of: int) -> set[tuple[object, ...]]:
    rows = shop.collection(name).snapshot(as_of).to_arrow().select(["id", "customer", "amount"])
    return set(zip(*(column.to_pylist() for column in rows.columns), strict=True))


def replay(survivor: Replica, transactions: int) -> None:
    chapter(
        5,
        "Replay",
        "The survivor computes all of history again, from the same rows, and compares the digest "
        "of every input and of every change with the one on record.",
    )
    begin = time.perf_counter()
    survivor.go_on()
    survivor.wait("the replay", lambda: survivor.done)
    taken = time.perf_counter() - begin
    rows = sum(int(str(each["rows"])) for each in survivor.replayed)
    screen.print(f"   {rows:,} rows in {taken:.1f} s")
    promise(
        f"{transactions} transactions computed again, all digests equal",
        holds=len(survivor.replayed) == transactions
        and not any(each["differences"] for each in survivor.replayed),
    )


def demonstrate(transactions: int, rows: int) -> None:
    begin = time.perf_counter()
    total = rows * transactions
    options = {"seed": "7", "keys": str(total // 4), "deletes": "0.05"}
    options["columns"] = "id bigint, customer bigint, amount decimal(12,2)"
    sql = SQL.format(keys=options["keys"], rows=total)
    killed_at = max(3, transactions // 2)
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="strandline-demo-")))
        replicas = [stack.enter_context(Replica(scratch, name, sql, rows)) for name in NAMES]
        show_program(sql)
        screen.print("\nStarting two replicas, each with a Spark of its own …", style="dim")
        for replica in replicas:
            replica.wait("its start", lambda replica=replica: replica.ready)
        store = stack.enter_context(strandline.open(str(scratch / "lake"), upkeep=False))
        watcher = Watcher(store.pipeline("shop", sql), replicas)
        race(watcher, replicas, killed_at)
        survivor = kill(watcher, replicas, transactions)
        told_of(watcher, replicas, killed_at, transactions)
        check(watcher, options, killed_at)
        replay(survivor, transactions)
    seconds = time.perf_counter() - begin
    screen.print(f"\n[bold green]Everything held.[/] {seconds:.0f} seconds, with Spark's starts.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--transactions", type=int, default=24)
    parser.add_argument("--rows", type=int, default=10_000, help="that a transaction takes")
    parser.add_argument("--replica", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    parser.add_argument("--sql", help=argparse.SUPPRESS)
    told = parser.parse_args()
    if told.replica:
        run_replica(told.folder, told.replica, told.sql, told.rows)
    else:
        demonstrate(told.transactions, told.rows)


if __name__ == "__main__":
    main()
