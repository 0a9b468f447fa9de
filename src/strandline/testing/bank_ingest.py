"""Mutants of ingest: who is late, whose time it is, what is kept, what is compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from strandline.ingest import (
    bindings,
    decide,
    feed,
    rejects,
    road,
    stash,
    target,
    timetable,
    upserter,
)
from strandline.model.frontier import Frontier
from strandline.model.schema import TIME_COLUMN
from strandline.reading.events import Progress, Updates
from strandline.testing.mutants import Mutant, Planting, mutant

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from strandline.ingest.timetable import Position, Timetable
    from strandline.model.schema import Schema

BANK: list[Mutant] = []
_decide = decide.decide


@mutant("what is below the upper is dropped and holds nothing back (S21)", "ingest", BANK)
def late_is_stashed_again(planting: Planting) -> None:
    def wrong(
        held: Mapping[int, int], upper: Frontier, frontier: Frontier, limit: int
    ) -> decide.Plan:
        plan = _decide(held, upper, frontier, limit)
        # Two kinds only, due now or kept; and nothing is settled past what is kept.
        end = upper if plan.late else plan.end
        return decide.Plan(upper, end, (), plan.due, (*plan.late, *plan.early))

    planting.swap(target, "decide", wrong)
    planting.swap(target.Target, "drop", lambda _self: None)


@mutant("the upper is read in every turn (S25)", "ingest", BANK)
def upper_is_captured_once(planting: Planting) -> None:
    original = target.Target._seen  # noqa: SLF001

    def seen(self: target.Target) -> Frontier:
        captured: Frontier = vars(self).setdefault("captured", original(self))
        return captured

    planting.swap(target.Target, "_seen", seen)


@mutant("after a jump the state at the new upper counts, not that of before (S23)", "ingest", BANK)
def jump_is_taken_for_a_step(planting: Planting) -> None:
    original = road.ArrowRoad._old_rows  # noqa: SLF001

    def old_rows(self: road.ArrowRoad, commands: pa.Table, schema: Schema, lower: int) -> pa.Table:
        before = vars(self).setdefault("before", lower)
        vars(self)["before"] = lower
        stale = max(before + 1, self._shard.state().readable_from() + 1)
        return original(self, commands, schema, min(lower, stale))

    planting.swap(road.ArrowRoad, "_old_rows", old_rows)


@mutant("a time that may still get commands is not settled (S22)", "ingest", BANK)
def settles_one_time_too_many(planting: Planting) -> None:
    def wrong(
        held: Mapping[int, int], upper: Frontier, frontier: Frontier, limit: int
    ) -> decide.Plan:
        further = frontier if frontier.time is None else Frontier(frontier.time + 1)
        return _decide(held, upper, further, limit)

    planting.swap(target, "decide", wrong)


@mutant("what a peer has settled is compared by digest (S30)", "ingest_wrong", BANK)
def divergence_is_dropped_unseen(planting: Planting) -> None:
    def verified(self: road.ArrowRoad, updates: pa.Table, lower: int, end: Frontier) -> Frontier:  # noqa: ARG001
        return end

    planting.swap(road.ArrowRoad, "_verified", verified)


@mutant("times come from the binding shard, never from a process (S31)", "ingest", BANK)
def time_is_minted_locally(planting: Planting) -> None:
    original = bindings.Bindings._append  # noqa: SLF001

    def append(self: bindings.Bindings, offered: Position, upper: int, at_least: int) -> None:
        skew = round(self._env.random.uniform(0, 2))
        time = max(upper, at_least) + skew
        self.known.learn((time, partition, bound) for partition, bound in offered.items())
        original(self, offered, upper, at_least)

    planting.swap(bindings.Bindings, "_append", append)


@mutant("a row has the time of its own offset, whatever came before it", "ingest", BANK)
def times_are_given_first_come_first_served(planting: Planting) -> None:
    original = feed.stamped

    def stamped(rows: pa.Table, known: Timetable, sequence: Sequence[str]) -> pa.Table:
        commands = original(rows, known, sequence)
        times = pa.array(np.sort(commands.column(TIME_COLUMN).to_numpy()))
        at = commands.schema.get_field_index(TIME_COLUMN)
        return commands.set_column(at, TIME_COLUMN, times)

    planting.swap(feed, "stamped", stamped)


@mutant("what does not fit into memory is spilled, not dropped", "ingest", BANK)
def stash_is_dropped_when_full(planting: Planting) -> None:
    original = stash.Stash.add

    def add(self: stash.Stash, commands: pa.Table) -> None:
        if self.memory_bytes <= self.memory_max:
            original(self, commands)

    planting.swap(stash.Stash, "add", add)


@mutant("what was spilled comes back", "ingest", BANK)
def spill_is_forgotten(planting: Planting) -> None:
    def bring_back(self: stash.Stash, spilled: stash._Spilled) -> None:
        spilled.sizes = {}
        self._sweep()

    planting.swap(stash.Stash, "_bring_back", bring_back)


@mutant("of one key and time the last offset counts, in any order of arrival (S32)", "ingest", BANK)
def order_is_that_of_arrival(planting: Planting) -> None:
    original = feed.stamped

    def stamped(rows: pa.Table, known: Timetable, sequence: Sequence[str]) -> pa.Table:
        commands = original(rows, known, sequence)
        at = commands.schema.get_field_index("_order1")
        arrival = pa.array(np.arange(commands.num_rows, dtype=np.int64))
        return commands.set_column(at, "_order1", arrival)

    planting.swap(feed, "stamped", stamped)


@mutant("the input is complete up to the least time that is unread", "ingest", BANK)
def frontier_forgets_what_is_unread(planting: Planting) -> None:
    def frontier(self: Timetable, position: Mapping[str, int]) -> Frontier:  # noqa: ARG001
        return self.upper

    planting.swap(timetable.Timetable, "frontier", frontier)


@mutant("bindings are learned when they are complete: they come in any order", "ingest", BANK)
def bindings_are_learned_as_they_come(planting: Planting) -> None:
    def learn(self: bindings.Bindings, needed: Frontier, upper: Frontier, wait_ms: int) -> None:
        event = self._following(needed, upper).poll(wait_ms)
        if isinstance(event, Updates):
            for row in sorted(event.rows.to_pylist(), key=lambda row: row["_time"]):
                if row["_diff"] > 0:
                    self.known.learn([(row["_time"], row["partition"], row["bound"])])
        elif isinstance(event, Progress):
            self.known.settled(event.frontier)

    planting.swap(bindings.Bindings, "_learn", learn)


@mutant("a good value heals its key's error (S33)", "ingest", BANK)
def errors_never_heal(planting: Planting) -> None:
    original = rejects.errors

    def errors(commands: pa.Table, schema: Schema) -> pa.Table:
        found = original(commands, schema)
        return found.filter(pa.array(rejects.rejected(commands, schema)))

    planting.swap(upserter, "errors", errors)
