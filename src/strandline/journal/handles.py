"""Explicit transactions that are open: what they staged so far, durably and once.

A handle has no time until it commits, and the journal says nothing of it before that. It lives
in a slot, one consensus key each, which is used again when the journal has forgotten the handle
before it. Whoever did not hear what became of a handle can ask for as long as it is kept: so long
after it was closed as an idle one stays open, but of those no more than `KEPT_MAX`. So there are
as many keys as handles were ever open at once, as many as were closed between two checkpoints,
and `KEPT_MAX`.

    Opened ─► Staged, by chunk number ─► Frozen: no chunk is added any more ─► Closed ─► Opened …

    user     `freeze`, which says whether to commit or to abort, and durably so
    replica  journal first: is it closed?  then the slot: what its user said, or that it is closed;
             then propose BEGIN + INPUT + SEAL, or ABORT, on that same standing; then `settle`

The order matters. The journal forgets a handle only after its slot says that it is closed, so
whoever reads the journal before the slot sees it closed in one of them; and a proposal on that
standing is lost if another one closed it since. A crash anywhere leaves the handle open or
frozen, and nobody but its user, or its expiry, ever closes it (S59).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec

from strandline.errors import ConflictError, MaybeAppliedError, NotFoundError, UsageError
from strandline.journal.entries import valid_pipeline
from strandline.journal.record import StagedRef
from strandline.journal.staging import digest_of, is_stale, stage
from strandline.model.frontier import Time
from strandline.model.ids import SeqNo, printable
from strandline.parts.envelope import decoded, seal, unseal
from strandline.shard.env import PATIENCE
from strandline.store.consensus import CasResult, Versioned

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from strandline.journal.standing import Standing
    from strandline.shard.env import Env


KEPT_MAX = 1_000
"""So many closed handles are kept for whoever asks again, however many are closed in that time."""
_SLOT_DIGITS = 9
"""There are as many slots as handles were open at once: a longer number is none of ours."""


class Opened(msgspec.Struct, frozen=True, array_like=True, tag="OPENED"):
    """A handle takes the slot."""

    id: str
    at_ms: int


class Staged(msgspec.Struct, frozen=True, array_like=True, tag="STAGED"):
    """One chunk of rows for one table."""

    number: int
    table: str
    ref: StagedRef
    at_ms: int
    replace: bool = False
    """Whether the table holds what its handle brings for it and nothing else."""


class Frozen(msgspec.Struct, frozen=True, array_like=True, tag="FROZEN"):
    """Its user commits or aborts it: nothing is added."""

    commit: bool
    at_ms: int
    reason: str = ""
    """Why it is aborted, if that is not its user's word."""


class Closed(msgspec.Struct, frozen=True, array_like=True, tag="CLOSED"):
    """The journal has closed it: at a time, or without one."""

    t: Time | None
    reason: str
    at_ms: int

    @property
    def how(self) -> str:
        """What became of it, for messages."""
        if self.t is not None:
            return f"committed as {self.t}"
        return f"aborted: {self.reason}" if self.reason else "aborted"


_Step = Opened | Staged | Frozen | Closed
_decoder: msgspec.msgpack.Decoder[_Step] = msgspec.msgpack.Decoder(_Step)


@dataclass(frozen=True, slots=True)
class Handle:
    """An explicit transaction, as its slot tells."""

    id: str
    opened_ms: int
    touched_ms: int
    chunks: tuple[Staged, ...] = ()
    """As they came; whoever commits them puts them in the order of their numbers."""
    frozen: Frozen | None = None
    closed: Closed | None = None

    def tables(self) -> dict[str, tuple[StagedRef, ...]]:
        """What is staged for each table, in the order of the chunks' numbers."""
        found: dict[str, tuple[StagedRef, ...]] = {}
        for chunk in sorted(self.chunks, key=lambda each: each.number):
            found[chunk.table] = (*found.get(chunk.table, ()), chunk.ref)
        return found

    def replaced(self) -> frozenset[str]:
        """The tables whose content it replaces."""
        return frozenset(each.table for each in self.chunks if each.replace)


