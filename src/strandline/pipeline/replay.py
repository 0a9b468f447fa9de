"""Computes committed transactions again, and compares them with what is on record.

The same work as the first time: the inputs that were sealed, the program that they were sealed
under, the shards as they were before, which a reader of each holds until it was read, and which go
when this process does. It writes nothing: no record, no append. A difference is
`ReplayDivergedError`, which names the endpoint or collection, the transaction and both digests,
if the versions are equal; between unequal versions it is reported. A transaction whose rows are
gone by now (released, swept, forgotten by their source) is `SourceGoneError`, or passed over by who
asks for that, and then it is reported: nothing is called equal that was not computed.
"""

from __future__ import annotations

from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from strandline.errors import (
    BoundsError,
    CorruptionError,
    NotFoundError,
    ReplayDivergedError,
    SinceError,
    SourceGoneError,
)
from strandline.journal.checkpoint import Checkpoints
from strandline.journal.record import Begin, Commit
from strandline.journal.standing import advance
from strandline.pipeline import agree
from strandline.pipeline.planner import Planner
from strandline.pipeline.rig import under

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from strandline.handles.shard import Reader
    from strandline.journal.log import Journal
    from strandline.journal.sealed import Sealed
    from strandline.journal.standing import Standing
    from strandline.model.frontier import Time
    from strandline.pipeline.rig import Rig

_REASON = 300
"""So many characters of a reason are told."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """A committed transaction as the journal has it."""

    standing: Standing
    """When it was sealed."""
    sealed: Sealed
    commit: Commit

    @property
    def versions(self) -> Mapping[str, str]:
        """Of who gave the answer."""
        answer = self.sealed.answer
        return {} if answer is None else answer.versions


@dataclass(frozen=True, slots=True)
class Replayed:
    """A transaction that was computed again, or could not be."""

    t: Time
    rows: int
    """How many rows came in, by the digests of its inputs."""
    noted: tuple[str, ...]
    """What differs, where the versions do, too."""
    skipped: str = ""
    """Why it was not computed: nothing of it was compared. Empty if it was."""


def recorded(journal: Journal, start: Time, stop: Time) -> Iterator[Recorded]:
    """The committed transactions in `[start, stop)`, in order."""
    _check_committed(journal, start, stop)
    if start == stop:
        return
    standing = Checkpoints(journal).before(start)
    for _, record in journal.records(standing.lsn + 1):
        if isinstance(record, Begin) and record.t >= stop:
            return
        before = standing
        standing = advance(standing, record)
        if isinstance(record, Commit) and before.sealed is not None:
            yield Recorded(before, before.sealed, record)


def _check_committed(journal: Journal, start: Time, stop: Time) -> None:
    committed = journal.refresh().next_t
    if not 0 <= start <= stop <= committed:
        raise BoundsError(
            f"pipeline {journal.pipeline}: transactions {start} to {stop} can't be computed again: "
            f"0 to {committed} are committed"
        )


def replay(
    rig: Rig, planner: Planner, start: Time, stop: Time, *, skip: bool = False
) -> Iterator[Replayed]:
    """Compute and compare one transaction after the other; stops at the first difference.

    With `skip` those that can't be computed any more come, too: see `Replayed.skipped`.
    """
    _check_committed(rig.journal, start, stop)
    with ExitStack() as stack:
        held = _Held(rig, stack)
        try:
            # The first transaction of all reads nothing; each other one as of the one before it.
            if start < stop != 1:
                held.begin(start)
            for each in recorded(rig.journal, start, stop):
                found = again(rig, planner, each)
                held.move(each)
                if found.skipped and not skip:
                    raise SourceGoneError(
                        f"pipeline {rig.journal.pipeline}: transaction {found.t} can't be computed "
                        f"again: {found.skipped}"
                    )
                yield found
        except SinceError as error:
            raise SinceError(
                f"pipeline {rig.journal.pipeline}: {start} can't be computed again: {error}",
                oldest=error.oldest,
            ) from error


class _Held:
    """Readers of what a replay reads.

    Shards are bound to a program before they are there, and those of later programs begin later:
    what a shard does not have is missed only where it is read.
    """

    def __init__(self, rig: Rig, stack: ExitStack) -> None:
        self._rig = rig
        self._stack = stack
        self._readers: dict[str, Reader] = {}

    def begin(self, start: Time) -> None:
        """Hold all that is bound where it starts as of the time before; of others all there is."""
        journal = self._rig.journal
        for name in _shards(Checkpoints(journal).before(start)):
            self._hold(name, max(0, start - 1))
        for name in _shards(journal.refresh()):
            self._hold(name, None)

    def move(self, done: Recorded) -> None:
        """Let go of what was read, and hold what a program brought that was not known before."""
        for name in _shards(done.standing) if self._readers else ():
            self._hold(name, None)
        for reader in self._readers.values():
            reader.downgrade(done.sealed.t)

    def _hold(self, name: str, since: Time | None) -> None:
        if name not in self._readers:
            with suppress(NotFoundError):
                reader = self._rig.store.shard(name).reader(since=since, purpose="replay")
                self._readers[name] = reader
                self._stack.callback(reader.close)


def _shards(standing: Standing) -> list[str]:
    return [bound.shard for bound in standing.bindings.values()]


def again(rig: Rig, planner: Planner, each: Recorded, *, deltas: bool = True) -> Replayed:
    """Compute one committed transaction again and compare it; without `deltas`, its inputs only.

    One whose rows are gone is not computed, and says so.
    """
    shards = {name: bound.shard for name, bound in each.standing.bindings.items()}
    with under(rig, each.standing) as then:
        reading = planner if then is rig else Planner(then)
        try:
            computed = rig.computer.compute(reading.work(each.standing, each.sealed, shards))
        except (SourceGoneError, CorruptionError) as error:
            endpoint = reading.lost(each.sealed)
            if not endpoint:
                # It is something else that is damaged.
                raise
            reason = f"rows of {endpoint} are gone: {str(error)[:_REASON]}"
            return Replayed(each.sealed.t, 0, (), reason)
    inputs = agree.unpacked(each.commit.inputs)
    found = agree.differences("endpoint", inputs, computed.inputs)
    if deltas:
        on_record = agree.unpacked(each.commit.deltas)
        found += agree.differences("collection", on_record, computed.digests())
    equal = agree.same_versions(rig.computer.versions, each.versions)
    if found and equal:
        raise ReplayDivergedError(agree.divergence(rig.journal.pipeline, each.sealed.t, found))
    return Replayed(each.sealed.t, sum(one.count for one in inputs.values()), tuple(found))
