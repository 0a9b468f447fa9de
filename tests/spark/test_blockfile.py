"""A cached block as one file."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from strandline.spark.blockfile import decode_block, encode_block


def table(rows: int, first: int = 0) -> pa.Table:
    ids = pa.array(np.arange(first, first + rows))
    texts = pa.array([f"row {number}" for number in range(rows)])
    return pa.table({"id": ids, "text": texts})


def file_of(name: str, rows: pa.Table) -> bytes:
    body, trailer = encode_block(name, rows)
    return body.to_pybytes() + trailer


@pytest.mark.parametrize("rows", [0, 1, 1000, 100_000])
def test_a_block_comes_back_as_it_was(rows: int) -> None:
    given = table(rows)
    found = decode_block("part#3", pa.py_buffer(file_of("part#3", given)))
    assert found is not None
    assert found.equals(given, check_metadata=True)


def test_a_block_is_one_batch_whatever_came_in() -> None:
    given = pa.concat_tables([table(10), table(10, first=10)])
    found = decode_block("b", pa.py_buffer(file_of("b", given)))
    assert found is not None
    assert found.equals(given)
    assert [column.num_chunks for column in found.columns] == [1, 1]


def test_columns_are_not_copied() -> None:
    content = pa.py_buffer(file_of("b", table(1000)))
    found = decode_block("b", content)
    assert found is not None
    start = found.column("id").chunk(0).buffers()[1].address
    assert content.address <= start < content.address + content.size


def test_field_metadata_is_kept() -> None:
    field = pa.field("id", pa.int64(), nullable=False, metadata={"PARQUET:field_id": "7"})
    given = pa.table([pa.array([1, 2])], schema=pa.schema([field]))
    found = decode_block("b", pa.py_buffer(file_of("b", given)))
    assert found is not None
    assert found.schema.field("id").equals(field, check_metadata=True)


WHOLE = file_of("b", table(50_000))
DAMAGED = {
    "empty": b"",
    "a trailer alone": WHOLE[-24:],
    "cut by a byte": WHOLE[:-1],
    "cut in the middle": WHOLE[: len(WHOLE) // 2],
    "without its head": WHOLE[100:],
    "longer by a byte": WHOLE + b"\0",
    "zeros": bytes(len(WHOLE)),
    "zeros before the trailer": bytes(len(WHOLE) - 24) + WHOLE[-24:],
    "zeros in the second half": WHOLE[: len(WHOLE) // 2] + bytes(len(WHOLE) - len(WHOLE) // 2),
    "a tenth never written": WHOLE[:300_000]
    + bytes(len(WHOLE) // 10)
    + WHOLE[300_000:][len(WHOLE) // 10 :],
    "first page never written": bytes(4096) + WHOLE[4096:],
    "no file of ours": b"PAR1" + b"x" * 5000 + b"PAR1",
    "another block": file_of("c", table(50_000)),
    "plain Arrow": WHOLE[:-24],
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED.keys())
def test_what_is_not_the_block_is_refused(content: bytes) -> None:
    assert decode_block("b", pa.py_buffer(WHOLE)) is not None
    assert decode_block("b", pa.py_buffer(content)) is None


def test_every_byte_of_a_small_file_counts() -> None:
    whole = file_of("b", table(3))
    for at in range(0, len(whole), 7):
        flipped = bytearray(whole)
        flipped[at] ^= 0x10
        assert decode_block("b", pa.py_buffer(bytes(flipped))) is None, at