class Handles:
    """The handles of one pipeline."""

    def __init__(self, env: Env, pipeline: str) -> None:
        self._env = env
        self.pipeline = valid_pipeline(pipeline)
        self._committed: dict[int, str] = {}
        """By slot, handles that were seen there when they had a time."""

    @property
    def is_here(self) -> bool:
        """Whether this is the process that opened the store, and no forked child of it."""
        return self._env.home.is_here()

    def open(self, look: Callable[[], Standing]) -> str:
        """A new handle; durable when it returns. `look` reads the journal: after the slots, so
        that a handle which was closed meanwhile is not taken for one that was forgotten."""
        token = self._env.random.token()
        for _ in self._rounds():
            slots = self._slots()
            standing = look()
            number = next(n for n in range(len(slots) + 1) if _is_free(slots.get(n), standing))
            name = f"h{number}-{token}"
            # A slot whose answer got lost has this very token.
            mine = next((h.id for h in slots.values() if h and h.id.endswith(token)), None)
            if mine is not None:
                return mine
            handle, end = self._read(number)
            if handle != slots.get(number):
                # Another got it since.
                continue
            if self._append(number, end, Opened(name, self._now_ms())):
                return name
        raise self._silent(token)

    def look(self, name: str) -> Handle:
        """What is known of a handle; `NotFoundError` once it was closed long ago."""
        return self._find(name)[0]

    def insert(
        self,
        name: str,
        number: int,
        table: str,
        payload: bytes,
        rows: int,
        *,
        replace: bool = False,
    ) -> Staged:
        """Stage one chunk. The same chunk again is harmless; another of its number is refused."""
        put = _Putting(self._env, self.pipeline, lambda _: payload, rows)
        return self._put(name, _Chunk(number, table, digest_of(payload), put, replace), put)

    def append(self, name: str, table: str, packed: Callable[[int], bytes], rows: int) -> Staged:
        """Stage one chunk under the next number, which is chosen here: what two bring at once
        counts twice, alike or not. `packed` makes its bytes for a number."""
        put = _Putting(self._env, self.pipeline, packed, rows)
        return self._put(name, _Chunk(None, table, b"", put, replace=False), put)

    def adopt(
        self,
        name: str,
        number: int | None,
        table: str,
        ref: StagedRef,
        *,
        replace: bool = False,
    ) -> Staged:
        """The same for a chunk that somebody has staged already, and not too long ago; without a
        number it gets the next one."""

        def fresh(number: int) -> StagedRef:
            if is_stale(ref, self._now_ms()):
                raise ConflictError(
                    f"chunk {number} of handle {name} was staged so long ago that it may be swept "
                    "any moment: stage it again"
                )
            return ref

        return self._add(name, _Chunk(number, table, ref.digest, fresh, replace), {ref.key})

    def _put(self, name: str, chunk: _Chunk, put: _Putting) -> Staged:
        staged = self._add(name, chunk, put.keys)
        for key in put.keys - {staged.ref.key}:
            self._delete(key)
        return staged

    def _add(self, name: str, chunk: _Chunk, mine: set[str]) -> Staged:
        for _ in self._rounds():
            handle, end = self._open_one(name)
            if chunk.number is None:
                # Not by its content: others may bring the same, and both count.
                known = next((each for each in handle.chunks if each.ref.key in mine), None)
            else:
                known = _same(handle, chunk)
            if known is not None:
                return known
            number = _next(handle) if chunk.number is None else chunk.number
            if handle.frozen is not None:
                raise ConflictError(f"handle {name} is being closed: chunk {number} is too late")
            _refuse_mixture(handle, chunk)
            staged = Staged(number, chunk.table, chunk.ref(number), self._now_ms(), chunk.replace)
            if self._append(_slot_of(name), end, staged):
                return staged
        raise self._silent(name)

    def freeze(self, name: str, *, commit: bool) -> Handle:
        """Before a commit or an abort: its chunks are these, and stay these.

        This is its user's word, durably: any replica may carry it out from now on.
        """
        for _ in self._rounds():
            handle, end = self._open_one(name)
            if handle.frozen is not None:
                return self._as_before(handle, handle.frozen, commit=commit)
            frozen = Frozen(commit, self._now_ms())
            if self._append(_slot_of(name), end, frozen):
                return replace(handle, frozen=frozen)
        raise self._silent(name)

    def expire(self, seen: Handle, reason: str) -> bool:
        """Freeze one that nobody touched for too long; not if anything happened to it since."""
        for _ in self._rounds():
            handle, end = self._read(_slot_of(seen.id))
            if handle != seen:
                return False
            frozen = Frozen(commit=False, at_ms=self._now_ms(), reason=reason)
            if self._append(_slot_of(seen.id), end, frozen):
                return True
        raise self._silent(seen.id)

    def settle(self, name: str, t: Time | None, reason: str = "") -> None:
        """The journal has closed it: say so here. What an aborted one staged is deleted."""
        for _ in self._rounds():
            handle, end = self._read(_slot_of(name))
            if handle is None or handle.id != name or handle.closed is not None:
                return
            for chunk in handle.chunks if t is None else ():
                self._delete(chunk.ref.key)
            if self._append(_slot_of(name), end, Closed(t, reason, self._now_ms())):
                return
        raise self._silent(name)

    def all(self, standing: Standing | None = None) -> list[Handle]:
        """Every handle that holds a slot, closed ones included.

        With a standing, committed ones that were seen before are left out while the journal has
        them: nobody gets their slots until then, and there may be many.
        """
        closed = {} if standing is None else standing.closed
        known = {n for n, name in self._committed.items() if closed.get(name) is not None}
        found = self._slots(known)
        for number, handle in found.items():
            if handle is not None and handle.closed is not None and handle.closed.t is not None:
                self._committed[number] = handle.id
        return [handle for handle in found.values() if handle is not None]

    def idle(self, limit_ms: int) -> list[Handle]:
        """The open ones that nobody touched for so long, by the store's clock."""
        now_ms = self._now_ms()
        return [h for h in self.all() if h.closed is None and h.touched_ms + limit_ms <= now_ms]

    def settled(self, standing: Standing, kept_ms: int) -> list[str]:
        """The handles that a checkpoint may forget: their slots say that they are closed, and
        have for `kept_ms`, so that whoever got no answer could ask again; or there are too many."""
        now_ms, slots = self._now_ms(), self._slots()
        closed = sorted(
            (handle.closed.at_ms, handle.id)
            for handle in slots.values()
            if handle is not None and handle.closed is not None and handle.id in standing.closed
        )
        old = {name for at_ms, name in closed if at_ms + kept_ms <= now_ms}
        many = {name for _, name in closed[:-KEPT_MAX]}
        return sorted(old | many | _overtaken(standing, slots))

    def _as_before(self, handle: Handle, frozen: Frozen, *, commit: bool) -> Handle:
        if frozen.commit != commit:
            how = "committed" if frozen.commit else "aborted"
            raise ConflictError(f"handle {handle.id} is being {how}")
        return handle

    def _find(self, name: str) -> tuple[Handle, SeqNo]:
        found, end = self._read(_slot_of(name))
        if found is None or found.id != name:
            raise NotFoundError(
                f"pipeline {self.pipeline} has no handle {printable(name)}: it was never opened, "
                "or it was closed and forgotten"
            )
        return found, end

    def _open_one(self, name: str) -> tuple[Handle, SeqNo]:
        handle, end = self._find(name)
        if handle.closed is not None:
            raise ConflictError(f"handle {name} was {handle.closed.how}")
        return handle, end

    def _slots(self, but: Collection[int] = ()) -> dict[int, Handle | None]:
        prefix = f"handles/{self.pipeline}/"
        keys = self._env.patient(lambda: self._env.consensus.keys(prefix))
        numbers = [int(key.removeprefix(prefix)) for key in keys]
        return {number: self._read(number)[0] for number in sorted(numbers) if number not in but}

    def _read(self, slot: int) -> tuple[Handle | None, SeqNo]:
        """The handle that has a slot, and the version after its last."""
        handle: Handle | None = None
        end, limit = SeqNo(0), self._env.settings.scan_page
        while True:
            page = self._page(slot, end, limit)
            for version in page:
                handle = _advance(handle, self._decode(slot, version))
                end = version.seqno.next()
            if len(page) < limit:
                return handle, end

    def _page(self, slot: int, start: SeqNo, limit: int) -> Sequence[Versioned]:
        key = self._key(slot)
        return self._env.patient(lambda: self._env.consensus.scan(key, start, limit))

    def _append(self, slot: int, seqno: SeqNo, record: _Step) -> bool:
        """Compare-and-set; with no answer, what is there now decides."""
        key = self._key(slot)
        data = seal("handle", key, str(seqno), msgspec.msgpack.encode(record))

        def attempt() -> CasResult:
            if isinstance(record, Staged) and is_stale(record.ref, self._now_ms()):
                # This process may have stood still for so long that fsck sweeps what it staged.
                return CasResult.MISMATCH
            return self._env.consensus.compare_and_set(key, Versioned(seqno, data))

        try:
            result = self._env.insistent(attempt)
        except MaybeAppliedError:
            return False
        if result is CasResult.COMMITTED and isinstance(record, Opened):
            self._env.patient(lambda: self._env.consensus.truncate(key, seqno))
        return result is CasResult.COMMITTED

    def _decode(self, slot: int, version: Versioned) -> _Step:
        key = self._key(slot)
        what = f"version {version.seqno} of {key}"
        _, body = unseal(version.data, kind="handle", owner=key, at=str(version.seqno), what=what)
        return decoded(_decoder, body, what)

    def _key(self, slot: int) -> str:
        return f"handles/{self.pipeline}/{slot}"

    def _now_ms(self) -> int:
        return self._env.patient(self._env.consensus.now_ms)

    def _delete(self, key: str) -> None:
        self._env.patient(lambda: self._env.blob.delete(key))

    def _rounds(self) -> Iterator[None]:
        deadline = self._env.clock.monotonic_ms() + self._env.settings.commit_deadline_ms
        yield
        for pause_ms in PATIENCE.delays(self._env.random):
            if self._env.clock.monotonic_ms() >= deadline:
                return
            self._env.tasks.sleep(pause_ms)
            yield

    def _silent(self, name: str) -> MaybeAppliedError:
        return MaybeAppliedError(f"handle {name}: the store did not say whether it happened")


