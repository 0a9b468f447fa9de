"""A pipeline as its users hold it: run it, feed it, ask it, look at it.

    with store.pipeline("shop", sql=text) as pipeline:
        pipeline.run(until_idle=True)
        pipeline.query("SELECT region, total FROM revenue")

Any number of processes may hold and run the same pipeline on the same store. Without a program it
is the one on record, and whoever only looks, asks for a transaction or subscribes needs no engine.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from strandline.connectors.registry import fetch
from strandline.connectors.sink import SinkPorts
from strandline.errors import HandleClosedError, NotFoundError, UsageError
from strandline.journal.checkpoint import Checkpoints
from strandline.journal.handles import Handles
from strandline.journal.log import Journal
from strandline.model.ids import printable
from strandline.pipeline.amend import amend, instead, table_of
from strandline.pipeline.catalog import TABLE, VIEW
from strandline.pipeline.evolve import evolved
from strandline.pipeline.life import Life
from strandline.pipeline.looking import Looking
from strandline.pipeline.planner import Planner
from strandline.pipeline.presence import Presence
from strandline.pipeline.promotion import check
from strandline.pipeline.query import Library
from strandline.pipeline.read_back import quiet
from strandline.pipeline.reload import Stager
from strandline.pipeline.replay import replay
from strandline.pipeline.requests import Requests
from strandline.pipeline.retain import put_on_record
from strandline.pipeline.rig import rigged
from strandline.pipeline.rows import refuse_undecodable
from strandline.pipeline.sinks import targets
from strandline.pipeline.sources import close_sources, fed_before, open_sources
from strandline.pipeline.transaction import Transaction
from strandline.pipeline.turns import InTurn
from strandline.pipeline.upstream import upstreams
from strandline.pipeline.waiting import Waiting
from strandline.pipeline.written import Writing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from datetime import datetime

    import pyarrow as pa

    from strandline.connectors.sink import Callback
    from strandline.connectors.source import Source
    from strandline.handles.shard import Shard
    from strandline.handles.store import Store
    from strandline.journal.standing import Standing
    from strandline.model.frontier import Frontier, Time
    from strandline.pipeline.engine import PipelineEngine
    from strandline.pipeline.means import Means
    from strandline.pipeline.promotion import Promotion
    from strandline.pipeline.pushes import Pushed
    from strandline.pipeline.read_back import Told as Reads, VerifiedSink
    from strandline.pipeline.reload import Source as ReloadSource, Told
    from strandline.pipeline.replay import Replayed
    from strandline.pipeline.report import PipelineStatus, TransactionSummary
    from strandline.pipeline.rig import Rig
    from strandline.pipeline.rows import Rows
    from strandline.pipeline.runner import Status
    from strandline.pipeline.written import Written
    from strandline.reading.subscribe import Subscription
    from strandline.views.declared import Table
    from strandline.views.program import Program


class Pipeline:
    """One process's handle on one pipeline. Close it, or use it with `with`."""

    def __init__(
        self,
        store: Store,
        name: str,
        means: Means,
        *,
        text: str | None = None,
        program: Program | None = None,
    ) -> None:
        self.store = store
        self._journal = Journal(store.env, name)
        self.name = self._journal.pipeline
        self._means = means
        self._writing = Writing(store, self._journal, text, program)
        self._engine: PipelineEngine | None = None
        # Two, as whoever makes a rig makes the engine for it.
        self._making, self._rigging = store.env.tasks.condition(), store.env.tasks.condition()
        self._rigs: list[Rig] = []
        """The last is the one in use. Another task may be at a step with one before it, so they
        are closed together."""
        self._callbacks: dict[str, Callback] = {}
        self._life = Life(store.env, self.name, means)
        self._handles = Handles(store.env, self.name)
        self._looking = Looking(store, self._journal, self._sources, self._sink_ports)
        self._waiting = Waiting(
            store.env,
            self._journal,
            alone=lambda: not (self._life.runs or self._others()),
            step=lambda: self._life.step_alone(self._ready()),
        )
        self._closed = False

    @property
    def program(self) -> Program:
        """The program that was given, or the one on record now."""
        return self._writing.now().program

    @property
    def text(self) -> str:
        """The program as its user wrote it."""
        return self._writing.now().text

    @property
    def committed(self) -> Frontier:
        """How far it is committed, read from the store."""
        return self._standing().committed

    # Running.

    def run(self, *, until_idle: bool = False, transactions: int | None = None) -> Status:
        """Run a replica in this task until it is stopped, or there is nothing to do, or so many
        transactions are committed. What ends it otherwise is raised."""
        return self._life.run(self._ready(), until_idle=until_idle, transactions=transactions)

    def step(self) -> float:
        """Carry out one decision; returns for how many ms there is nothing to do."""
        return self._life.step(self._ready())

    def start(self, *, until_idle: bool = False, transactions: int | None = None) -> None:
        """Run a replica beside the caller, as `run` would; see `wait`."""
        self._life.start(self._ready(), until_idle=until_idle, transactions=transactions)

    def wait(self, timeout_ms: int | None = None) -> Status | None:
        """Wait for the end of what `start` began, and return how it ended, or raise what ended it;
        `None` if it still runs after `timeout_ms`."""
        return self._life.wait(timeout_ms)

    @property
    def here(self) -> Status | None:
        """What the replica in this process says of itself; `None` if there is none."""
        return self._life.status()

    def stop(self, replica: str | None = None) -> None:
        """Stop after a checkpoint: the replica in this process, and wait for it. Without one, or
        with a name, ask through the store: all that run, or that one."""
        if self._life.runs and replica is None:
            self._life.stop()
        else:
            self._known().stop(replica)

    def stop_here(self) -> None:
        """Ask the replica in this process to stop after a checkpoint; returns at once."""
        self._life.ask_to_stop()

    def pause(self, *, sink: str | None = None) -> None:
        """Commit nothing new: the replica in this process; without one all replicas, through the
        store, also those that start later. A sink alone is always paused through the store: nobody
        publishes it, and what it has not taken is held for it."""
        if sink is not None:
            self._known().pause(self._looking.sink(self.program, sink))
        else:
            (self._life.pause if self._life.runs else self._known().pause)()

    def resume(self, *, sink: str | None = None) -> None:
        """Go on after `pause`, which it is the opposite of."""
        if sink is not None:
            self._known().resume(self._looking.sink(self.program, sink))
        else:
            (self._life.resume if self._life.runs else self._known().resume)()

    def foreach_transaction(self, sink: str, function: Callable[[Any, Time], object]) -> None:
        """Give a `callback` sink its function: it gets a DataFrame of the changes, and their time.

        At least once: after trouble or a crash the last transaction may come again. A process that
        gives none leaves the sink to those that do.
        """
        self._callbacks[sink] = lambda rows, t: function(self._made().frame(rows), t)

    def checkpoint(self, *, timeout_ms: int | None = None) -> Time | None:
        """Take a checkpoint, and return the last time that is in it once it is durable; where
        nothing happened since the last one, that is it."""
        before = self._standing()
        if self._life.runs:
            self._life.checkpoint()
        elif self._others():
            self._known().checkpoint()
        else:
            self._life.take_checkpoint(self._ready())
        taken = before.checkpoints[-1].lsn if before.checkpoints else -1
        if Checkpoints(self._journal).stands(before):
            taken -= 1

        def newer(standing: Standing) -> bool:
            return bool(standing.checkpoints) and standing.checkpoints[-1].lsn > taken

        return self._waiting.until(newer, timeout_ms, "its checkpoint").checkpoints[-1].t

    def retain(self, transactions: int | None) -> None:
        """Keep everything for so many transactions from now on, or for ever (`None`): tables,
        views, journal and what was staged. It is on record, and every replica follows it."""
        self._known()
        put_on_record(self._journal, transactions)

    def promote(self) -> int:
        """Raise the epoch under this program: older replicas are fenced. Returns the epoch."""
        return self._life.promote(self._ready())

    def check_promotion(self) -> Promotion:
        """What `promote` would change; refuses what it would refuse. Nothing happens."""
        return check(self._ready())

    # Feeding.

    def transaction(self, handle: str | None = None) -> Transaction:
        """Rows of several tables that count together; with the id of an open one, go on with it."""
        self._check_open()
        standing = self._standing()
        if handle is None:
            handle = self._handles.open(self._journal.refresh)
        else:
            self._handles.look(handle)
        program = evolved(self.program, standing.added)
        return Transaction(self._handles, handle, program, self._committed, self._stager(None))

    def reload(
        self,
        table: str,
        source: ReloadSource,
        *,
        timeout_ms: int | None = None,
        told: Told | None = None,
    ) -> Time:
        """Replace what a table holds in one transaction, and return its time once it can be read.

        `source` is an Arrow table, a DataFrame of pandas or of Spark, a list of dicts, a path of
        files, a dict of `path`, `format` and other options, or a connector and its options, as in
        `("kafka", {"subscribe": …})` or `("strandline", {"shard": …})`, of which all is taken that
        there is now. Readers, views and sinks see only what differs. `told` hears how far it is.
        """
        declared = self.declared(table)
        # Before there is a handle, which would expire if this took long.
        refs = self._stager(told).staged(declared, source)
        work = self.transaction()
        work.adopt(declared.name, refs)
        return work.commit(timeout_ms=timeout_ms)

    def declared(self, table: str) -> Table:
        """A table as its rows are given: with the columns that its source has brought besides."""
        program = evolved(self.program, self._standing().added)
        found = program.table(table)
        if found is None:
            known = ", ".join(each.name for each in program.tables)
            raise NotFoundError(
                f"pipeline {self.name} has no table {printable(table)}: it has {known}"
            )
        return found

    def amend(
        self,
        t: Time,
        endpoint: str,
        *,
        reason: str,
        take: Mapping[str, tuple[int, int]] | None = None,
        rows: Rows | None = None,
        empty: bool = False,
    ) -> None:
        """Replace what the sealed transaction `t` reads from an endpoint whose rows are gone.

        Say by what: the part of its ranges that can still be read (`take`), `rows`, or nothing
        (`empty`). It is on record with the reason, and the source goes on after all that was
        sealed. Refused once the transaction has an answer: rows of it may have landed.
        """
        self._check_open()
        amend(self._journal, self.program, (t, endpoint), instead(take, rows, empty=empty), reason)

    def fed_by(self, endpoint: str) -> Table:
        """The table that an endpoint feeds in the transaction that is sealed."""
        return table_of(self._standing(), self.program, endpoint)

    def push(
        self,
        table: str,
        values: Sequence[bytes | None],
        *,
        producer: str | None = None,
        sequence: int | None = None,
        timeout_ms: int = 30_000,
    ) -> Pushed:
        """Push rows to a table `USING http`, in its format; returns once they are sealed.

        What can't be decoded is refused here if the table says `onError 'fail'`.
        A replica has to run in this process. Under a producer's name and its sequence number, the
        same push may be repeated, also to another replica: it counts once.
        """
        declared = self.program.table(table)
        if declared is None:
            raise NotFoundError(f"pipeline {self.name} has no table {printable(table)}")
        desk = self._ready().desks.get(declared.name)
        if desk is None or not self._life.runs:
            reason = "no replica runs in this process" if desk else "it is not USING http"
            raise UsageError(f"rows can't be pushed to {declared.name} here: {reason}")
        # Another replica may have sealed what this producer pushed there.
        standing = self._journal.refresh()
        sealed = standing.producers.get(declared.name, {})
        if declared.on_error == "fail":
            now = evolved(self.program, standing.added).table(table)
            refuse_undecodable(values, now or declared)
        return desk.push(
            values, producer=producer, sequence=sequence, sealed=sealed, timeout_ms=timeout_ms
        )

    # Looking.

    def query(self, sql: str, as_of: Time | datetime | None = None) -> pa.Table:
        """The answer to a query over all collections at one committed time, by default the last.

        It is checked against the allow-list first. A view that has no answer at that time fails
        with the reason.
        """
        self._check_open()
        self._standing()
        library = Library(self.store, self._journal, self.program, self._made().answer)
        return library.ask(sql, as_of)

    def table(self, name: str) -> Shard:
        """A table's rows, as a shard."""
        return self.collection(name, TABLE)

    def view(self, name: str) -> Shard:
        """A view's rows, as a shard."""
        return self.collection(name, VIEW)

    def collection(self, name: str, role: str | None = None) -> Shard:
        """A table, a view or what is wrong with one, as a shard; by the binding on record."""
        bindings = self._standing().bindings
        for known, bound in bindings.items():
            if known.casefold() == name.casefold() and role in {None, bound.role}:
                return self.store.shard(bound.shard)
        what = "collection" if role is None else role
        names = sorted(each for each, bound in bindings.items() if role in {None, bound.role})
        raise NotFoundError(
            f"pipeline {self.name} has no {what} {printable(name)}: it has {', '.join(names)}"
        )

    def subscribe(
        self, name: str, as_of: Time | None = None, *, until: Time | None = None
    ) -> Subscription:
        """The rows of a table or a view, then every change of them."""
        return self.collection(name).subscribe(as_of, until=until)

    def status(self, *, sources: bool = True) -> PipelineStatus:
        """Where it stands and who runs it, wherever that is; how far sources are only if wanted."""
        self._standing()
        return self._looking.status(self.program, sources=sources)

    def history(self, count: int = 20) -> list[TransactionSummary]:
        """The last committed transactions, the newest first."""
        self._standing()
        return self._looking.history(self.program, count)

    def verify_sink(self, name: str, told: Reads = quiet) -> VerifiedSink:
        """Read the target of a sink back, and compare it with what the sink's table or view held at
        the delivered time. Disturbs nobody; `told` hears how many rows were read."""
        self._standing()
        return self._looking.verify_sink(self.program, name, told)

    def replay(
        self, start: Time | None = None, stop: Time | None = None, *, skip: bool = False
    ) -> Iterator[Replayed]:
        """Compute committed transactions `[start, stop)` again, and compare each with the record;
        by default all that can be. `ReplayDivergedError` names what differs, `SourceGoneError` one
        whose rows are gone; with `skip` it comes with the reason, and nothing of it is compared."""
        standing = self._standing()
        first = self.status().verifiable_from if start is None else start
        last = standing.next_t if stop is None else stop
        rig = self._ready()
        return replay(rig, Planner(rig), first, last, skip=skip)

    def close(self) -> None:
        """Stop the replica of this process, if there is one. Repeating it is harmless."""
        if self._closed or not self.store.env.home.is_here():
            return
        self._closed = True
        self._life.close()
        self._looking.close()
        for rig in self._rigs:
            close_sources(rig.sources)
        if self._engine is not None:
            self._engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Pipeline {self.name} of {self.store.url}>"

    # What they share.

    def _standing(self) -> Standing:
        """The newest standing; a pipeline that nobody has run yet has none."""
        self._check_open()
        return self._writing.standing()

    def _known(self) -> Requests:
        """Asks replicas elsewhere; of a pipeline that there is."""
        if not self._standing().epoch:
            raise NotFoundError(f"there is no pipeline {self.name}: nobody has run it yet")
        return Requests(self.store.env, self.name)

    def _others(self) -> bool:
        """Whether a replica that writes is alive, here or elsewhere."""
        seen = Presence(self.store.env, self.name).all()
        return any(each.alive and not each.said.read_only for each in seen)

    def _committed(self, handle: str, timeout_ms: int | None) -> Time | None:
        """Wait until what became of a handle can be read; its time, or `None` if it was aborted."""
        standing = self._waiting.until(lambda now: self._is_closed(now, handle), timeout_ms, handle)
        if handle not in standing.closed:
            closed = self._handles.look(handle).closed
            return None if closed is None else closed.t
        return standing.closed[handle]

    def _is_closed(self, standing: Standing, handle: str) -> bool:
        if handle in standing.closed:
            t = standing.closed[handle]
            return t is None or standing.committed.settled(t)
        return self._handles.look(handle).closed is not None

    def _stager(self, told: Told | None) -> Stager:
        ports = self._means.ports(self.store)
        stager = Stager(self.store, self.name, self._made, ports)
        return stager if told is None else replace(stager, told=told)

    def _made(self) -> PipelineEngine:
        with self._making:
            if self._engine is None:
                made = self._means.engine(self.store)
                computer = InTurn(made.computer, self.store.env.tasks.condition())
                self._engine = replace(made, computer=computer)
            return self._engine

    def _ready(self) -> Rig:
        """What a replica works with; made when it is first needed, and anew where none was given
        and another was promoted: but one that runs here ends under its own program."""
        self._check_open()
        with self._rigging:
            if self._rigs and self._life.runs:
                return self._rigs[-1]
            written = self._writing.now()
            if not self._rigs or self._rigs[-1].program.hash != written.program.hash:
                self._rigs.append(self._rigged(written))
            if not self._writing.given:
                self._life.follow(self._journal.standing.epoch)
            return self._rigs[-1]

    def _rigged(self, written: Written) -> Rig:
        program, ports = written.program, self._means.ports(self.store)
        return rigged(
            self.store,
            self.name,
            program,
            written.text,
            sources=self._sources(program, later=fed_before(program, self._standing())),
            computer=self._made().computer,
            settings=self._means.settings,
            reopen=self._sources,
            sinks=targets(program, self._sink_ports()),
            fetch=lambda split: fetch(split, ports.resolve),
        )

    def _sink_ports(self) -> SinkPorts:
        ports = self._means.ports(self.store)
        return SinkPorts(ports.resolve, self.store.env.random.token, self._callbacks, ports.reach)

    def _sources(
        self,
        program: Program,
        names: frozenset[str] | None = None,
        later: frozenset[str] = frozenset(),
    ) -> dict[str, Source]:
        ports, shards = self._means.ports(self.store), upstreams(self.store, self.name)
        return open_sources(program, ports, names, shards=shards, later=later)

    def _check_open(self) -> None:
        if self._closed:
            raise HandleClosedError(f"pipeline {self.name} was closed")
        self.store.env.home.check()
