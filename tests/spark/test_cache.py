"""The cache of blocks: shared, bounded, and never needed."""

from __future__ import annotations

import errno
import logging
import multiprocessing
import os
import stat
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from strandline.spark.cache import BlockCache, boot_id, file_name
from strandline.store.disk import OsDisk

MB = 1024 * 1024
BOOT = "boot-1234"


class Clock:
    """A clock that a test moves; it starts at the time of the disk."""

    def __init__(self, wall_ms: int = 0) -> None:
        self.passed = 1_000_000
        self.wall = wall_ms

    def monotonic_ms(self) -> int:
        return self.passed

    def wall_ms(self) -> int:
        return self.wall + self.passed

    def pass_ms(self, by: int) -> None:
        self.passed += by


class FailingDisk(OsDisk):
    """The real disk until `error` is set; then one kind of call fails with it."""

    def __init__(self, call: str) -> None:
        self.call = call
        self.error: int | None = None

    def _step(self, call: str) -> None:
        if self.error is not None and call == self.call:
            raise OSError(self.error, os.strerror(self.error))

    def open_root(self, path: Path) -> int:
        self._step("open_root")
        return super().open_root(path)

    def create(self, folder: int, name: str) -> int:
        self._step("create")
        return super().create(folder, name)

    def write(self, file: int, value: bytes) -> None:
        super().write(file, value[: len(value) // 2])
        self._step("write")
        super().write(file, value[len(value) // 2 :])

    def rename(self, folder: int, old: str, new: str) -> None:
        self._step("rename")
        super().rename(folder, old, new)


def table(number: int, rows: int = 1000) -> pa.Table:
    return pa.table({"_place": np.arange(rows, dtype=np.uint64), "v": np.full(rows, number)})


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / BOOT).iterdir())


def at(folder: Path, name: str) -> Path:
    return folder / BOOT / file_name(name)


def age(path: Path, by_s: int) -> None:
    when = path.stat().st_mtime - by_s
    os.utime(path, (when, when))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def new(folder: Path) -> Callable[..., BlockCache]:
    """Another process, as far as the cache can tell."""

    def make(max_bytes: int = 100 * MB, **more: object) -> BlockCache:
        return BlockCache(folder, max_bytes, **{"boot": BOOT, **more})

    return make


def test_what_was_put_is_found_by_this_process_and_by_others(new) -> None:
    ours, theirs = new(), new()
    assert ours.get("a") is None
    assert ours.put("a", table(1)).equals(table(1))
    assert ours.get("a").equals(table(1))
    assert theirs.get("a").equals(table(1))
    assert theirs.get("b") is None
    assert ours.counts == {"missed": 1, "put": 1, "hits": 1}
    assert theirs.counts == {"opened": 1, "missed": 1}


def test_a_block_is_mapped_and_not_read(new) -> None:
    before = pa.total_allocated_bytes()
    found = new().put("a", table(1, rows=100_000))
    assert pa.total_allocated_bytes() - before < 100_000
    assert found.equals(table(1, rows=100_000))


def test_a_block_that_another_worker_kept_is_not_written_again(new) -> None:
    first, second = new(), new()
    first.put("a", table(1))
    assert second.put("a", table(1)).equals(table(1))
    assert second.counts["put"] == 0


def test_mapped_blocks_need_no_descriptor(new) -> None:
    cache = new()
    cache.put("first", table(0))
    before = len(list(Path("/proc/self/fd").iterdir()))
    for number in range(50):
        cache.put(f"b{number}", table(number))
    # Far fewer than blocks: what other tests left may be closed or opened meanwhile.
    assert len(list(Path("/proc/self/fd").iterdir())) < before + 10


def test_files_are_for_their_owner_only(new, folder: Path) -> None:
    new().put("a", table(1))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / BOOT).stat().st_mode) == 0o700
    assert stat.S_IMODE(at(folder, "a").stat().st_mode) == 0o600


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "a/b", "", "x" * 5000, "ä\0"])
def test_no_name_leads_out_of_the_folder(new, folder: Path, name: str) -> None:
    cache = new()
    cache.put(name, table(1))
    assert new().get(name).equals(table(1))
    assert files(folder) == [file_name(name)]
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


# ---- files that are not what they should be


