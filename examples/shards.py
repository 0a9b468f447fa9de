"""Shards without Spark: one shard, two writers, a kill, and every promise checked before your eyes.

    python examples/shards.py

Everything happens in a temporary folder. Each claim is checked when it is made; the first one
that does not hold ends the demonstration with an error.
"""

from __future__ import annotations

import hashlib
import signal
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from itertools import pairwise

import pyarrow as pa
from rich.console import Console
from rich.table import Table

import strandline
from strandline.cli.main import main as command

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("writer", pa.string()),
        pa.field("amount", pa.int64()),
    ]
)
ROWS = 2_000
"""Rows of one append: too many to stay in the metadata, so each becomes a part."""
KILLED_AFTER = 8
SURVIVOR_APPENDS = 24

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


def batch(writer: str, start: int, count: int = ROWS) -> pa.Table:
    ids = pa.array(range(start, start + count), pa.int64())
    amounts = pa.array((number * 7 % 100 for number in range(start, start + count)), pa.int64())
    return pa.table({"id": ids, "writer": [writer] * count, "amount": amounts}, schema=SCHEMA)


def fingerprint(rows: pa.Table) -> str:
    """A digest of rows that does not depend on their order or on how they were cut."""
    ordered = rows.sort_by("id").combine_chunks()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, ordered.schema.remove_metadata()) as out:
        out.write_table(ordered.replace_schema_metadata(None))
    return hashlib.sha256(sink.getvalue()).hexdigest()[:16]


# ---- what the two processes do


def write(folder: str, name: str, first: int, appends: int) -> None:
    """Append, and say so after each append that counts."""
    with (
        strandline.open(folder, upkeep=False) as store,
        store.shard("orders").writer(f"demo, {name}") as writer,
    ):
        print("ready", flush=True)
        sys.stdin.readline()
        for turn in range(appends):
            done = writer.append(batch(name, first + turn * ROWS))
            print(turn, done.upper.time, flush=True)


