"""Tests of where a store is."""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline.errors import NotFoundError, UsageError
from strandline.store.locate import Kind, Location, locate, open_consensus, open_folder


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("/data/lake", Location(Kind.FOLDER, "/data/lake")),
        ("file:///data/my%20lake", Location(Kind.FOLDER, "/data/my lake")),
        ("memory://", Location(Kind.MEMORY)),
    ],
)
def test_urls_are_understood(url: str, expected: Location) -> None:
    assert locate(url) == expected


def test_a_relative_folder_is_made_absolute(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert locate("./lake").path == str(tmp_path / "lake")


@pytest.mark.parametrize("url", ["", "a\0b", "ftp://host/x", "s3://bucket/x", "file://host/x"])
def test_other_places_are_refused(url: str) -> None:
    with pytest.raises(UsageError):
        locate(url)


def test_a_password_in_a_url_is_not_repeated() -> None:
    with pytest.raises(UsageError) as caught:
        locate("mysql://user:TABOO@host/db")
    assert "TABOO" not in str(caught.value)


def test_a_store_is_created_only_when_asked(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no Strandline store"):
        open_folder(str(tmp_path / "lake"), create=False)
    blob, consensus = open_folder(str(tmp_path / "lake"), create=True)
    blob.close()
    consensus.close()
    other = open_consensus(str(tmp_path / "lake"))
    assert other.keys("") == []
    other.close()


def test_a_folder_with_other_things_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"thesis\.txt"):
        open_folder(str(tmp_path), create=True)
    with pytest.raises(UsageError, match="is a file"):
        open_folder(str(tmp_path / "thesis.txt"), create=True)


def test_memory_belongs_to_one_process() -> None:
    with pytest.raises(UsageError, match="another process"):
        open_consensus("memory://")
