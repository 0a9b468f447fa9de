"""Proves that the journals of a store are what they say, and finds what no record refers to.

    always   every record that is left follows the one before and is legal; every object that a
             record or an open handle refers to is there, with its size; every bound shard exists
    deep     those objects are read, and compared with the digests on record

What may be removed, and why it can never count any more:

    object                           and                                    is
    ------------------------------   ------------------------------------   ---------
    referred to                                                             kept
    the records of an entry, or a    its number is taken, by another one    a leftover
    checkpoint                       its number is still to come            kept
    a staged payload                 it was staged less than a day ago      kept
                                     it is older                            a leftover

A payload is staged just before the record that refers to it, and whoever writes the record (a
journal's entry, a handle's chunk) gives one up that grew old on the way. A program's text is also
referred to by the checkpoint that its record was cut below. Objects are listed before the records
are read, so one that is listed and not referred to was not put after them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.errors import ConflictError, CorruptionError, NewerFormatError, StrandlineError
from strandline.journal.handles import Handles
from strandline.journal.log import Journal
from strandline.journal.record import Checkpoint, refs_of
from strandline.journal.staging import (
    STAGED_MS,
    fetch,
    load_snapshot,
    record_number,
    staged_ms,
)
from strandline.upkeep.findings import damaged, leftover

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from strandline.journal.record import Program, StagedRef
    from strandline.shard.env import Env
    from strandline.store.blob import BlobEntry
    from strandline.upkeep.findings import Finding, Report

_READS = 5
"""How often a journal that is cut while it is read is read again."""
_KEEP = "keep a copy of the store"


def fsck_journals(
    env: Env,
    report: Report,
    *,
    repair: bool = False,
    progress: Callable[[str, int, int], None] | None = None,
) -> None:
    """Check every journal of a store, and add what is found to a report."""
    keys = env.patient(lambda: env.consensus.keys("journal/"))
    shards = {
        key.removeprefix("shard/") for key in env.patient(lambda: env.consensus.keys("shard/"))
    }
    for at, key in enumerate(sorted(keys)):
        pipeline = key.removeprefix("journal/")
        if progress is not None:
            progress(f"journal of {pipeline}", at, len(keys))
        report.journals += 1
        report.findings.extend(_Check(env, pipeline, report, shards, repair=repair).run())


class _Check:
    """One check of one journal."""

    def __init__(
        self, env: Env, pipeline: str, report: Report, shards: set[str], *, repair: bool
    ) -> None:
        self._env = env
        self._pipeline = pipeline
        self._report = report
        self._shards = shards
        self._repair = repair

    def run(self) -> list[Finding]:
        """Trouble with one journal is a finding, and keeps no other from being checked."""
        for _ in range(_READS - 1):
            try:
                return list(self._once())
            except ConflictError:
                continue
        try:
            return list(self._once())
        except ConflictError as error:
            return [damaged("", f"journal of {self._pipeline}", str(error), "run fsck again")]

    def _once(self) -> Iterator[Finding]:
        found = f"journal/{self._pipeline}/"
        listed = {
            each.key: each for each in self._env.patient(lambda: list(self._env.blob.list(found)))
        }
        journal = Journal(self._env, self._pipeline)
        try:
            standing = journal.refresh()
            refs = {ref.key: ref for ref in self._referred(journal)}
        except ConflictError:
            raise
        except StrandlineError as error:
            yield damaged("", f"journal of {self._pipeline}", str(error), _KEEP)
            return
        self._report.objects += len(listed)
        self._report.object_bytes += sum(each.size for each in listed.values())
        for name, bound in sorted(standing.bindings.items()):
            if bound.shard not in self._shards:
                yield damaged(
                    bound.shard,
                    f"shard {bound.shard}",
                    f"{name} of pipeline {self._pipeline} means it, and it is not there",
                    _KEEP,
                )
        for ref in refs.values():
            yield from self._object(ref, listed)
        for key in sorted(listed.keys() - refs.keys()):
            yield from self._unneeded(listed[key], standing.lsn)

    def _referred(self, journal: Journal) -> Iterator[StagedRef]:
        """All that records and open handles refer to."""
        # Handles first: one that is closed by then is in the journal by then.
        for handle in Handles(self._env, self._pipeline).all():
            if handle.closed is None:
                yield from (chunk.ref for chunk in handle.chunks)
        for _, entry in journal.entries.scan():
            if entry.spilled is not None:
                yield entry.spilled
        for program in journal.standing.programs.values():
            yield from refs_of(program)
        told = journal.first() == 0
        for lsn, record in journal.records():
            yield from refs_of(record)
            if not told and isinstance(record, Checkpoint):
                # What was cut before it is told by it alone: transactions after it may be computed
                # again under a program whose own record is gone.
                programs = self._programs(lsn, record)
                told = programs is not None
                yield from (ref for each in programs or () for ref in refs_of(each))

    def _programs(self, lsn: int, record: Checkpoint) -> Collection[Program] | None:
        try:
            found = load_snapshot(self._env, self._pipeline, lsn, record.snapshot)
        except NewerFormatError:
            raise
        except CorruptionError:
            # It is a finding of its own.
            return None
        return found.programs.values()

    def _object(self, ref: StagedRef, listed: dict[str, BlobEntry]) -> Iterator[Finding]:
        known = listed.get(ref.key)
        if known is not None and known.size != ref.size:
            yield damaged("", ref.key, f"{known.size} bytes instead of {ref.size}")
        elif known is None or self._report.deep:
            # One that was put after the list was made is there; one that is gone is not.
            try:
                fetch(self._env, self._pipeline, ref)
            except CorruptionError as error:
                yield damaged("", ref.key, str(error))

    def _unneeded(self, entry: BlobEntry, last: int) -> Iterator[Finding]:
        number = record_number(entry.key)
        if number is not None and number > last:
            return
        since = staged_ms(entry.key)
        now_ms = self._env.patient(self._env.consensus.now_ms)
        if number is None and (since is None or now_ms - since < STAGED_MS):
            return
        if self._repair:
            self._env.patient(lambda: self._env.blob.delete(entry.key))
        reason = f"no record of pipeline {self._pipeline} refers to it and none ever will"
        yield leftover("", entry.key, reason, size=entry.size, repaired=self._repair)
