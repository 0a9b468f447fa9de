"""The blocks of an Avro file, unpacked one at a time within a limit.

A block of a few kilobytes may unpack to as many gigabytes, and the library that reads records
unpacks blocks whole. It is given the same file without compression instead: each block as it
comes, which was seen to fit before it was unpacked any further.

    codec      unpacked by
    ---------  ---------------------------------------
    null       nobody
    deflate    zlib, as a stream
    bzip2, xz  Python's own, as a stream
    snappy     Arrow; a block says its size before it
    zstandard  Arrow, as a stream
"""

from __future__ import annotations

import bz2
import io
import lzma
import zlib
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import BinaryIO

_MAGIC = b"Obj\x01"
_SYNC = 16
_META_MAX = 16 * 1024 * 1024
_CRC = 4
_BROKEN = (OSError, EOFError, zlib.error, lzma.LZMAError, pa.ArrowException)


class Unpacked(io.RawIOBase):
    """A file with its blocks unpacked; `ValueError` at what is none, or too large."""

    def __init__(self, stream: BinaryIO, block_max: int) -> None:
        self._stream = stream
        self._most = block_max
        self._blocks = self._all()
        self._rest = memoryview(b"")
        self.given = 0
        """How many bytes were read of it."""

    def readable(self) -> bool:
        return True

    def readinto(self, into: object) -> int:
        room = memoryview(into).cast("B")  # type: ignore[arg-type]  # a writable buffer
        if not self._rest:
            self._rest = memoryview(next(self._blocks, b""))
        count = min(len(room), len(self._rest))
        room[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        self.given += count
        return count

    def _all(self) -> Iterator[bytes]:
        if self._stream.read(len(_MAGIC)) != _MAGIC:
            raise ValueError("it does not begin as an Avro file does")
        meta = self._meta()
        unpack = _CODECS.get(meta.get(b"avro.codec", b"null"))
        if unpack is None:
            known = ", ".join(each.decode() for each in _CODECS)
            raise ValueError(f"its codec is none of {known}")
        sync = self._exactly(_SYNC)
        yield _header({**meta, b"avro.codec": b"null"}, sync)
        while (count := self._number(at_end=True)) is not None:
            size = self._number() or 0
            if size > self._most:
                raise ValueError(f"a block has {size} bytes, and {self._most} are taken")
            try:
                data = unpack(self._exactly(size), self._most)
            except _BROKEN as error:
                raise ValueError("a block can't be unpacked") from error
            if len(data) > self._most:
                raise ValueError(f"a block unpacks to more than {self._most} bytes")
            if self._exactly(_SYNC) != sync:
                raise ValueError("a block does not end as it should")
            yield _varint(count) + _varint(len(data)) + data + sync

    def _meta(self) -> dict[bytes, bytes]:
        meta: dict[bytes, bytes] = {}
        size = 0
        while count := self._number():
            if count < 0:
                self._number()
            for _ in range(abs(count)):
                name, value = (self._exactly(self._number() or 0) for _ in range(2))
                meta[name] = value
                size += len(name) + len(value) + 2
                if size > _META_MAX:
                    raise ValueError(f"its header has more than {_META_MAX} bytes")
        return meta

    def _exactly(self, size: int) -> bytes:
        if not 0 <= size <= max(self._most, _META_MAX):
            raise ValueError("it says that something has a size that nothing has")
        data = self._stream.read(size)
        if len(data) != size:
            raise ValueError("it ends in the middle")
        return data

    def _number(self, *, at_end: bool = False) -> int | None:
        """A number as Avro writes them; `None` at the end of the file, where one may end."""
        number = shift = 0
        while byte := self._stream.read(1):
            number |= (byte[0] & 0x7F) << shift
            if not byte[0] & 0x80:
                return (number >> 1) ^ -(number & 1)
            shift += 7
            if shift > 63:
                raise ValueError("a number in it has no end")
        if at_end and not shift:
            return None
        raise ValueError("it ends in the middle")


def _varint(number: int) -> bytes:
    left = (number << 1) ^ (number >> 63)
    made = bytearray()
    while left > 0x7F:
        made.append((left & 0x7F) | 0x80)
        left >>= 7
    return bytes([*made, left])


def _header(meta: dict[bytes, bytes], sync: bytes) -> bytes:
    pairs = b"".join(
        _varint(len(name)) + name + _varint(len(value)) + value for name, value in meta.items()
    )
    return _MAGIC + _varint(len(meta)) + pairs + _varint(0) + sync


# ---- the codecs: at most one byte more than the limit, which says that there is more


def _null(data: bytes, most: int) -> bytes:
    return data[: most + 1]


def _deflate(data: bytes, most: int) -> bytes:
    return zlib.decompressobj(-15).decompress(data, most + 1)


def _bzip2(data: bytes, most: int) -> bytes:
    return bz2.BZ2Decompressor().decompress(data, most + 1)


def _xz(data: bytes, most: int) -> bytes:
    # A stream may ask for a dictionary of gigabytes before it has given a byte.
    decompressor = lzma.LZMADecompressor(memlimit=max(2 * most, 128 * 1024 * 1024))
    return decompressor.decompress(data, most + 1)


def _snappy(data: bytes, most: int) -> bytes:
    size = shift = 0
    for byte in data[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            break
    if size > most:
        return bytes(most + 1)
    made: bytes = pa.Codec("snappy").decompress(data[:-_CRC], size, asbytes=True)
    if zlib.crc32(made).to_bytes(_CRC) != data[-_CRC:]:
        raise ValueError("a block is damaged: its checksum is another")
    return made


def _zstandard(data: bytes, most: int) -> bytes:
    made: bytes = pa.CompressedInputStream(pa.BufferReader(data), "zstd").read(most + 1)
    return made


_CODECS: dict[bytes, Callable[[bytes, int], bytes]] = {
    b"null": _null,
    b"deflate": _deflate,
    b"bzip2": _bzip2,
    b"xz": _xz,
    b"snappy": _snappy,
    b"zstandard": _zstandard,
}