class _Putting:
    """Puts a chunk's bytes when they are needed, and again where they grew old."""

    def __init__(self, env: Env, pipeline: str, packed: Callable[[int], bytes], rows: int) -> None:
        self._env = env
        self._pipeline = pipeline
        self._packed = packed
        self._rows = rows
        self._last: tuple[int, StagedRef] | None = None
        self.keys: set[str] = set()
        """Of all that was put: one of them may be on record though no answer came."""

    def __call__(self, number: int) -> StagedRef:
        last = self._last
        if last is None or last[0] != number or self._is_stale(last[1]):
            ref = stage(self._env, self._pipeline, self._packed(number), rows=self._rows)
            self.keys.add(ref.key)
            self._last = last = (number, ref)
        return last[1]

    def _is_stale(self, ref: StagedRef) -> bool:
        return is_stale(ref, self._env.patient(self._env.consensus.now_ms))


@dataclass(frozen=True, slots=True)
class _Chunk:
    """A chunk that is to be added."""

    number: int | None
    """`None` is the next one that nobody has."""
    table: str
    digest: bytes
    ref: Callable[[int], StagedRef]
    """Puts it if it is not there yet."""
    replace: bool


def _same(handle: Handle, chunk: _Chunk) -> Staged | None:
    """The chunk that has the number already, if there is one: it has to be this one."""
    known = next((each for each in handle.chunks if each.number == chunk.number), None)
    if known is None:
        return None
    mine = (chunk.table, chunk.digest, chunk.replace)
    if (known.table, known.ref.digest, known.replace) != mine:
        raise UsageError(
            f"handle {handle.id} has another chunk {known.number}: a chunk that is sent again has "
            "to be the same"
        )
    return known


