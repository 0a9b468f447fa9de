"""Parts as Parquet: exact, readable by others, and safe to read when damaged."""

import datetime as dt
import decimal
import random
from pathlib import Path

import duckdb
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from strandline.errors import CorruptionError, NewerFormatError, SchemaError
from strandline.model.frontier import Frontier
from strandline.model.schema import Schema
from strandline.parts import parquet
from strandline.parts.build import Built, build_base, build_delta
from strandline.parts.envelope import checksum
from strandline.parts.layout import Laid, lay_out
from strandline.parts.parquet import Owner, decode_part, encode_part, with_constants
from strandline.parts.part import Part, restamped_part
from strandline.parts.rows import check_rows

FIRST = Path(__file__).parent.parent / "golden" / "first"
SHARD = "s" + "0" * 32
OWNER = Owner(SHARD, f"{SHARD}/w{'1' * 32}/{'2' * 32}.parquet")
COLUMNS = pa.schema(
    [
        ("k", pa.int32()),
        ("s", pa.string()),
        ("ls", pa.large_string()),
        ("f", pa.float32()),
        ("h", pa.float16()),
        ("n", pa.decimal128(9, 2)),
        ("t", pa.timestamp("ns", "Europe/Oslo")),
        ("u", pa.duration("us")),
        ("c", pa.time64("ns")),
        ("x", pa.binary(2)),
        ("l", pa.list_(pa.struct([("a", pa.int64())]))),
        ("m", pa.map_(pa.string(), pa.int8())),
        ("z", pa.list_(pa.int16(), 2)),
        ("o", pa.bool_()),
        ("i", pa.uint64()),
    ]
)
SCHEMA = Schema.create(COLUMNS, ("k",))


def rows(count: int = 50) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {
                "k": n,
                "s": f"name {n % 3}",
                "ls": None,
                "f": n / 4,
                "h": None,
                "n": decimal.Decimal(n) / 4 if n % 4 == 0 else None,
                "t": dt.datetime(2020, 1, 1, tzinfo=dt.UTC) + dt.timedelta(days=n),
                "u": dt.timedelta(seconds=n),
                "c": dt.time(n % 24),
                "x": b"ab",
                "l": [{"a": n}, None],
                "m": [("a", 1)],
                "z": [n, None],
                "o": n % 2 == 0,
                "i": 2**64 - 1 - n,
            }
            for n in range(count)
        ],
        schema=COLUMNS,
    )


def delta(count: int = 50) -> tuple[Built, pa.Table]:
    checked = check_rows(rows(count), SCHEMA, lower=7, upper=Frontier(8))
    laid = lay_out(checked.updates, SCHEMA)
    return build_delta(laid, SCHEMA, OWNER), laid.updates


def base(count: int = 50) -> tuple[Built, pa.Table]:
    _, updates = delta(count)
    live = updates.select(COLUMNS.names)
    return build_base(lay_out(live, SCHEMA), SCHEMA, OWNER, time=9, level=2), live


def forged(part: Part, encoded: bytes) -> Part:
    """A part whose size and checksum fit, so that only the footer and pages can object."""
    return msgspec.structs.replace(part, size=len(encoded), checksum=checksum(encoded))


def test_a_delta_part_comes_back_as_it_was_with_every_type():
    built, updates = delta()
    found = decode_part(built.encoded, built.part, SCHEMA, owner=OWNER)
    assert found.equals(updates, check_metadata=True)


def test_a_part_from_before_there_were_indexes_is_read():
    part = msgspec.msgpack.decode((FIRST / "part.bin").read_bytes(), type=Part)
    encoded = (FIRST / "part.parquet").read_bytes()
    assert (part.untimed, part.inserts, part.footer) == (False, False, 0)
    built, updates = delta()
    assert built.encoded != encoded
    assert decode_part(encoded, part, SCHEMA, owner=OWNER).equals(updates)


