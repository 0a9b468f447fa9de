"""Proves that a store is what it says, and finds what nobody needs.

    always   every record decodes and follows the one before; the newest manifest and the records
             after it give the newest version; its rules hold; every object that it refers to is
             there, with its size; garbage, orphans, leftovers and dead leases are listed
    deep     every object is read: checksums, rows, digests, times, places and statistics

Without `repair` nobody's lease is touched, not even suspected. `repair` deletes only what nothing
refers to (orphans, leftovers of broken writes) and expires readers and writers whose processes
are gone. Damage is never repaired: it is evidence.

Objects are listed before states are loaded (see `garbage`), and each shard is pinned while its
objects are looked at, so a store that is in use can be checked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from strandline.errors import CorruptionError, NotFoundError, StrandlineError
from strandline.model.ids import SeqNo
from strandline.parts.index import check_groups
from strandline.parts.parquet import Owner, decode_part
from strandline.shard import pulse as p
from strandline.shard.change import evolve
from strandline.shard.chunks import Chunks
from strandline.shard.codec import decode_record
from strandline.shard.machine import Machine
from strandline.shard.moments import decode_moments
from strandline.shard.timeline import PlainTimeline
from strandline.shard.versions import shard_key
from strandline.upkeep.collect import Collector
from strandline.upkeep.findings import (
    Finding,
    Report,
    check_list,
    check_rows,
    check_rules,
    damaged,
    leftover,
    note,
)
from strandline.upkeep.garbage import named, shard_of
from strandline.upkeep.silence import read_pulse, wait_for_silent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from strandline.parts.part import Chunk, Part
    from strandline.shard.change import Change
    from strandline.shard.env import Env
    from strandline.shard.leases import Leases
    from strandline.shard.state import State

_PAGE = 256
_RECORDS_MANY = 1024
_LEFTOVER_AGE_MS = 3_600_000
"""A write that began less than an hour ago may still end."""


def fsck(
    env: Env,
    leases: Leases,
    names: Sequence[str] | None = None,
    *,
    deep: bool = False,
    repair: bool = False,
    report: Callable[[str, int, int], None] | None = None,
) -> Report:
    """Check these shards, or all of them and the store as a whole.

    `report(what, done, total)` is called now and then.
    """
    return _Fsck(env, leases, deep=deep, repair=repair, progress=report).run(names)


class _Leftover(Protocol):
    @property
    def path(self) -> str: ...

    @property
    def size(self) -> int: ...

    @property
    def modified_ms(self) -> int: ...


@runtime_checkable
class Provable(Protocol):
    """A Consensus that can read all it has, and find damage that single reads may miss."""

    def prove(self) -> None: ...


class _Fsck:
    """One check of a store."""

    def __init__(
        self,
        env: Env,
        leases: Leases,
        *,
        deep: bool = False,
        repair: bool = False,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> None:
        self._env = env
        self._leases = leases
        self._repair = repair
        self._progress = progress
        self._collector = Collector(env, leases)
        self._known: set[str] = set()
        """The ids that records name: those of shards of this store, dropped ones among them."""
        self.report = Report(deep=deep)

    def run(self, names: Sequence[str] | None = None) -> Report:
        """Check these shards, or all shards and the store as a whole."""
        keys = self._env.patient(lambda: self._env.consensus.keys("shard/"))
        chosen = [key.removeprefix("shard/") for key in keys] if names is None else list(names)
        for at, name in enumerate(chosen):
            self._tell(f"shard {name}", at, len(chosen))
            self._shard(name)
        if names is None:
            self._whole()
            self._timelines(set(chosen))
            self._dropped()
            self._leftovers()
        self._tell("done", len(chosen), len(chosen))
        return self.report

    def _whole(self) -> None:
        """The file of the records as a whole, if the backend can prove it."""
        if isinstance(self._env.consensus, Provable):
            try:
                self._env.consensus.prove()
            except CorruptionError as error:
                self._add([damaged("", "consensus", str(error))])

    def _tell(self, what: str, done: int, total: int) -> None:
        if self._progress is not None:
            self._progress(what, done, total)

    def _add(self, findings: Iterable[Finding]) -> None:
        self.report.findings.extend(findings)

    # One shard.

    def _shard(self, name: str) -> None:
        """Trouble with one shard is a finding, and keeps no other from being checked."""
        self.report.shards += 1
        machine = Machine(self._env, name)
        try:
            machine.refresh()
            self._add(self._records(machine))
            self._objects(machine)
            self._leased(machine)
            self._unneeded(machine)
            self._known.update(map(shard_of, named(machine.state)))
        except NotFoundError as error:
            self._add([damaged(name, f"shard {name}", str(error), "check the name")])
        except StrandlineError as error:
            self._add([damaged(name, f"shard {name}", str(error), "keep a copy of the store")])

    def _records(self, machine: Machine) -> Iterator[Finding]:
        """Every record that is left decodes, follows the one before, and leads to the state."""
        newest = machine.refresh()
        state: State | None = None
        count, start = 0, SeqNo(0)
        while True:
            page = self._env.patient(
                lambda start=start: self._env.consensus.scan(  # type: ignore[misc]
                    shard_key(machine.name), start, _PAGE
                ),
                shard=machine.name,
            )
            for version in page:
                if count and version.seqno != start:
                    yield damaged(machine.name, f"version {start}", "its record is missing")
                record = decode_record(machine.name, version.seqno, version.data)
                self._known.update(_ids(record.change))
                whole = state is not None or version.seqno.number == 0
                if whole and version.seqno <= newest.seqno:
                    state = evolve(state, record.change)
                start = version.seqno.next()
                count += 1
            if len(page) < _PAGE:
                break
        if state is not None and state != newest:
            yield damaged(
                machine.name,
                f"version {newest.seqno}",
                "its manifest and records say something else than all records from the first",
            )
        if count > max(_RECORDS_MANY, 4 * self._env.settings.manifest_every):
            yield note(machine.name, "records", f"{count} are kept; upkeep has not run for long")

    def _objects(self, machine: Machine) -> None:
        """Everything that the newest version refers to is there, and is what it should be."""
        if machine.state.dropped:
            return
        pin = self._leases.own_reader(machine).pin()
        try:
            state = pin.state()
            self._add(check_rules(state))
            objects = _Objects(self._env, state, self.report)
            total = sum(batch.part_count for batch in state.batches)
            done = 0
            for finding in objects.check():
                if finding is None:
                    done += 1
                    self._tell(f"objects of {state.name}", done, total)
                else:
                    self._add([finding])
        finally:
            pin.give_back()

    def _leased(self, machine: Machine) -> None:
        """Readers and writers whose processes are gone."""
        before = machine.refresh()
        entries = before.heartbeats()
        if self._repair:
            wait_for_silent(
                self._env,
                self._leases.undertaker,
                set(entries.values()) - self._leases.pulses(),
                lambda left: self._tell(f"waiting for {left} silent process(es)", 0, left),
            )
            self._leases.bury(machine)
        over = {pulse for pulse in set(entries.values()) if self._is_over(pulse)}
        gone = machine.refresh()
        self._add(
            leftover(
                machine.name,
                f"lease {name}",
                f"its process (pulse {pulse}) is gone",
                repaired=name not in gone.readers and name not in gone.writers,
            )
            for name, pulse in sorted(entries.items())
            if pulse in over
        )

    def _is_over(self, pulse_id: str) -> bool:
        """Only looks: to end a pulse, or to suspect it, is up to a repair and to upkeep."""
        return p.is_over(pulse_id, read_pulse(self._env, pulse_id))

    def _unneeded(self, machine: Machine) -> None:
        """Garbage that waits for somebody, and orphans."""
        try:
            found = self._collector.sweep(machine, delete=self._repair)
        except CorruptionError as error:
            self._add([damaged(machine.name, "orphans", f"can't be told apart: {error}")])
            return
        self._add(
            leftover(
                machine.name,
                entry.key,
                "nothing refers to it and nothing ever will",
                size=entry.size,
                repaired=self._repair,
            )
            for entry in found
        )
        state = machine.state
        waiting = sum(len(entry.keys) for entry in state.garbage)
        if waiting:
            hold = state.seqno_hold()
            self._add([note(state.name, "garbage", f"{waiting} objects; readers hold v{hold}")])

    # The store as a whole.

    def _timelines(self, shards: set[str]) -> None:
        for key in self._env.patient(lambda: self._env.consensus.keys("timeline/")):
            name = key.removeprefix("timeline/")
            timeline = PlainTimeline(self._env, name)
            try:
                timeline.committed()
                missing = [member for member in timeline.members() if member not in shards]
            except StrandlineError as error:
                self._add([damaged("", f"timeline {name}", str(error), "keep a copy of the store")])
                continue
            self._add(
                note("", f"timeline {name}", f"its member {member} does not exist")
                for member in missing
            )

    def _dropped(self) -> None:
        """What is left of shards whose names others have taken."""
        try:
            found = self._collector.sweep_dropped(delete=self._repair, proven=self._known)
        except StrandlineError as error:
            self._add([note("", "dropped shards", f"can't be told apart: {error}")])
            return
        reason = "its shard was dropped, and nothing refers to it"
        self._add(
            leftover("", entry.key, reason, size=entry.size, repaired=self._repair)
            for entry in found
            if shard_of(entry.key) in self._known
        )
        sizes: dict[str, list[int]] = {}
        for entry in found:
            if shard_of(entry.key) not in self._known:
                sizes.setdefault(shard_of(entry.key), []).append(entry.size)
        reason = "objects of a shard that no record names; are they another store's, or lost ones?"
        self._add(
            note("", f"folder {shard_id}", f"{len(each)} {reason}", size=sum(each))
            for shard_id, each in sorted(sizes.items())
        )

    def _leftovers(self) -> None:
        """Files of writes that never ended, where the store keeps files."""
        list_leftovers = getattr(self._env.blob, "leftovers", None)
        if list_leftovers is None:
            return
        now_ms = self._env.patient(self._env.consensus.now_ms)
        entries: list[_Leftover] = list(list_leftovers())
        for entry in entries:
            if now_ms - entry.modified_ms < _LEFTOVER_AGE_MS:
                self._add([note("", entry.path, "a write that is under way, or broke off lately")])
                continue
            if self._repair:
                self._env.blob.remove_leftover(entry)  # type: ignore[attr-defined]
            self._add(
                [
                    leftover(
                        "",
                        entry.path,
                        "a write that broke off",
                        size=entry.size,
                        repaired=self._repair,
                    )
                ]
            )


def _ids(change: Change) -> set[str]:
    """The ids of shards that a record names: the one it creates, those of what it deletes."""
    keys = [key for entry in change.garbage for key in (*entry.keys, *entry.chunks)]
    found = {shard_of(key) for key in (*keys, *change.garbage_collected)}
    return found if change.created is None else {*found, change.created.id}


class _Objects:
    """The objects that one version of a shard refers to."""

    def __init__(self, env: Env, state: State, report: Report) -> None:
        self._env = env
        self._state = state
        self._report = report
        self._chunks = Chunks(env, state.name)
        self._sizes: dict[str, int] = {}

    def check(self) -> Iterator[Finding | None]:
        """What is wrong; `None` after each part, so that progress can be told."""
        state = self._state
        folders = {state.id}
        if state.manifest is not None:  # It may be that of a shard of this name dropped before.
            folders.add(state.manifest.key.partition("/")[0])
        for folder in sorted(folders):
            listed = self._env.patient(
                lambda folder=folder: list(self._env.blob.list(f"{folder}/")),  # type: ignore[misc]
                shard=state.name,
            )
            self._sizes.update((entry.key, entry.size) for entry in listed)
        self._report.objects += len(self._sizes)
        self._report.object_bytes += sum(self._sizes.values())
        for batch in state.batches:
            for part in batch.parts:
                yield from self._part(part)
            for chunk in batch.chunks:
                yield from self._chunk(chunk)
        yield from self._moments()
        if state.manifest is not None:
            yield from self._there(state.manifest.key, state.manifest.size, "manifest")

    def _there(self, key: str, size: int, what: str) -> Iterator[Finding]:
        found = self._sizes.get(key)
        if found is None:
            yield damaged(self._state.name, f"{what} {key}", "it is missing")
        elif found != size:
            yield damaged(self._state.name, f"{what} {key}", f"{found} bytes instead of {size}")

    def _part(self, part: Part) -> Iterator[Finding | None]:
        wrong = list(self._there(part.key, part.size, "part"))
        yield from wrong
        if self._report.deep and not wrong:
            yield from self._deep(part)
        yield None

    def _deep(self, part: Part) -> Iterator[Finding]:
        state = self._state
        encoded = self._env.patient(lambda: self._env.blob.get(part.key), shard=state.name)
        if encoded is None:
            yield damaged(state.name, f"part {part.key}", "it is missing")
            return
        try:
            owner = Owner(state.id, part.key)
            updates = decode_part(encoded, part, state.schema, owner=owner)
            check_groups(encoded, part, state.schema, owner)
        except CorruptionError as error:
            yield damaged(state.name, f"part {part.key}", str(error))
            return
        for reason in check_rows(part, updates, state.schema):
            yield damaged(state.name, f"part {part.key}", reason)

    def _chunk(self, chunk: Chunk) -> Iterator[Finding | None]:
        state = self._state
        wrong = list(self._there(chunk.key, chunk.size, "part list"))
        yield from wrong
        if chunk.stats_key and chunk.stats_key not in self._sizes:
            yield note(state.name, chunk.stats_key, "statistics are missing: nothing is pruned")
        if wrong:
            return
        try:
            deep = self._report.deep
            table = self._chunks.table(chunk, shard_id=state.id, stats=deep)
            parts = table.parts(with_stats=deep)
        except CorruptionError as error:
            yield damaged(state.name, f"part list {chunk.key}", str(error))
            return
        for reason in check_list(chunk, parts):
            yield damaged(state.name, f"part list {chunk.key}", reason)
        for part in parts:
            yield from self._part(part)

    def _moments(self) -> Iterator[Finding]:
        state = self._state
        for chunk in state.moment_chunks:
            wrong = list(self._there(chunk.key, chunk.size, "list of times"))
            yield from wrong
            if wrong or not self._report.deep:
                continue
            encoded = self._env.patient(
                lambda key=chunk.key: self._env.blob.get(key),  # type: ignore[misc]
                shard=state.name,
            )
            try:
                decode_moments(encoded or b"", chunk, shard=state.id)
            except CorruptionError as error:
                yield damaged(state.name, f"list of times {chunk.key}", str(error))
