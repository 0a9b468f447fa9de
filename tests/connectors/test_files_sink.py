"""A folder per transaction, published by one manifest: whole, once, in order."""

from __future__ import annotations

import errno
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
from strandline.connectors.sink import NOTHING_YET, Address, Delivered, Progress, SinkPorts
from strandline.errors import SinkError, SinkFencedError, SinkStoppedError, UsageError
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
    watched.deliver(1, 1, changes(1, 0))
    assert lengths == sorted(lengths)
    assert {1, 2} <= set(lengths)


def test_readers_are_told_that_another_lineage_begins_with_nothing(tmp_path: Path) -> None:
    """Who follows manifests would keep the rows of the older one otherwise."""
    founded(stand(tmp_path, "parquet"), 0, 1)
    *_, last = read_published(tmp_path)
    newer = replace(WHAT, address=replace(WHAT.address, lineage="second"))
    steps: list[str] = []
    sink, _ = opened(stand(tmp_path, "parquet"), newer, steps.append)
    sink.found(Progress(NOTHING_YET, 1))
    assert list(read_published(tmp_path, after=last)) == []
    steps.clear()
    sink.deliver(4, 1, [])
    (told,) = read_published(tmp_path, after=last)
    assert (told.t, told.lineage, told.rows, told.files) == (4, "second", 0, ())
    assert told.to_arrow().num_rows == 0
    assert not any("part-" in each for each in steps), "no file is written for no rows"


def test_a_lineage_that_has_delivered_nothing_hides_nothing(tmp_path: Path) -> None:
    """Its view may not be ready, or its publisher was frozen while another lineage took over."""
    here = stand(tmp_path, "parquet")
    founded(here, 0, 1)
    late, _ = opened(here, replace(WHAT, address=replace(WHAT.address, lineage="late")))
    late.found(Progress(NOTHING_YET, 1))
    assert [each.t for each in read_published(tmp_path)] == [0, 1]
    newer = replace(WHAT, address=replace(WHAT.address, lineage="newer"))
    founded(here, 7, what=newer)
    assert [(each.t, each.lineage) for each in read_published(tmp_path)] == [(7, "newer")]
    woken, _ = opened(here, replace(WHAT, address=replace(WHAT.address, lineage="woken")))
    woken.found(Progress(NOTHING_YET, 1))
    assert [(each.t, each.lineage) for each in read_published(tmp_path)] == [(7, "newer")]
    again = opened(here, newer)[0]
    again.deliver(8, 1, changes(1, 0))
    assert [each.t for each in read_published(tmp_path)] == [7, 8]


def test_of_two_lineages_that_were_founded_at_once_the_first_to_deliver_counts(
    tmp_path: Path,
) -> None:
    here = stand(tmp_path, "parquet")
    sinks = []
    for lineage in ("one", "two"):
        what = replace(WHAT, address=replace(WHAT.address, lineage=lineage))
        sinks.append(opened(here, what)[0])
        sinks[-1].found(Progress(NOTHING_YET, 1))
    mark = tmp_path / replace(WHAT.address, lineage="two").digest / "_founded.json"
    mark.write_bytes(mark.read_bytes().replace(b'"number":2', b'"number":1'))
    sinks[0].deliver(3, 1, changes(0))
    with pytest.raises(SinkStoppedError, match="newer lineage, one"):
        sinks[1].deliver(3, 1, changes(0))
    assert [(each.t, each.lineage) for each in read_published(tmp_path)] == [(3, "one")]


