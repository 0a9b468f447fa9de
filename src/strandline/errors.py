"""Every error Strandline raises, grouped by what the caller should do next.

    StrandlineError
    ├── UsageError                fix the call
    │   ├── NameRefusedError        a name that may not be used
    │   ├── BoundsError             times outside what the call declares
    │   ├── TooLargeError           more at once than is taken
    │   ├── SchemaError             rows, columns or filters that do not fit the schema
    │   ├── SinceError              a time that can no longer be told apart
    │   ├── NotFoundError           no shard, timeline or pipeline of that name
    │   ├── ProgramError            a program that can't be run as it is written
    │   └── HandleClosedError       a handle used after it was given back
    ├── ConflictError             another writer won: refresh, then decide again
    │   └── FencedError             a newer owner took over: stop
    │       └── SinkFencedError       another publisher has a sink's target: look at the claim
    ├── LeaseLostError            the lease ran out: open a new handle
    ├── UndecodableError          a source's value that a table says to stop at: mend or amend it
    ├── ViewFailedError           a view has no answer at this time: mend rows or program
    ├── CancelledError            the caller asked a blocked call to end
    ├── NotInstalledError         this machine lacks a program or a package: install it
    ├── StoreError                the outside world failed
    │   ├── NotAppliedError         it did not happen: retry freely
    │   ├── MaybeAppliedError       it may have happened: read back before retrying
    │   ├── SourceError             a source could not be reached or read
    │   │   └── SourceGoneError       rows that were sealed can't be read any more
    │   ├── SinkError               a sink's target could not be reached or written
    │   │   └── SinkStoppedError      a sink that can't go on until somebody has looked at it
    │   └── StalledError            progress stopped at a frontier: see the cause
    ├── CorruptionError           durable data is not what it says: stop, keep the evidence
    │   ├── NewerFormatError        written by a newer version: upgrade Strandline
    │   ├── JournalError            a journal whose records do not follow each other
    │   ├── ReplayDivergedError     a time was computed again, with another answer
    │   └── ReplicaDivergedError    two replicas computed different rows for one time
    └── InvariantError            a bug in Strandline

Messages are for people and are never matched on; facts are attributes. A message names the
thing, the reason and, where there is one, the next step.
"""

from __future__ import annotations


class StrandlineError(Exception):
    """The root of every error that Strandline raises on purpose."""


class UsageError(StrandlineError):
    """The call cannot be right as it stands: fix it."""


class NameRefusedError(UsageError):
    """A name or key that may not be used; nothing was looked up or written."""


class BoundsError(UsageError):
    """Times or frontiers outside what the call declares or the shard allows."""


class TooLargeError(UsageError):
    """What was sent is larger than anything that is taken at once: send less."""


class SchemaError(UsageError):
    """Rows, columns or filters that do not fit the shard's schema."""


class SinceError(UsageError):
    """A time below `since`: history has been merged past it.

    `oldest` is the oldest time that can still be read.
    """

    def __init__(self, message: str, *, oldest: int | None = None) -> None:
        super().__init__(message)
        self.oldest = oldest


class NotFoundError(UsageError):
    """Nothing of that name exists in the store."""


class HandleClosedError(UsageError):
    """The handle was closed, or belongs to another process; open a new one."""


class ProgramError(UsageError):
    """A program that can't be run as it is written; the message lists every reason by line.

    `troubles` are the same as (line, what is wrong, what to do) each; line 0 has no text.
    """

    def __init__(self, message: str, *, troubles: tuple[tuple[int, str, str], ...] = ()) -> None:
        super().__init__(message)
        self.troubles = troubles


class ConflictError(StrandlineError):
    """Another writer won: refresh, then decide again."""


class FencedError(ConflictError):
    """A newer owner took over: stop, and do not retry."""


class SinkFencedError(FencedError):
    """Another publisher has initialised the target since: nothing of this delivery counts.

    Whoever is told looks at the claim before anything else, so that two publishers never fence
    each other for ever.
    """


class LeaseLostError(StrandlineError):
    """The lease ran out while its owner was away: open a new handle and start again."""


class UndecodableError(StrandlineError):
    """A value of a source can't be decoded, and its table says `onError 'fail'`."""


class ViewFailedError(StrandlineError):
    """A view's query raised for what its tables hold at this time, so it has no answer there."""


class CancelledError(StrandlineError):
    """A blocked call ended because its caller asked it to."""


class NotInstalledError(StrandlineError):
    """A program or a package is missing or too old; the message says which, and how to get it."""


class StoreError(StrandlineError):
    """The outside world failed."""


class NotAppliedError(StoreError):
    """It did not happen: retry freely."""


class MaybeAppliedError(StoreError):
    """It may have happened: read back before retrying."""


class SourceError(StoreError):
    """A source could not be reached or read; nothing was taken from it."""


class SourceGoneError(SourceError):
    """Rows that were sealed can't be read any more: amend the transaction, or bring them back."""


class SinkError(StoreError):
    """A sink's target could not be reached or written; what it has, its own progress tells."""


class SinkStoppedError(SinkError):
    """A sink that can't go on by itself: the message says what is in doubt, and what to do."""


class StalledError(StoreError):
    """A reader stopped at a frontier and stays there; the cause is chained."""


class CorruptionError(StrandlineError):
    """Durable data is not what it says: stop, and keep the evidence."""


class NewerFormatError(CorruptionError):
    """Written by a newer version of Strandline: upgrade before opening it."""


class JournalError(CorruptionError):
    """A journal whose records are damaged, missing or out of order."""


class ReplayDivergedError(CorruptionError):
    """A time that was computed again has another answer than the one on record."""


class ReplicaDivergedError(CorruptionError):
    """Two replicas computed different rows for the same times: stop this one."""


class InvariantError(StrandlineError):
    """A rule that must always hold does not: a bug in Strandline."""


def invariant(holds: object, rule: str) -> None:
    """Stop if a rule is broken. Unlike `assert`, it survives `python -O`."""
    if not holds:
        raise InvariantError(rule)