def damaged(path: Path, how: str) -> None:
    whole = path.read_bytes()
    changed = {
        "torn": whole[: len(whole) * 2 // 3],
        "truncated": b"",
        "one byte short": whole[:-1],
        "zero-filled": bytes(len(whole)),
        "half zero": whole[: len(whole) // 2] + bytes(len(whole) - len(whole) // 2),
        "foreign": b"hello" * 1000,
    }[how]
    path.unlink()  # A mapping of the old file stays whole.
    path.write_bytes(changed)


@pytest.mark.parametrize(
    "how", ["torn", "truncated", "one byte short", "zero-filled", "half zero", "foreign"]
)
@pytest.mark.parametrize("rows", [10, 100_000])
def test_a_damaged_file_is_never_used_and_is_replaced(
    new, folder: Path, how: str, rows: int
) -> None:
    new().put("a", table(1, rows))
    damaged(at(folder, "a"), how)
    cache = new()
    assert cache.get("a") is None
    assert cache.counts["damaged"] == 1
    assert files(folder) == []
    assert cache.put("a", table(1, rows)).equals(table(1, rows))
    assert new().get("a").equals(table(1, rows))


def test_a_swapped_file_is_never_used(new, folder: Path) -> None:
    cache = new()
    cache.put("a", table(1))
    cache.put("b", table(2))
    at(folder, "b").replace(at(folder, "a"))
    other = new()
    assert other.get("a") is None
    assert other.put("a", table(1)).equals(table(1))


def test_what_is_no_file_is_left_alone(new, folder: Path) -> None:
    new().put("b", table(1))
    at(folder, "a").mkdir()
    cache = new()
    assert cache.get("a") is None
    assert cache.put("a", table(1)).equals(table(1))
    assert cache.counts["failed"] >= 1


def test_blocks_of_another_boot_are_never_used(new, folder: Path) -> None:
    new().put("a", table(1))
    assert new(boot="boot-5678").get("a") is None


def test_the_machine_knows_its_boot() -> None:
    assert boot_id() == boot_id()
    assert boot_id().startswith("boot-")


# ---- leftovers


def test_leftovers_go_and_puts_in_flight_stay(new, folder: Path) -> None:
    new().put("a", table(1))
    (folder / BOOT / ".put-old").write_bytes(b"half")
    (folder / BOOT / ".put-new").write_bytes(b"half")
    age(folder / BOOT / ".put-old", 7200)
    (folder / BOOT / "notes.txt").write_text("somebody's")
    age(folder / BOOT / "notes.txt", 7200)
    new().put("b", table(2))
    assert files(folder) == sorted([".put-new", "notes.txt", file_name("a"), file_name("b")])


def test_folders_of_other_boots_go(new, folder: Path) -> None:
    new(boot="boot-aa").put("a", table(1))
    new(boot="boot-bb").put("a", table(1))
    (folder / "somebodys").mkdir()
    age(folder / "boot-aa", 7200)
    age(folder / "somebodys", 7200)
    new().get("a")
    # What was written to just now is another machine's, on a folder that is not local.
    assert sorted(path.name for path in folder.iterdir()) == [BOOT, "boot-bb", "somebodys"]


# ---- the bound


def held(folder: Path) -> int:
    return sum(path.stat().st_size for path in (folder / BOOT).glob("*.block"))


def test_the_least_recently_used_go_first(new, folder: Path) -> None:
    cache = new()
    for number in range(10):
        cache.put(f"b{number}", table(number))
        age(at(folder, f"b{number}"), 1000 - number)
    size = held(folder) // 10
    assert new().get("b0") is not None  # It is used again: the oldest is b1 now.
    small = new(max_bytes=6 * size)
    small.put("new", table(99))
    left = {name for name in [*(f"b{n}" for n in range(10)), "new"] if at(folder, name).exists()}
    assert left == {"b0", "b7", "b8", "b9", "new"}
    assert small.counts["evicted"] == 6
    assert held(folder) <= 6 * size


def test_the_bound_holds_however_much_is_put(new, folder: Path) -> None:
    cache = new(max_bytes=MB)
    for number in range(200):
        cache.put(f"b{number}", table(number))
        assert held(folder) <= MB + MB // 16
    assert held(folder) > MB // 2
    assert cache.get("b199").equals(table(199))


def test_a_process_looks_at_the_folder_only_now_and_then(new, folder: Path) -> None:
    class Counting(OsDisk):
        looks = 0

        def entries(self, folder):
            self.looks += 1
            return super().entries(folder)

    disk = Counting()
    cache = new(max_bytes=100 * MB, disk=disk)
    for number in range(50):  # Less than 1/32 of the bound in all.
        cache.put(f"b{number}", table(number))
    assert disk.looks == 2  # For other boots, and at the first put.


def test_a_block_larger_than_the_bound_is_not_kept(new, folder: Path) -> None:
    cache = new(max_bytes=10_000)
    given = table(1, rows=10_000)
    assert cache.put("a", given) is given
    assert files(folder) == []


def test_a_bound_of_nothing_keeps_nothing(new, folder: Path) -> None:
    cache = new(max_bytes=0)
    given = table(1)
    assert cache.put("a", given) is given
    assert cache.get("a") is None
    assert not folder.exists()


def test_a_reader_keeps_what_it_mapped_although_it_is_evicted(new, folder: Path) -> None:
    mine = new().put("a", table(1, rows=100_000))
    at(folder, "a").unlink()
    assert mine.equals(table(1, rows=100_000))


def test_a_process_lets_go_of_what_was_evicted(new, folder: Path) -> None:
    clock = Clock()
    cache = new(clock=clock)
    cache.put("a", table(1))
    cache.put("b", table(2))
    at(folder, "a").unlink()
    assert cache.get("a").equals(table(1))
    clock.pass_ms(61_000)
    assert cache.get("a") is None
    assert cache.get("b").equals(table(2))


def test_recency_is_noted_at_most_once_a_minute(new, folder: Path) -> None:
    new().put("a", table(1))
    path = at(folder, "a")
    age(path, 30)
    written = path.stat().st_mtime_ns
    clock = Clock(wall_ms=written // 1_000_000 + 30_000 - 1_000_000)
    cache = new(clock=clock)
    cache.get("a")
    assert path.stat().st_mtime_ns == written  # Half a minute old.
    clock.pass_ms(61_000)
    cache.get("a")
    assert path.stat().st_mtime_ns > written


# ---- a disk that does not work


@pytest.mark.parametrize("call", ["create", "write", "rename"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EIO])
def test_a_put_that_fails_changes_nothing(new, folder: Path, call: str, number: int) -> None:
    disk, clock = FailingDisk(call), Clock()
    cache = new(disk=disk, clock=clock)
    cache.put("a", table(1))
    disk.error = number
    given = table(2)
    assert cache.put("b", given) is given
    assert cache.counts["failed"] == 1
    assert files(folder) == [file_name("a")]
    assert cache.get("a").equals(table(1))
    disk.error = None
    assert cache.put("b", given) is given  # Not tried again at once.
    clock.pass_ms(61_000)
    assert cache.put("b", given) is not given
    assert new().get("b").equals(given)


def test_without_a_folder_it_works_and_counts(new, caplog: pytest.LogCaptureFixture) -> None:
    disk = FailingDisk("open_root")
    disk.error = errno.EACCES
    cache = new(disk=disk)
    given = table(1)
    with caplog.at_level(logging.WARNING):
        assert cache.put("a", given) is given
        assert cache.get("a") is None
    assert cache.counts["failed"] == 1
    assert len(caplog.records) == 1


def test_a_folder_that_can_only_be_read_still_answers(new, folder: Path) -> None:
    new().put("a", table(1))
    disk = FailingDisk("create")
    disk.error = errno.EROFS
    cache = new(disk=disk)
    given = table(2)
    assert cache.put("b", given) is given
    assert cache.get("a").equals(table(1))
    assert cache.get("b") is None


def test_a_folder_that_goes_away_is_made_again(new, folder: Path) -> None:
    cache = new()
    cache.put("a", table(1))
    at(folder, "a").unlink()
    (folder / BOOT).rmdir()
    given = table(2)
    assert cache.put("b", given) is given
    assert cache.put("b", given).equals(given)
    assert files(folder) == [file_name("b")]


@pytest.mark.parametrize("mode", [0o770, 0o777, 0o1777])
def test_a_folder_into_which_others_may_write_is_not_used(new, folder: Path, mode: int) -> None:
    folder.mkdir()
    folder.chmod(mode)
    cache = new()
    given = table(1)
    assert cache.put("a", given) is given
    assert cache.counts["failed"] == 1
    assert list(folder.iterdir()) == []


def test_a_link_in_place_of_the_folder_is_not_followed(new, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(0o700)
    folder.mkdir(0o700)
    (folder / BOOT).symlink_to(tmp_path / "elsewhere")
    cache = new()
    given = table(1)
    assert cache.put("a", given) is given
    assert list((tmp_path / "elsewhere").iterdir()) == []


# ---- many processes


def work(folder: str, seed: int, answers: multiprocessing.Queue) -> None:
    """Read and write the same few blocks in a cache that holds half of them."""
    cache = BlockCache(Path(folder), MB // 4, boot=BOOT)
    chance = np.random.default_rng(seed)
    wrong = 0
    for number in chance.integers(0, 30, 600).tolist():
        found = cache.get(f"b{number}")
        if found is None:
            found = cache.put(f"b{number}", table(number))
        wrong += not found.equals(table(number))
    answers.put((wrong, dict(cache.counts)))


@pytest.mark.process
def test_many_processes_share_one_folder(folder: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    answers = spawn.Queue()
    workers = [spawn.Process(target=work, args=(str(folder), seed, answers)) for seed in range(3)]
    for worker in workers:
        worker.start()
    found = [answers.get(timeout=100) for _ in workers]
    for worker in workers:
        worker.join()
    assert [wrong for wrong, _ in found] == [0, 0, 0]
    assert sum(counts.get("evicted", 0) for _, counts in found) > 0
    assert all("damaged" not in counts and "failed" not in counts for _, counts in found)
    assert not [name for name in files(folder) if name.startswith(".put-")]
    assert held(folder) <= MB // 4 + 3 * MB // 64
