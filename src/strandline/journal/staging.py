"""Objects that records refer to: what is too large for a record, and snapshots.

    journal/<pipeline>/<ms>-<token>.rows          a payload staged at `ms`: rows, or a program
    journal/<pipeline>/<lsn>-<token>.entry        the records of a large entry, from `lsn` on
    journal/<pipeline>/<lsn>-<token>.checkpoint   the standing before checkpoint `lsn`

An object is put before the record that refers to it, so one without a record was never
published, and nobody looks at it (S84). Each is checked against its record when it is read.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

import msgspec

from strandline.errors import CorruptionError, NewerFormatError
from strandline.journal.record import Program, StagedRef, lsn_text
from strandline.journal.standing import Standing
from strandline.parts.envelope import decoded, seal, unseal

if TYPE_CHECKING:
    from strandline.shard.env import Env
    from strandline.store.blob import Content

INLINE_MAX = 64 * 1024
"""Above so many bytes a payload does not go into a record."""

STAGED_MS = 24 * 3600 * 1000
"""A payload that no record refers to for so long is nobody's: `fsck --repair` deletes it."""

_SNAPSHOT = ".checkpoint"
_ENTRY = ".entry"
_PAYLOAD = ".rows"
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Standing)


def digest_of(payload: bytes) -> bytes:
    """What `StagedRef` says of an object's bytes."""
    return blake2b(payload, digest_size=16).digest()


def stage(env: Env, pipeline: str, payload: bytes, *, rows: int = 0) -> StagedRef:
    """Put a payload where a record can refer to it; durable when it returns."""
    now_ms = env.patient(env.consensus.now_ms)
    return _put(env, payload_key(pipeline, now_ms, env.random.token()), payload, rows)


def payload_key(pipeline: str, now_ms: int, token: str) -> str:
    """Where a payload is staged; its name says when, so that it can be told when nobody wants it.

    >>> staged_ms(payload_key("shop", 1000, "x"))
    1000
    """
    return f"journal/{pipeline}/{now_ms}-{token}{_PAYLOAD}"


def staged_ms(key: str) -> int | None:
    """When a payload was staged, by the store's clock; `None` if the object is none."""
    return _number(key) if key.endswith(_PAYLOAD) else None


def record_number(key: str) -> int | None:
    """The number of the only record that may refer to an object; `None` for a payload."""
    return _number(key) if key.endswith((_SNAPSHOT, _ENTRY)) else None


def is_stale(ref: StagedRef, now_ms: int) -> bool:
    """Whether a payload is about to be taken for nobody's, so that no record may refer to it now.

    >>> is_stale(StagedRef("journal/shop/1000-x.rows", b"", 0, 0), 1000 + STAGED_MS // 2)
    True
    """
    return now_ms - (staged_ms(ref.key) or 0) >= STAGED_MS // 2


def fetch(env: Env, pipeline: str, ref: StagedRef) -> bytes:
    """What was staged, or `CorruptionError` naming what is wrong with it (S59)."""
    return intact(env.patient(lambda: env.blob.get(ref.key)), pipeline, ref)


def intact(payload: Content | None, pipeline: str, ref: StagedRef) -> bytes:
    """What was read of a staged object, if it is what the record says."""
    what = f"staged object {ref.key} of pipeline {pipeline}"
    if payload is None:
        raise CorruptionError(f"{what} is missing")
    found = bytes(payload)
    if len(found) != ref.size or digest_of(found) != ref.digest:
        raise CorruptionError(f"{what} is damaged: its digest does not match the record's")
    return found


def program_record(env: Env, pipeline: str, name: str, text: str) -> Program:
    """A program as a record; its text is staged if it is long."""
    encoded = text.encode()
    if len(encoded) <= INLINE_MAX:
        return Program(name, text, None)
    return Program(name, None, stage(env, pipeline, encoded))


def program_text(env: Env, pipeline: str, record: Program) -> str:
    """The text of a program on record."""
    if record.staged is None:
        return record.text or ""
    payload = fetch(env, pipeline, record.staged)
    try:
        return payload.decode()
    except UnicodeDecodeError as error:
        raise CorruptionError(f"program {record.hash} of pipeline {pipeline} is no text") from error


def snapshot_bytes(standing: Standing) -> bytes:
    """A standing as an object; it belongs to the record after it."""
    at = lsn_text(standing.lsn + 1)
    return seal("checkpoint", standing.pipeline, at, _encoder.encode(standing))


def put_snapshot(env: Env, standing: Standing) -> StagedRef:
    """Store a standing; it counts once the record after it, a checkpoint, refers to it."""
    token = env.random.token()
    key = f"journal/{standing.pipeline}/{standing.lsn + 1}-{token}{_SNAPSHOT}"
    return _put(env, key, snapshot_bytes(standing), 0)


def load_snapshot(env: Env, pipeline: str, lsn: int, ref: StagedRef) -> Standing:
    """The standing before checkpoint `lsn`, or `CorruptionError` naming what is wrong."""
    try:
        return decode_snapshot(pipeline, lsn, fetch(env, pipeline, ref))
    except NewerFormatError:
        raise
    except CorruptionError as error:
        what = f"checkpoint {lsn_text(lsn)} of pipeline {pipeline}"
        raise CorruptionError(f"{what} is not intact: {error}") from error


def decode_snapshot(pipeline: str, lsn: int, payload: bytes) -> Standing:
    """What `snapshot_bytes` made for checkpoint `lsn`."""
    what = f"snapshot {lsn_text(lsn)} of pipeline {pipeline}"
    _, body = unseal(payload, kind="checkpoint", owner=pipeline, at=lsn_text(lsn), what=what)
    standing = decoded(_decoder, body, what)
    if (standing.pipeline, standing.lsn) != (pipeline, lsn - 1):
        raise CorruptionError(f"{what} is damaged: its inside is of another record")
    return standing


def stage_entry(env: Env, pipeline: str, lsn: int, packed: bytes) -> StagedRef:
    """Put the records of an entry, the first of which is `lsn`, where the entry can refer to it."""
    return _put(env, f"journal/{pipeline}/{lsn}-{env.random.token()}{_ENTRY}", packed, 0)


def snapshots(env: Env, pipeline: str) -> dict[str, int]:
    """All snapshots that there are, with the numbers of their checkpoints."""
    return {key: lsn for key, lsn in numbered(env, pipeline).items() if key.endswith(_SNAPSHOT)}


def numbered(env: Env, pipeline: str) -> dict[str, int]:
    """All objects that belong to one record, with its number: it alone may refer to them."""
    listed = env.patient(lambda: list(env.blob.list(f"journal/{pipeline}/")))
    found = {entry.key: record_number(entry.key) for entry in listed}
    return {key: number for key, number in found.items() if number is not None}


def _number(key: str) -> int:
    return int(key.rpartition("/")[2].partition("-")[0])


def _put(env: Env, key: str, payload: bytes, rows: int) -> StagedRef:
    env.patient(lambda: env.blob.put(key, payload))
    return StagedRef(key, digest_of(payload), rows, len(payload))
