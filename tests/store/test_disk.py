"""The real disk, seen through the seam."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from strandline.store.disk import Kind, OsDisk, make_folders


@pytest.fixture
def odd_umask():
    before = os.umask(0o777)
    yield
    os.umask(before)


@pytest.mark.usefixtures("odd_umask")
def test_folders_and_files_belong_to_their_owner_alone_whatever_the_umask(tmp_path: Path):
    disk = OsDisk()
    root = disk.open_root(tmp_path / "a" / "b")
    disk.make_folder(root, "c")
    disk.close(disk.create(root, "f"))
    disk.close(root)
    for path, mode in (("a", 0o700), ("a/b", 0o700), ("a/b/c", 0o700), ("a/b/f", 0o600)):
        assert stat.S_IMODE((tmp_path / path).stat().st_mode) == mode, path


def test_making_a_folder_twice_is_harmless_and_a_file_in_its_place_is_not(tmp_path: Path):
    make_folders(tmp_path / "x" / "y")
    make_folders(tmp_path / "x" / "y")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(FileExistsError):
        make_folders(tmp_path / "file")


def test_a_pipe_is_neither_opened_nor_waited_for(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    disk = OsDisk()
    root = disk.open_root(tmp_path)
    assert disk.kind(root, "pipe") is Kind.OTHER
    with pytest.raises(IsADirectoryError):
        disk.open_file(root, "pipe")
    disk.close(root)


def test_scanning_one_folder_twice_at_once_shows_everything_twice(tmp_path: Path):
    disk = OsDisk()
    root = disk.open_root(tmp_path)
    for number in range(10):
        (tmp_path / f"f{number}").write_bytes(b"x" * number)
    first, second = disk.entries(root), disk.entries(root)
    pairs = list(zip(first, second, strict=True))
    assert sorted((a.name, a.size) for a, _ in pairs) == [(f"f{n}", n) for n in range(10)]
    assert {a.name for a, _ in pairs} == {b.name for _, b in pairs}
    disk.close(root)


@pytest.mark.parametrize("size", [1, 5_000, 3 << 20])
def test_a_view_holds_the_file_up_to_its_end_and_outlives_it(tmp_path: Path, size: int):
    disk = OsDisk()
    content = bytes(range(251)) * (size // 251 + 1)
    (tmp_path / "file").write_bytes(content[:size])
    folder = disk.open_root(tmp_path)
    file = disk.open_file(folder, "file")
    view, more = disk.view(file, size), disk.view(file, size + 10)
    os.truncate(tmp_path / "file", 0)  # What was read stays: the file is not mapped.
    disk.close(file)
    disk.close(folder)
    assert view == content[:size]
    assert more == content[:size]
    assert view.readonly
