"""Looking keys up in parts, through the cache."""

from __future__ import annotations

import errno
import multiprocessing
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from strandline.errors import CorruptionError, NotAppliedError
from strandline.model.schema import Schema
from strandline.parts.build import Built, build_base, build_delta
from strandline.parts.layout import lay_out
from strandline.parts.lookup import Keys
from strandline.parts.parquet import Owner, decode_part
from strandline.parts.part import Part
from strandline.spark.blocks import SMALL, Blocks
from strandline.spark.cache import BlockCache
from strandline.store.disk import OsDisk
from strandline.store.memory import MemoryBlob

MB = 1024 * 1024
ROWS = 300_000
OWNER = Owner("s" + "1" * 32, "s/w/part.parquet")
SCHEMA = Schema.create(
    pa.schema([("name", pa.string()), ("n", pa.int64()), ("v", pa.float64())]), key=("name", "n")
)
LATEST = 1_000_000


class CountingBlob(MemoryBlob):
    """Objects in memory; it keeps which bytes were asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[int, int] | str] = []
        self.away = False

    def get(self, key: str) -> bytes | None:
        self._ask("whole")
        return super().get(key)

    def get_range(self, key: str, start: int, length: int) -> bytes | None:
        self._ask((start, length))
        return super().get_range(key, start, length)

    def _ask(self, what: tuple[int, int] | str) -> None:
        if self.away:
            raise NotAppliedError("the store is away")
        self.asked.append(what)


def updates(numbers: np.ndarray, times: np.ndarray | None = None) -> pa.Table:
    """Keys made of numbers; values of key and time, so that no two updates are alike."""
    times = np.zeros(len(numbers), np.int64) if times is None else times
    columns = {
        "name": pa.array([f"key {number % 1000}" for number in numbers.tolist()]),
        "n": pa.array(numbers),
        "v": pa.array(numbers + times / 16),
        "_time": pa.array(times),
        "_diff": pa.array(np.where(times % 2 == 0, 1, -1)),
    }
    return pa.Table.from_arrays(list(columns.values()), schema=SCHEMA.updates())


def base() -> Built:
    laid = lay_out(updates(np.arange(ROWS)).select(SCHEMA.names), SCHEMA)
    return build_base(laid, SCHEMA, OWNER, time=5, level=3)


def history() -> Built:
    """Many updates of each key, so that the updates of a key end in another row group."""
    numbers = np.arange(ROWS) % 7
    return build_delta(lay_out(updates(numbers, np.arange(ROWS) // 7), SCHEMA), SCHEMA, OWNER)


def untimed() -> Built:
    return build_delta(lay_out(updates(np.arange(ROWS)), SCHEMA), SCHEMA, OWNER, untimed=True)


def small() -> Built:
    return build_delta(lay_out(updates(np.arange(3000)), SCHEMA), SCHEMA, OWNER)


def old() -> Built:
    """As a version wrote it whose parts can't prove single groups."""
    built = base()
    return Built(msgspec.structs.replace(built.part, footer=0), built.encoded)


@pytest.fixture(scope="module")
def parts() -> dict[str, Built]:
    makers: list[Callable[[], Built]] = [base, history, untimed, small, old]
    return {make.__name__: make() for make in makers}


@dataclass
class Place:
    """A store with one part, and a cache that many processes share."""

    blob: CountingBlob
    folder: Path
    built: Built

    def process(self, max_bytes: int = 500 * MB) -> Blocks:
        return Blocks(self.blob, BlockCache(self.folder, max_bytes, boot="boot-1"))

    def find(self, blocks: Blocks, numbers: list[int], as_of: int = LATEST) -> pa.Table:
        return blocks.lookup(self.built.part, SCHEMA, OWNER, keys(numbers), as_of=as_of)


