"""Stores that fail on purpose.

A call either happens or not, and its caller either hears so or not:

                 reported          not reported
    happened     success           MaybeAppliedError
    did not      NotAppliedError   MaybeAppliedError

and beyond the table a call may happen *after* its caller was told "maybe", hang until it is
released, or kill its process before or after the effect. A `FaultPlan` decides call by call;
a `World` says where control passes, so one wrapper serves plain tests and the simulator
(`Simulation` is a World).
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, NoReturn, Protocol, TypeVar

from strandline.errors import MaybeAppliedError, NotAppliedError, StrandlineError
from strandline.testing.task import SimulatedCrash

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from strandline.model.ids import SeqNo
    from strandline.store.blob import Blob, BlobEntry, Content
    from strandline.store.consensus import CasResult, Consensus, Versioned

_Answer = TypeVar("_Answer")

_STUCK_POLL_MS = 20.0


class FaultKind(Enum):
    """What goes wrong with one call."""

    NONE = "it happens, and the caller hears so"
    NOT_APPLIED = "it does not happen, and the caller hears so"
    LOST_REQUEST = "it does not happen, and the caller can't tell"
    LOST_REPLY = "it happens, and the caller can't tell"
    LATE = "the caller can't tell, and it happens later"
    STUCK = "it hangs until it is released, then happens"
    CRASH_BEFORE = "the process dies, and it does not happen"
    CRASH_AFTER = "it happens, and the process dies"


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens to one call: on its way there, its effect, and on its way back."""

    kind: FaultKind = FaultKind.NONE
    request_ms: float = 0.0
    reply_ms: float = 0.0
    late_ms: float = 0.0


class FaultPlan(Protocol):
    """Decides the fate of every call."""

    def decide(self, call: str, key: str) -> Fault:
        """`call` is the port's method, such as `blob.put`; `key` its key or prefix."""
        ...


class World(Protocol):
    """Where control passes, and what happens later."""

    def pause(self, label: str, delay_ms: float = 0.0) -> None: ...

    def after(self, delay_ms: float, act: Callable[[], None]) -> None: ...


@dataclass(slots=True)
class PlainWorld:
    """A World for tests without the simulator: what is late waits for `settle`."""

    late: list[Callable[[], None]] = field(default_factory=list)

    def pause(self, label: str, delay_ms: float = 0.0) -> None:  # noqa: ARG002
        if delay_ms:
            time.sleep(delay_ms / 1000)

    def after(self, delay_ms: float, act: Callable[[], None]) -> None:  # noqa: ARG002
        self.late.append(act)

    def settle(self) -> int:
        """Let everything that is late happen, in order; say how many calls that were."""
        count = 0
        while self.late:
            self.late.pop(0)()
            count += 1
        return count


@dataclass(slots=True)
class NoFaults:
    """A plan under which everything works; it counts the calls."""

    calls: Counter[str] = field(default_factory=Counter)

    def decide(self, call: str, key: str) -> Fault:  # noqa: ARG002
        self.calls[call] += 1
        return Fault()


@dataclass(slots=True)
class FailNth:
    """A plan with one fault, at the `nth` call (from 0) of those that match."""

    nth: int
    fault: Fault
    matches: Callable[[str, str], bool] = lambda _call, _key: True
    seen: int = 0

    def decide(self, call: str, key: str) -> Fault:
        if not self.matches(call, key):
            return Fault()
        self.seen += 1
        return self.fault if self.seen == self.nth + 1 else Fault()

    @property
    def reached(self) -> bool:
        """Whether the fault has struck: a sweep ends with the first that does not."""
        return self.seen > self.nth


@dataclass(slots=True)
class SeededFaults:
    """A plan that draws every fate from a seeded generator.

    `rates` gives the chance of each kind of fault; times are drawn up to the given maxima.
    """

    random: random.Random
    rates: Mapping[FaultKind, float]
    latency_ms_max: float = 0.0
    late_ms_max: float = 1_000.0
    counts: Counter[FaultKind] = field(default_factory=Counter)

    def decide(self, call: str, key: str) -> Fault:  # noqa: ARG002
        draw, kind = self.random.random(), FaultKind.NONE
        for candidate, rate in self.rates.items():
            draw -= rate
            if draw < 0:
                kind = candidate
                break
        self.counts[kind] += 1
        request_ms, reply_ms, late_ms = (self.random.random() for _ in range(3))
        return Fault(
            kind,
            request_ms * self.latency_ms_max,
            reply_ms * self.latency_ms_max,
            late_ms * self.late_ms_max,
        )


def _die() -> NoReturn:
    raise SimulatedCrash


