"""The driver's side of one table: its writer, its grounds, and what it sees of the shard.

A writer is opened when something is first written and stays, so that an upsert costs no lease of
its own; one whose lease was lost is replaced. A ground is put once for each writer and version of
the schema.

Nobody can tell when a DataFrame is done: what is derived from it is known to Spark alone. So what
it reads is kept for `KEPT_MS`. A pin keeps its version and all later ones, so a pin each
`KEPT_MS / PINS_MOST` does for all DataFrames, however many there are.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from strandline.errors import (
    BoundsError,
    ConflictError,
    HandleClosedError,
    LeaseLostError,
    StoreError,
    UsageError,
)
from strandline.parts.part import Inline, Part
from strandline.reading.listing import Want, list_snapshot
from strandline.reading.view import pinned_view
from strandline.spark.instruction import Site, encode_ground, make_ground
from strandline.spark.plan import Stored, decoded_inline
from strandline.spark.put import SCRATCH, Bench
from strandline.store.locate import BLOB_FOLDER, Kind, locate

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from strandline.handles.shard import Shard
    from strandline.handles.store import Store
    from strandline.handles.write import Writer
    from strandline.model.schema import Schema
    from strandline.parts.chunk import PartTable
    from strandline.parts.part import Chunk
    from strandline.reading.view import View
    from strandline.shard.env import Env
    from strandline.shard.lease import Pin, ReadLease
    from strandline.shard.state import State
    from strandline.spark.plan import Gathered
    from strandline.upkeep.collect import Collected
    from strandline.upkeep.rounds import Carrier

KEPT_MS = 24 * 60 * 60 * 1000
"""For so long at least, what a DataFrame reads is kept; longer if the table is not used."""
PINS_MOST = 24
_INLINE_KEPT = 1024
_encoder = msgspec.msgpack.Encoder()
_sites = msgspec.msgpack.Decoder(Site)


@dataclass(frozen=True, slots=True)
class Stand:
    """What one call works on from beginning to end: a lease that is lost meanwhile ends it."""

    writer: Writer
    site: bytes
    """What closures carry."""
    bench: Bench
    """The driver's own, on the same ground."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """A pin for the DataFrames of some time on."""

    pin: Pin
    lease: ReadLease
    begun_ms: int


