"""Publishes one sink beside the loop, in order of time, exactly once.

    claim ─► prepare ─► check the claim ─► read progress to its end ─► intend ─► deliver ─► done
      ▲                                                                  ▲                    │
      └── fenced, or trouble: close, and look at the claim first         └────────────────────┘

One publisher per sink among all replicas; the others watch its claim and take it over when it no
longer moves. An error that may pass is tried again, ever less often, with a new handle on the
target and its progress read back; one that may not stops the sink, by name, and nothing else.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from strandline.connectors.sink import NOTHING_YET, Address, Delivered, Progress
from strandline.errors import (
    FencedError,
    LeaseLostError,
    NotFoundError,
    SinceError,
    SinkFencedError,
    SinkStoppedError,
    StoreError,
    StrandlineError,
)
from strandline.pipeline import delivery as d
from strandline.pipeline.claims import RENEWALS_PER_LEASE, Claims
from strandline.pipeline.outgoing import Outgoing
from strandline.pipeline.place import placed
from strandline.reading.fetch import BUGS
from strandline.store.retry import Backoff

if TYPE_CHECKING:
    from collections.abc import Callable

    from strandline.connectors.sink import Sink
    from strandline.handles.store import Store
    from strandline.journal.log import Journal
    from strandline.model.frontier import Time
    from strandline.model.tasks import Task
    from strandline.pipeline.outgoing import Transaction
    from strandline.pipeline.place import Place, Target
    from strandline.pipeline.settings import PipelineSettings

_log = logging.getLogger(__name__)
_TROUBLE = Backoff(first_ms=50, factor=2.0, cap_ms=5_000)
_POLL_MS = 200


class SinkState(StrEnum):
    """What a publisher says of itself."""

    STARTING = "starting"
    WAITING = "waiting"
    """Another replica publishes."""
    PUBLISHING = "publishing"
    RETRYING = "retrying"
    BLOCKED = "blocked"
    """The view can't be read at its newest times."""
    STOPPED = "stopped"
    """It can't go on until somebody has looked; the cause says at what."""
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class SinkStatus:
    """How a sink is, as this replica sees it."""

    name: str
    state: SinkState
    reached: Time
    """Every transaction up to here is delivered, or has no changes; -1 before the first."""
    delivered: int
    """How many transactions this replica has delivered."""
    retries: int
    """How often in a row it was tried in vain."""
    still_ms: int
    """For how long there is something to deliver and nothing was."""
    cause: str
    """Why it is retrying, blocked or stopped; empty while all is well."""


