"""A folder per transaction, published by one manifest: whole, once, in order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest

from strandline.connectors import change_files
from strandline.connectors.files_sink import FilesSink, open_sink, read_published
from strandline.connectors.folder import LocalFolder
from strandline.connectors.sink import Address, Delivered, Progress, SinkPorts
from strandline.errors import SinkFencedError, SinkStoppedError, UsageError
from strandline.testing.conformance_sink import (
    COLUMNS,
    WHAT,
    DiedError,
    SinkStand,
    changes,
    check_sink,
    founded,
    opened,
)

TOKENS = count()


def token() -> str:
    return f"{next(TOKENS):08}"


def stand(root: Path, kind: str) -> SinkStand:
    def new(what: Delivered, step: Callable[[str], None]) -> FilesSink:
        return FilesSink(LocalFolder(root, token, step), kind, what, token())

    def read(what: Delivered) -> list[tuple[int, int, pa.Table]]:
        lineage = what.address.lineage
        found = read_published(root, lineage=lineage)
        return [(each.t, each.epoch, each.to_arrow()) for each in found]

    return SinkStand(new, read)


@pytest.mark.parametrize("kind", ["parquet", "json"])
def test_it_keeps_the_contract(tmp_path: Path, kind: str) -> None:
    folders = (tmp_path / str(n) for n in count())
    check_sink(lambda: stand(next(folders), kind))


def test_a_reader_sees_whole_transactions_at_every_step(tmp_path: Path) -> None:
    sink = founded(stand(tmp_path, "parquet"), 0)
    sink.close()
    lengths: list[int] = []

    def look(_: str) -> None:
        found = list(read_published(tmp_path))
        lengths.append(len(found))
        assert [each.rows for each in found] == [each.to_arrow().num_rows for each in found]

    watched, _ = opened(stand(tmp_path, "parquet"), step=look)
    watched.deliver(1, 1, changes(1))
    assert lengths == sorted(lengths)
    assert {1, 2} <= set(lengths)


def test_everything_is_synced_before_a_manifest_shows_it(tmp_path: Path) -> None:
    steps: list[str] = []
    sink, _ = opened(stand(tmp_path, "parquet"), step=steps.append)
    sink.found(Progress(-1, 1))
    steps.clear()
    sink.deliver(0, 1, changes(0))
    home = WHAT.address.digest
    attempt = steps[0].removeprefix("make ")
    assert steps == [
        f"make {attempt}",
        f"sync folder {home}",
        f"create {home}/{attempt}/part-00000.parquet",
        f"sync {home}/{attempt}/part-00000.parquet",
        f"sync folder {attempt}",
        "make _manifests",
        f"sync folder {home}",
        "draft _manifests",
        "sync draft _manifests",
        f"link {home}/_manifests/{0:020}.json",
        "sync folder _manifests",
        "remove draft",
    ]


def test_half_written_folders_and_drafts_are_cleared(tmp_path: Path) -> None:
    here = stand(tmp_path, "parquet")
    founded(here, 0)
    home = tmp_path / WHAT.address.digest
    fatal: list[str] = []

    def step(called: str) -> None:
        if fatal and called.startswith(fatal[0]):
            raise DiedError

    for name in ("sync ", "draft", "link", "link"):
        sink, _ = opened(here, step=step)
        fatal.append(name)
        with pytest.raises(DiedError):
            sink.deliver(1, 1, changes(1))
        fatal.clear()
    assert len([each for each in home.iterdir() if each.name.startswith(f"{1:020}-")]) == 4
    founded(here, 1)
    assert len([each for each in home.iterdir() if each.name.startswith(f"{1:020}-")]) == 1
    assert [each.name for each in (home / "_manifests").iterdir() if each.name[0] == "."] == []
    assert [each.t for each in read_published(tmp_path)] == [0, 1]


def test_what_a_late_writer_refers_to_is_never_removed(tmp_path: Path) -> None:
    here = stand(tmp_path, "parquet")
    zombie = founded(here, 0)
    for _ in range(3):
        opened(here)
    zombie.deliver(1, 1, changes(1))
    founded(here)
    assert [each.to_arrow().num_rows for each in read_published(tmp_path)] == [3, 3]


def test_a_large_transaction_has_several_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_files, "ROWS_MAX", 4)
    sink = founded(stand(tmp_path, "json"))
    rows = pa.Table.from_batches(changes(0, rows=9))
    sink.deliver(0, 1, rows.to_batches(max_chunksize=2))
    (published,) = read_published(tmp_path)
    assert (len(published.files), published.rows) == (3, 10)
    assert published.to_arrow().equals(rows)


def test_reading_begins_after_a_time_and_in_the_newest_lineage(tmp_path: Path) -> None:
    here = stand(tmp_path, "parquet")
    assert list(read_published(tmp_path)) == []
    founded(here, 0, 1, 2)
    assert [each.t for each in read_published(tmp_path, after=0)] == [1, 2]
    newer = replace(WHAT, address=replace(WHAT.address, lineage="newer"))
    founded(here, 7, what=newer)
    assert [each.t for each in read_published(tmp_path)] == [7]
    assert [each.t for each in read_published(tmp_path, lineage="first")] == [0, 1, 2]


def test_a_folder_belongs_to_one_sink(tmp_path: Path) -> None:
    here = stand(tmp_path, "parquet")
    founded(here, 0)
    other = Delivered(Address("l0", "shop", "another", "first"), COLUMNS)
    sink, _ = opened(here, other)
    with pytest.raises(SinkStoppedError, match="published to by sink out of pipeline shop"):
        sink.found(Progress(-1, 1))


def test_an_epoch_never_falls(tmp_path: Path) -> None:
    here = stand(tmp_path, "parquet")
    founded(here).deliver(0, 3, changes(0))
    sink, progress = opened(here)
    assert progress == Progress(0, 3)
    with pytest.raises(SinkFencedError, match="e3"):
        sink.deliver(1, 2, changes(1))


@pytest.mark.parametrize("content", [b"{", b'{"format":1}', b'{"format":9}'])
def test_a_damaged_manifest_stops_the_sink_by_name(tmp_path: Path, content: bytes) -> None:
    here = stand(tmp_path, "parquet")
    founded(here, 0)
    (path,) = (tmp_path / WHAT.address.digest / "_manifests").iterdir()
    path.write_bytes(content)
    with pytest.raises(SinkStoppedError, match=path.name):
        opened(here)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "path"),
        ({"path": "/x", "format": "csv"}, "csv"),
        ({"path": "/x", "mode": "append"}, "mode"),
    ],
)
def test_options_that_are_wrong_are_refused_by_name(options: dict[str, str], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        open_sink(options, WHAT, SinkPorts(str, partial(str, "0" * 32)))
