"""A store as its users hold it: the shards and timelines in one place, and this process's leases.

The ports come from outside (`assembly`, or a simulation); this file only puts handles on them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self

import msgspec

from strandline.errors import HandleClosedError, NameRefusedError, NotFoundError, UsageError
from strandline.handles.ownership import TimelineOwner
from strandline.handles.shard import Shard, check_same
from strandline.model.ids import SeqNo, valid_name
from strandline.model.schema import Schema
from strandline.model.timeline import PIPELINE
from strandline.parts.envelope import decoded, seal, unseal
from strandline.shard import command as c
from strandline.shard.cancel import Cancel
from strandline.shard.leases import Leases
from strandline.shard.machine import Machine
from strandline.shard.timeline import PlainTimeline
from strandline.store.consensus import Versioned
from strandline.upkeep.upkeep import Upkeep

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from strandline.model.frontier import Frontier
    from strandline.pipeline.engine import NewEngine
    from strandline.pipeline.pipeline import Pipeline
    from strandline.pipeline.settings import PipelineSettings
    from strandline.shard.env import Env
    from strandline.shard.lease import Heart
    from strandline.spark.table import Table
    from strandline.views.program import Program

_STORE_KEY = "store"


class NewTable(Protocol):
    """Opens a shard for Spark, and creates it if there is a schema; see `assembly`."""

    def __call__(self, store: Store, name: str, schema: object, key: Sequence[str]) -> Table: ...


@dataclass(frozen=True, slots=True)
class PipelineOptions:
    """What the caller of `Store.pipeline` chose."""

    sql: str | None = None
    program: Program | None = None
    settings: PipelineSettings | None = None
    replica: str | None = None
    read_only: bool = False
    engine: NewEngine | None = None
    confined: bool = False


class NewPipeline(Protocol):
    """Opens a pipeline; see `assembly`."""

    def __call__(self, store: Store, name: str, options: PipelineOptions) -> Pipeline: ...


class StoreMark(msgspec.Struct, frozen=True, array_like=True):
    """What makes a place a store: written once, when it is first opened."""

    id: str
    created_ms: int


class Timeline:
    """Several shards that are settled together, by one record."""

    def __init__(self, store: Store, plain: PlainTimeline) -> None:
        self._store = store
        self._plain = plain

    @property
    def name(self) -> str:
        return self._plain.name

    @property
    def upper(self) -> Frontier:
        """How far all attached shards are settled, read from the store."""
        return self._plain.committed()

    @property
    def shards(self) -> tuple[str, ...]:
        return self._plain.members()

    def attach(self, shard: Shard) -> None:
        """Put a shard on this timeline, for good; it then takes appends only through it."""
        self._plain.attach(shard.machine)

    def own(self) -> TimelineOwner:
        """Take over. Whoever owned it is fenced, and what it did not commit is gone."""
        return TimelineOwner(
            self._plain,
            machine_of=self._store.machine,
            writer_of=lambda name: self._store.shard(name).writer(f"timeline {self.name}"),
        )


class Store:
    """One process's handle on one store. Close it, or use it with `with`."""

    def __init__(
        self,
        env: Env,
        new_heart: Callable[[int], Heart],
        *,
        url: str,
        new_table: NewTable | None = None,
        new_pipeline: NewPipeline | None = None,
    ) -> None:
        self.env = env
        self.url = url
        self.id = _mark(env).id
        self.leases = Leases(env, new_heart)
        self.upkeep = Upkeep(env, self.leases)
        self._machines: dict[str, Machine] = {}
        self._guard = env.tasks.condition()
        self._closed = False
        self._new_table = new_table
        self._new_pipeline = new_pipeline
        self._pipelines: list[Pipeline] = []
        self._tables: dict[str, Table] = {}

    def shard(self, name: str, schema: pa.Schema | None = None, key: Sequence[str] = ()) -> Shard:
        """Open a shard; with a schema, create it if it does not exist."""
        machine = self.machine(name)
        if schema is not None:
            wanted = Schema.create(schema, key)
            shard_id = f"s{self.env.random.token()}"
            now_ms = self.env.patient(self.env.consensus.now_ms)
            _, state = machine.commit(c.Create(name, shard_id, wanted, now_ms))
            if state.id != shard_id:
                check_same(state, schema, key)
        else:
            state = machine.refresh()
            if state.dropped:
                raise NotFoundError(f"shard {name} was dropped")
            check_same(state, None, key)
        return Shard(machine, self.leases, self.upkeep)

    def table(self, name: str, schema: object = None, key: Sequence[str] = ()) -> Table:
        """A shard for Spark: DataFrames in and out; one for each name.

        With a schema, Spark's or Arrow's, it is created if it does not exist.
        """
        self._check_open()
        if self._new_table is None:
            raise UsageError(f"store {self.url} was opened without Spark: use strandline.open")
        known = self._tables.get(name)
        # A shard that was dropped and created anew is another one.
        if known is None or schema is not None or known.shard.id != self.shard(name, key=key).id:
            made = self._new_table(self, name, schema, key)
            if known is None or known.shard.id != made.shard.id:
                known = self._tables[name] = made
        return known

    def pipeline(  # noqa: PLR0913 - each is a choice of the caller's, and most are left out
        self,
        name: str,
        sql: str | None = None,
        *,
        program: Program | None = None,
        settings: PipelineSettings | None = None,
        replica: str | None = None,
        read_only: bool = False,
        engine: NewEngine | None = None,
        confined: bool = False,
    ) -> Pipeline:
        """A pipeline: with a program, as text or as objects, to run it; without, that on record.

        `replica` names this process's replica, which `read_only` lets verify what others commit
        and write nothing. `engine` computes and answers; it is Spark unless another is given.
        `confined`: the program is somebody else's, and reaches only hosts that
        STRANDLINE_ALLOW_HOSTS names.
        """
        self._check_open()
        if self._new_pipeline is None:
            raise UsageError(f"store {self.url} was opened without pipelines: use strandline.open")
        if sql is not None and program is not None:
            raise UsageError("a pipeline has one program: give sql or program")
        options = PipelineOptions(sql, program, settings, replica, read_only, engine, confined)
        made = self._new_pipeline(self, name, options)
        self._pipelines.append(made)
        return made

    def pipelines(self) -> list[str]:
        """The names of all pipelines that were ever run here."""
        keys = self.env.patient(lambda: self.env.consensus.keys("journal/"))
        return [key.removeprefix("journal/") for key in keys]

    def shards(self, prefix: str = "") -> list[str]:
        """The names of all shards that have not been dropped, or of those that begin like this."""
        keys = self.env.patient(lambda: self.env.consensus.keys(f"shard/{prefix}"))
        names = [key.removeprefix("shard/") for key in keys]
        return [name for name in names if not self.machine(name).refresh().dropped]

    def drop(self, name: str) -> None:
        """Make a shard a tombstone; its objects go once nobody reads them any more."""
        machine = self.machine(name)
        state = machine.refresh()
        machine.demand(c.Drop(state.epoch, state.id))
        self.upkeep.nudge(machine)

    def timeline(self, name: str) -> Timeline:
        """A plain timeline, which one owner at a time moves; a pipeline moves its own."""
        self._check_open()
        if valid_name(name, "timeline").startswith(PIPELINE):
            raise NameRefusedError(
                f"timeline name {name} is refused: it is that of a pipeline, which moves it itself"
            )
        return Timeline(self, PlainTimeline(self.env, name))

    def timelines(self) -> list[str]:
        keys = self.env.patient(lambda: self.env.consensus.keys("timeline/"))
        return [key.removeprefix("timeline/") for key in keys]

    def cancel(self) -> Cancel:
        """Something to give to a call that may block, and to end it with."""
        return Cancel(self.env.tasks.event())

    def machine(self, name: str) -> Machine:
        """The process's one view of a shard's metadata."""
        self._check_open()
        valid_name(name)
        with self._guard:
            machine = self._machines.get(name)
            if machine is None:
                machine = self._machines[name] = Machine(self.env, name)
            return machine

    def close(self) -> None:
        """Give back every lease of this process. Repeating it is harmless."""
        if self._closed or not self.env.home.is_here():
            return
        for pipeline in self._pipelines:
            pipeline.close()
        self._closed = True
        for table in self._tables.values():
            table.close()
        self.upkeep.stop()
        self.leases.close()
        self.env.consensus.close()
        self.env.blob.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Store {self.url}>"

    def _check_open(self) -> None:
        if self._closed:
            raise HandleClosedError(f"store {self.url} was closed")
        self.env.home.check()


def _mark(env: Env) -> StoreMark:
    """Read the store's mark, or leave one: whoever is first decides the store's id."""
    while True:
        head = env.patient(lambda: env.consensus.head(_STORE_KEY))
        if head is not None:
            what = "the store's mark"
            _, wire = unseal(head.data, kind="store", owner=None, at=_STORE_KEY, what=what)
            return decoded(msgspec.msgpack.Decoder(StoreMark), wire, what)
        store_id = f"l{env.random.token()}"
        mark = StoreMark(store_id, env.patient(env.consensus.now_ms))
        sealed = seal("store", store_id, _STORE_KEY, msgspec.msgpack.encode(mark))
        _write_mark(env, Versioned(SeqNo(0), sealed))


def _write_mark(env: Env, first: Versioned) -> None:
    """Written twice or lost to another opener: reading it again tells which mark counts."""
    env.patient(lambda: env.consensus.compare_and_set(_STORE_KEY, first))
