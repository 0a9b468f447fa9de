"""Where a process takes rows that are pushed to it, and tells their producers once they are sealed.

    push ─► buffer ─► staged by the planner ─► sealed in the journal ─► the producer is told

Producers and the planner meet here from different tasks. A push without a producer's name is given
one of this process's own, so that its rows are sealed once even where the store does not say
whether it sealed them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from strandline.connectors.push import Push, Verdict
from strandline.errors import ConflictError, MaybeAppliedError, NotAppliedError, UsageError
from strandline.journal.standing import ANONYMOUS
from strandline.model.ids import printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from strandline.connectors.position import Position
    from strandline.connectors.push import PushSource, Staging
    from strandline.connectors.source import Limits
    from strandline.shard.env import Env


@dataclass(frozen=True, slots=True)
class Pushed:
    """Rows that the journal has."""

    rows: int
    duplicate: bool
    """They were sealed before; this was a retry."""


class PushDesk:
    """The pushes of one endpoint in this process."""

    def __init__(self, env: Env, source: PushSource) -> None:
        self._env = env
        self._source = source
        self._turn = env.tasks.condition()
        self._anonymous = f"{ANONYMOUS}{env.random.token()}"
        self._count = 0
        self._done: dict[str, int] = {}
        self._closed = False

    def push(
        self,
        values: Sequence[bytes | None],
        *,
        producer: str | None = None,
        sequence: int | None = None,
        sealed: Mapping[str, int],
        timeout_ms: int,
    ) -> Pushed:
        """Take rows, and return once they are sealed; `sealed` is the journal's word on producers.

        `ConflictError`: pushes between the last one and this are missing. `NotAppliedError`: there
        is no room, or no replica, so try again. `MaybeAppliedError`: not sealed in time; the same
        push again is harmless, if it names its producer. `UsageError`: there are no rows.
        """
        with self._turn:
            push = self._named(tuple(values), producer, sequence)
            if not push.values:
                # Nothing would be sealed, so nobody else would know that its number is used.
                which = "the push" if producer is None else f"push {sequence} of {producer}"
                raise UsageError(f"{which} has no rows, and uses no number: push some")
            name, number = push.producer or "", push.sequence or 0
            verdict = self._offer(push, sealed)
            if verdict is Verdict.DUPLICATE:
                return Pushed(len(push.values), duplicate=True)
            self._wait(name, number, timeout_ms)
            return Pushed(len(push.values), duplicate=verdict is Verdict.PENDING)

    def staged(self, start: Position, limits: Limits, sealed: Mapping[str, int]) -> Staging | None:
        """The first pushes that the journal does not have, within the limits."""
        with self._turn:
            while True:
                staging = self._source.stage(start, limits, sealed)
                if staging is None or not staging.taken.empty:
                    return staging
                self._tell(staging)

    def sealed(self, staging: Staging) -> None:
        """The journal has it: tell those who wait."""
        with self._turn:
            self._tell(staging)

    def close(self) -> None:
        """No replica runs here any more: nobody waits for ever."""
        with self._turn:
            self._closed = True
            self._turn.notify_all()

    def open(self) -> None:
        """A replica runs here."""
        with self._turn:
            self._closed = False

    def _named(
        self, values: tuple[bytes | None, ...], producer: str | None, sequence: int | None
    ) -> Push:
        if producer is not None and producer.startswith(ANONYMOUS):
            raise UsageError(
                f"producer {printable(producer)} is refused: names that begin with {ANONYMOUS} are "
                "given to pushes without one, and are forgotten; use another"
            )
        if producer is not None or sequence is not None:
            return Push(values, producer, sequence)
        return Push(values, self._anonymous, self._count)

    def _offer(self, push: Push, sealed: Mapping[str, int]) -> Verdict:
        if self._closed:
            raise NotAppliedError("no replica runs in this process: push to one that does")
        name = push.producer or ""
        # What was told to be sealed here may be newer than what the caller has read.
        last = max(sealed.get(name, -1), self._done.get(name, -1))
        verdict = self._source.offer(push, {name: last} if last >= 0 else {})
        if verdict not in {Verdict.FULL, Verdict.GAP}:
            # What was refused has used no number: there are no holes in them.
            self._count += push.producer == self._anonymous
            return verdict
        if verdict is Verdict.FULL:
            raise NotAppliedError("too many rows wait to be sealed: try again later")
        told = f"the last one that is known is {last}" if last >= 0 else "its first one is 0"
        raise ConflictError(f"push {push.sequence} of producer {name} is too early: {told}")

    def _wait(self, producer: str, sequence: int, timeout_ms: int) -> None:
        deadline = self._env.clock.monotonic_ms() + timeout_ms
        while self._done.get(producer, -1) < sequence:
            left = deadline - self._env.clock.monotonic_ms()
            if left <= 0 or self._closed:
                raise MaybeAppliedError(
                    "the rows were taken and not sealed yet: push the same again, under the same "
                    "producer and sequence number"
                )
            self._turn.wait(int(left))

    def _tell(self, staging: Staging) -> None:
        for each in self._source.sealed(staging):
            if each.producer is not None and each.sequence is not None:
                known = self._done.get(each.producer, -1)
                self._done[each.producer] = max(known, each.sequence)
        self._turn.notify_all()