class WriterProcess:
    """A writer in a process of its own, which waits for `go`."""

    def __init__(self, folder: str, name: str, first: int, appends: int) -> None:
        arguments = [sys.executable, __file__, folder, name, str(first), str(appends)]
        self._running = subprocess.Popen(
            arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.confirmed: list[int] = []
        """The times at which it was told that its appends are settled."""
        self._read()

    def go(self) -> None:
        if self._running.stdin is not None:
            self._running.stdin.write("go\n")
            self._running.stdin.close()

    def wait_for(self, appends: int) -> None:
        while len(self.confirmed) < appends and self._read():
            pass

    def wait(self) -> int:
        """Its exit code, after all that it still had to say."""
        while self._read():
            pass
        return self._running.wait()

    def kill(self) -> None:
        self._running.send_signal(signal.SIGKILL)

    def _read(self) -> str:
        line = "" if self._running.stdout is None else self._running.stdout.readline()
        words = line.split()
        if line.endswith("\n") and len(words) == 2:
            self.confirmed.append(int(words[1]) - 1)
        return line


# ---- the chapters


def two_writers(folder: str, shard: strandline.Shard) -> None:
    chapter(
        1,
        "Two processes append to one shard, and one is killed",
        f"Each appends {ROWS:,} rows at a time. After {KILLED_AFTER} appends one gets kill -9.",
    )
    survivor = WriterProcess(folder, "survivor", 0, SURVIVOR_APPENDS)
    victim = WriterProcess(folder, "victim", 10_000_000, 1_000_000)
    for writer in (survivor, victim):
        writer.go()
    victim.wait_for(KILLED_AFTER)
    victim.kill()
    promise("one is dead in the middle of its work", holds=victim.wait() == -signal.SIGKILL)
    promise("the other did not notice and finished", holds=survivor.wait() == 0)

    counts = dict(shard.snapshot().to_polars().group_by("writer").len().iter_rows())
    promise(
        f"all {counts['survivor']:,} rows of the survivor are there",
        holds=counts["survivor"] == SURVIVOR_APPENDS * ROWS,
    )
    told = len(victim.confirmed) * ROWS
    extra = counts["victim"] - told
    promise(
        f"all {told:,} rows that the victim had confirmed are there"
        + (", and so is the append it died in, whole" if extra else ""),
        holds=extra in {0, ROWS},
    )
    ids = shard.snapshot(columns=["id"]).to_polars()
    promise(
        f"none of the {ids.height:,} rows is there twice", holds=ids.unique().height == ids.height
    )
    times = dict.fromkeys(survivor.confirmed, "survivor") | dict.fromkeys(
        victim.confirmed, "victim"
    )
    order = [times[time] for time in sorted(times)]
    turns = sum(one != other for one, other in pairwise(order))
    screen.print(f"   One history: the turn changed {turns} time(s).", style="dim")


def a_race(shard: strandline.Shard) -> None:
    upper = shard.upper.time or 0
    chapter(
        2,
        "Two replicas compute the same time, and one of them wins",
        f"Both call compare_and_append(lower={upper}): whoever is late is told so.",
    )
    rows = batch("replica", 20_000_000)
    with shard.writer("replica a") as a, shard.writer("replica b") as b:
        won = a.compare_and_append(rows, lower=upper, upper=upper + 1)
        lost = b.compare_and_append(rows, lower=upper, upper=upper + 1)
        promise(
            f"a: appended, the upper is now {won.upper}", holds=isinstance(won, strandline.Appended)
        )
        promise(
            f"b: too late, upper is {lost.upper}", holds=isinstance(lost, strandline.UpperMismatch)
        )
        b.verify(rows, lower=upper, upper=upper + 1)
        promise("b asks whether the winner wrote the same rows: the digests are equal", holds=True)
        try:
            b.verify(batch("replica", 20_000_001), lower=upper, upper=upper + 1)
        except strandline.ReplicaDivergedError:
            promise("other rows for the same time are refused: ReplicaDivergedError", holds=True)
        else:
            promise("other rows for the same time are refused", holds=False)


def time_travel(shard: strandline.Shard) -> tuple[int, str]:
    time = (shard.upper.time or 0) // 2
    chapter(3, "Any time can be read again", f"As of {time}, as of its instant, and again.")
    first = fingerprint(shard.snapshot(as_of=time).to_arrow())
    moment = next(each for each in shard.state().moments if each.time == time)
    instant = datetime.fromtimestamp(moment.instant_ms / 1000, UTC)
    by_instant = shard.snapshot(as_of=instant)
    screen.print(f"   as of {time}: {first}")
    promise(
        "twice the same rows", holds=fingerprint(shard.snapshot(as_of=time).to_arrow()) == first
    )
    again = fingerprint(shard.snapshot(as_of=by_instant.as_of).to_arrow())
    promise(
        f"as of {instant:%H:%M:%S.%f}"[:-3] + f" is as of {by_instant.as_of}",
        holds=fingerprint(by_instant.to_arrow()) == again and by_instant.as_of >= time,
    )
    return time, first


def follow(shard: strandline.Shard) -> None:
    upper = shard.upper.time or 0
    chapter(
        4,
        "Changes can be followed",
        f"The rows as of {upper - 1}, then every update, while a writer appends three times.",
    )
    total = waiting = 0
    frontiers: list[int | None] = []
    with shard.writer("demo, live") as writer, shard.subscribe(until=upper + 3) as subscription:
        for event in subscription:
            match event:
                case strandline.Updates():
                    waiting += event.rows.num_rows
                    total += int(event.diffs.sum())
                case strandline.Progress():
                    frontiers.append(event.frontier.time)
                    screen.print(
                        f"   {waiting:>7,} updates, then [cyan]{event.frontier}[/]: "
                        + ("the end" if event.frontier.is_closed else "all before it is final")
                    )
                    waiting = 0
                    if not event.frontier.is_closed:
                        writer.append(batch("live", 30_000_000 + total, 500))
    known = [time for time in frontiers if time is not None]
    promise("frontiers only ever moved forward", holds=known == sorted(set(known)))
    with shard.snapshot(as_of=upper + 2) as snapshot:
        promise(
            f"all updates add up to the {total:,} rows of a snapshot: no gap, no overlap",
            holds=total == snapshot.count(),
        )


def tidy_up(folder: str, shard: strandline.Shard, time: int, before: str) -> None:
    chapter(
        5,
        "History is merged, but never what somebody holds",
        f"A reader holds {time}; keep 1 version, then compact everything.",
    )
    with shard.reader(since=time, purpose="demo, keeps an old time readable"):
        shard.retain("1 versions")
        figures = [_figures(shard)]
        shard.compact(full=True)
        figures.append(_figures(shard))
        _print_figures(figures)
        promise("fewer parts", holds=figures[1][0] < figures[0][0])
        promise(
            f"as of {time} it still answers {before}",
            holds=fingerprint(shard.snapshot(as_of=time).to_arrow()) == before,
        )
        chapter(6, "Who holds what", "strandline holds LAKE orders")
        promise(
            "every hold has a name and a process", holds=command(["holds", folder, "orders"]) == 0
        )
    shard.compact(full=True)
    promise(
        f"the reader is gone: since moved to {shard.since}", holds=(shard.since.time or 0) > time
    )
    try:
        shard.snapshot(as_of=time)
    except strandline.SinceError as error:
        promise(
            f"as of {time} is refused; the oldest is {error.oldest}", holds=error.oldest is not None
        )
    else:
        promise(f"as of {time} is refused", holds=False)


def _figures(shard: strandline.Shard) -> tuple[int, int, int]:
    state = shard.state()
    parts = [part for each in state.batches for part in each.parts]
    size = sum(part.size for part in parts) + state.inline_bytes()
    return len(parts), sum(each.rows for each in state.batches), size


def _print_figures(figures: list[tuple[int, int, int]]) -> None:
    table = Table("", "parts", "updates", "bytes", box=None, padding=(0, 3))
    for label, (parts, updates, size) in zip(("before", "after"), figures, strict=True):
        table.add_row(label, f"{parts:,}", f"{updates:,}", f"{size:,}")
    screen.print(table)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="strandline-demo-") as folder:
        with strandline.open(folder, upkeep=False) as store:
            shard = store.shard("orders", schema=SCHEMA, key=["id"])
            screen.print("[bold]Strandline: tables with a clock[/]")
            screen.print(
                f"A store in {folder}, one shard [bold]orders[/] with the key id.", style="dim"
            )
            two_writers(folder, shard)
            a_race(shard)
            time, answer = time_travel(shard)
            follow(shard)
            tidy_up(folder, shard, time, answer)
            chapter(7, "And the store is whole", "strandline fsck LAKE --deep")
        promise("fsck found nothing wrong", holds=command(["fsck", folder, "--deep"]) == 0)
    screen.print(
        "\n[bold]What you saw:[/] two processes writing one history, a kill that lost nothing, a "
        "race with one winner, the past read twice with the same answer, and a store that cleaned "
        "up after itself."
    )


if __name__ == "__main__":
    if len(sys.argv) == 5:
        write(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    else:
        main()