@pytest.mark.parametrize("columns", [None, ["f", "k"], []])
def test_an_untimed_part_has_the_time_that_the_state_says(columns: list[str] | None):
    _, updates = delta()
    built = build_delta(lay_out(updates, SCHEMA), SCHEMA, OWNER, untimed=True)
    assert "_time" not in pq.read_table(pa.BufferReader(built.encoded)).column_names
    for part, time in ((built.part, 7), (restamped_part(built.part, 12), 12)):
        found = decode_part(built.encoded, part, SCHEMA, owner=OWNER, columns=columns)
        wanted = updates.select([*(columns or ([] if columns == [] else COLUMNS.names)), "_diff"])
        at = wanted.num_columns - 1
        field = SCHEMA.updates().field("_time")
        assert found.equals(wanted.add_column(at, field, pa.array([time] * 50)))


@pytest.mark.parametrize(
    ("built_as", "change", "words"),
    [
        ({"untimed": True}, {"t_max": 8}, "no times of its own"),
        ({"untimed": True}, {"untimed": False}, "unexpected columns"),
        ({}, {"untimed": True}, "unexpected columns"),
        ({"untimed": True}, {"base": True}, "no times of its own"),
    ],
)
def test_an_untimed_part_must_be_listed_as_one(
    built_as: dict[str, bool], change: dict[str, object], words: str
):
    built = build_delta(lay_out(delta()[1], SCHEMA), SCHEMA, OWNER, **built_as)
    part = msgspec.structs.replace(built.part, **change)
    with pytest.raises(CorruptionError, match=words):
        decode_part(built.encoded, part, SCHEMA, owner=OWNER)


def test_a_base_part_has_constants_for_time_and_diff_only_if_asked():
    built, live = base()
    assert decode_part(built.encoded, built.part, SCHEMA, owner=OWNER, with_time=False).equals(
        live, check_metadata=True
    )
    found = decode_part(built.encoded, built.part, SCHEMA, owner=OWNER)
    assert found.schema.equals(SCHEMA.updates(), check_metadata=True)
    assert set(found["_time"].to_pylist()) == {9}
    assert set(found["_diff"].to_pylist()) == {1}
    assert found.equals(with_constants(live, built.part))


def test_other_readers_find_plain_columns_with_field_ids(tmp_path: Path):
    built, live = base()
    theirs = pq.read_table(pa.BufferReader(built.encoded))
    assert theirs.column_names == COLUMNS.names
    assert theirs["k"].to_pylist() == live["k"].to_pylist()
    ids = [int(f.metadata[b"PARQUET:field_id"]) for f in theirs.schema]
    assert ids == list(SCHEMA.ids)
    (tmp_path / "part.parquet").write_bytes(built.encoded)
    with duckdb.connect() as connection:
        found = connection.execute(
            "select sum(k), max(s) from read_parquet(?)", [str(tmp_path / "part.parquet")]
        ).fetchone()
    assert found == (sum(range(50)), "name 2")


def test_a_part_has_row_groups_statistics_and_a_page_index():
    built, _ = delta()
    footer = pq.ParquetFile(pa.BufferReader(built.encoded)).metadata
    first = footer.row_group(0).column(0)
    assert footer.num_row_groups == 1
    assert first.statistics.has_min_max
    assert first.has_column_index
    assert first.has_offset_index
    assert {footer.row_group(0).column(c).compression for c in range(5)} == {"SNAPPY"}


@pytest.mark.parametrize("columns", [["f", "k"], ["l"], []])
def test_only_the_columns_asked_for_are_read(columns: list[str]):
    built, updates = delta()
    found = decode_part(built.encoded, built.part, SCHEMA, owner=OWNER, columns=columns)
    assert found.column_names == [*columns, "_time", "_diff"]
    assert found.equals(updates.select([*columns, "_time", "_diff"]))


def test_an_unknown_column_is_refused_as_such():
    built, _ = delta()
    with pytest.raises(SchemaError, match="nope"):
        decode_part(built.encoded, built.part, SCHEMA, owner=OWNER, columns=["nope"])


