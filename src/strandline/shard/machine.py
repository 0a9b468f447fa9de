"""Commits a shard's transitions through Consensus, and retries them safely.

    newest state seen ─► decide (pure) ─► no change ─► look again if the state was old; return
        ▲                   │
        │                Changed
        │                   ▼
        └─── re-read ◄─ compare_and_set ─► committed ─► publish to this process, return
             (mismatch, or no answer)

A retry re-reads, so it never guesses: an append that was applied although the store did not
say so is found again by its token, and every other command, decided again on a state that it
already changed, asks for nothing more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from strandline.errors import (
    CancelledError,
    ConflictError,
    CorruptionError,
    FencedError,
    LeaseLostError,
    MaybeAppliedError,
    NotAppliedError,
    NotFoundError,
    ReplicaDivergedError,
    SinceError,
    StoreError,
    StrandlineError,
    UsageError,
)
from strandline.model.ids import SeqNo
from strandline.shard import command as c
from strandline.shard.change import evolve
from strandline.shard.chunks import Chunks
from strandline.shard.codec import Record, encode_record
from strandline.shard.decide import decide
from strandline.shard.state import check, check_whole
from strandline.shard.versions import catch_up, load, shard_key
from strandline.store.consensus import CasResult, Versioned
from strandline.store.retry import Backoff

if TYPE_CHECKING:
    from collections.abc import Callable

    from strandline.model.frontier import Frontier
    from strandline.shard.cancel import Cancel
    from strandline.shard.env import Env
    from strandline.shard.state import State

_CONFLICT = Backoff(first_ms=1, factor=1.6, cap_ms=100)
_QUIET_LOOKS = 16
"""After so many looks that showed nothing new, a commit is tried without one again."""


@dataclass(slots=True)
class _Pursuit:
    """One command on its way: how often it was tried, and whether an answer is missing."""

    deadline_ms: int
    attempts: int = 0
    fresh: bool = False
    doubt: MaybeAppliedError | None = None
    taken: SeqNo | None = None
    """The version that somebody else had written already, by the last answer."""


class Machine:
    """One shard as one process sees it. All handles of the process share it."""

    def __init__(self, env: Env, name: str) -> None:
        self.env = env
        self.name = name
        self._seen: State | None = None
        self.chunks = Chunks(env, name)
        self._changed = env.tasks.condition()
        self._turn = env.tasks.condition()
        self._taken = False
        self._looks = 0
        """How many of the next commits look first, because others commit here as well."""

    @property
    def state(self) -> State:
        """The newest version this process has seen; possibly not the newest there is."""
        return self._seen if self._seen is not None else self.refresh()

    def refresh(self) -> State:
        """The newest version there is."""
        self.env.home.check()
        state = self._load()
        if state is None:
            raise NotFoundError(f"shard {self.name} does not exist in this store")
        return state

    def commit(self, command: c.Command) -> tuple[c.Outcome, State]:
        """Carry a command out; returns what came of it and the state that shows it."""
        self.env.home.check()
        if self._seen is None and not isinstance(command, c.Create):
            self.refresh()
        now = self.env.clock.monotonic_ms()
        pursuit = _Pursuit(now + self.env.settings.commit_deadline_ms)
        took = self._take_turn()
        try:
            if self._looks:
                self._look_first()
            while True:
                done = self._attempt(command, pursuit)
                if done is not None:
                    return done
        finally:
            if took:
                self._give_turn()

    def demand(self, command: c.Command) -> State:
        """Commit, and raise if it was refused."""
        outcome, state = self.commit(command)
        raise_refusal(self.name, outcome)
        return state

    def wait_for(
        self,
        ready: Callable[[State], bool],
        *,
        cancel: Cancel | None = None,
        timeout_ms: int | None = None,
        what: str = "",
    ) -> State:
        """The first version that is `ready`; looks again with back-off, at most every 200 ms."""
        start = self.env.clock.monotonic_ms()
        pause_ms = float(self.env.settings.poll_first_ms)
        while True:
            state = self.refresh()
            if ready(state):
                return state
            if cancel is not None and cancel.cancelled:
                raise CancelledError(f"waiting for shard {self.name} {what} was cancelled")
            if timeout_ms is not None and self.env.clock.monotonic_ms() - start >= timeout_ms:
                raise NotAppliedError(
                    f"shard {self.name} {what}: not yet after {timeout_ms} ms, "
                    f"it is at {state.upper}"
                )
            self.pause(state, pause_ms)
            pause_ms = min(pause_ms * 1.5, self.env.settings.poll_cap_ms)

    def pause(self, state: State, pause_ms: float) -> None:
        """Wait a while, or until this process sees a version after `state`."""
        with self._changed:
            seen = self._seen
            if seen is None or seen.seqno <= state.seqno:
                self._changed.wait(int(pause_ms))

    def _load(self) -> State | None:
        seen = self._seen
        state = None if seen is None else catch_up(self.env, self.name, seen)
        if state is None:
            state = load(self.env, self.name)
        return None if state is None else self._publish(state)

    def _publish(self, state: State) -> State:
        """Never go back: of two loads that raced, the newer one stays."""
        with self._changed:
            seen = self._seen
            if seen is not None and seen.seqno >= state.seqno:
                return seen
            self._seen = state
            self._changed.notify_all()
            return state

    def _attempt(self, command: c.Command, pursuit: _Pursuit) -> tuple[c.Outcome, State] | None:
        """Try once; `None` means that somebody else was faster, or no answer came."""
        before = self._seen
        if before is None:
            before = self._load()
        outcome = decide(before, command)
        if not isinstance(outcome, c.Changed):
            return self._settle(before, command, outcome, pursuit)
        after = evolve(before, outcome.change)
        if before is not None:
            check(before, after, committed=_committed(command))
        if isinstance(command, (c.Replace, c.Withdraw, c.IndexMoments)):
            check_whole(after)
        if self._swap(before, after, outcome, pursuit):
            self.env.metrics.add("commits", self.name)
            return outcome, self._published(after)
        self._again(pursuit)
        return None

    def _look_first(self) -> None:
        """Where others commit too, trying on a version that is not the newest costs more (S46)."""
        seen = self._seen
        self._looks = self._looks - 1 if self._load() is seen else _QUIET_LOOKS

    def _settle(
        self, before: State | None, command: c.Command, outcome: c.Outcome, pursuit: _Pursuit
    ) -> tuple[c.Outcome, State] | None:
        """What changes nothing must have been decided on the newest version."""
        if not pursuit.fresh:
            self._load()
            pursuit.fresh = True
            return None
        if pursuit.doubt is not None and _lost_its_trace(command, outcome):
            raise pursuit.doubt
        if before is None:
            raise_refusal(self.name, outcome)
            raise NotFoundError(f"shard {self.name} does not exist in this store")
        return outcome, before

    def _swap(
        self, before: State | None, after: State, outcome: c.Changed, pursuit: _Pursuit
    ) -> bool:
        seqno = SeqNo(0) if before is None else before.seqno.next()
        record = Record(outcome.change, after.manifest)
        version = Versioned(seqno, encode_record(self.name, seqno, record))
        try:
            result = self.env.consensus.compare_and_set(shard_key(self.name), version)
        except NotAppliedError as error:
            self.env.metrics.add("retries", self.name)
            self._give_up_late(pursuit, error)
            return False
        except MaybeAppliedError as error:
            self.env.metrics.add("doubts", self.name)
            pursuit.doubt = error
            self._give_up_late(pursuit, error)
            return False
        if result is CasResult.MISMATCH:
            self.env.metrics.add("conflicts", self.name)
            self._looks = _QUIET_LOOKS
            pursuit.taken = seqno
        return result is CasResult.COMMITTED

    def _again(self, pursuit: _Pursuit) -> None:
        """Look at what is there now, then let others go first the longer this takes."""
        try:
            self._load()
        except StoreError as error:
            if pursuit.doubt is not None:
                raise pursuit.doubt from error
            raise
        self._check_taken(pursuit)
        pursuit.fresh = True
        if pursuit.attempts > 0:
            self.env.tasks.sleep(_CONFLICT.delay(pursuit.attempts, self.env.random.uniform))
        pursuit.attempts += 1

    def _check_taken(self, pursuit: _Pursuit) -> None:
        """A version that is taken can be read; else we would try for ever, and so would all."""
        taken, pursuit.taken = pursuit.taken, None
        seen = self._seen
        if taken is not None and (seen is None or seen.seqno < taken):
            raise CorruptionError(
                f"version {taken} of shard {self.name} can neither be written nor read: the "
                "consensus store is damaged; run `strandline fsck`"
            )

    def _give_up_late(self, pursuit: _Pursuit, error: StoreError) -> None:
        if self.env.clock.monotonic_ms() >= pursuit.deadline_ms:
            raise pursuit.doubt or error

    def _published(self, state: State) -> State:
        self._publish(state)
        return state

    def _take_turn(self) -> bool:
        """Neighbours of one process go one by one, but nobody waits for a stuck one (S50)."""
        deadline = self.env.clock.monotonic_ms() + self.env.settings.turn_ms
        with self._turn:
            while self._taken:
                left = deadline - self.env.clock.monotonic_ms()
                if left <= 0:
                    return False
                self._turn.wait(left)
            self._taken = True
            return True

    def _give_turn(self) -> None:
        with self._turn:
            self._taken = False
            self._turn.notify_all()


def _lost_its_trace(command: c.Command, outcome: c.Outcome) -> bool:
    """Whether an append may have counted although its token can't be found any more.

    The token goes with its writer, when the writer expires or the shard is dropped.
    """
    return isinstance(command, c.Append) and isinstance(outcome, (c.Lost, c.Refused))


def _committed(command: c.Command) -> Frontier | None:
    """The timeline's frontier, where a command says that it knows it."""
    if isinstance(command, (c.AdvanceSince, c.Attach, c.Withdraw)):
        return command.committed
    return None