class _Faulty:
    """Carries out calls as the plan says."""

    def __init__(
        self, plan: FaultPlan, world: World | None, crash: Callable[[], object] | None
    ) -> None:
        self.plan = plan
        self.world: World = world or PlainWorld()
        self._crash = crash or _die
        self._released = False
        self.stuck = 0

    def release(self) -> None:
        """Let stuck calls go on, those to come included."""
        self._released = True

    def _call(self, call: str, key: str, effect: Callable[[], _Answer]) -> _Answer:
        fault = self.plan.decide(call, key)
        label = f"{call} {key}"
        self.world.pause(label, fault.request_ms)
        self._before(fault, label, effect)
        answer = effect()
        self.world.pause(f"{label} done", fault.reply_ms)
        if fault.kind is FaultKind.CRASH_AFTER:
            self._crash()
            _die()
        if fault.kind is FaultKind.LOST_REPLY:
            raise MaybeAppliedError(f"{label}: the reply was lost")
        return answer

    def _before(self, fault: Fault, label: str, effect: Callable[[], object]) -> None:
        """Return if the effect is to happen now; otherwise raise what the caller hears."""
        match fault.kind:
            case FaultKind.NOT_APPLIED:
                raise NotAppliedError(f"{label}: refused")
            case FaultKind.LOST_REQUEST:
                raise MaybeAppliedError(f"{label}: the request was lost")
            case FaultKind.LATE:
                self.world.after(fault.late_ms, lambda: _unheard(effect))
                raise MaybeAppliedError(f"{label}: timed out, still under way")
            case FaultKind.CRASH_BEFORE:
                self._crash()
                _die()
            case FaultKind.STUCK:
                self._stick(label)
            case FaultKind.NONE | FaultKind.LOST_REPLY | FaultKind.CRASH_AFTER:
                pass

    def _stick(self, label: str) -> None:
        self.stuck += 1
        try:
            while not self._released:
                self.world.pause(f"{label} stuck", _STUCK_POLL_MS)
        finally:
            self.stuck -= 1


def _unheard(effect: Callable[[], object]) -> None:
    """Nobody waits for the answer any more, whatever it is."""
    with suppress(StrandlineError):
        effect()


class FaultyBlob(_Faulty):
    """A Blob whose calls fail as a plan says. One per process; `inner` is shared."""

    def __init__(
        self,
        inner: Blob,
        plan: FaultPlan,
        world: World | None = None,
        crash: Callable[[], object] | None = None,
    ) -> None:
        super().__init__(plan, world, crash)
        self._inner = inner

    def get(self, key: str) -> Content | None:
        return self._call("blob.get", key, lambda: self._inner.get(key))

    def get_range(self, key: str, start: int, length: int) -> bytes | None:
        return self._call("blob.get_range", key, lambda: self._inner.get_range(key, start, length))

    def put(self, key: str, value: bytes) -> None:
        self._call("blob.put", key, lambda: self._inner.put(key, value))

    def delete(self, key: str) -> bool:
        return self._call("blob.delete", key, lambda: self._inner.delete(key))

    def list(self, prefix: str) -> Iterator[BlobEntry]:
        return iter(self._call("blob.list", prefix, lambda: [*self._inner.list(prefix)]))

    def close(self) -> None:
        self._inner.close()


class FaultyConsensus(_Faulty):
    """A Consensus whose calls fail as a plan says. One per process; `inner` is shared."""

    def __init__(
        self,
        inner: Consensus,
        plan: FaultPlan,
        world: World | None = None,
        crash: Callable[[], object] | None = None,
    ) -> None:
        super().__init__(plan, world, crash)
        self._inner = inner

    def head(self, key: str) -> Versioned | None:
        return self._call("consensus.head", key, lambda: self._inner.head(key))

    def compare_and_set(self, key: str, new: Versioned) -> CasResult:
        def effect() -> CasResult:
            return self._inner.compare_and_set(key, new)

        return self._call("consensus.compare_and_set", key, effect)

    def scan(self, key: str, start: SeqNo, limit: int) -> Sequence[Versioned]:
        return self._call("consensus.scan", key, lambda: self._inner.scan(key, start, limit))

    def truncate(self, key: str, before: SeqNo) -> None:
        self._call("consensus.truncate", key, lambda: self._inner.truncate(key, before))

    def keys(self, prefix: str) -> Sequence[str]:
        return self._call("consensus.keys", prefix, lambda: self._inner.keys(prefix))

    def now_ms(self) -> int:
        return self._call("consensus.now_ms", "", self._inner.now_ms)

    def close(self) -> None:
        self._inner.close()
