"""The hash of one value of any Arrow type, vectorised over Arrow buffers.

`docs/rowhash.md` specifies it; `rowhash` makes the hash of a row from it. In short, modulo 2**64:

    v(x) = mix64(raw(x))

    raw of                 is the class constant of its type plus
    ---------------------  ----------------------------------------------------------------
    integer, bool, time    the value as a signed 64-bit number
    float                  the bits of the float64, with one zero and one NaN
    decimal                the scale, and W over the four words of the unscaled value
    string, binary         the length in bytes, and W over its words, the last zero-padded
    list, map              the length, and the sum of mix64(v(x_j) + (j + 1) * ELEMENT_STRIDE)
    struct                 the sum of mix64(v(x_f) + v(name of f)) over fields f not null

    W = sum of mix64(w_j + (j + 1) * WORD_STRIDE) over the little-endian 8-byte words w_j

Encodings (dictionary, runs, views, large offsets, chunks, slices) and widths never show.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from strandline.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

U64: TypeAlias = npt.NDArray[np.uint64]
I64: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]

# These and the salts of `rowhash` are the first 64 fractional bits of the square roots of the
# primes from 2 on, so that nobody has chosen them. The strides are odd.
NULL_ELEMENT = 0x510E527FADE682D1
WORD_STRIDE = 0x9B05688C2B3E6C1F
ELEMENT_STRIDE = 0x1F83D9ABFB41BD6B

CLASS_BOOL = 0x5BE0CD19137E2179
CLASS_INTEGER = 0xCBBB9D5DC1059ED8
CLASS_DATE = 0x629A292A367CD507
CLASS_TIME = 0x9159015A3070DD17
CLASS_TIMESTAMP = 0x152FECD8F70E5939
CLASS_DURATION = 0x67332667FFC00B31
CLASS_FLOAT = 0x8EB44A8768581511
CLASS_DECIMAL = 0xDB0C2E0D64F98FA7
CLASS_STRING = 0x47B5481DBEFA4FA4
CLASS_BINARY = 0xAE5F9156E7B6D99B
CLASS_LIST = 0xCF6C85D39D1A1E15
CLASS_STRUCT = 0x2F73477D6A4563CA

_MASK = 2**64 - 1
_CANONICAL_NAN = 0x7FF8000000000000
_DAY_MS = 86_400_000
BLOCK = 1 << 18
"""Values that are hashed at once: few enough that the temporaries stay in the cache."""

_M1, _M2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31 = np.uint64(30), np.uint64(27), np.uint64(31)
_KEEP = np.array([(1 << (8 * n)) - 1 for n in range(9)], dtype=np.uint64)
"""By the number of bytes left: which bits of a little-endian word belong to the value."""
_ROUNDS = 4
"""So many words of each value are hashed round by round; what is beyond, value by value."""


def mix64(number: int) -> int:
    """The finaliser of splitmix64: a bijection on 64 bits whose every output bit looks random.

    >>> hex(mix64(1))
    '0x5692161d100b05e5'
    """
    number &= _MASK
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & _MASK
    return number ^ (number >> 31)


def value_hashes(array: pa.Array | pa.ChunkedArray) -> U64:
    """The salt-free hash of each value; 0 where the value is null."""
    out: U64 = np.empty(len(array), dtype=np.uint64)
    at = 0
    for piece in _pieces(array):
        decoded = plain(piece)
        part = out[at : at + len(decoded)]
        write_raw(decoded, part)
        mix(part)
        nulls = null_mask(decoded)
        if nulls is not None:
            part[nulls] = 0
        at += len(decoded)
    return out


def mix(numbers: U64, shifted: U64 | None = None) -> None:
    """`mix64` of every number, in place; `shifted` is room for as many, if there is some."""
    shifted = np.right_shift(numbers, _S30, out=shifted)
    numbers ^= shifted
    numbers *= _M1
    np.right_shift(numbers, _S27, out=shifted)
    numbers ^= shifted
    numbers *= _M2
    np.right_shift(numbers, _S31, out=shifted)
    numbers ^= shifted


def _pieces(array: pa.Array | pa.ChunkedArray) -> Iterator[pa.Array]:
    for chunk in array.chunks if isinstance(array, pa.ChunkedArray) else (array,):
        for start in range(0, len(chunk), BLOCK):
            yield chunk if len(chunk) <= BLOCK else chunk.slice(start, BLOCK)


def plain(array: pa.Array) -> pa.Array:
    """The same values without the encodings that hide values or nulls from their buffers."""
    match array.type.id:
        case pa.lib.Type_DICTIONARY:
            return plain(array.dictionary_decode())
        case pa.lib.Type_RUN_END_ENCODED:
            return plain(pc.run_end_decode(array))
        case pa.lib.Type_STRING_VIEW:
            return array.cast(pa.large_string())
        case pa.lib.Type_BINARY_VIEW:
            return array.cast(pa.large_binary())
        case _:
            return array


def null_mask(array: pa.Array) -> Mask | None:
    """Where the nulls are, or `None` if there are none."""
    if not array.null_count:
        return None
    bitmap = array.buffers()[0]
    if bitmap is None:
        return np.ones(len(array), dtype=np.bool_)
    return ~_bits(bitmap, array.offset, len(array))


def _bits(bitmap: pa.Buffer, offset: int, count: int) -> Mask:
    first = offset // 8
    packed = np.frombuffer(bitmap, np.uint8, (offset + count + 7) // 8 - first, first)
    bits = np.unpackbits(packed, bitorder="little")[offset % 8 : offset % 8 + count]
    return bits.view(np.bool_)


def write_raw(array: pa.Array, out: U64) -> None:
    """Put `raw` of each value into `out`; what lands in the place of a null has no meaning."""
    write = _WRITERS.get(array.type.id)
    if write is None:
        raise SchemaError(f"values of type {array.type} have no row hash: cast the column first")
    if len(out):
        write(array, out)


def _fixed(array: pa.Array, dtype: type[np.generic] | str) -> npt.NDArray[np.generic]:
    kind = np.dtype(dtype)
    return np.frombuffer(array.buffers()[1], kind, len(array), array.offset * kind.itemsize)


def _integers(dtype: type[np.generic], class_constant: int) -> Callable[[pa.Array, U64], None]:
    def write(array: pa.Array, out: U64) -> None:
        values = _fixed(array, dtype)
        if values.dtype == np.int64:
            np.add(values.view(np.uint64), np.uint64(class_constant), out=out)
        else:
            np.copyto(out.view(np.int64), values)
            out += np.uint64(class_constant)

    return write


def _write_none(_array: pa.Array, out: U64) -> None:
    out[:] = 0


def _write_bools(array: pa.Array, out: U64) -> None:
    out[:] = _bits(array.buffers()[1], array.offset, len(array))
    out += np.uint64(CLASS_BOOL)


def _write_milliseconds_as_days(array: pa.Array, out: U64) -> None:
    np.floor_divide(_fixed(array, np.int64), _DAY_MS, out=out.view(np.int64))
    out += np.uint64(CLASS_DATE)


def _write_times(array: pa.Array, out: U64) -> None:
    np.copyto(out.view(np.int64), _fixed(array, f"<i{array.type.bit_width // 8}"))
    out += np.uint64(CLASS_TIME)


def _write_floats(array: pa.Array, out: U64) -> None:
    floats = out.view(np.float64)
    with np.errstate(invalid="ignore"):  # a signalling NaN is a NaN like any other
        # Adding 0.0 turns -0.0 into +0.0 and nothing else.
        np.add(_fixed(array, f"<f{array.type.bit_width // 8}"), 0.0, out=floats, dtype=np.float64)
    missing = np.isnan(floats)
    if missing.any():
        out[missing] = _CANONICAL_NAN
    out += np.uint64(CLASS_FLOAT)


def _write_decimals(array: pa.Array, out: U64) -> None:
    words: I64 = np.empty((4, len(array)), dtype=np.int64)
    width = array.type.bit_width // 8
    if width <= 8:
        words[0] = _fixed(array, f"<i{width}")
        used = 1
    else:
        used = width // 8
        limbs = np.frombuffer(array.buffers()[1], "<i8", len(array) * used, array.offset * width)
        words[:used] = limbs.reshape(len(array), used).T
    words[used:] = words[used - 1] >> 63
    terms: U64 = words.view(np.uint64)
    terms += (np.arange(1, 5, dtype=np.uint64) * np.uint64(WORD_STRIDE))[:, None]
    mix(terms)
    np.add.reduce(terms, axis=0, out=out)
    out += np.uint64((array.type.scale + CLASS_DECIMAL) & _MASK)


def _bytes(offset_type: type[np.generic], class_constant: int) -> Callable[[pa.Array, U64], None]:
    def write(array: pa.Array, out: U64) -> None:
        _, offsets, content = array.buffers()
        size = np.dtype(offset_type).itemsize
        bounds = np.frombuffer(offsets, offset_type, len(array) + 1, array.offset * size)
        _write_words(content, bounds.astype(np.int64), out)
        out += np.uint64(class_constant)

    return write


def _write_fixed_bytes(array: pa.Array, out: U64) -> None:
    bounds = np.arange(array.offset, array.offset + len(array) + 1) * array.type.byte_width
    _write_words(array.buffers()[1], bounds, out)
    out += np.uint64(CLASS_BINARY)


def _write_words(content: pa.Buffer | None, bounds: I64, out: U64) -> None:
    starts, lengths = bounds[:-1], np.diff(bounds)
    out[:] = lengths
    if bounds[-1] == bounds[0] or content is None:
        return
    words = _Words(content)
    longest, shortest = int(lengths.max()), int(lengths.min())
    # The first words of all values go together, one round for each: values are short, mostly.
    for number in range(min(_ROUNDS, (longest + 7) // 8)):
        done = 8 * number
        if shortest > done:
            out += words.terms(starts + done if done else starts, lengths - done, number)
        else:
            some = np.flatnonzero(lengths > done)
            out[some] += words.terms(starts[some] + done, lengths[some] - done, number)
    done = 8 * _ROUNDS
    if longest > done:
        some = np.flatnonzero(lengths > done)
        out[some] += words.sums(starts[some] + done, lengths[some] - done, _ROUNDS)


class _Words:
    """Little-endian words of 8 bytes out of a buffer, each from any byte on."""

    def __init__(self, content: pa.Buffer) -> None:
        if content.size < 8:
            content = pa.py_buffer(content.to_pybytes().ljust(8, b"\0"))
        self._last = content.size - 8
        """From where the last whole word can be read."""
        self._at: U64 = np.ndarray((self._last + 1,), "<u8", content, strides=(1,))

    def terms(self, starts: I64, left: I64, number: int) -> U64:
        """What the word at each start adds to the sum of its value, of which it is that word."""
        found = self._read(starts, left)
        found += np.uint64((number + 1) * WORD_STRIDE & _MASK)
        mix(found)
        return found

    def sums(self, starts: I64, lengths: I64, number: int) -> U64:
        """The same summed over all words of each value, the first of which is that word."""

        def words(owner: I64, index: I64) -> U64:
            found = self._read(starts[owner] + 8 * index, lengths[owner] - 8 * index)
            found += np.uint64(number * WORD_STRIDE & _MASK)
            return found

        found: U64 = np.zeros(len(starts), dtype=np.uint64)
        _add_segments((lengths + 7) // 8, words, WORD_STRIDE, found)
        return found

    def _read(self, starts: I64, left: I64) -> U64:
        """The words at these starts, of which only what is left of each value counts."""
        if int(starts[-1]) > self._last:
            # It would reach across the end of the buffer: what lies before its start is read
            # with it and shifted out. Starts ascend.
            reachable = np.minimum(starts, self._last)
            found: U64 = self._at[reachable]
            found >>= ((starts - reachable) * 8).view(np.uint64)
        else:
            found = self._at[starts]
        found &= _KEEP[np.minimum(left, 8)]
        return found


def _write_lists(array: pa.Array, out: U64) -> None:
    offsets = array.offsets.to_numpy()
    if array.type.id in (pa.lib.Type_LIST_VIEW, pa.lib.Type_LARGE_LIST_VIEW):
        _write_elements(array.values, offsets, array.sizes.to_numpy(), out)
    else:
        _write_elements(array.values, offsets[:-1], np.diff(offsets), out)


def _write_fixed_lists(array: pa.Array, out: U64) -> None:
    size = array.type.list_size
    starts = np.arange(array.offset, array.offset + len(array)) * size
    _write_elements(array.values, starts, np.full(len(array), size), out)


def _write_maps(array: pa.Array, out: U64) -> None:
    entries = pa.StructArray.from_arrays([array.keys, array.items], names=["key", "value"])
    offsets = array.offsets.to_numpy()
    _write_elements(entries, offsets[:-1], np.diff(offsets), out)


def _write_elements(elements: pa.Array, starts: I64, lengths: I64, out: U64) -> None:
    out[:] = lengths
    out += np.uint64(CLASS_LIST)
    some = lengths > 0
    if not some.any():
        return
    low, high = int(starts[some].min()), int((starts + lengths)[some].max())
    hashes = _element_hashes(elements.slice(low, high - low))
    origins = starts.astype(np.int64) - low
    _add_segments(lengths, lambda own, index: hashes[origins[own] + index], ELEMENT_STRIDE, out)


def _element_hashes(elements: pa.Array) -> U64:
    decoded = plain(elements)
    hashes = value_hashes(decoded)
    nulls = null_mask(decoded)
    if nulls is not None:
        hashes[nulls] = NULL_ELEMENT
    return hashes


def _write_structs(array: pa.Array, out: U64) -> None:
    out[:] = CLASS_STRUCT
    for position, field in enumerate(array.type):
        child = plain(array.field(position))
        terms = value_hashes(child)
        terms += np.uint64(_name_key(field.name))
        mix(terms)
        nulls = null_mask(child)
        if nulls is not None:
            terms[nulls] = 0
        out += terms


@lru_cache(maxsize=4096)
def _name_key(name: str) -> int:
    return int(value_hashes(pa.array([name], pa.string()))[0])


def _add_segments(counts: I64, terms: Callable[[I64, I64], U64], stride: int, out: U64) -> None:
    """Add to `out[i]` the sum of mix64(terms(i, j) + (j + 1) * stride) over j < counts[i].

    Terms are made a block at a time, across the borders of segments, so that one huge value
    costs no more memory than many small ones. A sum is the difference of two running sums,
    which is exact because both are modulo 2**64.
    """
    ends = np.cumsum(counts, dtype=np.int64)
    begins = ends - counts
    total = int(ends[-1])
    for low in range(0, total, BLOCK):
        high = min(low + BLOCK, total)
        first = int(np.searchsorted(ends, low, side="right"))
        last = int(np.searchsorted(ends, high, side="left")) + 1
        start = np.maximum(begins[first:last], low) - low
        end = np.minimum(ends[first:last], high) - low
        owner = np.repeat(np.arange(first, last), end - start)
        index = np.arange(low, high) - begins[owner]
        found = terms(owner, index)
        index += 1
        places: U64 = index.view(np.uint64)
        places *= np.uint64(stride)
        found += places
        mix(found)
        running: U64 = np.zeros(high - low + 1, dtype=np.uint64)
        np.cumsum(found, out=running[1:])
        out[first:last] += running[end] - running[start]


_WRITERS: dict[int, Callable[[pa.Array, U64], None]] = {
    pa.lib.Type_NA: _write_none,
    pa.lib.Type_BOOL: _write_bools,
    pa.lib.Type_INT8: _integers(np.int8, CLASS_INTEGER),
    pa.lib.Type_INT16: _integers(np.int16, CLASS_INTEGER),
    pa.lib.Type_INT32: _integers(np.int32, CLASS_INTEGER),
    pa.lib.Type_INT64: _integers(np.int64, CLASS_INTEGER),
    pa.lib.Type_UINT8: _integers(np.uint8, CLASS_INTEGER),
    pa.lib.Type_UINT16: _integers(np.uint16, CLASS_INTEGER),
    pa.lib.Type_UINT32: _integers(np.uint32, CLASS_INTEGER),
    pa.lib.Type_UINT64: _integers(np.int64, CLASS_INTEGER),
    pa.lib.Type_DATE32: _integers(np.int32, CLASS_DATE),
    pa.lib.Type_DATE64: _write_milliseconds_as_days,
    pa.lib.Type_TIME32: _write_times,
    pa.lib.Type_TIME64: _write_times,
    pa.lib.Type_TIMESTAMP: _integers(np.int64, CLASS_TIMESTAMP),
    pa.lib.Type_DURATION: _integers(np.int64, CLASS_DURATION),
    pa.lib.Type_HALF_FLOAT: _write_floats,
    pa.lib.Type_FLOAT: _write_floats,
    pa.lib.Type_DOUBLE: _write_floats,
    pa.lib.Type_DECIMAL32: _write_decimals,
    pa.lib.Type_DECIMAL64: _write_decimals,
    pa.lib.Type_DECIMAL128: _write_decimals,
    pa.lib.Type_DECIMAL256: _write_decimals,
    pa.lib.Type_STRING: _bytes(np.int32, CLASS_STRING),
    pa.lib.Type_LARGE_STRING: _bytes(np.int64, CLASS_STRING),
    pa.lib.Type_BINARY: _bytes(np.int32, CLASS_BINARY),
    pa.lib.Type_LARGE_BINARY: _bytes(np.int64, CLASS_BINARY),
    pa.lib.Type_FIXED_SIZE_BINARY: _write_fixed_bytes,
    pa.lib.Type_LIST: _write_lists,
    pa.lib.Type_LARGE_LIST: _write_lists,
    pa.lib.Type_LIST_VIEW: _write_lists,
    pa.lib.Type_LARGE_LIST_VIEW: _write_lists,
    pa.lib.Type_FIXED_SIZE_LIST: _write_fixed_lists,
    pa.lib.Type_MAP: _write_maps,
    pa.lib.Type_STRUCT: _write_structs,
}
