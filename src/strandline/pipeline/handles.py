"""Explicit transactions: rows of several tables that count together, or not at all.

    begin ─► insert, insert, … ─► ask to commit ─► a replica seals it: BEGIN + INPUT + SEAL
                     └──────────► abort ─► ABORT

A handle is a key of its own in Consensus, so open ones block nobody and survive every crash. It
has no time until a replica seals it, and no replica does before its owner has asked, durably. A
chunk is staged under the number that its owner gave it: the same number with the same rows counts
once, with other rows it is refused. The journal decides what became of a handle; its own record
only says what was asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from strandline.errors import ConflictError, MaybeAppliedError, NotFoundError, UsageError
from strandline.journal.record import StagedRef
from strandline.journal.staging import digest_of, stage
from strandline.model.ids import SeqNo, valid_id
from strandline.parts.envelope import decoded, seal, unseal
from strandline.shard.env import PATIENCE
from strandline.store.consensus import CasResult, Versioned

if TYPE_CHECKING:
    from collections.abc import Callable

    from strandline.shard.env import Env

KIND = "handle"


class Chunk(msgspec.Struct, frozen=True, array_like=True):
    """Rows for one table, staged."""

    number: int
    table: str
    ref: StagedRef


class Opened(msgspec.Struct, frozen=True, array_like=True):
    """What a handle's owner did and asked for."""

    begun_ms: int
    touched_ms: int
    chunks: tuple[Chunk, ...] = ()
    asked: bool = False
    """To commit; nothing can be added any more."""

    def tables(self) -> dict[str, tuple[StagedRef, ...]]:
        """What is staged for each table, in order of the chunks' numbers."""
        found: dict[str, tuple[StagedRef, ...]] = {}
        for chunk in sorted(self.chunks, key=lambda each: each.number):
            found[chunk.table] = (*found.get(chunk.table, ()), chunk.ref)
        return found


_decoder = msgspec.msgpack.Decoder(Opened)


class Handles:
    """The explicit handles of one pipeline."""

    def __init__(self, env: Env, pipeline: str) -> None:
        self._env = env
        self._pipeline = pipeline
        self._prefix = f"handles/{pipeline}/"

    def begin(self) -> str:
        """Open a handle; returns its id."""
        handle = f"h{self._env.random.token()}"
        now_ms = self._env.patient(self._env.consensus.now_ms)
        first = self._version(handle, SeqNo(0), Opened(now_ms, now_ms))
        # Nobody else knows this key, so writing it twice is writing it once.
        self._env.patient(lambda: self._env.consensus.compare_and_set(self._key(handle), first))
        return handle

    def insert(self, handle: str, table: str, payload: bytes, *, rows: int, chunk: int) -> None:
        """Stage rows under a number of the owner's; the same again is no change."""
        ref: StagedRef | None = None

        def added(opened: Opened) -> Opened:
            nonlocal ref
            known = next((each for each in opened.chunks if each.number == chunk), None)
            if known is not None:
                return self._same(opened, known, table, payload)
            _refuse_asked(handle, opened)
            if ref is None:
                ref = stage(self._env, self._pipeline, payload, rows=rows)
            chunks = (*opened.chunks, Chunk(chunk, table, ref))
            return msgspec.structs.replace(opened, chunks=chunks)

        self._change(handle, added)

    def ask(self, handle: str) -> None:
        """Ask for the commit, durably; a replica carries it out."""
        self._change(handle, lambda opened: msgspec.structs.replace(opened, asked=True))

    def read(self, handle: str) -> Opened:
        return self._read(handle)[1]

    def all(self) -> list[str]:
        """Every handle that is not forgotten, in order of their ids."""
        keys = self._env.patient(lambda: self._env.consensus.keys(self._prefix))
        return [key.removeprefix(self._prefix) for key in keys]

    def _same(self, opened: Opened, known: Chunk, table: str, payload: bytes) -> Opened:
        if known.table != table or known.ref.digest != digest_of(payload):
            raise ConflictError(
                f"chunk {known.number} of this transaction holds other rows already: give new "
                "rows a new number"
            )
        return opened

    def _change(self, handle: str, change: Callable[[Opened], Opened]) -> None:
        """Apply a change that may be applied twice."""
        for pause_ms in PATIENCE.delays(self._env.random):
            seqno, opened = self._read(handle)
            changed = change(opened)
            if changed == opened:
                return
            now_ms = self._env.patient(self._env.consensus.now_ms)
            changed = msgspec.structs.replace(changed, touched_ms=max(now_ms, opened.touched_ms))
            if self._write(handle, seqno.next(), changed):
                return
            self._env.tasks.sleep(pause_ms)

    def _write(self, handle: str, seqno: SeqNo, opened: Opened) -> bool:
        version = self._version(handle, seqno, opened)
        try:
            result = self._env.insistent(
                lambda: self._env.consensus.compare_and_set(self._key(handle), version)
            )
        except MaybeAppliedError:
            return False
        return result is CasResult.COMMITTED

    def _read(self, handle: str) -> tuple[SeqNo, Opened]:
        found = self._env.patient(lambda: self._env.consensus.head(self._key(handle)))
        if found is None:
            raise NotFoundError(f"pipeline {self._pipeline} has no transaction {handle}")
        what = f"transaction {handle} of pipeline {self._pipeline}"
        _, body = unseal(
            found.data, kind=KIND, owner=self._pipeline, at=f"{handle} {found.seqno}", what=what
        )
        return found.seqno, decoded(_decoder, body, what)

    def _version(self, handle: str, seqno: SeqNo, opened: Opened) -> Versioned:
        body = msgspec.msgpack.encode(opened)
        return Versioned(seqno, seal(KIND, self._pipeline, f"{handle} {seqno}", body))

    def _key(self, handle: str) -> str:
        return f"{self._prefix}{valid_id(handle, 'h')}"


def _refuse_asked(handle: str, opened: Opened) -> None:
    if opened.asked:
        raise UsageError(f"transaction {handle} is to be committed: begin another one")
