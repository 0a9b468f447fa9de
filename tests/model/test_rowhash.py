"""Rows hash as docs/rowhash.md says, whatever their columns are called and wherever they stand."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from strandline.errors import InvariantError
from strandline.model import rowhash
from strandline.model.rowhash import row_base, salted

HERE = Path(__file__).parent
GOLDEN = HERE.parent / "golden" / "rowhash.json"


def load_reference():
    # Tests run without packages, so a module beside a test is loaded by its path.
    spec = importlib.util.spec_from_file_location(
        "reference_rowhash", HERE / "reference_rowhash.py"
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


reference = load_reference()

TEXT = st.text(st.characters(codec="utf-8"), max_size=40)
INT32 = st.integers(-(2**31), 2**31 - 1)
PAIR = pa.struct([("x", pa.int32()), ("y", pa.string())])
PAIRS = st.fixed_dictionaries({"x": st.none() | INT32, "y": st.none() | TEXT})


SALTS = {
    "PLACE_SALT": (rowhash.PLACE_SALT, reference.PLACE),
    "DIGEST_SALT_A": (rowhash.DIGEST_SALT_A, reference.DIGEST_A),
    "DIGEST_SALT_B": (rowhash.DIGEST_SALT_B, reference.DIGEST_B),
}
rows = st.lists(
    st.tuples(st.none() | INT32, st.none() | TEXT, st.none() | st.floats(), st.none() | PAIRS),
    max_size=20,
)
COLUMNS = [(7, pa.int32()), (1, pa.string()), (12, pa.float64()), (3, PAIR)]


def table_of(some: list[tuple[object, ...]]) -> pa.Table:
    columns = zip(*some, strict=True) if some else [()] * len(COLUMNS)
    arrays = [pa.array(c, kind) for c, (_, kind) in zip(columns, COLUMNS, strict=True)]
    return pa.table(arrays, names=[f"c{field}" for field, _ in COLUMNS])


@settings(deadline=None)
@given(rows)
def test_a_row_hashes_as_the_slow_reference_does(some: list[tuple[object, ...]]):
    table = table_of(some)
    ids = [field for field, _ in COLUMNS]
    base = row_base(table, ids)
    cells = [[(f, x, k) for x, (f, k) in zip(row, COLUMNS, strict=True)] for row in some]
    assert base.tolist() == [reference.base(row) for row in cells]
    for ours, theirs in SALTS.values():
        assert salted(base, ours).tolist() == [reference.row(row, theirs) for row in cells]
    for batch in table.to_batches():
        assert row_base(batch, ids).tolist() == base.tolist()


@settings(deadline=None)
@given(rows, st.integers(0, 20))
def test_a_row_hash_does_not_see_chunks_slices_or_the_order_of_columns(
    some: list[tuple[object, ...]], cut: int
):
    table, ids = table_of(some), [field for field, _ in COLUMNS]
    base = row_base(table, ids).tolist()
    chunked = pa.concat_tables([table.slice(0, cut), table.slice(cut)])
    assert row_base(chunked, ids).tolist() == base
    assert row_base(table.slice(cut), ids).tolist() == base[cut:]
    backwards = table.select(list(reversed(range(len(ids)))))
    assert row_base(backwards, ids[::-1]).tolist() == base


def test_columns_chunked_differently_hash_alike():
    numbers = pa.chunked_array([[1, 2], [3], [], [4, 5]])
    words = pa.chunked_array([["a"], ["b", "c", "d"], ["e"]])
    chunked = pa.table({"n": numbers, "w": words})
    whole = pa.table({"n": numbers.combine_chunks(), "w": words.combine_chunks()})
    assert row_base(chunked, [1, 2]).tolist() == row_base(whole, [1, 2]).tolist()


def test_a_new_nullable_column_leaves_the_hash_of_old_rows_alone():
    old = pa.table({"a": [1, None], "b": ["x", "y"]})
    new = old.append_column("c", pa.nulls(2, pa.list_(pa.int8())))
    assert row_base(new, [1, 2, 3]).tolist() == row_base(old, [1, 2]).tolist()


def test_equal_values_in_swapped_columns_are_another_row():
    table = pa.table({"a": [1, 2], "b": [2, 1]})
    first, second = row_base(table, [1, 2]).tolist()
    assert first != second


def test_a_column_without_a_field_id_is_a_bug():
    with pytest.raises(InvariantError):
        row_base(pa.table({"a": [1], "b": [2]}), [1])


def test_each_bit_of_an_input_flips_about_half_of_the_bits_of_a_row_hash():
    numbers = np.arange(2000, dtype=np.int64)
    before = salted(row_base(pa.table({"n": numbers}), [1]), rowhash.PLACE_SALT)
    for bit in range(0, 64, 7):
        flipped = numbers ^ np.int64(1 << bit if bit < 63 else -(2**63))
        after = salted(row_base(pa.table({"n": flipped}), [1]), rowhash.PLACE_SALT)
        assert abs(np.bitwise_count(before ^ after).mean() - 32) < 1


def test_golden_rows_hash_as_they_always_did():
    golden = json.loads(GOLDEN.read_text())["rows"]
    table = pa.ipc.open_stream(bytes.fromhex(golden["arrow"])).read_all()
    base = row_base(table, golden["field_ids"])
    assert [f"{h:016x}" for h in base.tolist()] == golden["base"]
    for name, hashes in golden["salted"].items():
        salt = getattr(rowhash, name)
        assert [f"{h:016x}" for h in salted(base, salt).tolist()] == hashes
