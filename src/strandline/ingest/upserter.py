"""Upserts without a pipeline: one operator, of which any number may run on the same shard.

    feed ─► commands (time, key, order, value) ─► table's target ─► shard
                                             └──► errors' target ─► error collection

Every replica does everything; the shards decide by compare-and-append who has written. One that
starts cold, lags, is paused or loses every race goes through the same turn as all others, and
needs neither help nor a restart (S35).
"""

from __future__ import annotations

import logging
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from strandline.errors import (
    ConflictError,
    FencedError,
    LeaseLostError,
    SchemaError,
    SinceError,
    StoreError,
    StrandlineError,
    UsageError,
)
from strandline.ingest.feed import Want
from strandline.ingest.health import Health, Sight, Status, Watch
from strandline.ingest.rejects import ERRORS, ERRORS_KEY, errors, good, reasons
from strandline.ingest.road import ArrowRoad
from strandline.ingest.spill import TemporarySpill
from strandline.ingest.stash import Stash
from strandline.ingest.target import Target
from strandline.model.frontier import Frontier
from strandline.store.retry import Backoff

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from strandline.handles.shard import Shard
    from strandline.handles.store import Store
    from strandline.ingest.feed import Feed
    from strandline.ingest.road import Road
    from strandline.model.engine import Rules
    from strandline.shard.cancel import Cancel
    from strandline.store.blob import Blob

_log = logging.getLogger(__name__)

_PASSING = (StoreError, LeaseLostError, SinceError, ConflictError)
"""What another turn may not meet any more."""
_PATIENCE = Backoff(first_ms=5, factor=2.0, cap_ms=2_000)
_LOOKS_PER_STALL = 6


@dataclass(frozen=True, slots=True)
class Options:
    """How an ingest behaves; the defaults are for one process with memory to spare."""

    errors: str | None = None
    """The shard of commands that are no rows; without one such a command stops the ingest."""
    rules: Rules | None = None
    epoch: int = 0
    read_only: bool = False
    """Compute and compare, and write nothing, until `promote`."""
    audits: bool = False
    """Whether one that writes also computes what others were faster with, to compare it: then a
    replica that disagrees is told even if it comes late with everything."""
    limit_bytes: int = 16 * 1024 * 1024
    """How much is settled at once, if there is more."""
    memory_bytes: int = 64 * 1024 * 1024
    """How much waits in memory; more is spilled."""
    pause_ms: int = 50
    """How long to rest when there was nothing to do."""
    stall_ms: int = 30_000
    spill: Blob | None = None
    """Where to spill; by default a temporary folder of this machine."""
    road: Callable[[Shard, int], Road] | None = None
    """What computes for a shard, at an epoch; by default Arrow, in this process."""


