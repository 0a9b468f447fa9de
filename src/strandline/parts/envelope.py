"""The wrapping of every metadata object: what it is, whose it is, and whether it is whole.

    magic (4) | format (2, big endian) | xxh3-64 of the rest (8) | msgpack [kind, owner, at, body]

The hash is seeded with the format, so that no byte can change unseen.

`owner` is the id of what it belongs to and `at` its position or key, so that an object which
was damaged or swapped with another one is refused by name (X17). The
format number is read before anything else: what a newer version wrote is refused, not guessed.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec
import xxhash

from strandline.errors import CorruptionError, NewerFormatError
from strandline.model.ids import printable

FORMAT = 1
_MAGIC = b"STRL"
_HEAD = 14

_Value = TypeVar("_Value")
_Body = tuple[str, str, str, bytes]
_decoder = msgspec.msgpack.Decoder(_Body)
_encoder = msgspec.msgpack.Encoder()


def seal(kind: str, owner: str, at: str, body: bytes) -> bytes:
    rest = _encoder.encode((kind, owner, at, body))
    return _MAGIC + FORMAT.to_bytes(2, "big") + _hash(rest, FORMAT) + rest


def unseal(
    data: bytes | memoryview, *, kind: str, owner: str | None, at: str, what: str
) -> tuple[str, bytes]:
    """Return (owner, body), or say what is wrong with `what`. `owner=None` takes any."""
    if len(data) < _HEAD or data[:4] != _MAGIC:
        raise CorruptionError(f"{what} is damaged: it does not start as a Strandline object")
    written = int.from_bytes(data[4:6], "big")
    if written > FORMAT:
        raise NewerFormatError(
            f"{what} has format {written}, this version reads up to {FORMAT}: upgrade Strandline"
        )
    rest = memoryview(data)[_HEAD:]
    if written < 1 or _hash(rest, written) != data[6:_HEAD]:
        raise CorruptionError(f"{what} is damaged: its checksum does not match")
    found_kind, found_owner, found_at, body = decoded(_decoder, rest, what)
    expected = (kind, found_owner if owner is None else owner, at)
    if (found_kind, found_owner, found_at) != expected:
        raise CorruptionError(
            f"{what} is not what it should be: found {printable(found_kind)} "
            f"{printable(found_at)} of {printable(found_owner)}, "
            f"expected {kind} {at} of {expected[1]}"
        )
    return found_owner, body


def decoded(
    decoder: msgspec.msgpack.Decoder[_Value], body: bytes | memoryview, what: str
) -> _Value:
    """What `body` says, or `CorruptionError`, whatever is in it."""
    try:
        return decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise CorruptionError(f"{what} is damaged: {printable(error, 200)}") from error


def checksum(data: bytes | memoryview) -> int:
    """The checksum by which states refer to objects."""
    return xxhash.xxh3_64_intdigest(data)


def _hash(rest: bytes | memoryview, written: int) -> bytes:
    return xxhash.xxh3_64_intdigest(rest, written).to_bytes(8, "big")
