"""A target is what its view was, or what is wrong with it is told (`verify-sink`)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import strandline
from strandline.connectors.files_sink import Published, read_published
from strandline.connectors.sink import Progress
from strandline.errors import NotFoundError, UsageError
from strandline.handles.store import Store
from strandline.pipeline import read_back
from strandline.pipeline.delivery import Mark, objection
from strandline.pipeline.pipeline import Pipeline
from strandline.pipeline.settings import PipelineSettings
from strandline.testing.engines import arrow_engine

TEXT = """
CREATE TABLE orders (id BIGINT, amount BIGINT, PRIMARY KEY (id))
  USING generator OPTIONS (seed '7', keys '20', deletes '0.1', rows '100', rowsPerSecond '0');
CREATE MATERIALIZED VIEW large AS SELECT id, amount * 2 AS twice FROM orders WHERE amount > 10;
CREATE SINK out FROM large USING files OPTIONS (path '{path}', format '{kind}');
"""
SETTINGS = PipelineSettings(rows_max=10, delay_ms=0, poll_ms=1)


@dataclass
class Shop:
    store: Store
    pipeline: Pipeline
    folder: Path

    def published(self) -> list[Published]:
        return list(read_published(self.folder))

    def manifest(self, t: int) -> Path:
        (home,) = {Path(each.files[0]).parents[1] for each in self.published()}
        return home / "_manifests" / f"{t:020}.json"


@pytest.fixture(params=["parquet", "json"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    folder = tmp_path / "out"
    with strandline.open("memory://") as store:
        text = TEXT.format(path=folder, kind=request.param)
        pipeline = store.pipeline("shop", text, settings=SETTINGS, engine=arrow_engine)
        pipeline.run(until_idle=True)
        yield Shop(store, pipeline, folder)


def rewritten(path: Path, change) -> None:
    """Somebody changes the rows of a published file."""
    if path.suffix == ".parquet":
        table = pq.read_table(path)
        rows = change(table.to_pylist())
        pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), path)
    else:
        rows = change([json.loads(line) for line in path.read_text().splitlines()])
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_what_was_published_is_what_the_view_held(shop: Shop) -> None:
    told = []
    found = shop.pipeline.verify_sink("OUT", lambda rows, what: told.append((rows, what)))
    assert (found.sink, found.source, found.at) == ("out", "large", 9)
    assert found.equal
    assert found.target == found.view
    assert found.view.count == shop.pipeline.view("large").snapshot(as_of=9).count() > 0
    assert {what for _, what in told} == {"of the target", "of large"}


def test_it_is_compared_at_what_was_delivered_and_not_at_what_is_committed(shop: Shop) -> None:
    shop.pipeline.pause(sink="out")
    with shop.pipeline.transaction() as work:
        work.insert("orders", [{"id": 900, "amount": 500}])
    assert shop.pipeline.committed.last() == 10
    found = shop.pipeline.verify_sink("out")
    assert (found.equal, found.at) == (True, 9)


def test_a_changed_row_is_told_with_what_it_should_be(shop: Shop) -> None:
    newest = shop.published()[-1]
    seen = []

    def change(rows: list[dict]) -> list[dict]:
        at = next(at for at, row in enumerate(rows) if row["_diff"] > 0)
        seen.append(dict(rows[at]))
        rows[at]["twice"] += 1
        return rows

    rewritten(Path(newest.files[0]), change)
    found = shop.pipeline.verify_sink("out")
    assert not found.equal
    assert found.reason == "as of 9 it does not hold what large holds"
    assert found.target != found.view
    assert found.target.count == found.view.count
    (was,) = seen
    assert {(each.row["id"], each.row["twice"], each.more) for each in found.samples} == {
        (was["id"], was["twice"], -1),
        (was["id"], was["twice"] + 1, 1),
    }


def test_rows_that_are_lost_or_come_twice_are_counted(shop: Shop) -> None:
    first = Path(shop.published()[0].files[0])
    keep = first.read_bytes()
    rewritten(first, lambda rows: rows[1:])
    less = shop.pipeline.verify_sink("out")
    assert less.view.count - less.target.count == 1
    assert [each.more for each in less.samples] == [-1]
    first.write_bytes(keep)
    assert shop.pipeline.verify_sink("out").equal
    rewritten(first, lambda rows: [rows[0], *rows])
    more = shop.pipeline.verify_sink("out")
    assert more.target.count - more.view.count == 1
    assert [each.more for each in more.samples] == [1]


def test_many_differences_are_told_by_a_few(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_back, "SAMPLES", 3)
    for each in shop.published():
        rewritten(Path(each.files[0]), lambda rows: [{**row, "twice": -1} for row in rows])
    assert len(shop.pipeline.verify_sink("out").samples) == 3


def test_a_file_that_is_missing_or_damaged_is_named(shop: Shop) -> None:
    path = Path(shop.published()[3].files[0])
    kept = path.read_bytes()
    path.unlink()
    found = shop.pipeline.verify_sink("out")
    assert (found.equal, found.reason) == (
        False,
        f"{path} of transaction {shop.published()[3].t} is missing",
    )
    path.write_bytes(kept[:-5])
    assert "is damaged" in shop.pipeline.verify_sink("out").reason


def test_a_file_that_no_manifest_names_is_seen_by_nobody(shop: Shop) -> None:
    path = Path(shop.published()[3].files[0])
    shutil.copy(path, path.with_name(f"part-00001{path.suffix}"))
    assert shop.pipeline.verify_sink("out").equal


def test_a_transaction_too_many_is_told(shop: Shop) -> None:
    shutil.copy(shop.manifest(9), shop.manifest(8).with_name(f"{12:020}.json"))
    text = shop.manifest(9).read_text().replace('"t":9', '"t":12')
    shop.manifest(12).write_text(text)
    found = shop.pipeline.verify_sink("out")
    assert (found.equal, found.at) == (False, 12)
    assert "transaction 12 was delivered, and on record 9 was the last" in found.reason


def test_a_transaction_that_is_lost_is_told(shop: Shop) -> None:
    kept = shop.manifest(9).read_bytes()
    shop.manifest(9).unlink()
    late = shop.pipeline.verify_sink("out")
    assert not late.equal
    assert "its target is at 8, and transaction 9 is on record as delivered" in late.reason
    shop.manifest(9).write_bytes(kept)
    shop.manifest(4).unlink()
    assert not shop.pipeline.verify_sink("out").equal
    shutil.rmtree(shop.folder)
    gone = shop.pipeline.verify_sink("out")
    assert "its target has no progress, and transaction 9 is on record" in gone.reason


def test_a_sink_that_has_delivered_nothing_is_as_it_should_be(tmp_path: Path) -> None:
    with strandline.open("memory://") as store:
        text = TEXT.format(path=tmp_path / "out", kind="parquet")
        pipeline = store.pipeline("shop", text, settings=SETTINGS, engine=arrow_engine)
        with pytest.raises(NotFoundError, match="run it first"):
            pipeline.verify_sink("out")
        while pipeline.committed.last() != 1:
            pipeline.step()
        found = pipeline.verify_sink("out")
        assert (found.equal, found.at, found.target.count) == (True, None, 0)
        with pytest.raises(NotFoundError, match="no sink 'other': it has out"):
            pipeline.verify_sink("other")


def test_history_stays_while_it_is_compared(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """The publisher and upkeep go on between the two sides; what is read is held before that."""
    original = read_back.Reading.collection
    shard = shop.pipeline.view("large")
    shop.pipeline.pause(sink="out")
    with shop.pipeline.transaction() as work:
        work.insert("orders", [{"id": 900, "amount": 500}])

    def meanwhile(reading: read_back.Reading, t: int) -> object:
        shop.pipeline.resume(sink="out")
        shop.pipeline.run(until_idle=True)
        assert shop.published()[-1].t == 10
        shard.retain("1 versions")
        shard.compact(full=True)
        return original(reading, t)

    monkeypatch.setattr(read_back.Reading, "collection", meanwhile)
    found = shop.pipeline.verify_sink("out")
    assert (found.equal, found.at) == (True, 9)
    shard.compact(full=True)
    assert shard.state().readable_from() == 10, "nobody holds what was before"


def test_what_can_not_be_read_back_says_so(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> None:
        raise UsageError("sink out is a function: what it did can't be read back")

    monkeypatch.setattr("strandline.connectors.files_sink.FilesSink.read_back", refuse)
    with pytest.raises(UsageError, match="can't be read back"):
        shop.pipeline.verify_sink("out")


@pytest.mark.parametrize(
    ("before", "at", "after", "words"),
    [
        (None, None, None, ""),
        (Mark(), None, Mark(), ""),
        (Mark(), Progress(-1, 1), Mark(), ""),
        (Mark(1, 4, 4), Progress(4, 1), Mark(1, 4, 4), ""),
        (Mark(1, 4, 3), Progress(3, 1), Mark(1, 4, 4), ""),
        (Mark(1, 4, 4), Progress(6, 1), Mark(1, 6, 5), ""),
        (Mark(1, 4, 4), None, Mark(1, 4, 4), "has no progress"),
        (Mark(1, 4, 4), Progress(3, 1), Mark(1, 4, 4), "is at 3, and transaction 4"),
        (Mark(1, 4, 4), Progress(6, 1), Mark(1, 5, 4), "6 was delivered, and on record 5"),
        (None, Progress(0, 1), None, "none was ever begun"),
    ],
)
def test_the_record_and_the_target_have_to_agree(
    before: Mark | None, at: Progress | None, after: Mark | None, words: str
) -> None:
    found = objection(before, at, after)
    assert words in found if words else not found
