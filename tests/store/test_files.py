"""Blob on a folder of files."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

from strandline.errors import (
    HandleClosedError,
    MaybeAppliedError,
    NameRefusedError,
    NotAppliedError,
    StoreError,
)
from strandline.store.disk import OsDisk
from strandline.store.files import FilesBlob, Leftover
from strandline.testing.conformance import check_blob

WHOLE = b"value" * 1000
TOUCHED = ("open_folder", "make_folder", "create", "write", "sync", "rename", "unlink")


class FailingDisk(OsDisk):
    """The real disk, but the nth of the calls that change something fails, undone."""

    def __init__(self, nth: int, number: int) -> None:
        self.left = nth
        self.number = number
        self.failed = ""

    def _step(self, call: str) -> None:
        self.left -= 1
        if self.left == -1:
            self.failed = call
            raise OSError(self.number, os.strerror(self.number))

    def open_folder(self, folder: int, name: str) -> int:
        self._step("open_folder")
        return super().open_folder(folder, name)

    def make_folder(self, folder: int, name: str) -> None:
        self._step("make_folder")
        super().make_folder(folder, name)

    def create(self, folder: int, name: str) -> int:
        self._step("create")
        return super().create(folder, name)

    def write(self, file: int, value: bytes) -> None:
        super().write(file, value[: len(value) // 2])
        self._step("write")
        super().write(file, value[len(value) // 2 :])

    def sync(self, descriptor: int) -> None:
        self._step("sync")
        super().sync(descriptor)

    def rename(self, folder: int, old: str, new: str) -> None:
        self._step("rename")
        super().rename(folder, old, new)

    def unlink(self, folder: int, name: str) -> None:
        self._step("unlink")
        super().unlink(folder, name)


def _descriptors(folder: Path) -> int:
    """How many are open below a folder; what other tests left to be closed does not count."""
    count = 0
    for each in Path("/dev/fd").iterdir():
        with suppress(OSError):  # The one that lists them is gone by then.
            count += str(each.readlink()).startswith(str(folder))
    return count


def test_files_keep_the_contract(tmp_path: Path):
    check_blob(lambda: FilesBlob(tmp_path / "deep" / "root"), threads=4)


def test_an_object_lies_where_its_key_says_for_its_owner_alone(tmp_path: Path):
    before = os.umask(0)
    try:
        FilesBlob(tmp_path / "root").put("a/b/c.x", b"v")
    finally:
        os.umask(before)
    assert (tmp_path / "root/a/b/c.x").read_bytes() == b"v"
    for path, mode in (("", 0o700), ("a", 0o700), ("a/b", 0o700), ("a/b/c.x", 0o600)):
        assert stat.S_IMODE((tmp_path / "root" / path).stat().st_mode) == mode, path


def test_links_are_refused_at_every_component_and_nothing_behind_them_changes(tmp_path: Path):
    outside = tmp_path / "outside"
    (outside / "below").mkdir(parents=True)
    (outside / "secret").write_bytes(b"secret")
    blob = FilesBlob(tmp_path / "root")
    (tmp_path / "root/folder").symlink_to(outside)
    (tmp_path / "root/real").mkdir()
    (tmp_path / "root/real/folder").symlink_to(outside)
    (tmp_path / "root/file").symlink_to(outside / "secret")
    for key in ("folder/secret", "real/folder/secret", "folder/below/x"):
        for call in (blob.get, blob.delete, lambda key: blob.put(key, b"x")):
            with pytest.raises(NotAppliedError, match="link"):
                call(key)
    with pytest.raises(NotAppliedError, match="link"):
        blob.get("file")
    assert [*blob.list("")] == []
    # A put replaces the link itself, and a delete removes it; what it led to stays.
    blob.put("file", b"ours")
    assert blob.get("file") == b"ours"
    assert (outside / "secret").read_bytes() == b"secret"
    assert sorted(p.name for p in outside.iterdir()) == ["below", "secret"]


def test_leftovers_are_never_objects_and_can_be_shown_and_removed(tmp_path: Path):
    blob = FilesBlob(tmp_path)
    blob.put("a/k", b"v")
    (tmp_path / "a" / ".put-1").write_bytes(b"half")
    (tmp_path / ".put-2").write_bytes(b"")
    (tmp_path / "foreign name").write_bytes(b"")
    assert {left.path: left.size for left in blob.leftovers()} == {"a/.put-1": 4, ".put-2": 0}
    assert all(left.modified_ms > 1_600_000_000_000 for left in blob.leftovers())
    assert [entry.key for entry in blob.list("")] == ["a/k"]
    for left in [*blob.leftovers()]:
        assert blob.remove_leftover(left) is True
        assert blob.remove_leftover(left) is False
    assert [*blob.leftovers()] == []
    assert blob.get("a/k") == b"v"


@pytest.mark.parametrize("path", ["a/k", "../.put-1", "a/../.put-1", "/etc/.put-1", "k"])
def test_only_leftovers_can_be_removed_as_such(tmp_path: Path, path: str):
    blob = FilesBlob(tmp_path)
    blob.put("a/k", b"v")
    with pytest.raises(NameRefusedError):
        blob.remove_leftover(Leftover(path, 0, 0))


def test_a_key_that_begins_another_is_refused_with_the_reason(tmp_path: Path):
    blob = FilesBlob(tmp_path)
    blob.put("a", b"v")
    blob.put("b/c", b"v")
    with pytest.raises(NotAppliedError, match="may not begin another key"):
        blob.put("a/below", b"v")
    with pytest.raises(NotAppliedError, match="may not begin another key"):
        blob.put("b", b"v")
    assert [*blob.leftovers()] == []


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.ENOSPC, "disk is full"),
        (errno.EDQUOT, "quota"),
        (errno.EROFS, "read-only"),
        (errno.EACCES, "permission"),
        (errno.EIO, "input/output"),
        (errno.ENOMEM, "memory"),
    ],
)
def test_a_failure_at_any_call_of_a_put_says_whether_it_happened(
    tmp_path: Path, number: int, advice: str
):
    struck = set()
    for nth in count():
        disk = FailingDisk(nth, number)
        root = tmp_path / str(nth)
        blob, plain = FilesBlob(root, disk), FilesBlob(root)
        try:
            blob.put("a/b/k", WHOLE)
        except StoreError as error:
            told = error
        else:
            assert not disk.failed
            break
        assert advice in str(told)
        if isinstance(told, NotAppliedError):
            assert disk.failed != "sync"
            assert plain.get("a/b/k") is None
        else:
            assert disk.failed in ("sync", "rename")
            assert plain.get("a/b/k") in (None, WHOLE)
        struck.add(disk.failed)
        assert [*blob.leftovers()] == [], f"{disk.failed} left something behind"
        # A new put of the same key succeeds, and leaves one whole object.
        blob.put("a/b/k", WHOLE)
        assert [entry.key for entry in plain.list("")] == ["a/b/k"]
        assert plain.get("a/b/k") == WHOLE
    assert struck == {*TOUCHED} - {"unlink"}


def test_a_failed_sync_of_file_or_folder_is_never_reported_as_not_applied(tmp_path: Path):
    def outcome(nth: int) -> str:
        disk = FailingDisk(-1, errno.EIO)
        blob = FilesBlob(tmp_path, disk)
        blob.put("a/first", b"v")  # The folders are known to be durable from here on.
        disk.left = nth
        try:
            blob.put("a/k", WHOLE)
        except StoreError as error:
            return f"{disk.failed} {type(error).__name__}"
        return "done"

    assert [outcome(nth) for nth in range(6)] == [
        "create NotAppliedError",
        "write NotAppliedError",
        "sync MaybeAppliedError",
        "rename MaybeAppliedError",
        "sync MaybeAppliedError",
        "done",
    ]


def test_a_failure_at_any_call_of_a_delete_says_whether_it_happened(tmp_path: Path):
    for nth in count():
        root = tmp_path / str(nth)
        plain = FilesBlob(root)
        plain.put("a/k", WHOLE)
        disk = FailingDisk(nth, errno.EIO)
        try:
            assert FilesBlob(root, disk).delete("a/k") is True
        except NotAppliedError:
            assert plain.get("a/k") == WHOLE
        except MaybeAppliedError:
            assert disk.failed in ("sync", "unlink")
        else:
            break
        plain.delete("a/k")
        assert plain.get("a/k") is None
    assert nth == 3


def test_a_store_that_can_not_be_created_is_a_store_error(tmp_path: Path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(NotAppliedError, match="could not open folder"):
        FilesBlob(tmp_path / "file" / "root")


def test_a_closed_handle_says_so(tmp_path: Path):
    blob = FilesBlob(tmp_path)
    blob.put("k", b"v")
    before = _descriptors(tmp_path)
    blob.close()
    for call in (blob.get, blob.delete, lambda key: blob.put(key, b"x")):
        with pytest.raises(HandleClosedError):
            call("k")
    with pytest.raises(HandleClosedError):
        [*blob.list("")]
    assert _descriptors(tmp_path) == before - 1


def test_no_call_leaks_a_descriptor(tmp_path: Path):
    def use(blob: FilesBlob) -> None:
        blob.put("a/b/c/k", b"v")
        blob.get("a/b/c/k")
        blob.get("a/b/none/k")
        blob.get("a/b/c/k/below")
        next(iter(blob.list("a")))
        blob.delete("a/b/c/k")
        blob.delete("a/b/none/k")

    blob = FilesBlob(tmp_path)
    use(blob)
    before = _descriptors(tmp_path)
    for _ in range(5):
        use(blob)
    assert _descriptors(tmp_path) == before


def test_a_delete_removes_the_folders_that_it_leaves_empty(tmp_path: Path):
    blob = FilesBlob(tmp_path)
    for key in ("s/w/1", "s/w/2", "s/v/1"):
        blob.put(key, b"v")
    blob.delete("s/w/1")
    assert (tmp_path / "s/w").is_dir()
    blob.delete("s/w/2")
    assert not (tmp_path / "s/w").exists()
    assert (tmp_path / "s/v").is_dir()
    (tmp_path / "s/v/.put-1").write_bytes(b"half")
    blob.delete("s/v/1")
    assert (tmp_path / "s/v").is_dir(), "a put is under way in it"
    [left] = blob.leftovers()
    blob.remove_leftover(left)
    assert [*tmp_path.iterdir()] == []
    blob.put("s/w/1", b"again")
    assert blob.get("s/w/1") == b"again"


def test_a_put_survives_that_others_remove_its_folder(tmp_path: Path):
    ours, theirs = FilesBlob(tmp_path), FilesBlob(tmp_path)
    ours.put("s/w/1", b"v")
    theirs.delete("s/w/1")
    ours.put("s/w/2", b"v")
    assert theirs.get("s/w/2") == b"v"


def test_puts_and_deletes_of_many_tasks_in_one_folder_all_succeed(tmp_path: Path):
    def work(number: int) -> list[bytes | None]:
        blob = shared if number % 2 else FilesBlob(tmp_path)
        found = []
        for _ in range(50):
            blob.put(f"s/w/{number}", WHOLE)
            found.append(blob.get(f"s/w/{number}"))
            assert blob.delete(f"s/w/{number}") is True
        return found

    shared = FilesBlob(tmp_path)
    with ThreadPoolExecutor(6) as pool:
        for found in pool.map(work, range(6)):
            assert found == [WHOLE] * 50
    assert [*tmp_path.iterdir()] == []


def test_a_folder_that_is_always_removed_again_is_told_as_not_applied(tmp_path: Path):
    class Removing(OsDisk):
        def create(self, folder: int, name: str) -> int:
            (tmp_path / "s").rmdir()
            return super().create(folder, name)

    with pytest.raises(NotAppliedError, match="removed again and again"):
        FilesBlob(tmp_path, Removing()).put("s/k", b"v")


def test_only_so_many_folders_stay_open(tmp_path: Path):
    blob = FilesBlob(tmp_path)
    before = _descriptors(tmp_path)
    for number in range(100):
        blob.put(f"s/{number}/k", b"v")
    assert _descriptors(tmp_path) - before == len(blob._durable) == 64
    for number in range(100):
        blob.delete(f"s/{number}/k")
    assert _descriptors(tmp_path) == before


@pytest.mark.process
def test_a_killed_writer_leaves_only_whole_objects_and_all_that_were_acknowledged(tmp_path: Path):
    writer = """
import sys
from pathlib import Path
from strandline.store.files import FilesBlob
blob = FilesBlob(Path(sys.argv[1]))
for number in range(100_000):
    blob.put(f"s{number % 7}/p{number}", b"value" * 40_000)
    print(number, flush=True)
"""
    for kill_after in (1, 7, 20):
        root = tmp_path / str(kill_after)
        arguments = [sys.executable, "-c", writer, str(root)]
        with subprocess.Popen(arguments, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            acknowledged = [int(process.stdout.readline()) for _ in range(kill_after)]
            process.kill()
            acknowledged += [int(line) for line in process.stdout.read().split()]
        blob = FilesBlob(root)
        whole = b"value" * 40_000
        listed = {entry.key: entry.size for entry in blob.list("")}
        assert {f"s{n % 7}/p{n}" for n in acknowledged} <= listed.keys()
        assert set(listed.values()) == {len(whole)}
        assert all(blob.get(key) == whole for key in listed)
