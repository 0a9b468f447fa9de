"""From updates to a part."""

import pyarrow as pa
import pytest

from strandline.errors import InvariantError
from strandline.model.frontier import Frontier
from strandline.model.schema import Schema
from strandline.parts.build import build_base, build_delta, part_key
from strandline.parts.envelope import checksum
from strandline.parts.layout import lay_out
from strandline.parts.parquet import Owner
from strandline.parts.rows import check_rows
from strandline.parts.stats import Range, decode_stats

SCHEMA = Schema.create(pa.schema([("k", pa.int64()), ("v", pa.string())]), ("k",))
SHARD, WRITER, TOKEN = "s" + "0" * 32, "w" + "1" * 32, "2" * 32
OWNER = Owner(SHARD, part_key(SHARD, WRITER, TOKEN))
ROWS = pa.table({"k": [3, 1, 2], "v": ["a", None, "c"], "_time": [5, 6, 5], "_diff": [1, -1, 2]})


def test_a_key_says_whose_part_it_is():
    assert OWNER.key == f"{SHARD}/{WRITER}/{TOKEN}.parquet"


def test_a_delta_part_is_described_by_its_updates():
    checked = check_rows(ROWS, SCHEMA, lower=5, upper=Frontier(7))
    laid = lay_out(checked.updates, SCHEMA)
    built = build_delta(laid, SCHEMA, OWNER, level=1)
    part = built.part
    assert part.total == checked.total
    assert (part.rows, part.t_min, part.t_max, part.base, part.level) == (3, 5, 6, False, 1)
    assert (part.place_lo, part.place_hi) == laid.span()
    assert (part.size, part.checksum) == (len(built.encoded), checksum(built.encoded))
    stats = decode_stats(part.stats)
    assert stats is not None
    assert stats.ranges == {1: Range("i", 1, 3, 0), 2: Range("s", b"a", b"c", 1)}


def test_known_hashes_give_the_same_part():
    checked = check_rows(ROWS, SCHEMA, lower=5, upper=Frontier(7))
    laid = lay_out(checked.updates, SCHEMA)
    hashes = checked.hashes if laid.order is None else checked.hashes[laid.order]
    assert build_delta(laid, SCHEMA, OWNER, hashes=hashes) == build_delta(laid, SCHEMA, OWNER)


@pytest.mark.parametrize(
    ("diffs", "says"),
    [([1, 1, 1], {"inserts": True}), ([1, 2, 1], {}), ([1, -1, 1], {})],
)
def test_a_part_of_single_insertions_says_so(diffs: list[int], says: dict[str, bool]):
    at = ROWS.column_names.index("_diff")
    checked = check_rows(
        ROWS.set_column(at, "_diff", pa.array(diffs)), SCHEMA, lower=5, upper=Frontier(7)
    )
    part = build_delta(lay_out(checked.updates, SCHEMA), SCHEMA, OWNER).part
    inserts = says.get("inserts", False)
    assert (part.inserts, part.only_inserts, part.untimed) == (inserts, inserts, False)


def test_only_updates_at_one_time_can_be_untimed():
    checked = check_rows(ROWS, SCHEMA, lower=5, upper=Frontier(7))
    with pytest.raises(InvariantError):
        build_delta(lay_out(checked.updates, SCHEMA), SCHEMA, OWNER, untimed=True)


def test_the_checksum_of_the_footer_is_of_its_bytes_alone():
    checked = check_rows(ROWS, SCHEMA, lower=5, upper=Frontier(7))
    built = build_delta(lay_out(checked.updates, SCHEMA), SCHEMA, OWNER)
    length = int.from_bytes(built.encoded[-8:-4], "little")
    assert built.part.footer == checksum(built.encoded[-8 - length :])


def test_a_base_part_counts_each_row_once_as_of_its_time():
    live = ROWS.select(["k", "v"])
    built = build_base(lay_out(live, SCHEMA), SCHEMA, OWNER, time=9, level=3)
    part = built.part
    assert part.total == check_rows(live, SCHEMA, lower=0, upper=Frontier(1)).total
    assert (part.t_min, part.t_max, part.base, part.level) == (9, 9, True, 3)
    assert part.only_inserts
