"""Mutants of reading: listing, fetching, frontiers and filters."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import pyarrow.compute as pc

from strandline.model.frontier import Frontier
from strandline.parts import consolidate, prune, sweep
from strandline.reading import (
    accounts,
    extract,
    ledger,
    lister,
    listing,
    snapshot,
    stop,
    subscribe,
    view,
)
from strandline.shard import frontiers
from strandline.testing.mutants import Mutant, Planting, mutant

if TYPE_CHECKING:
    import pyarrow as pa

    from strandline.model.valuehash import Mask
    from strandline.parts.part import Chunk, Part
    from strandline.reading.descriptor import PartDescriptor
    from strandline.shard.lease import ReadLease
    from strandline.shard.machine import Machine
    from strandline.shard.state import State

BANK: list[Mutant] = []


@mutant("a snapshot includes as_of", "reads", BANK)
def snapshot_leaves_as_of_out(planting: Planting) -> None:
    original = extract._within  # noqa: SLF001

    def within(wanted: PartDescriptor, found: pa.Table) -> pa.Table:
        rows = original(wanted, found)
        if wanted.as_of is None or "_time" not in rows.column_names:
            return rows
        return rows.filter(pc.less(rows.column("_time"), wanted.as_of))

    planting.swap(extract, "_within", within)


@mutant("a time before since is refused", "reads", BANK)
def merged_times_are_served(planting: Planting) -> None:
    planting.swap_all((listing, snapshot), "check_since", lambda _state, _time: None)


@mutant("changes from 0 include what was merged at 0", "changes", BANK)
def merged_rows_are_no_changes(planting: Planting) -> None:
    original = listing.list_changes

    def listed(*arguments: object) -> listing.Listing:
        found = original(*arguments)  # type: ignore[arg-type]
        found.pieces = [each for each in found.pieces if not getattr(each.piece, "base", False)]
        return found

    planting.swap(view, "list_changes", listed)


@mutant("a time is settled before it is read (S38)", "reads", BANK)
def reads_never_wait(planting: Planting) -> None:
    def pinned(lease: ReadLease) -> view.View:
        found = view.pinned_view(lease)
        return replace(found, upper=Frontier.closed())

    planting.swap(snapshot, "pinned_view", pinned)


@mutant("listen leaves as_of out", "streams", BANK)
def listen_includes_as_of(planting: Planting) -> None:
    _shift_start(planting, -1)


@mutant("listen starts right after as_of", "streams", BANK)
def listen_skips_a_time(planting: Planting) -> None:
    _shift_start(planting, 1)


def _shift_start(planting: Planting, by: int) -> None:
    original = lister.Lister.__init__

    def init(self: lister.Lister, *arguments: object) -> None:
        original(self, *arguments)  # type: ignore[arg-type]
        self._after = max(0, self._after + by)

    planting.swap(lister.Lister, "__init__", init)


@mutant("rows at until and later never appear (S15)", "streams", BANK)
def until_is_ignored(planting: Planting) -> None:
    original = lister.Lister.step

    def step(self: lister.Lister) -> lister.Increment | None:
        self._times = replace(self._times, until=Frontier.closed())
        return original(self)

    planting.swap(lister.Lister, "step", step)


@mutant("an arrival settles its own account (S4)", "streams", BANK)
def arrivals_settle_the_oldest(planting: Planting) -> None:
    original = ledger.Ledger.arrived

    def arrived(self: ledger.Ledger, part: str) -> None:
        oldest = self.oldest()
        original(self, part if oldest is None else oldest[0])

    planting.swap(ledger.Ledger, "arrived", arrived)


@mutant("the frontier waits for all parts of a time (S5)", "streams", BANK)
def one_part_completes_a_time(planting: Planting) -> None:
    original = ledger.Ledger.arrived

    def arrived(self: ledger.Ledger, part: str) -> None:
        time = self._owed[part]
        self._counts[time] = 1
        original(self, part)
        self._counts.pop(time, None)

    planting.swap(ledger.Ledger, "arrived", arrived)


@mutant("what was listed is owed until it has arrived (S3)", "streams", BANK)
def listing_is_progress(planting: Planting) -> None:
    planting.swap(ledger.Ledger, "frontier", property(lambda self: self.listed))


@mutant("an error is never progress (S1)", "broken", BANK)
def errors_are_progress(planting: Planting) -> None:
    def failed(self: ledger.Ledger, part: str, error: BaseException) -> None:  # noqa: ARG001
        self.arrived(part)

    planting.swap(ledger.Ledger, "failed", failed)


@mutant("an error is final (S7)", "broken", BANK)
def freeze_is_left_again(planting: Planting) -> None:
    original = ledger.Ledger.failed

    def failed(self: ledger.Ledger, part: str, error: BaseException) -> None:
        original(self, part, error)
        self._failed.clear()
        self.arrived(part)

    planting.swap(ledger.Ledger, "failed", failed)


@mutant("progress comes after the rows it speaks of", "streams", BANK)
def progress_overtakes_rows(planting: Planting) -> None:
    def next_ready(self: accounts.Accounts) -> accounts.Ready | None:
        return self._ready.pop() if self._ready else None

    planting.swap(accounts.Accounts, "next_ready", next_ready)


@mutant("nobody gives up times that another worker owes (S8)", "streams", BANK)
def one_press_stops_all(planting: Planting) -> None:
    planting.swap(stop.Stop, "all_pressed", property(lambda self: any(self._pressed)))


@mutant("the timeline is read before the state", "commits", BANK)
def timeline_is_read_last(planting: Planting) -> None:
    def pinned(lease: ReadLease) -> view.View:
        pin = lease.pin()
        state = pin.state()
        if state.timeline is None:
            return view.View(pin, state.upper, state)
        upper = lease.machine.env.timelines(state.timeline).committed()
        return view.View(pin, upper, state)

    def visible(machine: Machine, _shard_id: str | None = None) -> tuple[Frontier, State]:
        state = machine.refresh()
        if state.timeline is None:
            return state.upper, state
        return machine.env.timelines(state.timeline).committed(), state

    planting.swap_all((snapshot, lister), "pinned_view", pinned)
    planting.swap_all((frontiers, subscribe), "visible", visible)


@mutant("an uncommitted append is invisible", "timeline", BANK)
def uncommitted_rows_are_seen(planting: Planting) -> None:
    def pinned(lease: ReadLease) -> view.View:
        found = view.pinned_view(lease)
        return replace(found, upper=max(found.upper, found.state.upper))

    planting.swap_all((snapshot, lister), "pinned_view", pinned)


@mutant("statistics include their bounds (S17)", "reads", BANK)
def bounds_are_left_out(planting: Planting) -> None:
    def at_most(self: prune.Known, value: pa.Scalar) -> Mask:
        return self.below(value)

    planting.swap(prune.Known, "at_most", at_most)


@mutant("statistics know of NaN (S17)", "reads", BANK)
def nan_is_forgotten(planting: Planting) -> None:
    planting.swap(prune.Known, "is_nan", lambda self: self.nothing())


@mutant("places include their bounds", "reads", BANK)
def places_are_left_out(planting: Planting) -> None:
    original = listing._in_places  # noqa: SLF001

    def in_places(piece: Part | Chunk, places: object) -> bool:
        lo = min(piece.place_lo + 1, piece.place_hi)
        narrowed = msgspec.structs.replace(piece, place_lo=lo)
        return original(narrowed, places)  # type: ignore[arg-type]

    planting.swap(listing, "_in_places", in_places)


@mutant("retractions count", "reads", BANK)
def retractions_are_dropped(planting: Planting) -> None:
    original = consolidate.consolidate

    def positive(updates: pa.Table) -> pa.Table:
        found = original(updates)
        return found.filter(pc.greater(found.column("_diff"), 0))

    planting.swap_all((consolidate, extract, snapshot, sweep), "consolidate", positive)