def test_everything_is_synced_before_a_manifest_shows_it(tmp_path: Path) -> None:
    steps: list[str] = []
    sink, _ = opened(stand(tmp_path, "parquet"), step=steps.append)
    sink.found(Progress(-1, 1))
    steps.clear()
    sink.deliver(0, 1, changes(0))
    home = WHAT.address.digest
    attempt = steps[1].removeprefix("make ")
    assert steps == [
        f"sync folder {tmp_path.name}",
        f"make {attempt}",
        f"sync folder {home}",
        f"create {home}/{attempt}/part-00000.parquet",
        f"sync {home}/{attempt}/part-00000.parquet",
        f"sync folder {attempt}",
        f"sync folder {tmp_path.name}",
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

    for name in (f"sync {home.name}/", "draft", "link", "link"):
        sink, _ = opened(here, step=step)
        fatal.append(name)
        with pytest.raises(DiedError):
            sink.deliver(1, 1, changes(1, 0))
        fatal.clear()
    assert len([each for each in home.iterdir() if each.name.startswith(f"{1:020}-")]) == 4
    founded(here, 1)
    assert len([each for each in home.iterdir() if each.name.startswith(f"{1:020}-")]) == 1
    assert [each.name for each in (home / "_manifests").iterdir() if each.name[0] == "."] == []
    assert [each.t for each in read_published(tmp_path)] == [0, 1]


def _attempts(home: Path) -> list[int]:
    return sorted(int(each.name[:20]) for each in home.iterdir() if each.name[0].isdigit())


def test_a_lineage_clears_what_older_ones_have_left(tmp_path: Path) -> None:
    """But for what somebody may still publish there, and for what was published."""
    here = stand(tmp_path, "parquet")
    founded(here, 0)
    home = tmp_path / WHAT.address.digest

    def killed(step: str) -> None:
        if step.startswith("link"):
            raise DiedError

    faster, slower = opened(here)[0], opened(here)[0]
    faster.deliver(1, 1, changes(1, 0))
    with pytest.raises(DiedError):
        opened(here, step=killed)[0].deliver(2, 1, changes(2, 1))
    with pytest.raises(SinkFencedError, match="has transaction 1 already"):
        slower.deliver(1, 1, changes(1, 0))
    (home / ".draft-founder").write_bytes(b"half")
    newer = replace(WHAT, address=replace(WHAT.address, lineage="newer"))
    sink = founded(here, what=newer)
    assert _attempts(home) == [0, 1, 1, 2]
    sink.deliver(7, 1, changes(7))
    assert _attempts(home) == [0, 1, 2]
    assert [each for each in home.rglob("*") if each.name.startswith(".")] == []
    old = [each.to_arrow().num_rows for each in read_published(tmp_path, lineage="first")]
    assert old == [2, 5]
    (home / f"{1:020}-again").mkdir()
    (home / "_manifests" / f"{1:020}.json").write_bytes(b"damaged")
    founded(here, 8, what=newer)
    assert _attempts(home) == [0, 1, 1, 2], "what is damaged is left alone"


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOTEMPTY, errno.EACCES])
def test_what_can_t_be_cleared_of_older_lineages_holds_nothing_up(
    tmp_path: Path, number: int
) -> None:
    """One that can't be cleared leaves the others to be cleared, too."""
    here = stand(tmp_path, "parquet")
    homes = []
    for lineage in ("first", "second", "third"):
        what = replace(WHAT, address=replace(WHAT.address, lineage=lineage))
        founded(here, 0, what=what)
        homes.append(tmp_path / what.address.digest)
    for home in homes:
        (home / f"{0:020}-again").mkdir()
    stuck, *cleared = sorted(homes)

    def step(name: str) -> None:
        if name.startswith(f"remove {stuck.name}"):
            raise OSError(number, "stuck")

    newer = replace(WHAT, address=replace(WHAT.address, lineage="newer"))
    founded(here, what=newer)
    sink, _ = opened(here, what=newer, step=step)
    sink.deliver(1, 1, changes(1))
    sink.deliver(2, 1, changes(2, 1))
    assert [len(_attempts(each)) for each in (stuck, *cleared)] == [2, 1, 1]


def test_lineages_that_can_t_be_listed_hold_nothing_up_that_is_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = stand(tmp_path, "parquet")
    sink = founded(here)
    create, names = LocalFolder.create, LocalFolder.names
    done: list[str] = []

    def created(folder: LocalFolder, name: str, content: bytes) -> bool:
        done.append(name)
        return create(folder, name, content)

    def listed(folder: LocalFolder, name: str) -> list[str]:
        if done and not name:
            raise SinkError("could not list it")
        return names(folder, name)

    monkeypatch.setattr(LocalFolder, "create", created)
    monkeypatch.setattr(LocalFolder, "names", listed)
    sink.deliver(0, 1, changes(0))
    assert len(done) == 1


def test_what_a_late_writer_refers_to_is_never_removed(tmp_path: Path) -> None:
    here = stand(tmp_path, "parquet")
    zombie = founded(here, 0)
    for _ in range(3):
        opened(here)
    zombie.deliver(1, 1, changes(1, 0))
    founded(here)
    assert [each.to_arrow().num_rows for each in read_published(tmp_path)] == [2, 5]


def test_a_large_transaction_has_several_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_files, "ROWS_MAX", 4)
    sink = founded(stand(tmp_path, "json"))
    rows = pa.Table.from_batches(changes(0, rows=10))
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


def test_s82_a_folder_that_is_gone_after_a_delivery_stops_the_sink(tmp_path: Path) -> None:
    """Its disk may not be mounted: what is published beside it nobody would see."""
    root = tmp_path / "mounted"
    founded(stand(root, "parquet"), 0, 1)
    root.rename(tmp_path / "away")
    sink, progress = opened(stand(root, "parquet"))
    assert progress is None
    with pytest.raises(SinkStoppedError, match=r"mounted has nothing .* up to 1 .* not mounted"):
        sink.found(Progress(1, 1))
    assert not root.exists()
    (tmp_path / "away").rename(root)
    founded(stand(root, "parquet"), 2)
    assert [each.t for each in read_published(root)] == [0, 1, 2]


def test_a_folder_that_goes_while_it_is_published_to_is_not_made_anew(tmp_path: Path) -> None:
    root = tmp_path / "mounted"
    sink = founded(stand(root, "parquet"), 0)
    root.rename(tmp_path / "away")
    with pytest.raises(SinkError, match="is gone"):
        sink.deliver(1, 1, changes(1, 0))
    assert not root.exists()


def test_a_sink_that_has_delivered_nothing_begins_in_a_new_folder(tmp_path: Path) -> None:
    root = tmp_path / "mounted"
    founded(stand(root, "parquet"))
    root.rename(tmp_path / "away")
    founded(stand(root, "parquet"), 0)
    assert [each.t for each in read_published(root)] == [0]


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
        sink.deliver(1, 2, changes(1, 0))


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
