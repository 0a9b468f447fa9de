"""Stores as Spark's processes open them: terms, instants, missing objects."""

from __future__ import annotations

import shutil

import pyarrow as pa
import pytest

import strandline
from strandline.errors import BoundsError, NotFoundError, StrandlineError
from strandline.reading.view import pinned_view
from strandline.shard.pulse import is_over
from strandline.spark.source_options import Place
from strandline.spark.source_store import (
    check_settled,
    end_term_writer,
    held_for_scan,
    instants_of,
    last_version,
    opened,
    task_blob,
    term_writer,
    term_writer_of,
)
from strandline.upkeep.silence import read_pulse

COLUMNS = pa.schema([("k", pa.int64())])


@pytest.fixture
def place(tmp_path):
    store = strandline.open(str(tmp_path / "lake"), upkeep=False)
    with store, store.shard("t", COLUMNS).writer() as writer:
        for key in range(5):
            writer.append([{"k": key}])
    return Place(str(tmp_path / "lake"), "t")


def test_neither_store_nor_table_is_created_by_looking(place, tmp_path):
    for wrong in (Place(str(tmp_path / "other"), "t"), Place(place.store, "other")):
        with pytest.raises(NotFoundError), opened(wrong):
            pass
    assert not (tmp_path / "other").exists()


def test_a_hold_stays_only_if_something_needs_it(place):
    with opened(place) as (store, shard):
        with held_for_scan(store, shard, 60_000) as hold:
            assert pinned_view(hold.lease).state.readers.keys() == {hold.lease.id}
        assert not shard.state().readers
        with held_for_scan(store, shard, 60_000) as hold:
            hold.needed = True
    # The process that took it is gone, as far as the store can tell, and the hold is not.
    with opened(place) as (_, shard):
        assert shard.state().readers.keys() == {hold.lease.id}


def test_a_writer_lives_in_whichever_process_needs_it(place):
    with opened(place) as (store, shard):
        term = term_writer(store, shard, 60_000)
    with opened(place) as (store, shard):
        with term_writer_of(store, shard, term) as writer:
            writer.append([{"k": 9}])
        assert set(shard.state().writers) == {term.writer}
    with opened(place) as (store, shard):
        end_term_writer(store, shard, term)
        end_term_writer(store, shard, term)
        assert not shard.state().writers
        assert is_over(term.pulse, read_pulse(store.env, term.pulse))
        with term_writer_of(store, shard, term) as writer, pytest.raises(StrandlineError):
            writer.append([{"k": 10}])
        assert shard.snapshot().count() == 6


def test_versions_that_are_not_there_are_refused_at_once(place):
    with opened(place) as (store, shard), held_for_scan(store, shard, 60_000) as hold:
        view = pinned_view(hold.lease)
        assert last_version(view) == 4
        check_settled(view, 4, "version")
        with pytest.raises(BoundsError, match="version 5 of table t does not exist: its newest"):
            check_settled(view, 5, "version")


def test_instants_are_told_for_the_versions_asked_for(place):
    with opened(place) as (_, shard):
        state = shard.state()
        times, instants = instants_of(shard.machine, state, 1, 3).listed()
        assert times == [1, 2, 3]
        assert instants == [moment.instant_ms for moment in state.moments[1:4]]


def test_instants_are_told_although_their_list_has_become_an_object(tmp_path):
    settings = strandline.Settings(moments_loose=4)
    with strandline.open(str(tmp_path / "lake"), settings=settings, upkeep=False) as store:
        shard = store.shard("t", COLUMNS)
        with shard.writer() as writer:
            for key in range(12):
                writer.append([{"k": key}])
        known = [moment.instant_ms for moment in shard.state().moments]
        store.upkeep.run_once(shard.machine)
        state = shard.state()
        assert state.moment_chunks
        for first, last in ((0, 11), (1, 2), (3, 10)):
            times, instants = instants_of(shard.machine, state, first, last).listed()
            assert times == list(range(first, last + 1))
            assert instants == known[first : last + 1]


def test_a_store_that_was_made_anew_is_opened_anew(place):
    """As a cell of a notebook does it that is run again, while the workers stay the same."""
    before = task_blob(place.store)
    assert task_blob(place.store) is before
    shutil.rmtree(place.store)
    with strandline.open(place.store, upkeep=False) as store:
        store.env.blob.put("s/w/x", b"new")
        after = task_blob(place.store)
        assert after.get("s/w/x") == b"new"
        after.put("s/w/y", b"written by a task")
        assert store.env.blob.get("s/w/y") == b"written by a task"
    assert task_blob(place.store) is after


def test_a_task_sees_objects_and_nothing_else(place, tmp_path):
    assert not hasattr(task_blob(place.store), "head")
    with pytest.raises(NotFoundError, match="holds no Strandline store as this machine sees it"):
        task_blob(str(tmp_path / "elsewhere"))