def raise_refusal(name: str, outcome: c.Outcome) -> None:
    """Turn an outcome that is not what was asked for into the error that says so."""
    match outcome:
        case c.Changed() | c.Unchanged() | c.Repeated():
            return
        case c.Lost(names):
            raise LeaseLostError(
                f"shard {name}: the lease of {', '.join(names)} ran out, its owner did not renew "
                "it in time; open a new handle"
            )
        case c.Fenced(epoch):
            raise FencedError(f"shard {name}: a newer owner, e{epoch}, has taken over; stop")
        case c.SincePassed(since):
            raise SinceError(
                f"shard {name}: history before {since} has been merged; the oldest time that can "
                f"be read is {since.time}",
                oldest=since.time,
            )
        case c.Stale():
            raise ConflictError(f"shard {name}: what was to be changed has changed; look again")
        case c.UpperMismatch(upper):
            raise ConflictError(f"shard {name}: its upper is {upper}")
        case c.Refused(reason) | c.Diverged(reason):
            raise _refusal(outcome)(f"shard {name}: {reason}")


def _refusal(outcome: c.Refused | c.Diverged) -> type[StrandlineError]:
    if isinstance(outcome, c.Diverged):
        return ReplicaDivergedError
    return NotFoundError if outcome.reason.startswith("it was dropped") else UsageError
