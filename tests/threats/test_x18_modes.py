"""X18: what a store keeps is its owner's alone, and nothing temporary stays behind."""

from __future__ import annotations

import os
import stat

import pytest

from strandline.assembly import open_store
from strandline.store.locate import open_folder
from strandline.testing.specimen import COLUMNS, fill, numbered, open_ports


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=oct)
def umask(request):
    before = os.umask(request.param)
    yield
    os.umask(before)


def modes(path):
    return {
        str(each.relative_to(path.parent)): stat.S_IMODE(each.lstat().st_mode)
        for each in [path, *path.rglob("*")]
    }


def check(path):
    for name, mode in modes(path).items():
        wanted = 0o700 if (path.parent / name).is_dir() else 0o600
        assert mode == wanted, f"{name} has {mode:o}"


def test_files_are_0600_and_folders_0700_while_open_and_after(umask, tmp_path):
    path = tmp_path / "a" / "lake"
    with open_ports(*open_folder(str(path), create=True)) as store:
        fill(store)
        check(path)  # The write-ahead log is there now, too.
        assert any(name.endswith("-wal") for name in modes(path))
    check(path)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o700


def test_nothing_temporary_stays_after_a_run(tmp_path):
    path = tmp_path / "lake"
    with open_store(str(path)) as store:
        shard = store.shard("orders", COLUMNS, ["id"])
        with shard.writer() as writer:
            for each in range(5):
                writer.append(numbered(5_000 * each, 5_000))
        shard.compact(full=True)
    names = [each.name for each in path.rglob("*")]
    assert not [name for name in names if name.startswith(".")]
    assert sorted(each.name for each in path.iterdir()) == ["blobs", "consensus.db"]
    assert [each.name for each in tmp_path.iterdir()] == ["lake"], "nothing beside it either"
