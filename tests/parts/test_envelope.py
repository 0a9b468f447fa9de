"""Whatever happens to a sealed object, it is either what was sealed or refused by name."""

from __future__ import annotations

import msgspec
import pytest
import xxhash
from hypothesis import given, strategies as st

from strandline.errors import CorruptionError, NewerFormatError
from strandline.parts.envelope import FORMAT, checksum, decoded, seal, unseal

SEALED = seal("record", "orders", "v7", b"the body")
OPEN = {"kind": "record", "owner": "orders", "at": "v7", "what": "version v7 of shard orders"}


def _unseal(data, **facts):
    return unseal(data, **{**OPEN, **facts})


@given(st.text(max_size=20), st.text(max_size=20), st.text(max_size=20), st.binary())
def test_what_was_sealed_comes_out(kind, owner, at, body):
    data = seal(kind, owner, at, body)
    assert unseal(data, kind=kind, owner=owner, at=at, what="it") == (owner, body)
    assert unseal(data, kind=kind, owner=None, at=at, what="it") == (owner, body)


@pytest.mark.parametrize(
    "facts", [{"kind": "manifest"}, {"owner": "others"}, {"at": "v8"}], ids=str
)
def test_what_belongs_elsewhere_is_refused_by_name(facts):
    with pytest.raises(CorruptionError, match="version v7 of shard orders is not what"):
        _unseal(SEALED, **facts)


def test_every_flipped_bit_is_noticed():
    for position in range(len(SEALED)):
        for bit in range(8):
            damaged = bytearray(SEALED)
            damaged[position] ^= 1 << bit
            with pytest.raises(CorruptionError, match="version v7 of shard orders"):
                _unseal(bytes(damaged))


def test_every_truncation_and_extension_is_noticed():
    for length in range(len(SEALED)):
        with pytest.raises(CorruptionError):
            _unseal(SEALED[:length])
    with pytest.raises(CorruptionError):
        _unseal(SEALED + b"\0")


@pytest.mark.parametrize("written", [FORMAT + 1, 255, 65535])
def test_a_newer_format_is_refused_before_anything_else_is_looked_at(written):
    data = SEALED[:4] + written.to_bytes(2, "big") + b"whatever a later version thinks of"
    with pytest.raises(NewerFormatError, match=f"shard orders has format {written}.*upgrade"):
        _unseal(data)


def _crafted(rest: bytes) -> bytes:
    """An object whose checksum is right although nobody of us wrote it."""
    check = xxhash.xxh3_64_intdigest(rest, FORMAT).to_bytes(8, "big")
    return b"STRL" + FORMAT.to_bytes(2, "big") + check + rest


def test_there_is_no_format_0():
    rest = SEALED[14:]
    check = xxhash.xxh3_64_intdigest(rest, 0).to_bytes(8, "big")
    with pytest.raises(CorruptionError):
        _unseal(b"STRL\0\0" + check + rest)


@given(st.binary(max_size=60))
def test_a_right_checksum_over_anything_is_still_read_with_care(rest):
    with pytest.raises(CorruptionError):
        _unseal(_crafted(rest))


@pytest.mark.parametrize(
    "rest",
    [
        pytest.param(b"\x94\xa1\xff\xa1a\xa1b\xc4\x00", id="a name that is no text"),
        pytest.param(b"\x91" * 3000, id="nested without end"),
        pytest.param(msgspec.msgpack.encode(("record", "orders", "v7")), id="no body"),
        pytest.param(msgspec.msgpack.encode(("record", 5, "v7", b"")), id="a number for a name"),
    ],
)
def test_a_crafted_object_is_damage_and_nothing_else(rest):
    with pytest.raises(CorruptionError, match="version v7 of shard orders is damaged"):
        _unseal(_crafted(rest))


def test_what_a_stranger_wrote_is_shown_without_control_characters():
    """X16."""
    with pytest.raises(CorruptionError) as caught:
        _unseal(seal("record", "or\x1b[31mders\n", "v7", b""))
    assert "\x1b" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_body_is_decoded_or_damaged():
    decoder = msgspec.msgpack.Decoder(int)
    assert decoded(decoder, b"\x05", "it") == 5
    with pytest.raises(CorruptionError, match="it is damaged"):
        decoded(decoder, b"\xa1x", "it")


def test_the_checksum_of_an_object_is_the_published_one():
    assert checksum(b"") == 0x2D06800538D394C2
