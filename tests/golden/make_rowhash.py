"""Writes tests/golden/rowhash.json from the slow reference, never from the product.

Run it only to add cases: a hash that changes is a change of the format. Each case carries its
values as an Arrow IPC stream in hex, so that every Arrow implementation can read it exactly.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pyarrow as pa

HERE = Path(__file__).parent


def load_reference():
    path = HERE.parent / "model" / "reference_rowhash.py"
    spec = importlib.util.spec_from_file_location("golden_reference_rowhash", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


reference = load_reference()
dec = reference.decimal
PAIR = pa.struct([("x", pa.int32()), ("y", pa.string())])
NESTED = pa.struct([("p", PAIR), ("l", pa.list_(PAIR))])
TEXTS = ["", "a", None, "seven b", "eight by", "nine byte", "sixteen bytes ok", "ä€😀", "\0"]
BLOBS = [b"", b"\0", None, b"\0" * 8, b"\xff" * 9, bytes(range(17))]
LISTS = [[], None, [None], [1], [1, None], [None, 1], [1, 0, 1]]
DAYS = [0, -1, None, 20_000]
NANS = "NaN payloads and signs, both zeros"

VALUES: list[tuple[pa.DataType, str, list[object]]] = [
    (pa.null(), "", [None, None]),
    (pa.bool_(), "", [True, False, None]),
    (pa.int8(), "", [0, 1, -1, None, 127, -128]),
    (pa.int16(), "", [0, 1, -1, None, 2**15 - 1, -(2**15)]),
    (pa.int32(), "", [0, 1, -1, None, 2**31 - 1, -(2**31)]),
    (pa.int64(), "", [0, 1, -1, None, 2**63 - 1, -(2**63)]),
    (pa.uint8(), "", [0, 1, None, 255]),
    (pa.uint16(), "", [0, 1, None, 2**16 - 1]),
    (pa.uint32(), "", [0, 1, None, 2**32 - 1]),
    (pa.uint64(), "", [0, 1, None, 2**63, 2**64 - 1]),
    (pa.float16(), "", [0.0, 1.5, None, -2.0]),
    (pa.float32(), "", [0.0, 1.5, None, float("inf"), float("-inf"), 2.0**-149]),
    (pa.float64(), "", [0.0, 1.5, None, float("inf"), float("-inf"), 0.1, 5e-324]),
    (pa.date32(), "", DAYS),
    (pa.date64(), "", [0, -86_400_000, None, 20_000 * 86_400_000]),
    (pa.time32("s"), "", [0, None, 86_399]),
    (pa.time32("ms"), "", [0, None, 86_399_999]),
    (pa.time64("us"), "", [0, None, 86_399_999_999]),
    (pa.time64("ns"), "", [0, None, 86_399_999_999_999]),
    (pa.timestamp("s"), "", [0, -1, None, 1_700_000_000]),
    (pa.timestamp("us"), "", [0, -1, None, 1_700_000_000_123_456]),
    (pa.timestamp("ns", "Europe/Berlin"), "", [0, -1, None, 1_700_000_000_123_456_789]),
    (pa.duration("ms"), "", [0, -1, None, 10**12]),
    (pa.decimal32(7, 2), "", [dec(0, 2), dec(-1, 2), None, dec(9_999_999, 2)]),
    (pa.decimal64(18, 0), "", [dec(0, 0), dec(-1, 0), None, dec(10**18 - 1, 0)]),
    (pa.decimal128(38, 10), "", [dec(0, 10), dec(-1, 10), None, dec(10**38 - 1, 10)]),
    (pa.decimal128(5, -3), "negative scale", [dec(0, -3), dec(-1, -3), None, dec(99_999, -3)]),
    (pa.decimal256(76, 30), "", [dec(0, 30), dec(-1, 30), None, dec(1 - 10**76, 30)]),
    (pa.string(), "", TEXTS),
    (pa.large_string(), "", TEXTS),
    (pa.string_view(), "", TEXTS),
    (pa.binary(), "", BLOBS),
    (pa.large_binary(), "", BLOBS),
    (pa.binary_view(), "", BLOBS),
    (pa.binary(5), "", [b"\0" * 5, None, b"abcde"]),
    (pa.binary(16), "", [b"\0" * 16, None, bytes(range(16))]),
    (pa.dictionary(pa.int8(), pa.string()), "", ["", "a", None, "a", "a longer word"]),
    (pa.list_(pa.int32()), "", LISTS),
    (pa.large_list(pa.string()), "", [[], None, [None], ["a", ""], ["", "a"]]),
    (pa.list_view(pa.int64()), "", LISTS),
    (pa.large_list_view(pa.bool_()), "", [[], None, [None], [True, False]]),
    (pa.list_(pa.float64(), 3), "", [None, [1.0, None, -0.0]]),
    (pa.list_(pa.list_(pa.string())), "", [[], None, [[]], [None], [["a"], [], None]]),
    (pa.list_(pa.dictionary(pa.int32(), pa.string())), "", [[], None, ["b", None, "b"]]),
    (PAIR, "", [{"x": 1, "y": "a"}, None, {"x": None, "y": None}, {"x": None, "y": "a"}]),
    (NESTED, "", [{"p": None, "l": []}, None, {"p": {"x": 1, "y": None}, "l": [None]}]),
    (pa.map_(pa.string(), pa.int64()), "", [[], None, [("a", 1), ("b", None)]]),
]  # fmt: skip

BITS = [
    (pa.float64(), pa.uint64(), [0x7FF8 << 48, 0xFFF8 << 48, (0x7FF0 << 48) + 1, 0, 1 << 63]),
    (pa.float32(), pa.uint32(), [0x7FC00000, 0xFF800001, 0, 1 << 31]),
    (pa.float16(), pa.uint16(), [0x7E00, 0xFC01, 0, 1 << 15]),
]


def stream(table: pa.Table) -> str:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes().hex()


def case(array: pa.Array, note: str, values: list[object]) -> dict[str, object]:
    hashes = [0 if x is None else reference.value(x, array.type) for x in values]
    return {
        "type": str(array.type),
        "note": note,
        "shown": repr(values),
        "hashes": [f"{h:016x}" for h in hashes],
        "arrow": stream(pa.table({"value": array})),
    }


def value_cases() -> list[dict[str, object]]:
    cases = []
    for kind, note, values in VALUES:
        stored = pa.array(values, reference.stored_type(kind))
        cases.append(case(stored if stored.type == kind else stored.view(kind), note, values))
    for kind, unsigned, bits in BITS:
        array = pa.array(bits, unsigned).view(kind)
        cases.append(case(array, NANS, [float(x) for x in array.to_pylist()]))
    return cases


def row_cases() -> dict[str, object]:
    columns = [
        (1, pa.int64(), [1, 1, None, None]),
        (2, pa.string(), ["x", "x", None, None]),
        (5, pa.float64(), [-0.0, None, None, float("nan")]),
        (9, PAIR, [{"x": 1, "y": None}, None, None, None]),
    ]
    table = pa.table(
        [pa.array(values, kind) for _, kind, values in columns],
        names=[f"c{field}" for field, _, _ in columns],
    )
    rows = [[(field, values[i], kind) for field, kind, values in columns] for i in range(4)]
    salts = {
        "PLACE_SALT": reference.PLACE,
        "DIGEST_SALT_A": reference.DIGEST_A,
        "DIGEST_SALT_B": reference.DIGEST_B,
    }
    return {
        "field_ids": [field for field, _, _ in columns],
        "shown": repr(table.to_pylist()),
        "base": [f"{reference.base(row):016x}" for row in rows],
        "salted": {n: [f"{reference.row(r, s):016x}" for r in rows] for n, s in salts.items()},
        "arrow": stream(table),
    }


if __name__ == "__main__":
    golden = {"values": value_cases(), "rows": row_cases()}
    (HERE / "rowhash.json").write_text(json.dumps(golden, indent=1) + "\n")