def test_old_parts_are_read_under_a_later_schema():
    wider = pa.schema([("k", pa.int64()), *list(COLUMNS)[1:], ("new", pa.string())])
    later = SCHEMA.evolve(wider)
    built, updates = delta()
    found = decode_part(built.encoded, built.part, later, owner=OWNER)
    assert found.schema.equals(later.updates(), check_metadata=True)
    assert found["k"].to_pylist() == updates["k"].to_pylist()
    only_new = decode_part(built.encoded, built.part, later, owner=OWNER, columns=["new"])
    assert only_new["new"].null_count == 50
    old_base, _ = base()
    alone = decode_part(
        old_base.encoded, old_base.part, later, owner=OWNER, columns=["new"], with_time=False
    )
    assert (alone.num_rows, alone.column_names) == (50, ["new"])


def test_x10_every_flip_and_cut_is_noticed_before_anything_is_decoded():
    built, _ = delta()
    chance = random.Random(1)
    for _ in range(300):
        at = chance.randrange(len(built.encoded))
        flipped = bytearray(built.encoded)
        flipped[at] ^= 1 << chance.randrange(8)
        with pytest.raises(CorruptionError, match=f"shard {SHARD}: part {OWNER.key} .*checksum"):
            decode_part(bytes(flipped), built.part, SCHEMA, owner=OWNER)
        with pytest.raises(CorruptionError, match=f"{at} bytes instead of"):
            decode_part(built.encoded[:at], built.part, SCHEMA, owner=OWNER)


def test_x10_damage_that_fits_its_checksum_is_an_error_or_harmless_and_never_a_crash():
    built, _ = delta()
    chance = random.Random(2)
    refusals = []
    for attempt in range(400):
        damaged = bytearray(built.encoded)
        if attempt % 4 == 0:
            del damaged[chance.randrange(len(damaged)) :]
        else:
            for _ in range(1 + attempt % 3):
                damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
        encoded = bytes(damaged)
        try:
            found = decode_part(encoded, forged(built.part, encoded), SCHEMA, owner=OWNER)
        except CorruptionError as error:
            refusals.append(str(error))
        else:
            assert found.num_rows == 50
    assert len(refusals) > 150
    assert all(f"shard {SHARD}: part {OWNER.key}" in refusal for refusal in refusals)


def test_x17_a_swapped_part_is_refused_by_name():
    built, _ = delta()
    other = Owner("s" + "9" * 32, OWNER.key)
    with pytest.raises(CorruptionError, match=f"it is {OWNER.key} of {SHARD}"):
        decode_part(built.encoded, built.part, SCHEMA, owner=other)
    elsewhere = Owner(SHARD, OWNER.key.replace("2", "3"))
    with pytest.raises(CorruptionError, match="it is"):
        decode_part(built.encoded, built.part, SCHEMA, owner=elsewhere)


def test_an_object_of_somebody_else_is_no_part():
    sink = pa.BufferOutputStream()
    pq.write_table(rows(), sink)
    encoded = sink.getvalue().to_pybytes()
    with pytest.raises(CorruptionError, match="it is no part of nobody"):
        decode_part(encoded, forged(delta()[0].part, encoded), SCHEMA, owner=OWNER)


@pytest.mark.parametrize(
    ("change", "words"),
    [({"rows": 49}, "50 rows instead of 49"), ({"base": True}, "unexpected columns")],
)
def test_x10_the_footer_must_agree_with_the_state(change: dict[str, object], words: str):
    built, _ = delta()
    part = msgspec.structs.replace(built.part, **change)
    with pytest.raises(CorruptionError, match=words):
        decode_part(built.encoded, part, SCHEMA, owner=OWNER)


def test_a_newer_format_is_refused_by_name():
    built, updates = delta()
    facts = {"strandline.format": "2", "strandline.shard": SHARD, "strandline.key": OWNER.key}
    sink = pa.BufferOutputStream()
    pq.write_table(updates.replace_schema_metadata(facts), sink)
    encoded = sink.getvalue().to_pybytes()
    with pytest.raises(NewerFormatError, match="format 2"):
        decode_part(encoded, forged(built.part, encoded), SCHEMA, owner=OWNER)


