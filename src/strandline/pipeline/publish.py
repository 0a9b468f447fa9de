"""Publishes one sink beside the loop, in order of time, exactly once.

    claim ─► prepare ─► check the claim ─► read progress to its end ─► intend ─► deliver ─► done
      ▲                                                                  ▲                    │
      └── fenced, or trouble: close, and look at the claim first         └────────────────────┘

One publisher per sink among all replicas; the others watch its claim and take it over when it no
longer moves. An error that may pass is tried again, ever less often, with a new handle on the
target and its progress read back; one that may not stops the sink, by name, and nothing else.
A sink that somebody has paused is not claimed by anybody: what it has not taken is held for it.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from strandline.connectors.sink import NOTHING_YET, Address, Progress
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
from strandline.pipeline.claim import newer_lineages, older_lineages
from strandline.pipeline.claims import RENEWALS_PER_LEASE, Claims
from strandline.pipeline.outgoing import Outgoing, Wish
from strandline.pipeline.place import placed
from strandline.pipeline.requests import Hearing
from strandline.pipeline.said import SinkStatus
from strandline.pipeline.stall import sink_judged
from strandline.pipeline.states import SinkState
from strandline.store.retry import Backoff

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from strandline.connectors.sink import Sink
    from strandline.handles.store import Store
    from strandline.journal.log import Journal
    from strandline.model.frontier import Time
    from strandline.model.tasks import Task
    from strandline.pipeline.delivery import Mark
    from strandline.pipeline.outgoing import Transaction
    from strandline.pipeline.place import Place, Target
    from strandline.pipeline.settings import PipelineSettings

_log = logging.getLogger(__name__)
_TROUBLE = Backoff(first_ms=50, factor=2.0, cap_ms=5_000)
_POLL_MS = 200
_RAISES = (SinkState.BLOCKED, SinkState.WAITING)


@dataclass(frozen=True, slots=True)
class _Passed:
    """How far a publisher is: everything up to t is delivered, or has no changes."""

    lineage: str
    t: Time


class Publisher:
    """One sink's publisher in one replica. `start` it, `stop` it; it never raises."""

    def __init__(
        self,
        store: Store,
        journal: Journal,
        target: Target,
        settings: PipelineSettings,
        name: str,
        program: str | None = None,
    ) -> None:
        """`program` is the hash of the one that the sink is of; it publishes under no other."""
        self.target = target
        self._program = program
        self._epoch = 0
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
        self._asked = Hearing(store.env, journal.pipeline, target.name)
        self._stopped_after = self._tried_after = 0
        """How often it had been resumed before the attempt that stopped it, and before this one."""
        self._settings = settings
        self._poll_ms = min(_POLL_MS, settings.claim_lease_ms // RENEWALS_PER_LEASE)
        self._stop = store.env.tasks.event()
        self._holding = False
        self._term = -1
        """Of the claim that was taken last."""
        self._place: Place | None = None
        self._sink: Sink | None = None
        self._outgoing: Outgoing | None = None
        self._progress = NOTHING_YET
        self._passed: _Passed | None = None
        self._recorded: _Passed | None = None
        """What was passed, as it is on record."""
        self._state = SinkState.STARTING
        self._cause, self._left = "", False
        self._reached = self._raises = NOTHING_YET
        self._delivered = 0
        self._retries = 0
        self._moved_ms = self._freed_ms = store.env.clock.monotonic_ms()
        self._doing: tuple[str, int] | None = None
        """What it is at, and since when."""
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
        doing, since_ms = self._doing or ("", now_ms)
        state, cause = sink_judged(
            self._state, self._cause, doing, now_ms - since_ms, self._settings
        )
        return SinkStatus(
            self.target.name,
            state,
            self._reached,
            self._delivered,
            self._retries,
            now_ms - self._moved_ms if self._behind() else 0,
            cause,
            "" if self._place is None else self._place.lineage,
            self._claims.me.owner if self._holding else "",
            self._since(),
            self._is_replaced(),
            self._stopped_after if self._state is SinkState.STOPPED else self._asked.resumes,
            self._begins(),
            self._raises if self._state in _RAISES else NOTHING_YET,
            self._left and self._state is SinkState.WAITING,
        )

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                stopped = self._state is SinkState.STOPPED
                rest_ms = self._stand() if stopped else self._guarded(self._turn)
                if rest_ms > 0:
                    self._stop.wait(int(rest_ms) + 1)
        finally:
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
        except Exception as error:  # noqa: BLE001 - what a client raises unforeseen must not hold the claim
            self._end(f"{type(error).__name__}: {error}")
            _log.exception("sink %s stopped", self.target.name)
        return 0

    def _stopped(self, error: SinkStoppedError) -> float:
        """Believe it only while the claim is ours: what it follows from may have been overtaken."""
        try:
            self._claims.check()
        except StrandlineError as lost:
            return self._trouble(lost)
        self._end(str(error))
        return 0

    def _end(self, why: str) -> None:
        # Not what was heard since: what was mended meanwhile came too late for this attempt.
        self._stopped_after = self._tried_after
        self._state, self._cause = SinkState.STOPPED, f"sink {self.target.name}: {why}"
        self._let_go()

    def _stand(self) -> float:
        """While it has stopped, see how far others bring it; go on when somebody says so, or when
        it is another history that is to be published."""
        with suppress(Exception):  # It can be resumed, whatever the store's client raises.
            if self._is_paused() or self._is_replaced():
                return self._poll_ms
            before, place = self._place, self._found()
            if place is None:
                return self._poll_ms
            self._look(place)
            other = before is not None and before.lineage != place.lineage
            if other or self._asked.resumes > self._stopped_after:
                self._state, self._cause, self._retries = SinkState.STARTING, "", 0
                return 0
        return self._poll_ms

    def _trouble(self, error: Exception) -> float:
        """Nothing is assumed from here on: a new handle, after another look at the claim."""
        self._retries += 1
        self._state, self._cause = SinkState.RETRYING, f"{type(error).__name__}: {error}"
        self._let_go() if d.lets_go(self._retries) else self._close()
        self._asked.paused = None
        drawn_ms = _TROUBLE.delay(self._retries - 1, self._env.random.uniform)
        return d.rest_ms(self._retries, drawn_ms, self._claims.me.lease_ms)

    def _turn(self) -> float:
        """One step; returns for how many ms there is nothing to do."""
        if self._is_paused():
            return self._poll_ms
        if self._is_replaced():
            if self._holding:
                self._let_go()
            return self._poll_ms
        if self._outgoing is None:
            self._tried_after = self._asked.resumes
            place = self._found()
            if place is None:
                return self._poll_ms
            # Before anything that may fail: how far it is does not depend on the target.
            self._look(place)
            if self._is_unable() or not self._claim():
                return self._poll_ms
            with self._at_work("opening its target"):
                self._open(place)
        return self._deliver_next()

    @contextmanager
    def _at_work(self, what: str) -> Iterator[None]:
        """What it is at, for whoever asks while it does not come back."""
        self._doing = what, self._env.clock.monotonic_ms()
        try:
            yield
        finally:
            self._doing = None

    def _found(self) -> Place | None:
        return placed(self._store, self._journal.standing, self.target)

    def _is_replaced(self) -> bool:
        """Whether another program runs by now, or not yet this one: its sinks are not ours."""
        known = self._journal.standing.program
        return self._program is not None and known != self._program

    def _is_unable(self) -> bool:
        """Whether it is for others to publish: this process lacks what it takes."""
        why = self.target.unable()
        self._left = bool(why) and self._claims.rests()
        if why:
            self._state, self._cause = SinkState.WAITING, why
        return bool(why)

    def _claim(self) -> bool:
        claim = self._claims.take()
        if claim is not None:
            self._term = claim.term  # Before it is held: a late answer is about an earlier one.
        self._holding = claim is not None
        if claim is None:
            self._state, self._cause = SinkState.WAITING, ""
        return self._holding

    def _look(self, place: Place) -> None:
        """How far it is, by the record of whoever publishes or did."""
        mark = self._claims.read().marks.get(place.lineage)
        reached = NOTHING_YET if mark is None else mark.reached
        if self._place is None:
            self._reached = reached  # Before anybody sees that it has looked.
        self._raises = NOTHING_YET if mark is None else mark.raises
        self._at(place)
        self._came_to(reached)
        if not self._holding:
            self._reached = reached  # Whoever publishes may have found that it was set back.

    def _is_paused(self) -> bool:
        """Let go of the target and of the claim while somebody wants that; then start anew."""
        paused = self._asked.hear() if self._asked.paused is None else self._asked.paused
        if paused:
            if self._state is not SinkState.PAUSED:
                self._let_go()
                self._state, self._cause, self._retries = SinkState.PAUSED, "", 0
            place = self._found()
            if place is not None:
                self._look(place)
        elif self._state is SinkState.PAUSED:
            self._state = SinkState.STARTING
        return paused

    def _open(self, place: Place) -> None:
        """Initialise, check the claim again, read progress to its end: in this order."""
        self._epoch = epoch = self._journal.standing.epoch
        address = Address(self._store.id, self._journal.pipeline, self.target.name, place.lineage)
        target = self.target
        what = target.delivered(address, place.shard.schema)
        known = self._claims.read()
        newest = max((each.epoch for each in known.marks.values()), default=0)
        if newest > epoch:
            # Before anything is opened: who is older must not touch what a newer one publishes.
            raise self._fenced(newest)
        older, done = older_lineages(known, place.lineage), d.last_done(known.marks, place.lineage)
        newer = newer_lineages(known, place.lineage)
        self._sink = sink = target.open(replace(what, older=older, done=done, newer=newer))
        sink.prepare()
        marks = self._claims.check().marks
        newest = max((each.epoch for each in marks.values()), default=0)
        mark = marks.get(place.lineage)
        start = d.started(mark, sink.progress(), epoch, again=target.again, newest=newest)
        self._progress = self._start(sink, place, start)
        after = d.onward(mark, self._progress)
        if mark is not None and after < max(mark.done, self._reached):
            self._reached = after  # It was set back, whoever found it out.
        replaces = d.replaces(marks, place.lineage)
        most = max(1, self._settings.sink_lag_max // 2)  # It is not to hold anybody back.
        wish = Wish(what.columns, target.key, target.every_ms, replaces, place.since, most)
        self._outgoing = outgoing = Outgoing(place.shard, place.errors, after, place.hold, wish)
        self._place = replace(place, held=outgoing.held)
        self._passed = self._recorded = _Passed(place.lineage, after)
        self._freed_ms = self._env.clock.monotonic_ms()
        self._came_to(after)

    def _start(self, sink: Sink, place: Place, start: d.Start) -> Time:
        match start:
            case d.Found(at):
                sink.found(at)
                self._claims.record(place.lineage, lambda mark: d.founded(mark, at))
                return at.t
            case d.Go(after):
                at = Progress(after, self._epoch)
                self._claims.record(place.lineage, lambda mark: d.confirmed(mark, at))
                return after
            case d.Stop(reason):
                raise SinkStoppedError(reason)
            case d.Fence(epoch):
                raise self._fenced(epoch)

    def _fenced(self, epoch: int) -> SinkFencedError:
        self._let_go()
        return SinkFencedError(f"e{epoch} publishes: this replica is older")

    def _deliver_next(self) -> float:
        outgoing = self._outgoing
        if outgoing is None:
            return self._poll_ms
        if not self._holding:
            self._close()
            return self._poll_ms
        with self._at_work("reading what comes next"):
            found = outgoing.next(self._poll_ms)
        if found is None:
            self._pass(outgoing.reached)
            self._free(outgoing)
            if self._state is not SinkState.RETRYING or not self._behind():
                # What it was tried in vain with may not have been listed again yet.
                self._went_well()
            self._raises = outgoing.seen if outgoing.raising else NOTHING_YET
            if outgoing.raising:
                self._state, self._cause = SinkState.BLOCKED, outgoing.raising
            return 1
        passed = self._progress if self._passed is None else self._passed.t
        verdict = d.verdict(found.t, found.before, passed)
        if verdict is d.Verdict.EARLY:
            self._close()
        elif verdict is d.Verdict.DUE:
            with self._at_work(f"delivering t={found.t}"):
                self._deliver(outgoing, found)
        else:
            found.drop()
        return 0

    def _deliver(self, outgoing: Outgoing, found: Transaction) -> None:
        """Intent, delivery, done: an intent counts only while the claim is ours."""
        sink, place, t = self._sink, self._place, found.t
        if sink is None or place is None:
            return
        epoch = self._epoch
        self._claims.record(place.lineage, lambda mark: d.intended(mark, t, epoch, self._progress))
        sink.deliver(t, epoch, found.batches())
        self._claims.record(place.lineage, lambda mark: d.done(mark, t))
        self._progress = t
        outgoing.delivered(t)
        self._freed_ms = self._env.clock.monotonic_ms()
        self._delivered += 1
        self._pass(t)
        self._went_well()

    def _free(self, outgoing: Outgoing) -> None:
        """Hold no longer what has no changes for the sink, as far as that is on record."""
        recorded, place = self._recorded, self._place
        if recorded is None or place is None or recorded.lineage != place.lineage:
            return
        now_ms = self._env.clock.monotonic_ms()
        t = min(recorded.t, outgoing.reached)
        if d.frees(outgoing.held, t, now_ms - self._freed_ms, self._settings.sink_held_max):
            outgoing.delivered(t)
            self._freed_ms = now_ms

    def _pass(self, t: Time) -> None:
        """Everything up to t is delivered, or has no changes."""
        if self._place is not None:
            self._passed = _Passed(self._place.lineage, t)
        self._came_to(t)

    def _went_well(self) -> None:
        self._state, self._cause, self._retries = SinkState.PUBLISHING, "", 0
        self._tried_after = self._asked.resumes

    def _at(self, place: Place) -> None:
        """What another lineage came to is nothing to this one."""
        if self._place is not None and self._place.lineage != place.lineage:
            self._reached = NOTHING_YET
        self._place = place

    def _came_to(self, t: Time) -> None:
        if t > self._reached or not self._behind():
            self._moved_ms = self._env.clock.monotonic_ms()
        self._reached = max(self._reached, t)

    def _behind(self) -> bool:
        last = self._journal.standing.committed.last()
        return last is not None and max(self._reached, self._since() - 1) < last

    def _since(self) -> Time:
        """From when on its collection is; the next transaction, if it is not there yet."""
        standing = self._journal.standing
        bound = standing.bindings.get(self.target.source)
        return standing.next_t if bound is None else bound.since

    def _begins(self) -> Time:
        place, next_t = self._place, self._journal.standing.next_t
        held = 0 if place is None else place.held
        return next_t if held is None else held

    def _close(self) -> None:
        self._passed = None
        outgoing, self._outgoing = self._outgoing, None
        sink, self._sink = self._sink, None
        for each in (outgoing, sink):
            if each is None:
                continue
            try:
                each.close()
            except Exception:  # noqa: BLE001 - it is of no use any more, whatever it says
                _log.exception("sink %s: what it had open could not be closed", self.target.name)

    def _let_go(self) -> None:
        self._close()
        self._holding = False
        try:
            self._claims.release()
        except StrandlineError:
            return  # It runs out by itself.

    def _keep(self) -> None:
        """Renew the claim while it is held, however long a delivery takes; hear what is asked."""
        tick_ms = self._claims.me.lease_ms // RENEWALS_PER_LEASE
        while not self._stop.wait(tick_ms):
            place, term = self._place, self._term
            try:
                self._asked.hear()
                if not self._holding or place is None:
                    continue
                self._renew(place.lineage)
            except SinkFencedError:
                # Unless it was let go of and taken again while the answer was on its way.
                if term == self._term:
                    self._holding = False
            except Exception:  # noqa: BLE001 - the publisher meets it as well, and says so
                _log.debug("sink %s: not renewed", self.target.name, exc_info=True)

    def _renew(self, lineage: str) -> None:
        """What was passed goes on record with it: that costs no write of its own."""

        def reached(mark: Mark | None) -> Mark | None:
            # As it is when the record is read: who opens the target again may find it set back.
            passed = self._passed
            if passed is None or passed.lineage != lineage:
                return mark
            return d.raised(d.reached(mark, passed.t), self._raises)

        mark = self._claims.record(lineage, reached)
        self._recorded = None if mark is None else _Passed(lineage, mark.reached)