def _next(handle: Handle) -> int:
    return max((each.number for each in handle.chunks), default=-1) + 1


def _refuse_mixture(handle: Handle, chunk: _Chunk) -> None:
    """What replaces a table and what changes it do not go together."""
    for other in handle.chunks:
        if other.table == chunk.table and other.replace != chunk.replace:
            raise UsageError(
                f"handle {handle.id} both replaces {chunk.table} and inserts into it: use two"
            )


def _slot_of(name: str) -> int:
    slot, _, token = name.removeprefix("h").partition("-")
    numbered = slot.isdecimal() and slot.isascii() and len(slot) <= _SLOT_DIGITS
    if not (name.startswith("h") and numbered and token):
        raise NotFoundError(f"{printable(name)} is no handle")
    return int(slot)


def _is_free(handle: Handle | None, standing: Standing) -> bool:
    """Whether a slot may be used again: its handle is closed, and the journal forgot it; one that
    was committed after the standing was read was not forgotten."""
    if handle is None or handle.closed is None:
        return handle is None
    t = handle.closed.t
    return handle.id not in standing.closed and (t is None or standing.committed.settled(t))


def _overtaken(standing: Standing, slots: Mapping[int, Handle | None]) -> set[str]:
    """Aborted handles whose slots others got, who had looked at the journal before the abort."""
    aborted = [name for name, t in standing.closed.items() if t is None]
    holders = {name: slots.get(_slot_of(name)) for name in aborted}
    return {name for name, handle in holders.items() if handle is not None and handle.id != name}


def _advance(handle: Handle | None, record: _Step) -> Handle | None:
    if isinstance(record, Opened):
        return Handle(record.id, record.at_ms, record.at_ms)
    if handle is None:
        # Its beginning was cut while we looked: another handle has the slot by now.
        return None
    chunks, frozen, closed = handle.chunks, handle.frozen, handle.closed
    if isinstance(record, Staged):
        chunks = (*chunks, record)
    elif isinstance(record, Frozen):
        frozen = record
    else:
        closed = record
    touched_ms = max(handle.touched_ms, record.at_ms)
    return replace(handle, touched_ms=touched_ms, chunks=chunks, frozen=frozen, closed=closed)