def test_wide_rows_get_smaller_row_groups():
    wide = pa.table({"b": pa.array([b"x" * 40_000] * 4000, pa.binary())})
    footer = pq.ParquetFile(pa.BufferReader(encode_part(wide, OWNER))).metadata
    assert footer.num_row_groups > 1


def test_other_readers_skip_no_rows_that_hold_nan(tmp_path: Path):
    nan = float("nan")
    found = pa.table(
        {
            "x": [1.0, nan],
            "h": pa.array([1.0, nan], pa.float16()),
            "s": [{"y": 1.0, "n": 1}, {"y": nan, "n": 2}],
            "l": [[1.0], [nan]],
            "n": [1, 2],
            "f": [1.0, None],
        }
    )
    encoded = encode_part(found, OWNER)
    group = pq.ParquetFile(pa.BufferReader(encoded)).metadata.row_group(0)
    columns = [group.column(at) for at in range(group.num_columns)]
    assert {c.path_in_schema for c in columns if c.is_stats_set} == {"s.n", "n", "f"}
    (tmp_path / "part.parquet").write_bytes(encoded)
    told = [str(tmp_path / "part.parquet")]
    with duckdb.connect() as connection:
        for greater in ("x > 5", "s.y > 5", "x = 'NaN'::double"):
            asked = f"select n from read_parquet(?) where {greater}"
            assert connection.execute(asked, told).fetchall() == [(2,)]


def _stretches(footer: pq.FileMetaData) -> list[tuple[int, int]]:
    found = []
    for group in range(footer.num_row_groups):
        columns = [footer.row_group(group).column(c) for c in range(footer.num_columns)]
        starts = [
            min(c.data_page_offset, c.dictionary_page_offset or c.data_page_offset) for c in columns
        ]
        ends = [s + c.total_compressed_size for s, c in zip(starts, columns, strict=True)]
        found.append((min(starts), max(ends)))
    return found


@pytest.mark.parametrize("key", [("k",), ()])
def test_the_footer_has_the_sum_and_the_first_place_of_each_row_group(
    key: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(parquet, "GROUP_ROWS", 1024)
    schema = Schema.create(COLUMNS, key)
    checked = check_rows(rows(2500), schema, lower=7, upper=Frontier(8))
    laid = lay_out(checked.updates, schema)
    encoded = encode_part(laid.updates, OWNER, laid.places)
    footer = pq.ParquetFile(pa.BufferReader(encoded)).metadata
    sums = [checksum(encoded[start:end]) for start, end in _stretches(footer)]
    assert len(sums) == 3
    assert footer.metadata[b"strandline.sums"].decode() == "".join(f"{s:016x}" for s in sums)
    places = None if laid.places is None else "".join(f"{p:016x}" for p in laid.places[::1024])
    assert footer.metadata.get(b"strandline.places", b"").decode() == (places or "")


def test_other_readers_can_verify_pages():
    built, live = base(3000)
    reader = pa.BufferReader(built.encoded)
    assert pq.read_table(reader, page_checksum_verification=True).equals(live)
    damaged = bytearray(built.encoded)
    start, _ = _stretches(pq.ParquetFile(reader).metadata)[0]
    damaged[start + 300] ^= 1
    with pytest.raises(OSError, match=r"CRC|checksum"):
        pq.read_table(pa.BufferReader(bytes(damaged)), page_checksum_verification=True)


def test_parts_record_what_prunes_and_proves_them():
    built, updates = delta()
    part = built.part
    assert (part.rows, part.t_min, part.t_max, part.base, part.level) == (50, 7, 7, False, 0)
    assert part.place_lo < part.place_hi
    assert part.size == len(built.encoded)
    assert part.total == check_rows(updates, SCHEMA, lower=7, upper=Frontier(8)).total
    live_built, _ = base()
    assert live_built.part.total == part.total
    assert (live_built.part.t_min, live_built.part.base, live_built.part.level) == (9, True, 2)
    assert Laid(updates, None).span() == (0, 2**64 - 1)