class Desk:
    """What the calls of one table share. Any task may use it."""

    def __init__(
        self, store: Store, shard: Shard, cache: tuple[str, int], *, kept_ms: int = KEPT_MS
    ) -> None:
        self.shard = shard
        self._store = store
        self._cache = cache
        self._guard = store.env.tasks.condition()
        self._stands: dict[int, Stand] = {}
        """By version of the schema."""
        self._lent: Writer | None = None
        self._kept: list[_Kept] = []
        """What DataFrames read, the oldest first."""
        self._kept_ms = kept_ms
        self._inline: dict[tuple[int, bytes, int], pa.Table] = {}

    @property
    def env(self) -> Env:
        return self._store.env

    @property
    def name(self) -> str:
        return self.shard.name

    def check_visible(self) -> None:
        """Workers are processes of their own, so what is in this one's memory is not theirs."""
        if locate(self._store.url).kind is not Kind.FOLDER:
            raise UsageError(
                f"store {self._store.url} is in the memory of this process, where Spark's workers "
                "can't see it: open a folder"
            )

    def object_folder(self) -> str:
        """Where the objects lie, as Spark finds them."""
        location = locate(self._store.url)
        return f"file://{Path(location.path).absolute() / BLOB_FOLDER}"

    def writable(self) -> State:
        """The newest state, if rows may be written to it this way."""
        self.check_visible()
        state = self.shard.state()
        self.check_writable(state)
        return state

    def check_writable(self, state: State) -> None:
        """Refuse a state that takes no rows this way, or none any more."""
        if state.timeline is not None:
            raise UsageError(
                f"table {self.name} is attached to timeline {state.timeline} and takes rows only "
                "through its owner"
            )
        if state.upper.is_closed:
            raise BoundsError(f"table {self.name} is closed: nothing can be written to it")

    def stand(self, schema: Schema) -> Stand:
        """The table's writer with a ground for this schema; opened once, and again if lost."""
        with self._guard:
            known = self._stands.get(schema.version)
            if known is not None and _is_alive(known.writer):
                return known
            others = [each.writer for each in self._stands.values() if _is_alive(each.writer)]
            if self._lent is not None:
                others = [self._lent]
            writer = others[0] if others else self.shard.writer("table")
            made = self._stands[schema.version] = self._stand(writer, schema)
            return made

    def lend(self, writer: Writer) -> None:
        """Put things under this writer's id from now on; whoever lends it closes it."""
        with self._guard:
            lent, over = self._lent, {}
            if lent is not writer:
                over, self._stands = self._stands, {}
                self._lent = writer
        for stand in over.values():
            if stand.writer is not lent:
                stand.writer.close()

    def close(self) -> None:
        """Give back the writer's lease and what DataFrames keep. Repeating it is harmless."""
        if not self.env.home.is_here():
            return
        with self._guard:
            stands, self._stands = self._stands, {}
            kept, self._kept = self._kept, []
            lent, self._lent = self._lent, None
        for each in kept:
            each.pin.give_back()
        for stand in stands.values():
            if stand.writer is not lent:
                stand.writer.close()
        for writer in {stand.writer.id for stand in stands.values()}:
            self._clear(writer)

    def _stand(self, writer: Writer, schema: Schema) -> Stand:
        site, bench = self._ground(writer.id, schema)
        return Stand(writer, site, bench)

    @contextmanager
    def site_for(self, writer: str, schema: Schema) -> Iterator[tuple[bytes, Bench]]:
        """A site on the ground of any registered writer for one job, and the driver's own bench."""
        site, bench = self._ground(writer, schema)
        try:
            yield site, bench
        finally:
            self.discard([_sites.decode(site).ground])

    def _ground(self, writer: str, schema: Schema) -> tuple[bytes, Bench]:
        env, settings = self.env, self.env.settings
        limits = (
            settings.inline_max_bytes,
            settings.part_target_rows,
            settings.part_target_bytes,
        )
        shard = (self.name, self.shard.id)
        ground = make_ground(schema, shard=shard, writer=writer, limits=limits)
        bench = Bench(ground, env.blob, env.random, env.tasks.sleep)
        key = bench.new_key("ground")
        env.patient(lambda: env.blob.put(key, encode_ground(ground, key)), shard=self.name)
        return _encoder.encode(Site(self._store.url, key, *self._cache)), bench

    def compact(self, *, full: bool, carrier: Carrier, slots: int = 0) -> Collected:
        """Merge what is due, or all there is, by a carrier with so many slots."""
        self.check_visible()
        machine = self.shard.machine
        return self._store.upkeep.compact(machine, full=full, carrier=carrier, slots=slots)

    @contextmanager
    def view(self) -> Iterator[View]:
        """The newest state; all that it refers to stays until the block ends."""
        view = pinned_view(self._store.leases.own_reader(self.shard.machine))
        try:
            yield view
        finally:
            view.pin.give_back()

    def kept_view(self) -> View:
        """The same, for as long as a DataFrame may be used: see above."""
        lease = self._store.leases.own_reader(self.shard.machine)
        view = pinned_view(lease)
        now_ms = self.env.clock.monotonic_ms()
        step_ms = self._kept_ms // PINS_MOST
        with self._guard:
            # A pin serves DataFrames of one step, and the last of them is kept as long as any.
            ends_ms = now_ms - self._kept_ms - step_ms
            over = [each.pin for each in self._kept if each.begun_ms <= ends_ms]
            self._kept = [each for each in self._kept if each.begun_ms > ends_ms]
            last = self._kept[-1] if self._kept else None
            # A lease that was lost keeps nothing any more.
            if last and last.lease is lease and now_ms - last.begun_ms < step_ms:
                over.append(view.pin)
            else:
                self._kept.append(_Kept(view.pin, lease, now_ms))
        for pin in over:
            pin.give_back()
        return view

    def stored(self, state: State, as_of: int | None, came: Gathered | None) -> Stored:
        """The parts and the inline updates that may hold old rows of what came, or any."""
        schema = state.schema
        _check_unchanged(state, came)
        if as_of is None:
            return Stored.of((), (), schema, None)

        def table(chunk: Chunk) -> PartTable:
            return self.shard.machine.chunks.table(chunk, shard_id=state.id, stats=False)

        listing = list_snapshot(
            state, as_of, Want(places=None if came is None else came.wanted), table
        )
        pieces = [each.piece for each in listing.pieces]
        parts = [piece for piece in pieces if isinstance(piece, Part)]
        inline = [
            self._decoded(piece, schema, as_of) for piece in pieces if isinstance(piece, Inline)
        ]
        return Stored.of(parts, inline, schema, None if came is None else came.keys(schema))

    def _decoded(self, inline: Inline, schema: Schema, as_of: int) -> pa.Table:
        """Inline rows in order of place; decoded once, as long as they are few."""
        if inline.t_max > as_of:
            return decoded_inline(inline, schema, self.name, as_of)
        known = (inline.t_min, inline.digest, schema.version)
        table = self._inline.get(known)
        if table is None:
            table = decoded_inline(inline, schema, self.name, as_of)
            with self._guard:
                self._inline[known] = table
                for oldest in list(self._inline)[:-_INLINE_KEPT]:
                    del self._inline[oldest]
        return table

    def _clear(self, writer: str) -> None:
        """Delete what only the jobs of a writer read, which has been closed."""
        try:
            listed = list(self.env.blob.list(f"{self.shard.id}/{writer}/"))
        except StoreError:
            self.env.metrics.add("retries", self.name)
            return
        self.discard(each.key for each in listed if each.key.rpartition(".")[2] in SCRATCH)

    def discard(self, keys: Iterable[str]) -> None:
        """Delete objects that nothing refers to, for sure; what stays is an orphan."""
        for key in keys:
            try:
                self.env.blob.delete(key)
            except StoreError:
                self.env.metrics.add("retries", self.name)


def _check_unchanged(state: State, came: Gathered | None) -> None:
    """Refuse to look old rows up under another schema than they may have been written under.

    They would lose the values of columns that were added meanwhile, and no row is retracted by
    what is not equal to it.
    """
    version = None if came is None else came.version
    if version is not None and version != state.schema.version:
        raise ConflictError(
            f"the schema of table {state.name} changed while rows were on their way to it: they "
            f"came under version {version} and it has version {state.schema.version}; "
            "nothing was written, write them again"
        )


def _is_alive(writer: Writer) -> bool:
    try:
        writer.check()
    except (LeaseLostError, HandleClosedError):
        return False
    return True
