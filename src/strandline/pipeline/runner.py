"""Runs a replica until it is told otherwise, and never lies about what it is doing.

    every round   pause, stop and checkpoint as asked ─► one step ─► rest, or go on at once
    an error      of the store or of a source: try again, ever less often; say so after `stall_ms`
                  fenced: end as fenced. Anything else: end as failed, with the reason
    a step        that does not come back is told by whoever asks (`stall`)

`running` is said only when the journal was read to its end and nothing is sealed: whatever is
committed can be read by then (S75). `stopped` is said only once the checkpoint is durable (S76).
Who only reads takes none, and waits for nobody: it stops at once, and is idle where all that is
committed was looked at, also of a pipeline that nobody has run yet, or that nobody runs any more.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from strandline.errors import (
    ConflictError,
    FencedError,
    InvariantError,
    LeaseLostError,
    SourceGoneError,
    StoreError,
    StrandlineError,
)
from strandline.journal.next import Want
from strandline.pipeline.stall import Sight, has_work, judged
from strandline.pipeline.states import Event, State, moved
from strandline.store.retry import Backoff

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from strandline.journal.standing import Standing
    from strandline.model.frontier import Frontier
    from strandline.pipeline.publishing import Publishing
    from strandline.pipeline.said import Audit, SinkStatus
    from strandline.pipeline.settings import PipelineSettings
    from strandline.shard.env import Env


class Stepper(Protocol):
    """What a runner runs: a `Replica`, or an `Auditor` that only reads."""

    @property
    def standing(self) -> Standing:
        """The newest standing it has seen."""
        ...

    @property
    def idle(self) -> bool:
        """Whether it rests because there is nothing to do, and not to let more rows come."""
        ...

    @property
    def audit(self) -> Audit | None:
        """What it verified, if it only reads."""
        ...

    @property
    def doing(self) -> str:
        """What its step is at, while there is one."""
        ...

    def want(self, what: Want) -> None: ...

    def due(self) -> None:
        """A checkpoint is due; the next one will do, whoever's."""
        ...

    def wants(self) -> bool: ...

    def renew(self) -> None: ...

    def look(self) -> None:
        """See what others have put on record, and do nothing."""
        ...

    def step(self) -> float:
        """Carry out one decision; returns for how many ms there is nothing to do."""
        ...

    def close(self) -> None: ...


_TROUBLE = Backoff(first_ms=50, factor=2.0, cap_ms=5_000)


@dataclass(frozen=True, slots=True)
class Status:
    """What a replica says of itself."""

    state: State
    committed: Frontier
    sealed: int | None
    """The transaction that is being computed."""
    cause: str
    """Why it is stalled, failed or fenced; empty while all is well."""
    transactions: int
    """How many were committed while this replica looked."""
    still_ms: float
    """For how long nothing was committed although there was work."""
    sinks: tuple[SinkStatus, ...] = ()
    audit: Audit | None = None
    """What a read-only replica has verified, and what not."""


