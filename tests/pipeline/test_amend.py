"""A sealed transaction whose rows are gone goes on without them, on the record, if it still may."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from tests.pipeline.shop import rows, run, topic_of, topic_rig

import strandline
from strandline.errors import NotFoundError, SchemaError, SourceGoneError, UsageError
from strandline.handles.store import Store
from strandline.journal.log import Journal
from strandline.pipeline.amend import Instead, amend, instead
from strandline.pipeline.pipeline import Pipeline
from strandline.pipeline.planner import Planner
from strandline.pipeline.replay import replay
from strandline.pipeline.replica import Replica
from strandline.pipeline.settings import PipelineSettings
from strandline.testing.engines import arrow_engine
from strandline.testing.journals import (
    SOURCE,
    answering,
    finishing,
    founded,
    sealing,
    won,
    written,
)
from strandline.testing.lab import Lab, new_store
from strandline.views.parse import parse

PROGRAM = parse("CREATE TABLE orders (id BIGINT, amount BIGINT, PRIMARY KEY (id)) USING http;")
EMPTY = Instead()
SETTINGS = PipelineSettings(delay_ms=0, poll_ms=5)
FILES = """
CREATE TABLE orders (id BIGINT, amount BIGINT, PRIMARY KEY (id))
  USING files OPTIONS (path '{path}', format 'json');
