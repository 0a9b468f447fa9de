"""A connection to PostgreSQL whose waits end: one that says nothing for long is given up.

A dead network is found out by the kernel, and a server that is at work keeps its own limits. Both
are of no use where packets are acknowledged and no answer comes: a backend that was stopped or
hangs in its disk, something in between that swallows. So every wait counts for how long nothing
moved, neither an answer nor room for what is sent; a COPY that gets on, however slowly, moves.

It is counted in short waits and not by a clock: a process that was frozen itself finds the answer
that came meanwhile, and blames nobody.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import psycopg
from psycopg.rows import TupleRow

if TYPE_CHECKING:
    from psycopg.abc import PQGen

_T = TypeVar("_T")

SLICE_MS = 100


class NoAnswerError(psycopg.OperationalError):
    """Nothing moved for as long as it was waited for; what was asked may have been done."""


class Connection(psycopg.Connection[TupleRow]):
    """What psycopg's is; after a `NoAnswerError` it is closed."""

    patience_ms = 60_000
    """For how long nothing may move."""

    def wait(self, gen: PQGen[_T], *_: object, **__: object) -> _T:
        """Everything that psycopg waits for comes here.

        Other limits it asks for only where notifications are awaited, which we do not.
        """
        try:
            return super().wait(patient(gen, self.patience_ms), SLICE_MS / 1_000)
        except NoAnswerError:
            # Or leaving the transaction would ask for its end, and wait as long again.
            self.close()
            raise


def patient(gen: PQGen[_T], patience_ms: int) -> PQGen[_T]:
    """The same waits and the same answer, until nothing has moved for so long.

    Who waits sends `Ready.NONE`, which is false, whenever a slice of time has passed in vain.
    """
    still_ms = 0
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            still_ms = 0 if ready else still_ms + SLICE_MS
            if still_ms >= patience_ms:
                raise NoAnswerError(
                    f"no answer for {still_ms / 1_000:g} s, though it is connected: if it is only "
                    "slow, raise timeoutMs"
                )
            wanted = gen.send(ready)
    except StopIteration as end:
        answer: _T = end.value
        return answer