class Publisher:
    """One sink's publisher in one replica. `start` it, `stop` it; it never raises."""

    def __init__(
        self, store: Store, journal: Journal, target: Target, settings: PipelineSettings, name: str
    ) -> None:
        self.target = target
        self._store = store
        self._env = store.env
        self._journal = journal
        self._claims = Claims(
            store.env,
            journal.pipeline,
            target.name,
            name=name,
            lease_ms=settings.claim_lease_ms,
        )
        self._poll_ms = min(_POLL_MS, settings.claim_lease_ms // RENEWALS_PER_LEASE)
        self._stop = store.env.tasks.event()
        self._holding = False
        self._place: Place | None = None
        self._sink: Sink | None = None
        self._outgoing: Outgoing | None = None
        self._progress = NOTHING_YET
        self._state = SinkState.STARTING
        self._cause = ""
        self._reached = NOTHING_YET
        self._delivered = 0
        self._retries = 0
        self._moved_ms = store.env.clock.monotonic_ms()
        self._tasks: tuple[Task, ...] = ()

    def start(self) -> None:
        tasks, name = self._env.tasks, self.target.name
        self._tasks = (
            tasks.start(f"publish {name}", self._run),
            tasks.start(f"keep claim {name}", self._keep),
        )

    def ask_to_stop(self) -> None:
        self._stop.set()

    def stop(self) -> None:
        """End after what is being delivered, and let go of the claim."""
        self.ask_to_stop()
        for task in self._tasks:
            task.join()

    def status(self) -> SinkStatus:
        now_ms = self._env.clock.monotonic_ms()
        return SinkStatus(
            self.target.name,
            self._state,
            self._reached,
            self._delivered,
            self._retries,
            now_ms - self._moved_ms if self._behind() else 0,
            self._cause,
        )

    def _run(self) -> None:
        while not self._stop.is_set() and self._state is not SinkState.STOPPED:
            rest_ms = self._guarded(self._turn)
            if rest_ms > 0:
                self._stop.wait(int(rest_ms) + 1)
        self._let_go()
        if self._state is not SinkState.STOPPED:
            self._state = SinkState.ENDED

    def _guarded(self, turn: Callable[[], float]) -> float:
        """Try again what may pass; stop at what may not."""
        try:
            return turn()
        except SinkStoppedError as error:
            return self._stopped(error)
        except (StoreError, FencedError, LeaseLostError, NotFoundError, SinceError) as error:
            return self._trouble(error)
        except (StrandlineError, *BUGS) as error:
            self._end(f"{type(error).__name__}: {error}")
            _log.exception("sink %s stopped", self.target.name)
        return 0

    def _stopped(self, error: SinkStoppedError) -> float:
        """Believe it only while the claim is ours: what it follows from may have been overtaken."""
        try:
            self._claims.check()
        except (SinkFencedError, StoreError) as lost:
            return self._trouble(lost)
        self._end(str(error))
        return 0

    def _end(self, why: str) -> None:
        self._state, self._cause = SinkState.STOPPED, f"sink {self.target.name}: {why}"

    def _trouble(self, error: Exception) -> float:
        """Nothing is assumed from here on: a new handle, after another look at the claim."""
        self._retries += 1
        self._state, self._cause = SinkState.RETRYING, f"{type(error).__name__}: {error}"
        self._close()
        return _TROUBLE.delay(self._retries - 1, self._env.random.uniform)

    def _turn(self) -> float:
        """One step; returns for how many ms there is nothing to do."""
        if self._outgoing is None:
            place = placed(self._store, self._journal.standing, self.target)
            if place is None or not self._claim(place):
                return self._poll_ms
            self._open(place)
        return self._deliver_next()

    def _claim(self, place: Place) -> bool:
        claim = self._claims.take()
        self._holding = claim is not None
        if claim is None:
            self._state = SinkState.WAITING
            mark = self._claims.read().marks.get(place.lineage)
            self._came_to(NOTHING_YET if mark is None else mark.reached)
        return self._holding

    def _open(self, place: Place) -> None:
        """Initialise, check the claim again, read progress to its end: in this order."""
        epoch = self._journal.standing.epoch
        address = Address(self._store.id, self._journal.pipeline, self.target.name, place.lineage)
        self._place = place
        columns = self.target.delivered(place.shard.schema)
        self._sink = sink = self.target.open(Delivered(address, columns))
        sink.prepare()
        mark = self._claims.check().marks.get(place.lineage)
        self._progress = self._start(sink, place, d.started(mark, sink.progress(), epoch))
        self._outgoing = Outgoing(
            place.shard, place.errors, self._progress, place.hold, self.target.columns
        )
        self._came_to(self._progress)

    def _start(self, sink: Sink, place: Place, start: d.Start) -> Time:
        match start:
            case d.Found(at):
                sink.found(at)
                self._claims.record(place.lineage, lambda mark: d.founded(mark, at))
                return at.t
            case d.Go(after):
                epoch = self._journal.standing.epoch
                self._claims.record(
                    place.lineage, lambda mark: mark or d.founded(None, Progress(after, epoch))
                )
                return after
            case d.Stop(reason):
                raise SinkStoppedError(reason)
            case d.Fence(epoch):
                self._let_go()
                raise SinkFencedError(f"e{epoch} publishes: this replica is older")

    def _deliver_next(self) -> float:
        outgoing = self._outgoing
        if outgoing is None:
            return self._poll_ms
        if not self._holding:
            self._close()
            return self._poll_ms
        found = outgoing.next(self._poll_ms)
        if found is None:
            self._came_to(outgoing.reached)
            self._went_well()
            if outgoing.raising:
                self._state, self._cause = SinkState.BLOCKED, outgoing.raising
            return 1
        verdict = d.verdict(found.t, found.before, self._progress)
        if verdict is d.Verdict.EARLY:
            self._close()
        elif verdict is d.Verdict.DUE:
            self._deliver(outgoing, found)
        return 0

    def _deliver(self, outgoing: Outgoing, found: Transaction) -> None:
        """Intent, delivery, done: an intent counts only while the claim is ours."""
        sink, place, t = self._sink, self._place, found.t
        if sink is None or place is None:
            return
        epoch = self._journal.standing.epoch
        self._claims.record(place.lineage, lambda mark: d.intended(mark, t, epoch, self._progress))
        sink.deliver(t, epoch, found.batches())
        self._claims.record(place.lineage, lambda mark: d.done(mark, t))
        self._progress = t
        outgoing.delivered(t)
        self._delivered += 1
        self._came_to(t)
        self._went_well()

    def _went_well(self) -> None:
        self._state, self._cause, self._retries = SinkState.PUBLISHING, "", 0

    def _came_to(self, t: Time) -> None:
        if t > self._reached or not self._behind():
            self._moved_ms = self._env.clock.monotonic_ms()
        self._reached = max(self._reached, t)

    def _behind(self) -> bool:
        last = self._journal.standing.committed.last()
        return last is not None and self._reached < last

    def _close(self) -> None:
        outgoing, self._outgoing = self._outgoing, None
        sink, self._sink = self._sink, None
        if outgoing is not None:
            outgoing.close()
        if sink is not None:
            sink.close()

    def _let_go(self) -> None:
        self._close()
        self._holding = False
        try:
            self._claims.release()
        except StoreError:
            return  # It runs out by itself.

    def _keep(self) -> None:
        """Renew the claim while it is held, however long a delivery takes."""
        tick_ms = self._claims.me.lease_ms // RENEWALS_PER_LEASE
        while not self._stop.wait(tick_ms):
            place = self._place
            if not self._holding or place is None:
                continue
            try:
                self._claims.record(place.lineage, lambda mark: d.reached(mark, self._reached))
            except SinkFencedError:
                self._holding = False
            except StrandlineError:
                continue  # The publisher meets it as well, and says so.