"""


@pytest.fixture
def lab() -> Iterator[Lab]:
    made = Lab()
    yield made
    made.close()


def _journal(lab: Lab, *, phase: str) -> Journal:
    journal = Journal(lab.env(), "shop")
    if phase != "empty":
        standing = founded(journal)
        if phase != "founded":
            sealed = written(journal, *sealing(standing))
            if phase == "answered":
                written(journal, answering(sealed))
            if phase == "committed":
                won(journal.propose(sealed, finishing(sealed)))
    return journal


REFUSED = {
    "nobody has run it": ("empty", (0, SOURCE), EMPTY, "nobody has run it"),
    "nothing is sealed": ("founded", (0, SOURCE), EMPTY, "0 of pipeline shop is not sealed: noth"),
    "another time is sealed": ("sealed", (1, SOURCE), EMPTY, "1 .* not sealed: 0 is"),
    "it has an answer": ("answered", (0, SOURCE), EMPTY, "has an answer, and rows of it may have"),
    "it is committed": ("committed", (0, SOURCE), EMPTY, "0 of pipeline shop is committed"),
    "no such endpoint": ("sealed", (0, "x"), EMPTY, f"takes nothing from x: {SOURCE}"),
    "more than was sealed": (
        "sealed", (0, SOURCE), Instead({"0": (0, 4)}), r"\[0, 4\) of 0 is not within"),
    "another partition": ("sealed", (0, SOURCE), Instead({"9": (0, 1)}), "sealed of it, nothing"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_can_t_be_amended_is_refused_by_name(lab: Lab, name: str) -> None:
    phase, at, what, said = REFUSED[name]
    journal = _journal(lab, phase=phase)
    before = journal.refresh().lsn
    kind = NotFoundError if phase == "empty" else UsageError
    with pytest.raises(kind, match=said):
        amend(journal, PROGRAM, at, what, "gone")
    assert journal.refresh().lsn == before


@pytest.mark.parametrize("reason", ["", "  "])
def test_a_reason_is_needed(lab: Lab, reason: str) -> None:
    with pytest.raises(UsageError, match="needs a reason"):
        amend(_journal(lab, phase="sealed"), PROGRAM, (0, SOURCE), EMPTY, reason)


@pytest.mark.parametrize(
    ("take", "rows", "empty"),
    [(None, None, False), ({}, None, True), (None, [], True), ({}, [], False), ({}, [], True)],
)
def test_one_thing_is_read_instead_and_it_is_said(take, rows, empty) -> None:
    with pytest.raises(UsageError, match="by one of"):
        instead(take, rows, empty=empty)


def test_rows_are_staged_and_those_that_nobody_refers_to_go(lab: Lab) -> None:
    journal = _journal(lab, phase="sealed")
    rows = [{"id": 1, "amount": 2}, {"id": 2, "_delete": True}]
    record = amend(journal, PROGRAM, (0, SOURCE), Instead(rows=rows), " gone ")
    (ref,) = record.staged
    assert (ref.rows, record.taken, record.reason) == (2, None, "gone")
    assert journal.refresh().sealed.reads[0].staged == (ref,)
    staged = _objects(lab)
    with pytest.raises(SchemaError):
        amend(journal, PROGRAM, (0, SOURCE), Instead(rows=[{"nope": 1}]), "gone")

    class Answered(Journal):
        """While rows are staged, somebody answers."""

        def propose(self, standing, records):
            elsewhere = Journal(self.env, "shop")
            elsewhere.propose(elsewhere.refresh(), [answering(standing)])
            return super().propose(standing, records)

    with pytest.raises(UsageError, match="has an answer"):
        amend(Answered(journal.env, "shop"), PROGRAM, (0, SOURCE), Instead(rows=rows), "gone")
    assert _objects(lab) == staged


def _objects(lab: Lab) -> set[str]:
    return {entry.key for entry in lab.blob.list("journal/shop/")}


# ---- a real pipeline, whose file has vanished


class Shop:
    """A store, and a folder that a table reads."""

    def __init__(self, store: Store, folder: Path) -> None:
        self.store = store
        self.folder = folder

    def write(self, name: str, *ids: int) -> None:
        lines = [json.dumps({"id": each, "amount": 1}) for each in ids]
        (self.folder / name).write_text("\n".join(lines) + "\n")

    def pipeline(self) -> Pipeline:
        text = FILES.format(path=self.folder)
        return self.store.pipeline("shop", text, settings=SETTINGS, engine=arrow_engine)

    def run(self) -> list[int]:
        """Run until idle; what the table holds then."""
        with self.pipeline() as pipeline:
            pipeline.run(until_idle=True)
            found = pipeline.table("orders").snapshot().to_arrow()
            assert len(list(pipeline.replay(0))) == pipeline.committed.time
        return sorted(found["id"].to_pylist())

    def partition(self, name: str) -> tuple[str, tuple[int, int]]:
        standing = Journal(self.store.env, "shop").refresh()
        assert standing.sealed is not None
        taken = standing.sealed.inputs[0].taken or {}
        return next(each for each in taken.items() if each[0].startswith(name))


@pytest.fixture
def lost(tmp_path: Path) -> Iterator[Shop]:
    """Two files are sealed as transaction 0, and one of them has vanished."""
    with strandline.open("memory://") as store:
        shop = Shop(store, tmp_path)
        shop.write("a.json", 1, 2)
        shop.write("b.json", 3)
        with shop.pipeline() as pipeline:
            while Journal(store.env, "shop").refresh().sealed is None:
                pipeline.step()
        (tmp_path / "a.json").unlink()
        yield shop


def test_the_pipeline_stops_and_says_which_command_goes_on(lost: Shop) -> None:
    with lost.pipeline() as pipeline, pytest.raises(SourceGoneError) as told:
        pipeline.run(until_idle=True)
    assert "transaction 0 can't be computed" in str(told.value)
    assert "a.json" in str(told.value)
    assert "transaction amend STORE 0 orders --empty" in str(told.value)
    lost.write("a.json", 1, 2)
    assert lost.run() == [1, 2, 3], "it came back as it was"


@pytest.mark.parametrize("how", ["empty", "take", "rows", "table"])
def test_it_goes_on_with_what_is_read_instead_and_past_what_is_lost(lost: Shop, how: str) -> None:
    instead_of, expected = {
        "empty": ({"empty": True}, []),
        "take": ({"take": dict([lost.partition("b.json")])}, [3]),
        "rows": ({"rows": [{"id": 7, "amount": 2}]}, [7]),
        "table": ({"rows": pa.table({"id": [8, 9], "amount": [1, 2]})}, [8, 9]),
    }[how]
    with lost.pipeline() as pipeline:
        pipeline.amend(0, "orders", reason="somebody tidied up", **instead_of)
    assert lost.run() == expected
    with lost.pipeline() as pipeline:
        (done,) = pipeline.history()
        assert done.amended == {"orders": "somebody tidied up"}
        positions = Journal(lost.store.env, "shop").refresh().positions["orders"]
        assert [name.partition("@")[0] for name in sorted(positions)] == ["a.json", "b.json"]
        with pytest.raises(UsageError, match="is committed"):
            pipeline.amend(0, "orders", reason="again", empty=True)
    # What was lost was passed: it is not taken when it comes back, and new files are.
    lost.write("a.json", 1, 2)
    lost.write("c.json", 5)
    assert lost.run() == sorted([*expected, 5])


def test_a_part_of_what_was_staged_is_taken_from_there(lab: Lab) -> None:
    with new_store(lab) as store:
        topic = topic_of({"id": 1, "n": 1}, {"id": 2, "n": 2})
        rig = topic_rig(store, topic, staged=True)
        replica = Replica(rig)
        while replica.standing.sealed is None:
            replica.step()
        topic.compact("0", 0)
        made = amend(rig.journal, rig.program, (0, "t"), Instead({"0": (0, 1)}), "the first one")
        assert [ref.rows for ref in made.staged] == [1]
        topic.compact("0", 1)
        run(replica)
        assert rows(store, "t", 0) == [{"id": 1, "n": 1}]
        assert [each.noted for each in replay(rig, Planner(rig), 0, 1)] == [()]
        replica.close()


def test_nothing_of_what_was_staged_may_be_taken(lab: Lab) -> None:
    with new_store(lab) as store:
        rig = topic_rig(store, topic_of({"id": 1, "n": 1}), staged=True)
        replica = Replica(rig)
        while replica.standing.sealed is None:
            replica.step()
        amend(rig.journal, rig.program, (0, "t"), Instead({"0": (1, 1)}), "none")
        run(replica)
        assert (replica.standing.next_t, rows(store, "t", 0)) == (1, [])
        replica.close()
