"""Runs a replica until it is told otherwise, and never lies about what it is doing.

    every round   pause, stop and checkpoint as asked ─► one step ─► rest, or go on at once
    an error      of the store or of a source: try again, ever less often; say so after `stall_ms`
                  fenced: end as fenced. Anything else: end as failed, with the reason

`running` is said only when the journal was read to its end and nothing is sealed: whatever is
committed can be read by then (S75). `stopped` is said only once the checkpoint is durable (S76).
"""

from __future__ import annotations

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
from strandline.pipeline.states import Event, State, moved
from strandline.store.retry import Backoff

if TYPE_CHECKING:
    from collections.abc import Callable

    from strandline.journal.standing import Standing
    from strandline.model.frontier import Frontier
    from strandline.pipeline.presence import Audit
    from strandline.pipeline.publish import SinkStatus
    from strandline.pipeline.publishing import Publishing
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

    def want(self, what: Want) -> None: ...

    def wants(self) -> bool: ...

    def renew(self) -> None: ...

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
    ) -> None:
        """Without `publishing` the sinks of the program are left to other replicas."""
        self._replica = replica
        self._publishing = publishing
        self._env = env
        self._settings = settings
        self._turn = env.tasks.condition()
        self._state = State.STARTING
        self._cause = ""
        self._asked_stop = False
        self._asked_pause = False
        self._asked_checkpoint = False
        self._transactions = 0
        self._moved_ms = env.clock.monotonic_ms()
        self._troubles = 0
        self._idle = False
        self.error: BaseException | None = None
        """What ended it, if it failed or was fenced."""

    @property
    def standing(self) -> Standing:
        """The newest standing that its replica has seen."""
        return self._replica.standing

    def run(self, *, until_idle: bool = False, transactions: int | None = None) -> Status:
        """Go on until stopped, fenced or failed; or until there is nothing to do, or so many
        transactions are committed, and then stop. Sinks are published beside it."""
        if self._publishing is None:
            return self._run(until_idle=until_idle, transactions=transactions)
        self._publishing.start()
        try:
            return self._run(until_idle=until_idle, transactions=transactions)
        finally:
            self._publishing.stop()

    def _run(self, *, until_idle: bool, transactions: int | None) -> Status:
        while self._state not in {State.STOPPED, State.FAILED, State.FENCED}:
            rest_ms = self._round()
            enough = transactions is not None and self._transactions >= transactions
            if enough or (until_idle and self._is_idle()):
                self.stop()
                continue
            self._rest(rest_ms)
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
        standing = self._replica.standing
        sealed = None if standing.sealed is None else standing.sealed.t
        busy = sealed is not None or self._troubles > 0
        still = self._env.clock.monotonic_ms() - self._moved_ms if busy else 0.0
        sinks = () if self._publishing is None else tuple(self._publishing.status())
        return Status(
            self._state,
            standing.committed,
            sealed,
            self._cause,
            self._transactions,
            still,
            sinks,
            self._replica.audit,
        )

    def _is_idle(self) -> bool:
        """Nothing is left to do, and what is committed is published."""
        committed = self._replica.standing.committed
        published = self._publishing is None or self._publishing.settled(committed)
        return self._idle and published and self._state is State.RUNNING

    def _ask(self, *, stop: bool = False, pause: bool | None = None) -> None:
        with self._turn:
            self._asked_stop = self._asked_stop or stop
            self._asked_pause = self._asked_pause if pause is None else pause
            self._turn.notify_all()

    def _rest(self, rest_ms: float) -> None:
        if rest_ms <= 0:
            return
        with self._turn:
            if not (self._asked_stop or self._asked_checkpoint):
                self._turn.wait(int(rest_ms) + 1)

    def _round(self) -> float:
        if self._asked_stop and self._state is not State.STOPPING:
            self._move(Event.STOP)
            self._replica.want(Want.CHECKPOINT)
        elif self._asked_pause and self._state is not State.STOPPING:
            self._move(Event.PAUSE)
            return self._settings.poll_ms
        elif self._state is State.PAUSED:
            self._move(Event.RESUME)
        if self._asked_checkpoint:
            self._asked_checkpoint = False
            self._replica.want(Want.CHECKPOINT)
        return self._guarded(self._step)

    def _slow_sink(self) -> str:
        """The sink that is too far behind for anything new to be begun; empty if there is none."""
        standing = self._replica.standing
        if self._publishing is None or standing.sealed is not None or self._asked_stop:
            return ""
        behind, name = self._publishing.behind(standing.committed)
        if behind < self._settings.sink_lag_max:
            return ""
        return f"sink {name} is {behind} transactions behind: nothing is begun until it catches up"

    def _step(self) -> float:
        if slow := self._slow_sink():
            self._cause, self._idle = slow, False
            self._move(Event.STALL)
            return self._settings.poll_ms
        before = self._replica.standing.next_t
        known = self._replica.standing.epoch > 0
        rest_ms = self._replica.step()
        standing = self._replica.standing
        self._troubles = 0
        self._idle = rest_ms > 0 and self._replica.idle
        if known:
            # What was committed before it looked for the first time is not its own time's.
            self._transactions += standing.next_t - before
        if standing.next_t > before or standing.sealed is None:
            self._moved_ms = self._env.clock.monotonic_ms()
            self._cause = ""
            self._move(Event.PROGRESS)
        if standing.sealed is None and standing.epoch:
            self._move(Event.CAUGHT_UP)
            if self._state is State.STOPPING and not self._replica.wants():
                self._move(Event.STOPPED)
        self._checkpoint_when_due()
        return rest_ms

    def _checkpoint_when_due(self) -> None:
        standing = self._replica.standing
        last = standing.checkpoints[-1].t if standing.checkpoints else None
        since = standing.next_t - (0 if last is None else last + 1)
        if since >= self._settings.checkpoint_every:
            self._replica.want(Want.CHECKPOINT)

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
            self._replica.renew()
        if self._env.clock.monotonic_ms() - self._moved_ms >= self._settings.stall_ms:
            self._move(Event.STALL)
        return _TROUBLE.delay(self._troubles - 1, self._env.random.uniform)

    def _end(self, event: Event, error: BaseException) -> None:
        self._cause = f"{type(error).__name__}: {error}"
        self.error = error
        self._move(event)
        self._replica.close()

    def _move(self, event: Event) -> None:
        self._state = moved(self._state, event)
