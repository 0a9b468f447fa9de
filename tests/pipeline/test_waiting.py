"""Whoever waits steps where nobody runs, and is told only of what keeps it waiting."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import strandline
from strandline.errors import FencedError, SourceError, StalledError, StrandlineError
from strandline.handles.store import Store
from strandline.journal.log import Journal
from strandline.journal.record import Retain
from strandline.pipeline.settings import PipelineSettings
from strandline.pipeline.waiting import Waiting
from strandline.testing.engines import arrow_engine

NOTES = "CREATE TABLE notes (id BIGINT) USING http;"
SETTINGS = PipelineSettings(delay_ms=0, poll_ms=1)


@pytest.fixture
def store() -> Iterator[Store]:
    with strandline.open("memory://") as opened:
        yield opened


def test_a_source_in_trouble_fails_no_commit_that_is_sealed(store: Store, tmp_path: Path) -> None:
    """Whoever is told that it failed commits the same rows again."""
    folder, gone = tmp_path / "in", tmp_path / "gone"
    folder.mkdir()
    logs = f"CREATE TABLE logs (id BIGINT) USING files OPTIONS (path '{folder}', format 'json');"
    text = NOTES + logs
    with store.pipeline("shop", text, settings=SETTINGS, engine=arrow_engine) as pipeline:
        for number in range(4):
            with pipeline.transaction() as work:
                work.insert("notes", [{"id": number}])
            if folder.exists():
                folder.rename(gone)
        found = pipeline.table("notes").snapshot().to_arrow().to_pylist()
        assert sorted(each["id"] for each in found) == [0, 1, 2, 3]
        with pytest.raises(SourceError, match="can't be read"):
            pipeline.step()


class Steps:
    """A step that is in trouble each time, and the first times does something all the same."""

    def __init__(
        self, journal: Journal, useful: int, trouble: type[StrandlineError] = SourceError
    ) -> None:
        self.journal, self.useful, self.trouble, self.taken = journal, useful, trouble, 0

    def __call__(self) -> float:
        self.taken += 1
        if self.taken <= self.useful:
            self.journal.propose(self.journal.refresh(), [Retain(self.taken)])
        raise self.trouble("no way")


@pytest.mark.parametrize("trouble", [SourceError, FencedError])
@pytest.mark.parametrize("useful", [0, 2])
def test_trouble_is_told_once_nothing_comes_on_record(
    store: Store, useful: int, trouble: type[StrandlineError]
) -> None:
    with store.pipeline("shop", NOTES, settings=SETTINGS, engine=arrow_engine) as pipeline:
        pipeline.transaction().commit()
    journal = Journal(store.env, "shop")
    step = Steps(Journal(store.env, "shop"), useful, trouble)
    waiting = Waiting(store.env, journal, alone=lambda: True, step=step)
    with pytest.raises(trouble, match="no way"):
        waiting.until(lambda _: False, 60_000, "it")
    assert step.taken == useful + 1


def test_where_somebody_runs_it_only_looks_and_not_for_longer_than_it_was_told(
    store: Store,
) -> None:
    journal = Journal(store.env, "shop")
    step = Steps(journal, 0)
    waiting = Waiting(store.env, journal, alone=lambda: False, step=step)
    with pytest.raises(StalledError, match="pipeline shop: nobody carried out it within 60 ms"):
        waiting.until(lambda _: False, 60, "it")
    assert step.taken == 0
