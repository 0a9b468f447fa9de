"""The judges of runs with kills: each catches what is planted for it, and nothing else."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from tests.kills import history
from tests.kills.history import Transaction
from tests.kills.inputs import Generated, generated
from tests.kills.judge import against_oracle, against_other
from tests.kills.shop import COLUMNS, Content, advance, contents, program
from tests.kills.watch import NAME, Watch, canonical, sampled

import strandline
from strandline import PipelineSettings
from strandline.testing.engines import arrow_engine

ROWS = 10
TIMES = range(4)


def told() -> list[Transaction]:
    return [
        Transaction(
            t,
            {name: {"0": (t * ROWS, (t + 1) * ROWS)} for name in COLUMNS},
            {name: f"input {name} {t}".encode() for name in COLUMNS},
            {"orders": f"delta {t}".encode(), "large": bytes(40)},
            {name: name for name in COLUMNS},
        )
        for t in TIMES
    ]


class Copy:
    """A place that holds exactly what it must, until something is planted."""

    def __init__(self) -> None:
        state, given = {table: {} for table in COLUMNS}, generated()
        self.held: dict[tuple[str, int], Content] = {}
        for each in told():
            start, stop = each.taken["orders"]["0"]
            advance(state, {name: given[name].events("0", start, stop) for name in COLUMNS})
            for name, content in contents(state).items():
                self.held[name, each.t] = content

    def collections(self) -> list[str]:
        return sorted({name for name, _ in self.held})

    def content(self, name: str, t: int) -> Content:
        return self.held[name, t]

    def digest(self, name: str, t: int) -> str:
        return repr(sorted(self.held[name, t].items(), key=repr))


def lose_a_row(place: Copy) -> None:
    place.held["orders", 2] = Counter(list(place.held["orders", 2])[1:])


def double_a_row(place: Copy) -> None:
    place.held["everybody", 3] += Counter(list(place.held["everybody", 3])[:1])


def move_an_amount(place: Copy) -> None:
    (paid, count, amount), *others = place.held["totals", 1]
    place.held["totals", 1] = Counter([(paid, count, amount + 1), *others])


def show_it_too_early(place: Copy) -> None:
    place.held["customers", 0] = place.held["customers", 1]


def add_an_error(place: Copy) -> None:
    place.held["orders_errors", 0] = Counter([("x", "y")])


@pytest.mark.parametrize(
    "plant", [lose_a_row, double_a_row, move_an_amount, show_it_too_early, add_an_error]
)
def test_other_rows_are_seen_by_the_oracle_and_beside_another_run(plant) -> None:
    place, given = Copy(), generated()
    assert list(against_oracle(place, told(), given, TIMES)) == []
    assert list(against_other(place, Copy(), TIMES)) == []
    plant(place)
    assert len(list(against_oracle(place, told(), given, TIMES))) == 1
    assert len(list(against_other(place, Copy(), TIMES))) == 1


def test_a_collection_that_only_one_run_has_is_named() -> None:
    place = Copy()
    place.held["stray", 0] = Counter()
    assert "stray" in next(against_other(place, Copy(), ()))


def skip_a_number(found: list[Transaction]) -> None:
    found[2].t, found[3].t = 3, 4


def use_a_number_again(found: list[Transaction]) -> None:
    found[3].t = 2


def skip_rows(found: list[Transaction]) -> None:
    found[2].taken["orders"] = {"0": (21, 30)}


def take_rows_twice(found: list[Transaction]) -> None:
    found[2].taken["customers"] = {"0": (19, 30)}


@pytest.mark.parametrize("plant", [skip_a_number, use_a_number_again, skip_rows, take_rows_twice])
def test_gaps_and_repetitions_are_seen(plant: Callable[[list[Transaction]], None]) -> None:
    found = told()
    assert list(history.gaps(found)) == []
    plant(found)
    assert list(history.gaps(found))


def change_a_delta(found: list[Transaction]) -> None:
    found[1].deltas["orders"] = b"another"


def change_an_input(found: list[Transaction]) -> None:
    found[1].inputs["customers"] = b"another"


def cut_elsewhere(found: list[Transaction]) -> None:
    found[3].taken["orders"] = {"0": (30, 39)}


def add_a_delta(found: list[Transaction]) -> None:
    found[0].deltas["totals"] = b"a change"


def forget_the_last(found: list[Transaction]) -> None:
    found.pop()


@pytest.mark.parametrize(
    "plant", [change_a_delta, change_an_input, cut_elsewhere, add_a_delta, forget_the_last]
)
def test_other_digests_and_ranges_are_seen(plant: Callable[[list[Transaction]], None]) -> None:
    found = told()
    found[0].deltas.pop("large")  # no change: it may be left out
    assert list(history.differences(found, told())) == []
    plant(found)
    assert len(list(history.differences(found, told()))) == 1


def test_the_bytes_of_a_table_do_not_depend_on_the_order_or_the_pieces_of_its_rows() -> None:
    one = pa.table({"id": [1, 2, None], "name": ["a", None, "c"]})
    other = pa.concat_tables([one.slice(2), one.slice(0, 2)])
    assert canonical(one) == canonical(other)
    assert canonical(one) != canonical(one.slice(1))
    assert canonical(one) != canonical(pa.concat_tables([one, one.slice(0, 1)]))


def test_times_are_sampled_from_the_first_to_the_last() -> None:
    assert list(sampled(50, 3, seed=1)) == [0, 1, 2]
    some = sampled(50, 500, seed=1)
    assert (some[0], some[-1], len(set(some))) == (0, 499, 50)


def test_the_generator_of_the_oracle_goes_on_for_ever() -> None:
    given = Generated("orders")
    assert given.events("0", 9_990, 10_020) == Generated("orders").events("0", 9_990, 10_020)


def test_history_that_changes_is_seen_by_who_watched_it(tmp_path: Path) -> None:
    settings = PipelineSettings(rows_max=ROWS, delay_ms=0)
    with strandline.open(str(tmp_path / "lake"), upkeep=False) as store:
        pipeline = store.pipeline(NAME, program(), settings=settings, engine=arrow_engine)
        with pipeline:
            pipeline.run(transactions=len(TIMES))
        watch = Watch(tmp_path / "lake")
        try:
            watch.look()
            watch.look_at_all()
            found = watch.history()
            watch.look_again()
            assert not watch.wrong
            assert list(history.gaps(found)) == []
            assert list(against_oracle(watch, found, generated(), TIMES)) == []
            # What was seen is made to be something else: nothing else can, from outside.
            watch._seen["orders", len(TIMES) - 1] = "another"
            watch._records = copy.deepcopy(found)
            watch._records[0].deltas["orders"] = b"another"
            watch.look_again()
        finally:
            watch.close()
    assert [each.split(" ")[0] for each in watch.wrong] == ["orders", "records"]