@pytest.fixture
def place(parts: dict[str, Built], tmp_path: Path) -> Callable[[str], Place]:
    def make(name: str) -> Place:
        blob = CountingBlob()
        blob.put(OWNER.key, parts[name].encoded)
        return Place(blob, tmp_path / "cache", parts[name])

    return make


def keys(numbers: list[int]) -> Keys:
    return Keys.of(updates(np.array(numbers, np.int64)), SCHEMA)


def expected(built: Built, numbers: list[int], as_of: int = LATEST) -> pa.Table:
    """What a scan of the whole part finds."""
    whole = decode_part(built.encoded, built.part, SCHEMA, owner=OWNER)
    hit = pc.is_in(whole.column("n"), pa.array(numbers, pa.int64()))
    return whole.filter(pc.and_(hit, pc.less_equal(whole.column("_time"), as_of)))


WANTED = {
    "one": [17],
    "a few": [3, 299_999, 4],
    "none": [],
    "absent": [ROWS + 1, -5, 10**12],
    "some absent": [1, ROWS + 1, 2],
    "many": list(range(0, ROWS, 301)),
}


@pytest.mark.parametrize("name", ["base", "history", "untimed", "small", "old"])
@pytest.mark.parametrize("numbers", WANTED.values(), ids=WANTED.keys())
def test_a_lookup_finds_what_a_scan_finds(place, name: str, numbers: list[int]) -> None:
    at = place(name)
    right = expected(at.built, numbers)
    for max_bytes in (0, 500 * MB, 500 * MB):  # Without a cache, cold, and warm.
        found = at.find(at.process(max_bytes), numbers)
        assert found.equals(right)
        assert found.schema.equals(SCHEMA.updates(), check_metadata=True)


@pytest.mark.parametrize("as_of", [-1, 0, 4, 5, 1000, 42_856, LATEST])
@pytest.mark.parametrize("name", ["base", "history", "small"])
def test_nothing_after_the_time_asked_for_is_found(place, name: str, as_of: int) -> None:
    at = place(name)
    blocks = at.process()
    assert at.find(blocks, [1, 5], as_of).equals(expected(at.built, [1, 5], as_of))
    whole = blocks.whole(at.built.part, SCHEMA, OWNER, as_of=as_of)
    assert whole.equals(expected(at.built, list(range(ROWS)), as_of))


def test_a_cold_key_costs_the_index_and_one_row_group(place) -> None:
    at = place("base")
    blocks = at.process()
    assert at.find(blocks, [17]).num_rows == 1
    tail, (start, length) = at.blob.asked
    assert tail[0] < 0
    assert start >= 0
    assert length < at.built.part.size / 2
    assert blocks.counts["reads"] == 2
    assert blocks.counts["blocks"] == 1


def test_what_was_read_once_is_not_read_again_by_any_process(place) -> None:
    at = place("base")
    blocks = at.process()
    at.find(blocks, [17])
    at.blob.asked.clear()
    assert at.find(blocks, [17]).num_rows == 1
    assert at.find(at.process(), [17]).num_rows == 1
    assert at.blob.asked == []


def test_another_row_group_of_a_known_part_costs_one_read(place) -> None:
    at = place("base")
    ordered = decode_part(at.built.encoded, at.built.part, SCHEMA, owner=OWNER).column("n")
    first, last = ordered[0].as_py(), ordered[-1].as_py()
    at.find(at.process(), [first])
    at.blob.asked.clear()
    assert at.find(at.process(), [first, last]).num_rows == 2
    assert len(at.blob.asked) == 1


def test_neighbouring_row_groups_are_read_together(place) -> None:
    at = place("base")
    found = at.find(at.process(), WANTED["many"])
    assert found.num_rows == len(WANTED["many"])
    assert len(at.blob.asked) == 2
    assert at.process().counts["reads"] == 0


@pytest.mark.parametrize("name", ["small", "old"])
def test_what_is_small_or_has_no_index_costs_one_read(place, name: str) -> None:
    at = place(name)
    assert (at.built.part.size <= SMALL) == (name == "small")
    at.find(at.process(), [17])
    assert at.find(at.process(), [18]).num_rows == 1
    assert at.blob.asked == ["whole"]