class Runner:
    """One replica and its life. `run` blocks; everything else may be called from any task."""

    def __init__(
        self,
        replica: Stepper,
        env: Env,
        settings: PipelineSettings,
        publishing: Publishing | None = None,
        *,
        turn: AbstractContextManager[object] | None = None,
    ) -> None:
        """Without `publishing` the sinks of the program are left to other replicas. `turn` is held
        while the replica steps, where other tasks step, too."""
        self._replica = replica
        self._stepping = nullcontext() if turn is None else turn
        self._publishing = publishing
        self._env = env
        self._settings = settings
        self._turn = env.tasks.condition()
        self._state = State.STARTING
        self._cause = ""
        self._asked_stop = False
        self._asked_pause = False
        self._asked_checkpoint = False
        self._owes_checkpoint = False
        """Whether one was asked for, and is still to come; one that is only due can wait."""
        self._transactions = 0
        self._moved_ms = env.clock.monotonic_ms()
        self._troubles = 0
        self._idle = False
        self._held_up = False
        """Whether a sink is too far behind for anything new to be begun."""
        self._step_ms: float | None = None
        """When the step began that goes on."""
        self.error: BaseException | None = None
        """What ended it, if it failed or was fenced."""

    @property
    def standing(self) -> Standing:
        """The newest standing that its replica has seen."""
        return self._replica.standing

    def run(self, *, until_idle: bool = False, transactions: int | None = None) -> Status:
        """Go on until stopped, fenced or failed; or until there is nothing to do, or so many
        transactions are committed, and then stop. Sinks are published beside it. If one that stands
        allows nothing new, there is nothing to do, either: the cause says so."""
        if self._publishing is None:
            return self._run(until_idle=until_idle, transactions=transactions)
        self._publishing.start()
        try:
            return self._run(until_idle=until_idle, transactions=transactions)
        finally:
            self._publishing.stop()

    def _run(self, *, until_idle: bool, transactions: int | None) -> Status:
        left = ""
        while self._state not in {State.STOPPED, State.FAILED, State.FENCED}:
            rest_ms = self._round()
            enough = transactions is not None and self._transactions >= transactions
            if not self._asked_stop and (enough or (until_idle and self._is_idle())):
                left = "" if enough else self._left()
                self.stop()
                continue
            self._rest(rest_ms)
        if self._state is State.STOPPED:
            self._cause = self._cause or left
        return self.status()

    def stop(self) -> None:
        """End after a checkpoint; returns at once."""
        self._ask(stop=True)

    def pause(self) -> None:
        self._ask(pause=True)

    def resume(self) -> None:
        self._ask(pause=False)

    def checkpoint(self) -> None:
        """Take one as soon as nothing is sealed."""
        with self._turn:
            self._asked_checkpoint = True
            self._turn.notify_all()

    def status(self) -> Status:
        """How it is, from any task: a step that hangs can't say that it does."""
        sight = self._sight()
        state, cause = judged(sight, self._settings)
        sinks = () if self._publishing is None else tuple(self._publishing.status())
        return Status(
            state,
            sight.committed,
            sight.sealed,
            cause,
            self._transactions,
            sight.still_ms if has_work(sight) else 0.0,
            sinks,
            self._replica.audit,
        )

    def _sight(self) -> Sight:
        standing, now_ms = self._replica.standing, self._env.clock.monotonic_ms()
        since_ms = self._step_ms
        return Sight(
            self._state,
            self._cause,
            standing.committed,
            None if standing.sealed is None else standing.sealed.t,
            offered=not self._replica.idle,
            doing="" if since_ms is None else self._replica.doing,
            doing_ms=0 if since_ms is None else now_ms - since_ms,
            still_ms=now_ms - self._moved_ms,
        )

    @property
    def _only_reads(self) -> bool:
        return self._replica.audit is not None

    def _is_idle(self) -> bool:
        """Nothing is left to do, or may be begun; what is committed is published, or won't be."""
        if self._only_reads:
            return self._idle and self._state is not State.PAUSED
        committed = self._replica.standing.committed
        published = self._publishing is None or self._publishing.settled(committed)
        if self._held_up:
            # By sinks that stand: somebody has to look, and nothing else will let it go on. One
            # that has not looked yet how far it is holds it up as well, and is no stall.
            return published and self._state is State.STALLED
        return self._idle and published and self._state is State.RUNNING

    def _left(self) -> str:
        """Why not all is done, although there is nothing to do."""
        if self._held_up or self._publishing is None:
            return self._cause
        return self._publishing.left(self._replica.standing.committed)

    def _ask(self, *, stop: bool = False, pause: bool | None = None) -> None:
        with self._turn:
            self._asked_stop = self._asked_stop or stop
            self._asked_pause = self._asked_pause if pause is None else pause
            self._turn.notify_all()

    def _rest(self, rest_ms: float) -> None:
        if rest_ms <= 0:
            return
        with self._turn:
            # A stop that was heard waits like everything else: its checkpoint may not be possible.
            stop = self._asked_stop and self._state is not State.STOPPING
            if not (stop or self._asked_checkpoint):
                self._turn.wait(int(rest_ms) + 1)

    def _round(self) -> float:
        if self._asked_stop and self._state is not State.STOPPING:
            self._move(Event.STOP)
            if self._only_reads:
                self._move(Event.STOPPED)
                return 0
            self._replica.want(Want.CHECKPOINT)
        elif self._asked_pause and self._state is not State.STOPPING:
            self._move(Event.PAUSE)
            return self._paused()
        elif self._state is State.PAUSED:
            self._moved_ms = self._env.clock.monotonic_ms()
            self._move(Event.RESUME)
        self._hear_checkpoint()
        return self._guarded(self._step)

    def _hear_checkpoint(self) -> None:
        # Not both in one: another task may ask in between.
        if self._asked_checkpoint:
            self._asked_checkpoint, self._owes_checkpoint = False, True
            self._replica.want(Want.CHECKPOINT)

    def _paused(self) -> float:
        """Nothing is begun. A checkpoint that is asked for, or was before the pause, is taken, and
        what is sealed is finished for it, as before a stop."""
        self._hear_checkpoint()
        # Who only reads takes none; and while it wants one, nothing new is sealed.
        if self._owes_checkpoint and self._replica.wants():
            return self._guarded(self._owed)
        try:
            # Others may replace this one's program meanwhile: its publishers have to let go then.
            self._replica.look()
        except StrandlineError as error:
            # It ends by nothing while it rests: what does not pass is met when it is resumed.
            return self._trouble(error)
        except BaseException as error:
            self._end(Event.FAIL, error)
            raise
        if self._troubles:
            self._troubles, self._cause = 0, ""
        return self._settings.poll_ms

    def _owed(self) -> float:
        self._stepped()
        self._cause = ""
        return 0

    def _held_back(self) -> bool:
        """Whether a sink is too far behind for anything new to be begun, or may be."""
        standing, bound = self._replica.standing, self._settings.sink_lag_max
        if self._publishing is None or standing.sealed is not None or self._asked_stop:
            return False
        if self._replica.wants():
            # Before its checkpoint nothing new is begun anyway.
            return False
        behind, name = self._publishing.behind(standing.committed)
        if behind >= bound:
            self._cause = f"sink {name} is {behind} transactions behind: nothing is begun until it"
            self._cause += " catches up"
            self._move(Event.STALL)
            return True
        unknown, name = self._publishing.unsure(standing.committed)
        if unknown >= bound:
            # That takes a moment; if it takes longer, whoever asks is told so (`stall`).
            self._cause = f"sink {name} has not looked yet how far it is: nothing is begun before"
        return unknown >= bound

    def _is_done(self) -> bool:
        """Whether it stops and has its checkpoint, which was another's that had gone on by then;
        what that one had sealed may be committed now, and nothing new is begun."""
        if self._state is not State.STOPPING or self._replica.wants():
            return False
        self._replica.look()
        return self._replica.standing.sealed is None

    def _step(self) -> float:
        if self._is_done():
            self._cause = ""
            self._move(Event.STOPPED)
            return 0
        if self._held_back():
            self._idle, self._held_up = False, True
            # Others may seal something, or replace this one's program, meanwhile.
            self._replica.look()
            return self._settings.poll_ms
        if self._held_up:
            self._held_up, self._moved_ms = False, self._env.clock.monotonic_ms()
            self._cause = ""
            self._move(Event.PROGRESS)
        was = self._replica.standing
        rest_ms = self._stepped()
        standing = self._replica.standing
        self._idle = rest_ms > 0 and self._replica.idle
        if standing.next_t > was.next_t or standing.sealed is None:
            self._cause = ""
            self._move(Event.PROGRESS)
        if self._went_on(was, standing):
            self._moved_ms = self._env.clock.monotonic_ms()
        if standing.sealed is None and standing.epoch:
            self._move(Event.CAUGHT_UP)
            if self._state is State.STOPPING and not self._replica.wants():
                self._move(Event.STOPPED)
        self._checkpoint_when_due()
        return rest_ms

    def _went_on(self, was: Standing, now: Standing) -> bool:
        """Whether something was committed or sealed, or there is nothing to do."""
        if now.sealed is None:
            return now.next_t > was.next_t or self._replica.idle
        return now.next_t > was.next_t or was.sealed is None

    def _stepped(self) -> float:
        was = self._replica.standing
        self._step_ms = self._env.clock.monotonic_ms()
        try:
            with self._stepping:
                rest_ms = self._replica.step()
        finally:
            self._step_ms = None
        self._troubles = 0
        self._owes_checkpoint = self._owes_checkpoint and self._replica.wants()
        if was.epoch:
            # What was committed before it looked for the first time is not its own time's.
            self._transactions += self._replica.standing.next_t - was.next_t
        return rest_ms

    def _checkpoint_when_due(self) -> None:
        standing = self._replica.standing
        last = standing.checkpoints[-1].t if standing.checkpoints else None
        since = standing.next_t - (0 if last is None else last + 1)
        if since >= self._settings.checkpoint_every:
            self._replica.due()

    def _guarded(self, step: Callable[[], float]) -> float:
        """Try again what may pass; end on what may not."""
        try:
            return step()
        except FencedError as error:
            self._end(Event.FENCE, error)
        except (SourceGoneError, InvariantError) as error:
            self._end(Event.FAIL, error)
        except (StoreError, LeaseLostError, ConflictError) as error:
            return self._trouble(error)
        except StrandlineError as error:
            self._end(Event.FAIL, error)
        except BaseException as error:
            self._end(Event.FAIL, error)
            raise
        return 0

    def _trouble(self, error: Exception) -> float:
        self._troubles += 1
        self._idle = False
        self._cause = f"{type(error).__name__}: {error}"
        if isinstance(error, LeaseLostError):
            with self._stepping:
                self._replica.renew()
        still_ms = self._env.clock.monotonic_ms() - self._moved_ms
        if self._state is not State.PAUSED and still_ms >= self._settings.stall_ms:
            self._move(Event.STALL)
        return _TROUBLE.delay(self._troubles - 1, self._env.random.uniform)

    def _end(self, event: Event, error: BaseException) -> None:
        self._cause = f"{type(error).__name__}: {error}"
        self.error = error
        self._move(event)
        self._replica.close()

    def _move(self, event: Event) -> None:
        self._state = moved(self._state, event)
