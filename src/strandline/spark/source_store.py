"""Stores as Spark's own processes open them: planners, tasks, and whoever commits.

Spark plans a read or a write in a process of its own, which is gone or busy with something else
when tasks run. So what such a process holds, it holds for a fixed term that nobody renews. Tasks
see objects only; consensus stays with planners and committers, which run where the driver does.
"""

from __future__ import annotations

import atexit
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING

import numpy as np

from strandline.errors import BoundsError, CorruptionError
from strandline.handles.write import Writer
from strandline.shard import command as c
from strandline.shard.holds import ReadHolds
from strandline.shard.lease import ReadLease, WriteLease
from strandline.shard.moments import decode_moments
from strandline.shard.pulse import slot_of
from strandline.shard.pulses import begin_pulse, stop_pulse
from strandline.spark.source_rows import Instants
from strandline.store.locate import blob_folder_id, open_blob

if TYPE_CHECKING:
    from collections.abc import Iterator

    from strandline.handles.shard import Shard
    from strandline.handles.store import Store
    from strandline.model.frontier import Time
    from strandline.reading.view import View
    from strandline.shard.machine import Machine
    from strandline.shard.state import Moment, State
    from strandline.spark.source_options import Place
    from strandline.store.blob import Blob


@contextmanager
def opened(place: Place) -> Iterator[tuple[Store, Shard]]:
    """The store and the table that options name; neither is created."""
    with open_store(place) as store:
        yield store, store.shard(place.table)


def open_store(place: Place) -> Store:
    # A process of Spark's starts with this class and its options, and has nothing else that
    # could hand it a store: so it does what every user does.
    store: Store = import_module("strandline").open(place.store, create=False, upkeep=False)
    return store


@dataclass(frozen=True, slots=True)
class TermHeart:
    """The pulse of a hold that nobody renews."""

    pulse_id: str
    lease_ms: int
    lost: bool = False

    def tend(self) -> None:
        """There is nothing to mend."""

    def stop(self) -> None:
        """It ends with its term."""


def term_reader(store: Store, shard: Shard, term_ms: int) -> ReadLease:
    """A reader that keeps what this version and later ones refer to, for a term."""
    hold = shard.term_reader(term_ms=term_ms, purpose="scan by Spark")
    holds = ReadHolds(since=hold.since, seqno=hold.seqno)
    return ReadLease(store.leases, shard.machine, TermHeart("", term_ms), hold.id, holds)


@contextmanager
def held_for_scan(store: Store, shard: Shard, term_ms: int) -> Iterator[ScanHold]:
    """A hold under which a planner lists; it stays if the block says that something needs it."""
    lease = term_reader(store, shard, term_ms)
    hold = ScanHold(lease)
    try:
        yield hold
    finally:
        lease.closed = True  # The handle goes, the hold may stay.
        if not hold.needed:
            shard.end_term(lease.id)


@contextmanager
def planning(place: Place, term_ms: int) -> Iterator[ScanHold]:
    """The same for the table that options name."""
    with opened(place) as (store, shard), held_for_scan(store, shard, term_ms) as hold:
        yield hold


@dataclass(slots=True)
class ScanHold:
    """What a planner holds, and whether its tasks need it."""

    lease: ReadLease
    needed: bool = False


def last_version(view: View) -> Time | None:
    """The newest version that can be read; `None` if there is none yet."""
    if not view.upper.is_closed:
        return view.upper.last()
    return view.state.moments[-1].time if view.state.moments else None


def check_settled(view: View, version: Time, what: str) -> None:
    """A read by Spark does not wait for versions that are still to come."""
    if not view.upper.settled(version):
        newest = last_version(view)
        there = "it has none yet" if newest is None else f"its newest is {newest}"
        raise BoundsError(f"{what} {version} of table {view.state.name} does not exist: {there}")


def instants_of(machine: Machine, state: State, first: Time, last: Time) -> Instants:
    """When the versions from `first` to `last` were settled."""
    found: list[tuple[Time, int]] = []
    for moment in _moments(machine, state, first):
        found.append((moment.time, moment.instant_ms))
        if moment.time >= last:
            break
    if state.timeline is not None:
        timeline = machine.env.timelines(state.timeline)
        committed = ((time, timeline.instant_of(time)) for time, _ in found)
        found = [(time, instant) for time, instant in committed if instant is not None]
    times = np.array([time for time, _ in found], np.int64)
    return Instants(times, np.array([instant for _, instant in found], np.int64))


def _moments(machine: Machine, state: State, first: Time) -> Iterator[Moment]:
    env = machine.env
    for chunk in state.moment_chunks:
        if chunk.last_time < first:
            continue
        encoded = env.patient(lambda key=chunk.key: env.blob.get(key), shard=state.name)  # type: ignore[misc]
        if encoded is None:
            raise CorruptionError(f"list of times {chunk.key} is missing; run `strandline fsck`")
        yield from (m for m in decode_moments(encoded, chunk, shard=state.id) if m.time >= first)
    yield from (moment for moment in state.moments if moment.time >= first)


def task_blob(store_url: str) -> Blob:
    """The objects of a store as a task sees them; a worker keeps it for the tasks after this.

    A worker outlives the program of a session, and a store may be removed and made anew meanwhile.
    """
    return _opened_blob(store_url, blob_folder_id(store_url))


@lru_cache(maxsize=8)
def _opened_blob(store_url: str, folder: tuple[int, int]) -> Blob:  # noqa: ARG001 - a part of the key
    return open_blob(store_url)


# Open folders are closed while there still is an interpreter to do it.
atexit.register(_opened_blob.cache_clear)


@dataclass(frozen=True, slots=True)
class Term:
    """A writer that lives for a term, in whichever process needs it."""

    writer: str
    pulse: str
    lease_ms: int


def term_writer(store: Store, shard: Shard, term_ms: int) -> Term:
    """Register a writer under which tasks may put objects, and another process may commit."""
    env = store.env
    # A pulse that never beats ends one lease after somebody noticed, and never before.
    pulse = begin_pulse(
        env.consensus, env.random, lease_ms=term_ms, owner=f"a write to {shard.name} by Spark"
    )
    writer_id = f"w{env.random.token()}"
    shard.machine.demand(c.RegisterWriter(writer_id, pulse.id, "write by Spark"))
    return Term(writer_id, pulse.id, term_ms)


@contextmanager
def term_writer_of(store: Store, shard: Shard, term: Term) -> Iterator[Writer]:
    """The handle of a writer that was registered elsewhere; it stays when the block ends."""
    heart = TermHeart(term.pulse, term.lease_ms)
    lease = WriteLease(store.leases, shard.machine, heart, term.writer)
    try:
        yield Writer(shard.machine, lease)
    finally:
        lease.closed = True


def end_term_writer(store: Store, shard: Shard, term: Term) -> None:
    """Give a writer back; objects of its that nothing refers to are orphans from then on."""
    shard.machine.commit(c.Release(writers=(term.writer,)))
    slot, incarnation = slot_of(term.pulse)
    stop_pulse(store.env.consensus, slot, incarnation)
