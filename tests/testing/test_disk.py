"""The disk that forgets, and what FilesBlob makes of it (S83)."""

from __future__ import annotations

import contextlib
import random
from itertools import count
from pathlib import Path

import pytest

from strandline.store.files import FilesBlob
from strandline.testing.conformance import check_blob
from strandline.testing.disk import ForgetfulDisk, PowerCutError

ROOT = Path("root")
WHOLE = b"value" * 10
CHANCES = [None, *range(8)]


class NoFolderSync(ForgetfulDisk):
    """A mutant: what it says about names is not true."""

    def sync(self, descriptor: int) -> None:
        if descriptor in self._open and not hasattr(self._open[descriptor], "names"):
            super().sync(descriptor)


class NoFileSync(ForgetfulDisk):
    """A mutant: what it says about content is not true."""

    def sync(self, descriptor: int) -> None:
        if descriptor in self._open and hasattr(self._open[descriptor], "names"):
            super().sync(descriptor)


class OnlyLastFolderSync(NoFileSync):
    """A mutant: it syncs files and the folders below the root, and never the root."""

    def sync(self, descriptor: int) -> None:
        if self._open.get(descriptor) is not self._root:
            ForgetfulDisk.sync(self, descriptor)


def _chance(seed: int | None) -> random.Random | None:
    return None if seed is None else random.Random(seed)


def _sweep_put(disk_type: type[ForgetfulDisk], seed: int | None) -> int:
    """Cut the power at every call of two puts; return how many calls there were."""
    for cut_at in count():
        disk = disk_type(cut_at)
        acknowledged = []
        try:
            blob = FilesBlob(ROOT, disk)
            for key in ("a/b/first", "a/b/second"):
                blob.put(key, WHOLE)
                acknowledged.append(key)
        except PowerCutError:
            pass
        disk.power_cut(_chance(seed))
        after = FilesBlob(ROOT, disk)
        for key in acknowledged:
            assert after.get(key) == WHOLE, f"{key} was lost by a cut at call {cut_at}"
        for entry in after.list(""):
            assert after.get(entry.key) == WHOLE, f"{entry.key} is torn: cut at call {cut_at}"
        # Whatever was left does not stand in the way of the next attempt.
        after.put("a/b/second", WHOLE)
        disk.power_cut(_chance(seed))
        assert FilesBlob(ROOT, disk).get("a/b/second") == WHOLE, "the second attempt was lost"
        if len(acknowledged) == 2:
            return cut_at
    raise AssertionError


@pytest.mark.parametrize("seed", CHANCES)
def test_s83_a_power_cut_at_any_call_leaves_an_object_whole_or_absent(seed: int | None):
    assert _sweep_put(ForgetfulDisk, seed) > 15


@pytest.mark.parametrize("mutant", [NoFolderSync, NoFileSync, OnlyLastFolderSync])
def test_s83_a_disk_that_does_not_sync_is_caught(mutant: type[ForgetfulDisk]):
    with pytest.raises(AssertionError, match=r"lost|torn"):
        _sweep_put(mutant, None)


def test_s83_a_folder_that_another_client_made_and_did_not_sync_is_synced_by_us():
    disk = ForgetfulDisk()
    ours = FilesBlob(ROOT, disk)
    # The other client stops right after making the folder.
    disk.make_folder(disk.open_root(ROOT), "a")
    ours.put("a/k", WHOLE)
    disk.power_cut()
    assert FilesBlob(ROOT, disk).get("a/k") == WHOLE


def test_s83_a_folder_that_was_removed_and_made_again_by_another_client_is_synced_by_us():
    disk = ForgetfulDisk()
    ours, theirs = FilesBlob(ROOT, disk), FilesBlob(ROOT, disk)
    ours.put("a/b/first", WHOLE)
    theirs.delete("a/b/first")
    # The other client stops right after making the folders again.
    root = disk.open_root(ROOT)
    disk.make_folder(root, "a")
    disk.make_folder(disk.open_folder(root, "a"), "b")
    ours.put("a/b/second", WHOLE)
    disk.power_cut()
    assert FilesBlob(ROOT, disk).get("a/b/second") == WHOLE


@pytest.mark.parametrize("seed", CHANCES)
def test_s83_what_is_put_into_a_folder_that_was_removed_survives(seed: int | None):
    for cut_at in count():
        disk = ForgetfulDisk(cut_at)
        acknowledged = False
        with contextlib.suppress(PowerCutError):
            blob, other = FilesBlob(ROOT, disk), FilesBlob(ROOT, disk)
            blob.put("a/b/first", WHOLE)
            other.delete("a/b/first")
            blob.put("a/b/second", WHOLE)
            acknowledged = True
        disk.power_cut(_chance(seed))
        after = FilesBlob(ROOT, disk)
        assert after.get("a/b/second") in ((WHOLE,) if acknowledged else (None, WHOLE))
        after.put("a/b/second", WHOLE)
        disk.power_cut(_chance(seed))
        assert FilesBlob(ROOT, disk).get("a/b/second") == WHOLE
        if acknowledged:
            return


@pytest.mark.parametrize("seed", CHANCES)
def test_s83_a_deleted_object_stays_deleted_and_is_never_torn(seed: int | None):
    for cut_at in count():
        disk = ForgetfulDisk()
        blob = FilesBlob(ROOT, disk)
        blob.put("a/k", WHOLE)
        disk.cut_at = len(disk.calls) + cut_at
        deleted = False
        with contextlib.suppress(PowerCutError):
            deleted = blob.delete("a/k")
        disk.power_cut(_chance(seed))
        assert FilesBlob(ROOT, disk).get("a/k") in ((None,) if deleted else (None, WHOLE))
        if deleted:
            return


def test_the_disk_itself_keeps_the_contract_while_the_power_is_on():
    disk = ForgetfulDisk()
    check_blob(lambda: FilesBlob(ROOT, disk))


def test_what_was_not_synced_is_forgotten_and_may_survive_in_part():
    def left(seed: int | None) -> dict[str, bytes | None]:
        disk = ForgetfulDisk()
        root = disk.open_root(ROOT)
        for name in ("a", "b"):
            disk.write(disk.create(root, name), b"content")
        disk.power_cut(_chance(seed))
        blob = FilesBlob(ROOT, disk)
        return {entry.key: blob.get(entry.key) for entry in blob.list("")}

    assert left(None) == {}
    outcomes = [left(seed) for seed in range(40)]
    assert {frozenset(outcome) for outcome in outcomes} == {
        frozenset(), frozenset("a"), frozenset("b"), frozenset("ab"),
    }  # fmt: skip
    contents = {value for outcome in outcomes for value in outcome.values()}
    assert {b"", b"content", bytes(7)} <= contents
    assert any(value not in (b"", b"content", bytes(7)) for value in contents)