def test_a_long_footer_costs_one_more_read(place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.spark.blocks.TAIL_BYTES", 100)
    at = place("base")
    assert at.find(at.process(), [17]).num_rows == 1
    assert len(at.blob.asked) == 3
    assert at.find(at.process(), [17]).num_rows == 1
    assert len(at.blob.asked) == 3


@pytest.mark.parametrize("name", ["base", "history"])
def test_keys_that_share_a_place_are_told_apart(place, name: str) -> None:
    at = place(name)
    one = keys([5])
    values = pa.concat_tables([one.values, keys([6]).values])
    shared = Keys(values, np.repeat(one.places, 2))
    found = at.process().lookup(at.built.part, SCHEMA, OWNER, shared, as_of=LATEST)
    assert found.equals(expected(at.built, [5]))
    other = Keys(keys([6]).values, one.places)
    assert not at.process().lookup(at.built.part, SCHEMA, OWNER, other, as_of=LATEST).num_rows


def test_keys_outside_of_a_part_cost_nothing(place) -> None:
    at = place("small")
    part = msgspec.structs.replace(at.built.part, place_lo=5, place_hi=6)
    found = at.process().lookup(part, SCHEMA, OWNER, keys([1, 2]), as_of=LATEST)
    assert found.num_rows == 0
    assert at.blob.asked == []


def test_a_part_that_is_stamped_anew_keeps_its_blocks(place) -> None:
    at = place("untimed")
    assert at.find(at.process(), [17]).column("_time").to_pylist() == [0]
    at.blob.asked.clear()
    at.built = Built(msgspec.structs.replace(at.built.part, t_min=9, t_max=9), at.built.encoded)
    assert at.find(at.process(), [17], as_of=8).num_rows == 0
    assert at.find(at.process(), [17]).column("_time").to_pylist() == [9]
    assert at.blob.asked == []


def test_a_new_column_is_null_in_blocks_that_were_cached_before_it(place) -> None:
    at = place("base")
    at.find(at.process(), [17])
    wider = SCHEMA.evolve(SCHEMA.arrow().append(pa.field("note", pa.string())))
    found = at.process().lookup(at.built.part, wider, OWNER, keys([17]), as_of=LATEST)
    assert found.column_names == ["name", "n", "v", "note", "_time", "_diff"]
    assert found.column("note").to_pylist() == [None]


def test_a_whole_part_is_what_was_written_and_a_large_one_is_not_kept(place) -> None:
    at = place("base")
    whole = at.process().whole(at.built.part, SCHEMA, OWNER, as_of=LATEST)
    assert whole.equals(decode_part(at.built.encoded, at.built.part, SCHEMA, owner=OWNER))
    assert not list(at.folder.rglob("*.block"))


# ---- the cost of a warm lookup


def warm(folder: str, part: Part, answers: multiprocessing.Queue) -> None:
    """What one lookup takes, in a process that has done nothing else."""
    blocks = Blocks(MemoryBlob(), BlockCache(Path(folder), 500 * MB, boot="boot-1"))
    wanted = keys(WANTED["many"])
    before = pa.default_memory_pool().max_memory()
    tracemalloc.start()
    found = blocks.lookup(part, SCHEMA, OWNER, wanted, as_of=LATEST)
    peak = tracemalloc.get_traced_memory()[1]
    answers.put((found.num_rows, pa.default_memory_pool().max_memory() - before, peak))


@pytest.mark.process
def test_a_warm_lookup_in_another_process_copies_hits_and_no_columns(place) -> None:
    at = place("base")
    at.find(at.process(), WANTED["many"])
    spawn = multiprocessing.get_context("spawn")
    answers = spawn.Queue()
    worker = spawn.Process(target=warm, args=(str(at.folder), at.built.part, answers))
    worker.start()
    rows, arrow_bytes, python_bytes = answers.get(timeout=100)
    worker.join()
    assert rows == len(WANTED["many"])
    column = 8 * ROWS
    assert arrow_bytes < column / 8
    assert python_bytes < column / 2  # Names and objects of Python are most of it.


# ---- damage


def flipped(encoded: bytes, at: int) -> bytes:
    return encoded[:at] + bytes([encoded[at] ^ 1]) + encoded[at + 1 :]


def test_a_missing_part_is_named(place) -> None:
    at = place("base")
    at.blob.delete(OWNER.key)
    with pytest.raises(CorruptionError, match=r"part\.parquet is missing"):
        at.find(at.process(), [17])


@pytest.mark.parametrize("where", [100, -30])
def test_a_damaged_part_is_never_answered_from_nor_kept(place, where: int) -> None:
    at = place("base")
    at.blob.put(OWNER.key, flipped(at.built.encoded, where % at.built.part.size))
    with pytest.raises(CorruptionError, match=r"part\.parquet is damaged"):
        at.find(at.process(), WANTED["many"])
    at.blob.put(OWNER.key, at.built.encoded)
    assert at.find(at.process(), [17, 18]).equals(expected(at.built, [17, 18]))


def test_damaged_files_of_the_cache_are_read_again_from_the_store(place) -> None:
    at = place("base")
    at.find(at.process(), WANTED["many"])
    for number, path in enumerate(sorted(at.folder.rglob("*.block"))):
        whole = path.read_bytes()
        path.unlink()
        path.write_bytes([whole[:-9], bytes(len(whole)), b""][number % 3])
    at.blob.asked.clear()
    assert at.find(at.process(), WANTED["many"]).equals(expected(at.built, WANTED["many"]))
    assert len(at.blob.asked) == 2


def test_a_disk_that_fills_up_within_a_lookup_changes_nothing(place) -> None:
    class Filling(OsDisk):
        room = 2

        def create(self, folder: int, name: str) -> int:
            self.room -= 1
            if self.room < 0:
                raise OSError(errno.ENOSPC, "full")
            return super().create(folder, name)

    at = place("base")
    cache = BlockCache(at.folder, 500 * MB, boot="boot-1", disk=Filling())
    right = expected(at.built, WANTED["many"])
    assert at.find(Blocks(at.blob, cache), WANTED["many"]).equals(right)
    assert (cache.counts["put"], cache.counts["failed"]) == (2, 1)
    assert at.find(Blocks(at.blob, cache), WANTED["many"]).equals(right)


def test_an_index_in_the_cache_that_is_not_the_parts_is_not_believed(place) -> None:
    at = place("base")
    part = at.built.part
    name = f"index1 {part.key} {part.checksum:016x}"
    blocks = at.process()
    blocks._cache.put(name, pa.table({"footer": [at.built.encoded[-200:]]}))
    assert at.find(blocks, [17]).num_rows == 1
    assert len(at.blob.asked) == 2


def test_a_store_that_is_away_is_the_callers_to_retry(place) -> None:
    at = place("base")
    at.blob.away = True
    blocks = at.process()
    with pytest.raises(NotAppliedError):
        at.find(blocks, [17])
    at.blob.away = False
    assert at.find(blocks, [17]).num_rows == 1


def test_updates_out_of_order_are_refused(tmp_path: Path) -> None:
    laid = lay_out(updates(np.arange(100)), SCHEMA)
    turned = type(laid)(laid.updates.take(pa.array(np.arange(99, -1, -1))), laid.places)
    built = build_delta(turned, SCHEMA, OWNER)
    blob = CountingBlob()
    blob.put(OWNER.key, built.encoded)
    at = Place(blob, tmp_path / "cache", built)
    with pytest.raises(CorruptionError, match="order of their places"):
        at.find(at.process(), [17])
