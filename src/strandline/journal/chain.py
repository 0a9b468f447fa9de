"""Entries: records that one compare-and-set writes, numbered and chained.

    consensus version ─► envelope (parts.envelope): whose, which version, whole?
                           └─► Entry: form, token, and how far the pipeline is committed by it
                                 └─► Link: number, hash before, hash, record

The hash of a record covers the hash before it, its number and its bytes, so a record that was
changed, left out, repeated or moved is refused by name (S84): every one was acknowledged. The
header repeats what the records add up to, so one read of the newest entry tells how far a
pipeline is committed.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Annotated, NoReturn

import msgspec

from strandline.errors import CorruptionError, JournalError, NewerFormatError, invariant
from strandline.journal.record import FORM, KINDS, OLDEST_FORM, RECORDS, Record, StagedRef, lsn_text
from strandline.model.ids import SeqNo, printable
from strandline.parts.envelope import decoded, seal, unseal

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

ORIGIN = bytes(16)
"""The hash before the first record."""

_KIND = "journal"
_Natural = Annotated[int, msgspec.Meta(ge=0)]


class Link(msgspec.Struct, frozen=True, array_like=True):
    """One record in its place."""

    lsn: _Natural
    prev: bytes
    hash: bytes
    body: bytes


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """What one compare-and-set wrote."""

    form: int
    token: str
    """Tells the writer whose answer got lost that this entry is its own."""
    committed: _Natural
    """The first time that is not committed, after this entry."""
    instant_ms: int
    """When the last committed time was."""
    epoch: int
    links: tuple[Link, ...]
    """Empty where they lie in an object of their own, and were not fetched."""
    spilled: StagedRef | None
    """That object: `pack_links`."""

    @property
    def first(self) -> int:
        """The number of its first record."""
        return self.links[0].lsn

    @property
    def digest(self) -> bytes:
        """The hash of its last record."""
        return self.links[-1].hash


class _Form(msgspec.Struct, array_like=True):
    form: int


_encoder = msgspec.msgpack.Encoder()
_record_decoder: msgspec.msgpack.Decoder[Record] = msgspec.msgpack.Decoder(Record)
_entry_decoder = msgspec.msgpack.Decoder(Entry)
_links_decoder = msgspec.msgpack.Decoder(tuple[Link, ...])
_form_decoder = msgspec.msgpack.Decoder(_Form)
_required = {
    kind: tuple(field.name for field in msgspec.structs.fields(each) if field.required)
    for kind, each in zip(KINDS, RECORDS, strict=True)
}


def journal_key(pipeline: str) -> str:
    return f"journal/{pipeline}"


def chain_hash(prev: bytes, lsn: int, body: bytes) -> bytes:
    """blake2b-128 of the hash before, the number, and the record with its kind."""
    return blake2b(prev + lsn.to_bytes(8, "big") + body, digest_size=16).digest()


def link(records: Iterable[Record], lsn: int, prev: bytes) -> tuple[Link, ...]:
    """Records in their places after record `lsn`, whose hash is `prev`."""
    links = []
    for number, record in enumerate(records, lsn + 1):
        body = _encoder.encode(record)
        links.append(Link(number, prev, chain_hash(prev, number, body), body))
        prev = links[-1].hash
    return tuple(links)


def pack_links(entry: Entry) -> bytes:
    """The records of an entry that is too large, as they are staged."""
    return _encoder.encode(entry.links)


def with_links(pipeline: str, seqno: SeqNo, entry: Entry, packed: bytes) -> Entry:
    """An entry with its records, which were staged."""
    what = _entry_text(pipeline, seqno, None)
    links = decoded(_links_decoder, packed, what)
    if not links:
        raise JournalError(f"{what} has no record")
    return msgspec.structs.replace(entry, links=links)


def encode_entry(pipeline: str, seqno: SeqNo, entry: Entry) -> bytes:
    invariant(entry.links or entry.spilled, "an entry has a record")
    return seal(_KIND, pipeline, str(seqno), _encoder.encode(entry))


def decode_entry(pipeline: str, seqno: SeqNo, data: bytes, after: int | None = None) -> Entry:
    """The entry, whole; its records are not looked at yet. `after`: the record before it."""
    what = _entry_text(pipeline, seqno, after)
    _, body = unseal(data, kind=_KIND, owner=pipeline, at=str(seqno), what=what)
    try:
        entry = _entry_decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        # What a newer version wrote may be no entry of ours at all, and is no damage.
        _check_form(decoded(_form_decoder, body, what).form, what)
        entry = decoded(_entry_decoder, body, what)
    _check_form(entry.form, what)
    if not entry.links and entry.spilled is None:
        raise JournalError(f"{what} has no record")
    return entry


def check_links(pipeline: str, entry: Entry, lsn: int, prev: bytes) -> None:
    """Stop unless the entry's records follow record `lsn`, whose hash is `prev`, unchanged."""
    for number, each in enumerate(entry.links, lsn + 1):
        if each.lsn != number:
            raise JournalError(_misplaced(pipeline, number, each.lsn))
        if each.prev != prev:
            raise JournalError(
                f"{_record_text(pipeline, number)} does not follow {lsn_text(number - 1)}: it was "
                "written after another record; restore the journal from a copy"
            )
        prev = chain_hash(prev, number, each.body)
        if each.hash != prev:
            raise JournalError(
                f"{_record_text(pipeline, number)} is damaged: its hash does not match; restore "
                "the journal from a copy"
            )


