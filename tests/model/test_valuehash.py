"""Values hash as docs/rowhash.md says, for every type, however they are laid out."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings, strategies as st

from strandline.errors import SchemaError
from strandline.model import valuehash
from strandline.model.rowhash import mix64, row_base, value_hashes

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

I64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(codec="utf-8"), max_size=40)
BYTES = st.binary(max_size=40)


def ints(bits: int, *, signed: bool = True) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)) if signed else 0, 2 ** (bits - signed) - 1)


def decimals(digits: int, scale: int) -> st.SearchStrategy[object]:
    top = 10**digits - 1
    return st.integers(-top, top).map(lambda unscaled: reference.decimal(unscaled, scale))


PAIR = pa.struct([("x", pa.int32()), ("y", pa.string())])
PAIRS = st.fixed_dictionaries({"x": st.none() | ints(32), "y": st.none() | TEXT})
WHOLE_DAYS = st.integers(-(10**6), 10**6).map(lambda day: day * 86_400_000)


def listed(values: st.SearchStrategy[object], size: int = 5) -> st.SearchStrategy[object]:
    return st.lists(st.none() | values, max_size=size)


TYPES: list[tuple[pa.DataType, st.SearchStrategy[object]]] = [
    (pa.null(), st.none()),
    (pa.bool_(), st.booleans()),
    (pa.int8(), ints(8)),
    (pa.int16(), ints(16)),
    (pa.int32(), ints(32)),
    (pa.int64(), I64),
    (pa.uint8(), ints(8, signed=False)),
    (pa.uint16(), ints(16, signed=False)),
    (pa.uint32(), ints(32, signed=False)),
    (pa.uint64(), ints(64, signed=False)),
    (pa.float16(), st.floats(width=16).map(np.float16)),
    (pa.float32(), st.floats(width=32)),
    (pa.float64(), st.floats()),
    (pa.date32(), ints(32)),
    (pa.date64(), WHOLE_DAYS),
    (pa.time32("s"), st.integers(0, 86_399)),
    (pa.time32("ms"), st.integers(0, 86_399_999)),
    (pa.time64("us"), st.integers(0, 86_399_999_999)),
    (pa.time64("ns"), st.integers(0, 86_399_999_999_999)),
    (pa.timestamp("s"), I64),
    (pa.timestamp("us"), I64),
    (pa.timestamp("ns", "Europe/Berlin"), I64),
    (pa.duration("ms"), I64),
    (pa.decimal32(7, 2), decimals(7, 2)),
    (pa.decimal64(18, 0), decimals(18, 0)),
    (pa.decimal128(38, 10), decimals(38, 10)),
    (pa.decimal128(5, -3), decimals(5, -3)),
    (pa.decimal256(76, 30), decimals(76, 30)),
    (pa.string(), TEXT),
    (pa.large_string(), TEXT),
    (pa.string_view(), TEXT),
    (pa.binary(), BYTES),
    (pa.large_binary(), BYTES),
    (pa.binary_view(), BYTES),
    (pa.binary(5), st.binary(min_size=5, max_size=5)),
    (pa.binary(16), st.binary(min_size=16, max_size=16)),
    (pa.dictionary(pa.int8(), pa.string()), st.sampled_from(["", "a", "a longer word"])),
    (pa.list_(pa.int32()), listed(ints(32))),
    (pa.large_list(pa.string()), listed(TEXT)),
    (pa.list_view(pa.int64()), listed(I64)),
    (pa.large_list_view(pa.bool_()), listed(st.booleans())),
    (pa.list_(pa.float64(), 3), st.lists(st.none() | st.floats(), min_size=3, max_size=3)),
    (pa.list_(pa.list_(pa.string())), listed(listed(TEXT, 3), 3)),
    (pa.list_(pa.dictionary(pa.int32(), pa.string())), listed(st.sampled_from(["", "b", "cc"]))),
    (PAIR, PAIRS),
    (pa.struct([("p", PAIR), ("l", pa.list_(PAIR))]),
     st.fixed_dictionaries({"p": st.none() | PAIRS, "l": st.none() | listed(PAIRS, 3)})),
    (pa.map_(pa.string(), pa.int64()), st.lists(st.tuples(TEXT, st.none() | I64), max_size=4)),
]  # fmt: skip
NAMES = [str(kind) for kind, _ in TYPES]


def build(values: list[object], kind: pa.DataType) -> pa.Array:
    stored = reference.stored_type(kind)
    return pa.array(values, stored) if stored == kind else pa.array(values, stored).view(kind)


def expected(values: list[object], kind: pa.DataType) -> list[int]:
    return [0 if x is None else reference.value(x, kind) for x in values]


@pytest.mark.parametrize(("kind", "strategy"), TYPES, ids=NAMES)
def test_every_type_hashes_as_the_slow_reference_does(
    kind: pa.DataType, strategy: st.SearchStrategy[object]
):
    @settings(max_examples=40, deadline=None)
    @given(st.lists(st.none() | strategy, max_size=20), st.integers(0, 20), st.integers(0, 20))
    def check(values: list[object], start: int, count: int) -> None:
        array = build(values, kind)
        assert value_hashes(array).tolist() == expected(values, kind)
        # A slice starts inside its buffers and bitmaps, and must not show what is around it.
        sliced = array.slice(start, count)
        assert value_hashes(sliced).tolist() == expected(values[start : start + count], kind)
        chunked = pa.chunked_array([array.slice(0, start), array.slice(start)], kind)
        assert value_hashes(chunked).tolist() == expected(values, kind)

    check()


@pytest.mark.parametrize(("kind", "strategy"), TYPES, ids=NAMES)
def test_blocks_do_not_show(kind: pa.DataType, strategy: st.SearchStrategy[object]):
    @settings(max_examples=15, deadline=None)
    @given(st.lists(st.none() | strategy, max_size=20))
    def check(values: list[object]) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(valuehash, "BLOCK", 3)
            assert value_hashes(build(values, kind)).tolist() == expected(values, kind)

    check()


SAME_VALUES = [
    ("integers", [None, 0, 1, 127], [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(),
                                     pa.uint16(), pa.uint32(), pa.uint64()]),
    ("negatives", [-1, -128], [pa.int8(), pa.int16(), pa.int32(), pa.int64()]),
    ("floats", [None, 0.0, 1.5, -2.0, float("inf")], [pa.float16(), pa.float32(), pa.float64()]),
    ("strings", ["", "abc", None, "eight by", "nine bytes, and more than twelve"],
     [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string()),
      pa.dictionary(pa.int8(), pa.large_string())]),
    ("binary", [b"abcde", None], [pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(5)]),
    ("lists", [[1, None], None, [2, 3]], [pa.list_(pa.int32()), pa.large_list(pa.int64()),
                                          pa.list_view(pa.int8()), pa.large_list_view(pa.int16()),
                                          pa.list_(pa.int64(), 2)]),
    ("decimals", [None, reference.decimal(-12345, 2), reference.decimal(0, 2)],
     [pa.decimal32(7, 2), pa.decimal64(12, 2), pa.decimal128(20, 2), pa.decimal128(38, 2),
      pa.decimal256(60, 2)]),
]  # fmt: skip


@pytest.mark.parametrize(("values", "kinds"), [c[1:] for c in SAME_VALUES],
                         ids=[c[0] for c in SAME_VALUES])  # fmt: skip
def test_widths_and_encodings_do_not_show(values: list[object], kinds: list[pa.DataType]):
    hashes = {tuple(value_hashes(pa.array(values, kind)).tolist()) for kind in kinds}
    assert len(hashes) == 1


def test_runs_do_not_show():
    plain = pa.array(["a", "a", None, "b", "b"])
    runs = pc.run_end_encode(plain)
    assert value_hashes(runs).tolist() == value_hashes(plain).tolist()
    assert value_hashes(runs.slice(1, 3)).tolist() == value_hashes(plain)[1:4].tolist()


def test_a_null_in_the_dictionary_itself_is_null():
    array = pa.DictionaryArray.from_arrays(pa.array([0, 1, None]), pa.array(["a", None]))
    assert value_hashes(array).tolist()[1:] == [0, 0]
    assert row_base(pa.table({"c": array}), [1]).tolist()[1:] == [0, 0]


def test_every_nan_is_one_nan_and_both_zeros_are_one_zero():
    nans = [0x7FF8000000000000, 0xFFF8000000000000, 0x7FF0000000000001, 0x7FFFFFFFFFFFFFFF]
    bits = pa.array([*nans, 0, 2**63], pa.uint64()).view(pa.float64())
    hashes = value_hashes(bits).tolist()
    assert len(set(hashes[:4])) == 1
    assert hashes[4] == hashes[5]
    small = pa.array([0x7F800001, 0xFFC00000, 0x80000000], pa.uint32()).view(pa.float32())
    assert value_hashes(small).tolist() == [hashes[0], hashes[0], hashes[4]]
    half = pa.array([0x7C01, 0xFE00, 0x8000], pa.uint16()).view(pa.float16())
    assert value_hashes(half).tolist() == [hashes[0], hashes[0], hashes[4]]


def test_values_that_only_look_alike_are_told_apart():
    alike = [
        pa.array([1]), pa.array([True]), pa.array([1.0]), pa.array(["1"]), pa.array([b"1"]),
        pa.array([1], pa.date32()), pa.array([1], pa.time32("s")), pa.array([1], pa.timestamp("s")),
        pa.array([1], pa.duration("s")), pa.array([[1]]), pa.array([{"a": 1}]),
        pa.array([{"b": 1}]), pa.array([reference.decimal(1, 0)], pa.decimal128(3, 0)),
        pa.array([reference.decimal(1, 1)], pa.decimal128(3, 1)), pa.array([[1, None]]),
        pa.array([[None, 1]]), pa.array([[]], pa.list_(pa.int64())), pa.array([[None]]),
        pa.array([""]), pa.array([b""]), pa.array(["\0"]), pa.array(["\0" * 8]),
        pa.array(["\0" * 9]), pa.array(["12345678abcdefgh"]), pa.array(["abcdefgh12345678"]),
        pa.array([{"a": None}], pa.struct([("a", pa.int64())])),
    ]  # fmt: skip
    hashes = [int(value_hashes(array)[0]) for array in alike]
    assert len(set(hashes)) == len(hashes)
    assert 0 not in hashes


def test_what_lies_under_a_null_does_not_show():
    validity = pa.py_buffer(bytes([0b101]))
    for kind, content in [(pa.int64(), [5, 6, 7]), (pa.float64(), [5.0, float("nan"), 7.0])]:
        whole = pa.array(content, kind)
        dirty = pa.Array.from_buffers(kind, 3, [validity, whole.buffers()[1]])
        clean = pa.array([content[0], None, content[2]], kind)
        assert value_hashes(dirty).tolist() == value_hashes(clean).tolist()
    lists = pa.array([[1], [2, 3], [4]])
    dirty = pa.ListArray.from_arrays(
        lists.offsets, lists.values, mask=pa.array([False, True, False])
    )
    assert value_hashes(dirty).tolist() == value_hashes(pa.array([[1], None, [4]])).tolist()


def test_list_views_may_overlap_and_run_backwards():
    views = pa.ListViewArray.from_arrays(
        pa.array([2, 0, 1], pa.int32()), pa.array([1, 2, 2], pa.int32()), pa.array([10, 20, 30])
    )
    assert (
        value_hashes(views).tolist() == value_hashes(pa.array([[30], [10, 20], [20, 30]])).tolist()
    )


def test_one_huge_value_among_small_ones_hashes_as_the_reference_does():
    values = ["small", "x" * (8 * valuehash.BLOCK * 2 + 3), "", "small too"]
    assert value_hashes(pa.array(values)).tolist() == expected(values, pa.string())


@pytest.mark.parametrize("kind", [kind for kind, _ in TYPES], ids=NAMES)
def test_no_rows_have_no_hashes(kind: pa.DataType):
    empty = pa.array([], kind)
    assert value_hashes(empty).tolist() == []
    assert value_hashes(pa.chunked_array([], kind)).tolist() == []
    assert row_base(pa.table({"c": empty}), [1]).tolist() == []


@pytest.mark.parametrize("kind", [kind for kind, _ in TYPES], ids=NAMES)
def test_nothing_but_nulls_has_the_hash_of_nothing(kind: pa.DataType):
    assert value_hashes(pa.nulls(9, kind)).tolist() == [0] * 9
    assert row_base(pa.table({"c": pa.nulls(9, kind)}), [1]).tolist() == [0] * 9


@pytest.mark.parametrize("kind", [pa.month_day_nano_interval(), pa.sparse_union([])])
def test_a_type_without_a_hash_is_refused_by_name(kind: pa.DataType):
    with pytest.raises(SchemaError, match="have no row hash"):
        value_hashes(pa.nulls(1, kind) if kind.num_fields else _one_of(kind))


def _one_of(kind: pa.DataType) -> pa.Array:
    if pa.types.is_union(kind):
        return pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])])
    return pa.array([(1, 2, 3)], kind)


def test_mix64_is_the_splitmix64_finaliser():
    # The first outputs of splitmix64 with seed 0, whose state moves by the golden ratio.
    gamma = 0x9E3779B97F4A7C15
    published = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert [mix64(gamma * n) for n in (1, 2, 3)] == published


def golden_cases() -> list[dict[str, object]]:
    return json.loads(GOLDEN.read_text())["values"]


def test_the_golden_vectors_cover_every_type():
    assert {case["type"] for case in golden_cases()} >= set(NAMES)


@pytest.mark.parametrize("case", golden_cases(), ids=lambda c: f"{c['type']} {c['note']}".strip())
def test_golden_values_hash_as_they_always_did(case: dict[str, object]):
    array = pa.ipc.open_stream(bytes.fromhex(case["arrow"])).read_all().column(0)
    assert str(array.type) == case["type"]
    assert [f"{h:016x}" for h in value_hashes(array).tolist()] == case["hashes"]
