"""Blocks of Avro files, unpacked within a limit."""

import bz2
import io
import lzma
import zlib

import fastavro
import pyarrow as pa
import pytest

from strandline.connectors.avroblocks import Unpacked

SCHEMA = {"type": "record", "name": "r", "fields": [{"name": "a", "type": "bytes"}]}
SYNC = b"0123456789abcdef"


def packed(data, codec):
    if codec == "deflate":
        return zlib.compress(data)[2:-4]
    if codec == "bzip2":
        return bz2.compress(data)
    if codec == "xz":
        return lzma.compress(data)
    if codec == "snappy":
        return pa.compress(data, "snappy", asbytes=True) + zlib.crc32(data).to_bytes(4)
    if codec == "zstandard":
        return pa.compress(data, "zstd", asbytes=True)
    return data


def varint(number):
    left, made = number << 1, bytearray()
    while left > 127:
        made.append(left & 127 | 128)
        left >>= 7
    return bytes([*made, left])


def file_of(blocks, codec):
    """A file as other writers make it, of blocks of one record each."""
    stream = io.BytesIO()
    fastavro.writer(stream, SCHEMA, [], sync_marker=SYNC)
    ours = b"\x14avro.codec" + varint(len(codec)) + codec.encode()
    made = stream.getvalue().replace(b"\x14avro.codec\x08null", ours)
    for each in blocks:
        data = packed(varint(len(each)) + each, codec)
        made += varint(1) + varint(len(data)) + data + SYNC
    return made


CODECS = ["null", "deflate", "bzip2", "xz", "snappy", "zstandard"]


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_is_read_block_by_block(codec):
    content = file_of([b"one" * 100, b"two", b""], codec)
    reader = fastavro.reader(io.BufferedReader(Unpacked(io.BytesIO(content), 1000)))
    assert [each["a"] for each in reader] == [b"one" * 100, b"two", b""]


@pytest.mark.parametrize("codec", CODECS)
def test_x11_a_block_that_unpacks_to_too_much_is_refused_before_it_is_unpacked(codec):
    content = file_of([bytes(5_000_000)], codec)
    with pytest.raises(ValueError, match=r"more than 100000|100000 are taken"):
        Unpacked(io.BytesIO(content), 100_000).read()


@pytest.mark.parametrize("codec", CODECS)
def test_what_is_cut_or_changed_anywhere_is_refused_or_read(codec):
    content = file_of([b"some words", b"more"], codec)
    whole = Unpacked(io.BytesIO(content), 1000).read()
    for at in range(len(content)):
        for broken in (content[:at], content[:at] + b"\xff" + content[at + 1 :]):
            try:
                assert len(Unpacked(io.BytesIO(broken), 1000).read()) <= len(whole) + 1000
            except ValueError:
                continue


def test_other_codecs_are_named():
    with pytest.raises(ValueError, match="none of null, deflate"):
        Unpacked(io.BytesIO(file_of([b"x"], "lz77")), 1000).read()


def test_x11_sizes_that_nothing_has_are_refused():
    head = file_of([], "null")
    for size in (1 << 40, (1 << 62) - 1):
        with pytest.raises(ValueError, match="are taken"):
            Unpacked(io.BytesIO(head + varint(1) + varint(size) + b"x"), 1000).read()
    with pytest.raises(ValueError, match="size that nothing has"):
        Unpacked(io.BytesIO(b"Obj\x01\x02" + varint(1 << 50)), 1000).read()
    with pytest.raises(ValueError, match="no end"):
        Unpacked(io.BytesIO(b"Obj\x01" + b"\xff" * 20), 1000).read()
