"""Damaged objects."""

from __future__ import annotations

import pytest

from strandline.store.memory import MemoryBlob
from strandline.testing.conformance import check_blob
from strandline.testing.damage import DamagedBlob


@pytest.fixture
def blob() -> DamagedBlob:
    inner = MemoryBlob()
    inner.put("k", b"\x00\x01\x02")
    inner.put("other", b"other")
    return DamagedBlob(inner)


def test_each_damage_shows_in_get_range_and_list(blob: DamagedBlob):
    for damage, shown in (
        (lambda: blob.flip_bit("k", 0), b"\x01\x01\x02"),
        (lambda: blob.flip_bit("k", -1), b"\x00\x01\x82"),
        (lambda: blob.cut("k", 1), b"\x00"),
        (lambda: blob.cut("k", -1), b"\x00\x01"),
        (lambda: blob.replace("k", b"older"), b"older"),
        (lambda: blob.swap("k", "other"), b"other"),
    ):
        damage()
        assert blob.get("k") == shown
        assert blob.get_range("k", -1, 1) == shown[-1:]
        assert {e.key: e.size for e in blob.list("")}["k"] == len(shown)
    assert blob.get("other") == b"\x00\x01\x02"
    blob.heal("k")
    assert blob.get("k") == b"\x00\x01\x02"


def test_a_lost_object_is_missing_everywhere(blob: DamagedBlob):
    blob.lose("k")
    assert blob.get("k") is None
    assert blob.get_range("k", 0, 1) is None
    assert [entry.key for entry in blob.list("")] == ["other"]


def test_without_damage_it_is_a_blob():
    inner = MemoryBlob()
    check_blob(lambda: DamagedBlob(inner.client()))
