"""The verbs that only look: shards, show, history, holds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from strandline.cli import tables
from strandline.cli.conditions import parse_as_of, parse_columns, parse_conditions
from strandline.cli.facts import (
    Document,
    Sight,
    check_settled,
    history,
    shard_document,
    shard_facts,
)
from strandline.cli.holding import holds_document
from strandline.cli.opening import opened, sight_of
from strandline.errors import CorruptionError
from strandline.shard.moments import decode_moments
from strandline.shard.pulse import KEY_PREFIX, decode_pulse, slot_of
from strandline.shard.pulses import BEATS_PER_LEASE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from strandline.cli.output import Output
    from strandline.handles.store import Store
    from strandline.parts.part import Part
    from strandline.shard.machine import Machine
    from strandline.shard.pulse import Pulse
    from strandline.shard.state import Moment, MomentChunk, State

_ROWS = 10
_CELL = 60


@dataclass(frozen=True, slots=True)
class RowsWanted:
    """Which rows of a snapshot are asked for; none unless something of this is given."""

    as_of: str | None = None
    count: int | None = None
    columns: str | None = None
    filters: Sequence[str] = ()

    def __bool__(self) -> bool:
        return bool(self.filters) or any(
            each is not None for each in (self.as_of, self.count, self.columns)
        )


def list_shards(url: str, out: Output) -> bool:
    """All shards; `True` if one of them can't be read, which keeps no other from being listed."""
    with opened(url) as store:
        found = _look_at_all(store)
        shards = [shard_facts(sight) for sight in found.sights]
        document: Document = {"store": store.url, "shards": shards, "unreadable": found.unreadable}
    out.answer(document, *tables.shards_answer(shards, found.unreadable, url))
    return bool(found.unreadable)


@dataclass(frozen=True, slots=True)
class _Found:
    """What could be seen of the shards of a store, and what could not."""

    sights: list[Sight]
    unreadable: list[Document]


def _look_at_all(store: Store) -> _Found:
    found = _Found([], [])
    keys = store.env.patient(lambda: store.env.consensus.keys("shard/"))
    for name in (key.removeprefix("shard/") for key in keys):
        try:
            machine = store.machine(name)
            if not machine.refresh().dropped:
                found.sights.append(sight_of(machine))
        except CorruptionError as error:
            found.unreadable.append({"name": name, "reason": str(error)})
    return found


def show_shard(url: str, name: str, wanted: RowsWanted, out: Output) -> None:
    with opened(url, name) as store:
        machine = store.machine(name)
        sight = sight_of(machine)
        document = shard_document(sight, _listed_parts(store, machine, sight.state))
        answer = tables.shard_tables(document)
        if wanted:
            rows = _rows(store, sight, wanted)
            document["snapshot"] = rows
            answer = [tables.rows_table(rows, raw=out.raw, cell_limit=_CELL)]
        out.answer(document, *answer)


def _rows(store: Store, sight: Sight, wanted: RowsWanted) -> Document:
    """The first rows of a snapshot, in the order of their key."""
    shard = store.shard(sight.state.name)
    as_of = None if wanted.as_of is None else parse_as_of(wanted.as_of)
    check_settled(sight, as_of)
    columns = parse_columns(wanted.columns)
    snapshot = shard.snapshot(
        as_of, columns=columns, filter=parse_conditions(wanted.filters, shard.schema)
    )
    table = snapshot.to_arrow()
    ordered = [(name, "ascending") for name in shard.key if name in table.column_names]
    first = (table.sort_by(ordered) if ordered else table).slice(
        0, _ROWS if wanted.count is None else wanted.count
    )
    return {
        "as_of": snapshot.as_of,
        "matching": table.num_rows,
        "columns": first.column_names,
        "rows": [[row[name] for name in first.column_names] for row in first.to_pylist()],
    }


def _listed_parts(store: Store, machine: Machine, state: State) -> Iterator[Part]:
    """The parts that a large shard keeps in lists of their own; held while they are read."""
    chunks = [chunk for batch in state.batches for chunk in batch.chunks]
    if not chunks:
        return
    pin = store.leases.own_reader(machine).pin()
    try:
        state = pin.state()
        for batch in state.batches:
            for chunk in batch.chunks:
                yield from machine.chunks.table(chunk, shard_id=state.id, stats=False).parts()
    finally:
        pin.give_back()


def show_history(url: str, name: str, limit: int, out: Output, *, full: bool) -> None:
    with opened(url, name) as store:
        machine = store.machine(name)
        sight = sight_of(machine)
        older: tuple[Moment, ...] = ()
        if sight.state.moment_chunks and len(sight.state.moments) < limit:
            sight, older = _with_older(store, machine, sight, limit)
        entries = [entry for entry, _ in zip(history(sight, older), range(limit), strict=False)]
        known = len(sight.state.moments) + sum(c.count for c in sight.state.moment_chunks)
    document: Document = {
        "shard": name,
        "since": sight.state.since.time,
        "upper": sight.upper.time,
        "times": entries,
        "more": max(0, known - len(entries)),
    }
    note = tables.history_note(document)
    out.answer(document, tables.history_table(entries, digests=full), *note)


def _with_older(
    store: Store, machine: Machine, sight: Sight, limit: int
) -> tuple[Sight, tuple[Moment, ...]]:
    """A state that is held, and its newest moments that lie in objects."""
    pin = store.leases.own_reader(machine).pin()
    try:
        state = pin.state()
        found: tuple[Moment, ...] = ()
        for chunk in reversed(state.moment_chunks):
            if len(found) + len(state.moments) >= limit:
                break
            found = (*_moments(machine, state, chunk), *found)
        return replace(sight, state=state), found
    finally:
        pin.give_back()


def _moments(machine: Machine, state: State, chunk: MomentChunk) -> tuple[Moment, ...]:
    encoded = machine.env.patient(lambda: machine.env.blob.get(chunk.key), shard=state.name)
    if encoded is None:
        raise CorruptionError(f"shard {state.name}: list of times {chunk.key} is missing")
    return decode_moments(encoded, chunk, shard=state.id)


def show_holds(url: str, name: str | None, out: Output, *, expire_dead: bool) -> bool:
    """Who holds what, in one shard or in all; `True` if one of them can't be read."""
    with opened(url, name) as store:
        found = _look_at_all(store) if name is None else _Found([sight_of(store.machine(name))], [])
        sights = found.sights
        if expire_dead:
            for sight in sights:
                store.leases.bury(store.machine(sight.state.name))
            sights = [sight_of(store.machine(sight.state.name)) for sight in sights]
        held = [
            holds_document(sight, _pulses(store, sight.state), BEATS_PER_LEASE) for sight in sights
        ]
        document: Document = {"store": store.url, "shards": held, "unreadable": found.unreadable}
    answer = tables.holds_tables(held, raw=out.raw)
    out.answer(document, *answer, *tables.unreadable_lines(found.unreadable, url))
    return bool(found.unreadable)


def _pulses(store: Store, state: State) -> dict[str, Pulse | None]:
    """The heartbeats that a shard's readers and writers refer to, as they are now."""
    consensus = store.env.consensus
    found: dict[str, Pulse | None] = {}
    for pulse_id in set(state.heartbeats().values()):
        slot, _ = slot_of(pulse_id)
        head = store.env.patient(lambda at=slot: consensus.head(f"{KEY_PREFIX}{at}"))  # type: ignore[misc]
        found[pulse_id] = None if head is None else decode_pulse(slot, head.seqno, head.data)
    return found
