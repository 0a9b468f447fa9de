"""A folder on disk: names appear whole and once; what can't be written says why."""

from __future__ import annotations

import errno
from itertools import count
from pathlib import Path

import pytest

from strandline.connectors.folder import LocalFolder
from strandline.errors import SinkError, SinkStoppedError, UsageError

TOKENS = count()


def folder_at(root: Path) -> LocalFolder:
    return LocalFolder(root, lambda: str(next(TOKENS)))


def test_of_two_that_create_a_name_the_first_has_it(tmp_path: Path) -> None:
    folder = folder_at(tmp_path / "new" / "deep")
    assert folder.create("a/b", b"first")
    assert not folder.create("a/b", b"second")
    assert folder.read("a/b") == b"first"
    assert folder.names("a") == ["b"]
    assert [each.name for each in (folder.root / "a").iterdir()] == ["b"]


def test_what_was_put_is_there_when_the_block_ends(tmp_path: Path) -> None:
    folder = folder_at(tmp_path)
    with folder.put("x/part") as file:
        file.write(b"rows")
    assert folder.read("x/part") == b"rows"
    folder.remove("x")
    folder.remove("x")
    assert folder.read("x/part") is None
    assert folder.names("x") == []


def test_a_folder_that_was_there_is_synced_into_the_one_above(tmp_path: Path) -> None:
    """Who made it may have died before that (S83)."""
    steps: list[str] = []
    (tmp_path / "out" / "a").mkdir(parents=True)
    folder = LocalFolder(tmp_path / "out", lambda: str(next(TOKENS)), steps.append)
    folder.settle("a")
    assert steps == ["sync folder a", "sync folder out"]
    steps.clear()
    folder.create("a/b", b"")
    assert steps[0] == "sync folder out"
    steps.clear()
    with folder.put("a/c"):
        assert steps[0] == "sync folder out"


@pytest.mark.parametrize(
    ("number", "passes"),
    [
        (errno.EACCES, True),
        (errno.EPERM, True),
        (errno.EINVAL, True),
        (errno.EROFS, True),
        (errno.ENOTSUP, True),
        (errno.EIO, False),
    ],
)
def test_a_folder_above_that_can_t_be_synced_is_not_ours_to_sync(
    tmp_path: Path, number: int, *, passes: bool
) -> None:
    """A file system may not sync folders, and the one below, which we write to, may."""

    def step(name: str) -> None:
        if name == f"sync folder {tmp_path.name}":
            raise OSError(number, "no")

    out = tmp_path / "out"
    folder = LocalFolder(out, lambda: str(next(TOKENS)), step)
    with pytest.raises(SinkError):
        folder.create("a", b"")  # It makes `out`, and what it makes has to stay.
    assert out.is_dir()
    if not passes:
        with pytest.raises(SinkError):
            folder.create("a", b"")
        return
    assert folder.create("a", b"")
    with folder.put("b"):
        pass
    assert sorted(each.name for each in out.iterdir()) == ["a", "b"]


def test_drafts_are_never_listed_and_can_be_removed(tmp_path: Path) -> None:
    folder = folder_at(tmp_path)
    folder.create("a/b", b"")
    (tmp_path / "a" / ".draft-7").write_bytes(b"half")
    assert folder.names("a") == ["b"]
    folder.remove_drafts("a")
    folder.remove_drafts("nowhere")
    assert not (tmp_path / "a" / ".draft-7").exists()


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a/../b", ".hidden", "a//b", ""])
def test_names_that_lead_elsewhere_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError):
        folder_at(tmp_path).read(name)


def test_a_relative_root_is_refused() -> None:
    with pytest.raises(UsageError, match="relative"):
        folder_at(Path("here"))


def test_links_are_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "link").symlink_to(secret)
    with pytest.raises(SinkStoppedError, match="symbolic link"):
        folder_at(tmp_path / "in").read("link")


def test_a_file_in_the_way_stops_and_a_full_disk_may_pass(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(SinkError):
        folder_at(tmp_path / "file").create("a", b"")

    def full(step: str) -> None:
        if step.startswith("link"):
            raise OSError(28, "No space left on device")

    with pytest.raises(SinkError, match="No space left") as told:
        LocalFolder(tmp_path, lambda: "t", full).create("a", b"")
    assert not isinstance(told.value, SinkStoppedError)