def records_of(pipeline: str, entry: Entry) -> Sequence[Record]:
    """What an entry says, record by record."""
    return [decode_record(pipeline, each) for each in entry.links]


def decode_record(pipeline: str, found: Link) -> Record:
    try:
        return _record_decoder.decode(found.body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        _refuse_record(_record_text(pipeline, found.lsn), found.body, error)


def _refuse_record(what: str, body: bytes, error: Exception) -> NoReturn:
    """Say why a record that is as it was written can't be read."""
    try:
        raw = msgspec.msgpack.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as damage:
        raise CorruptionError(f"{what} is damaged: {printable(damage, 200)}") from damage
    kind = raw[0] if isinstance(raw, list) and raw else None
    if isinstance(kind, str) and kind not in KINDS:
        raise NewerFormatError(
            f"{what} is a {printable(kind)}, which this version does not know: upgrade Strandline"
        ) from error
    missing = _required[kind][len(raw) - 1 :] if isinstance(kind, str) else ()
    if missing:
        raise JournalError(
            f"{what}, a {kind} of form {OLDEST_FORM} or later, has no `{missing[0]}`, which it "
            "must have: it was written by a version of Strandline from before that field; finish "
            "and checkpoint the pipeline with the version that wrote it"
        ) from error
    raise JournalError(f"{what} makes no sense: {printable(error, 200)}") from error


def _check_form(form: int, what: str) -> None:
    if form > FORM:
        raise NewerFormatError(
            f"{what} has records of form {form}, this version reads up to {FORM}: "
            "upgrade Strandline"
        )
    if form < OLDEST_FORM:
        raise JournalError(
            f"{what} has records of form {form}, this version reads {OLDEST_FORM} and later: "
            "finish with the version that wrote it, and run the program under another name"
        )


def _misplaced(pipeline: str, expected: int, found: int) -> str:
    if found > expected:
        return (
            f"{_record_text(pipeline, expected)} is missing: {lsn_text(found)} is in its place; "
            "restore the journal from a copy"
        )
    return (
        f"{_record_text(pipeline, found)} is there twice or out of order: it is in the place of "
        f"{lsn_text(expected)}; restore the journal from a copy"
    )


def _record_text(pipeline: str, lsn: int) -> str:
    return f"record {lsn_text(lsn)} of pipeline {pipeline}"


def _entry_text(pipeline: str, seqno: SeqNo, after: int | None) -> str:
    where = f"entry {seqno} of the journal of pipeline {pipeline}"
    return where if after is None else f"{where}, from record {lsn_text(after + 1)} on,"
