"""Bugs that are planted into what feeds a pipeline, each caught by the test of its promise."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.journal import test_log_staged
from tests.pipeline import (
    test_auditor,
    test_evolve,
    test_forgetful,
    test_on_error,
    test_place,
    test_planner,
    test_upstream,
)

import strandline
from strandline.connectors.shard import ShardSource
from strandline.errors import StrandlineError
from strandline.journal.log import Journal
from strandline.pipeline import finish, meaning, place, planner, replica, upstream
from strandline.pipeline.auditor import Auditor
from strandline.pipeline.upstream import Upstream
from strandline.testing import computing
from strandline.testing.lab import Lab


@dataclass(frozen=True)
class Bug:
    """What is replaced by what, and where that shows."""

    promise: str
    owner: object
    name: str
    instead: object
    shows: Callable[..., None]


def _ahead(self: ShardSource, upto: dict[str, int]) -> None:
    self._changes.move_hold(upto.get("t", 0) + 1)


def _from_now_on(self: Auditor) -> None:
    self.close()
    self._at = None


BUGS = [
    Bug("history is held before a range of it is sealed", Upstream, "hold", lambda *_: None,
        test_upstream.test_a_transaction_sealed_before_a_crash_is_finished_although_upstream_would_forget),
    Bug("history is held at what was acknowledged, and not beyond", ShardSource, "acknowledge",
        _ahead, test_upstream.test_history_is_held_upstream_at_what_was_acknowledged),
    Bug("what a removed endpoint held is let go", replica, "release_removed", lambda *_: None,
        test_upstream.test_history_is_held_upstream_at_what_was_acknowledged),
    Bug("times without changes are no transactions", Upstream, "filled", Upstream.upper,
        test_upstream.test_tables_follow_the_table_of_another_pipeline_and_its_restarts),
    Bug("a range takes about as many rows as it may", upstream, "admitted",
        lambda _state, bounds, _rows: bounds[1],
        test_upstream.test_rows_limit_a_range_by_what_the_metadata_says),
    Bug("nothing is committed of a value that stops", finish.Finishing, "_refuse_undecoded",
        lambda *_: None, test_on_error.test_it_stops_with_all_of_it_sealed_and_nothing_committed),
    Bug("what may vanish is staged before it is sealed", planner, "is_forgetful", lambda _: False,
        test_forgetful.test_what_vanishes_after_it_was_sealed_counts_all_the_same),
    Bug("who loses the race leaves nothing behind", planner, "unstage", lambda *_: None,
        test_forgetful.test_who_loses_the_race_leaves_nothing_behind),
    Bug("a file is a transaction, and waits for nothing", planner, "Initiating", int,
        test_planner.test_a_source_may_say_where_a_transaction_ends),
    Bug("new columns are there in the transaction that brings them", finish.Finishing, "_evolve",
        lambda *_: False, test_evolve.test_a_column_that_appears_evolves_the_table_at_one_time),
    Bug("new columns are there from a time on, not before", planner, "evolved",
        lambda program, _: test_evolve.evolved(program, {"t": {"note": "STRING"}}),
        test_evolve.test_a_column_that_appears_evolves_the_table_at_one_time),
    Bug("views see what is declared", computing.ArrowComputer, "_seen",
        computing.ArrowComputer._now,
        test_evolve.test_a_column_that_appears_evolves_the_table_at_one_time),
    Bug("rows of before fit a table that was widened", meaning, "fitted", lambda rows, _: rows,
        test_evolve.test_a_column_that_appears_evolves_the_table_at_one_time),
    Bug("a view that was replaced upstream is not up to date", Upstream, "given_up", lambda _: "",
        test_upstream.test_a_view_that_was_replaced_upstream_is_not_taken_for_one_that_is_up_to_date),
    Bug("a view that is rolled back is another lineage", place, "lineage_of",
        lambda history, _: history.partition("@")[0],
        test_place.test_a_view_that_is_rolled_back_is_another_lineage_of_the_same_shard),
    Bug("nothing that may be swept gets on record", Journal, "_may_be_swept", lambda *_: False,
        test_log_staged.test_what_was_staged_long_ago_is_not_put_on_record),
    Bug("who lost a lease says what it skips", Auditor, "renew", _from_now_on,
        test_auditor.test_a_lost_lease_loses_nothing_while_its_history_is_there),
]  # fmt: skip


@contextmanager
def stage(needs: list[str], tmp_path: Path) -> Iterator[dict[str, object]]:
    """What a test asks for by the names of its arguments."""
    with strandline.open("memory://", upkeep=False) as store:
        lab = Lab()
        topic = test_forgetful.topic.__wrapped__() if "topic" in needs else None
        with pytest.MonkeyPatch.context() as patch:
            known = {"store": store, "lab": lab, "topic": topic, "tmp_path": tmp_path}
            known["monkeypatch"] = patch
            yield {name: known[name] for name in needs}
        lab.close()


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.promise)
def test_a_planted_bug_is_caught(bug: Bug, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs = list(inspect.signature(bug.shows).parameters)
    monkeypatch.setattr(bug.owner, bug.name, bug.instead)
    with (
        stage(needs, tmp_path) as given,
        pytest.raises((AssertionError, StrandlineError, KeyError, pytest.fail.Exception)),
    ):
        bug.shows(**given)