class Upserter:
    """One replica of an ingest. Close it, or use it with `with`."""

    def __init__(
        self, store: Store, shard: Shard, feed: Feed, options: Options | None = None
    ) -> None:
        if not shard.key:
            raise UsageError(f"shard {shard.name} has no key: nothing can be upserted in it")
        self._options = options or Options()
        self._env = store.env
        self._feed = feed
        self._epoch = self._options.epoch
        self.read_only = self._options.read_only
        self._temporary = TemporarySpill()
        self.table = self._target(shard, self._options.rules)
        self.errors: Target | None = None
        if self._options.errors is not None:
            self.errors = self._target(store.shard(self._options.errors, ERRORS, ERRORS_KEY), None)
        self.frontier = Frontier(0)
        """How far the input is complete."""
        self._schema = shard.machine.state.schema
        self._watch = Watch(self._env.clock.monotonic_ms(), self._options.stall_ms)
        self._closed = self._env.tasks.event()
        self._starts = 0
        self._promoted: int | None = None
        self._trouble = ""
        self._busy = ""
        self._ended: Health | None = None
        self._stalled = False
        self._turned = False
        self._held: tuple[int | None, int, int] = (None, 0, 0)
        """The oldest time that is held, bytes in memory, bytes spilled: for who asks meanwhile."""

    @property
    def targets(self) -> list[Target]:
        return [self.table] if self.errors is None else [self.table, self.errors]

    @property
    def upper(self) -> Frontier:
        """How far it has come: everything before is settled, and compared if it is read-only."""
        return min(target.done for target in self.targets)

    def step(self) -> bool:
        """One turn; whether anything has moved. Errors of the world pass through."""
        self._take_over()
        self._busy = "reading its shards"
        needed = min(
            target.look(audits=self._audits(), epoch=self._writes_as()) for target in self.targets
        )
        reached = max(target.upper for target in self.targets)
        moved = self._poll(Want(needed, reached, binds=not self.read_only))
        for target in self.targets:
            moved |= self._advance(target)
        self._count_held()
        self._busy = ""
        self._trouble = ""
        self._turned = True
        self._watch.turned(self._env.clock.monotonic_ms(), self.upper, self.frontier)
        return moved

    def run(self, cancel: Cancel | None = None) -> Status:
        """Turn after turn until it is closed or cancelled, its input ends, or it must stop.

        What passes is waited for, however long it lasts, and told by `status`. A newer epoch
        ends it quietly; what can't be right is raised.
        """
        self._starts += 1
        self._ended = None
        watchdog = self._env.tasks.start("ingest watchdog", self._look_after)
        try:
            self._run(cancel)
        except FencedError as error:
            self._end(Health.FENCED, error)
        except StrandlineError as error:
            self._end(Health.FAILED, error)
            raise
        finally:
            if self._ended is None:
                self._ended = Health.CLOSED
            self._closed.set()
            watchdog.join()
            self._closed.clear()
        return self.status()

    def promote(self, epoch: int) -> None:
        """Refuse whoever has an older epoch, for ever, and write from the next turn on.

        Call it from anywhere: a turn that goes on ends as it began.
        """
        for target in self.targets:
            target.shard.fence(epoch)
        self._promoted = epoch

    def status(self) -> Status:
        """How it is: never `running` when it is not."""
        oldest, buffered, spilled = self._held
        sight = Sight(
            self.frontier,
            self.upper,
            oldest,
            buffered,
            spilled,
            trouble=self._trouble,
            busy=self._busy,
            read_only=self.read_only,
            ended=self._ended,
            restarts=max(0, self._starts - 1),
        )
        return self._watch.look(self._env.clock.monotonic_ms(), sight)

    def stop(self) -> None:
        """End `run` after its turn; call it from anywhere."""
        self._closed.set()

    def close(self) -> None:
        """Let go of everything, also if some of it fails. Repeating it is harmless."""
        with ExitStack() as stack:
            stack.callback(self._temporary.close)
            for target in self.targets:
                stack.callback(target.close)
            stack.callback(self._feed.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, cancel: Cancel | None) -> None:
        failures = 0
        while not self._closed.is_set() and not (cancel is not None and cancel.cancelled):
            try:
                moved = self.step()
            except FencedError:
                raise
            except _PASSING as error:
                self._trouble = str(error) or type(error).__name__
                self._closed.wait(int(_PATIENCE.delay(failures, self._env.random.uniform)) + 1)
                failures += 1
                continue
            failures = 0
            if self.upper.is_closed:
                return
            if not moved:
                self._closed.wait(self._options.pause_ms)

    def _take_over(self) -> None:
        """Begin a promoted epoch; roads know theirs, so they are new ones."""
        promoted, self._promoted = self._promoted, None
        if promoted is None:
            return
        self._epoch = promoted
        for target in self.targets:
            target.road.close()
            rules = self._options.rules if target is self.table else None
            target.road = self._road(target.shard, rules)
        self.read_only = False

    def _poll(self, want: Want) -> bool:
        """Take commands in, unless there is more than enough to do with those that are held."""
        full = any(
            target.stash.memory_bytes > self._options.memory_bytes and target.done < self.frontier
            for target in self.targets
        )
        if full:
            return False
        self._busy = "waiting for its input"
        polled = self._feed.poll(want)
        # Kept before anything else can fail: the feed does not give it out again.
        self._take(polled.commands)
        moved = self.frontier < polled.frontier
        self.frontier = max(self.frontier, polled.frontier)
        self._bridge(polled.since)
        return moved or polled.commands is not None

    def _bridge(self, since: Frontier) -> None:
        """What the input can't tell apart any more must have been settled by somebody."""
        behind = [target for target in self.targets if target.upper < since]
        if behind and not self.read_only:
            raise SinceError(
                f"shard {behind[0].shard.name} is settled up to {behind[0].upper}, and its input "
                f"can be told apart only from {since} on: reload the shard from its source"
            )
        for target in self.targets:
            target.skip(since)

    def _take(self, commands: pa.Table | None) -> None:
        if commands is None or not commands.num_rows:
            return
        if self.errors is not None:
            self.errors.add(errors(commands, self._schema))
        elif wrong := reasons(commands, self._schema):
            raise SchemaError(
                f"shard {self.table.shard.name}: a command is no row: {wrong[0]}; give the ingest "
                "a collection of errors, or repair the source"
            )
        self.table.add(good(commands, self._schema))

    def _advance(self, target: Target) -> bool:
        target.drop()
        target.relieve()
        self._count_held()
        self._busy = f"settling shard {target.shard.name}"
        if target.done < target.upper:
            return target.audit(self.frontier)
        return not self.read_only and target.settle(self.frontier)

    def _audits(self) -> bool:
        """Whether what is settled must be compared; who writes begins with where it starts."""
        return self.read_only or (self._options.audits and self._turned)

    def _writes_as(self) -> int | None:
        return None if self.read_only else self._epoch

    def _count_held(self) -> None:
        """Other tasks must not look into a stash that changes: they are shown these numbers."""
        stashes = [target.stash for target in self.targets]
        times = [stash.oldest for stash in stashes]
        self._held = (
            min((time for time in times if time is not None), default=None),
            sum(stash.memory_bytes for stash in stashes),
            sum(stash.spilled_bytes for stash in stashes),
        )

    def _target(self, shard: Shard, rules: Rules | None) -> Target:
        stash = Stash(
            lambda: self._options.spill or self._temporary.blob(),
            self._env.random,
            self._options.memory_bytes,
        )
        road = self._road(shard, rules)
        return Target(shard, road, stash, limit_bytes=self._options.limit_bytes)

    def _road(self, shard: Shard, rules: Rules | None) -> Road:
        if self._options.road is not None:
            return self._options.road(shard, self._epoch)
        return ArrowRoad(shard, rules, epoch=self._epoch)

    def _end(self, health: Health, error: StrandlineError) -> None:
        self._ended = health
        self._trouble = str(error)
        _log.error("ingest of %s is %s: %s", self.table.shard.name, health.value, error)

    def _look_after(self) -> None:
        """Make a stall visible: in the log and in the metrics, once for each."""
        while not self._closed.wait(self._options.stall_ms // _LOOKS_PER_STALL):
            status = self.status()
            if status.health is Health.STALLED and not self._stalled:
                self._env.metrics.add("ingest_stalls", self.table.shard.name)
                _log.warning("ingest of %s is %s", self.table.shard.name, status)
            self._stalled = status.health is Health.STALLED
