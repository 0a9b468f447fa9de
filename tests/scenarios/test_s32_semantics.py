"""S32 to S34: what upserts mean, at every time, whoever writes and in whatever order they come."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest

from strandline.ingest.feed import Polled
from strandline.ingest.upserter import Options, Upserter
from strandline.model.frontier import Frontier
from strandline.testing.lab import new_store
from strandline.testing.seeds import run_seeds, unreached
from strandline.testing.simulation import Simulation

from .conftest import Place
from .ingest_place import COLUMNS, COMMANDS, Replica, Script, ScriptFeed, opened

ROWS = pa.schema([*COMMANDS, ("_error", pa.string())])


class Batches:
    """An input that gives out one batch after the other, each with its frontier."""

    def __init__(self, *batches: tuple[list[tuple], int]) -> None:
        self.batches = list(batches)
        self.frontier = Frontier(0)

    def poll(self, want):
        if not self.batches:
            return Polled(None, self.frontier)
        commands, frontier = self.batches.pop(0)
        self.frontier = Frontier(frontier)
        rows = [
            {
                "k": key,
                "v": None if isinstance(value, ValueError) else value,
                "_time": time,
                "_delete": value is None,
                "_order0": order,
                "_error": str(value) if isinstance(value, ValueError) else None,
            }
            for time, key, order, value in commands
        ]
        return Polled(pa.Table.from_pylist(rows, schema=ROWS), self.frontier)

    def close(self) -> None:
        """Nothing is held."""


@pytest.fixture
def store(lab):
    with new_store(lab) as opened_store:
        yield opened_store


def ingest(store, *batches, name="t", **options):
    """What is in the table and in its errors after each time, and all updates of the table."""
    shard = store.shard(name, COLUMNS, ["k"])
    feed = Batches(*batches)
    with Upserter(store, shard, feed, Options(errors=f"{name}_errors", **options)) as upserter:
        while feed.batches or upserter.upper < upserter.frontier:
            upserter.step()
    upper = shard.upper.time
    errors = store.shard(f"{name}_errors")
    content = [dict(pairs(shard, time, ("k", "v"))) for time in range(upper)]
    wrong = [dict(pairs(errors, time, ("key", "error"))) for time in range(upper)]
    return content, wrong


def pairs(shard, time, names):
    rows = shard.snapshot(time).to_arrow()
    return zip(*(rows.column(name).to_pylist() for name in names), strict=True)


@pytest.mark.parametrize(("last", "content"), [("v2", {"k": "v2"}), (None, {})])
def test_s32_of_two_commands_of_one_key_and_time_the_last_offset_counts(lab, last, content):
    commands = [(3, "k", 10, "v1"), (3, "k", 12, last), (3, "other", 11, "x")]
    with new_store(lab) as store:
        ways = itertools.product(itertools.permutations(commands), range(4))
        for number, (order, cut) in enumerate(ways):
            batches = [(list(order[:cut]), 3), (list(order[cut:]), 4)]
            found, _ = ingest(store, *batches, name=f"t{number}")
            assert found[3] == {**content, "other": "x"}, (order, cut)


BAD = ValueError("not a number")

SEMANTICS = {
    "a deletion of a key that is not there says nothing": (
        [([(0, "k", 1, None)], 1)],
        [{}],
        [{}],
    ),
    "a key can be deleted and come again": (
        [([(0, "k", 1, "a"), (1, "k", 2, None), (2, "k", 3, "b")], 3)],
        [{"k": "a"}, {}, {"k": "b"}],
        [{}, {}, {}],
    ),
    "the same value again changes nothing": (
        [([(0, "k", 1, "a"), (1, "k", 2, "a")], 2)],
        [{"k": "a"}, {"k": "a"}],
        [{}, {}],
    ),
    "keys may come out of order across times": (
        [([(2, "b", 3, "2"), (0, "c", 1, "0"), (1, "a", 2, "1")], 3)],
        [{"c": "0"}, {"c": "0", "a": "1"}, {"c": "0", "a": "1", "b": "2"}],
        [{}, {}, {}],
    ),
    "a null key is an error row for good": (
        [([(0, None, 7, "a"), (1, "k", 8, "b")], 2)],
        [{}, {"k": "b"}],
        [{"null key at 7": "a column of the key is null"}] * 2,
    ),
    "a value that can't be decoded is an error row until the next good one": (
        [([(0, "k", 1, "a"), (1, "k", 2, BAD), (2, "k", 3, "b")], 3)],
        [{"k": "a"}, {"k": "a"}, {"k": "b"}],
        [{}, {"k": "not a number"}, {}],
    ),
    "a deletion heals too": (
        [([(0, "k", 1, BAD)], 1), ([(1, "k", 2, None)], 2)],
        [{}, {}],
        [{"k": "not a number"}, {}],
    ),
    "of one time the last decides whether there is an error": (
        [([(0, "k", 2, "a"), (0, "k", 1, BAD), (0, "x", 1, "a"), (0, "x", 2, BAD)], 1)],
        [{"k": "a", "x": "a"}],
        [{"x": "not a number"}],
    ),
}


@pytest.mark.parametrize("name", SEMANTICS)
def test_s33_upserts_mean(store, name):
    batches, content, errors = SEMANTICS[name]
    assert ingest(store, *batches) == (content, errors)


def test_s33_an_identical_value_is_no_update(store):
    ingest(store, ([(0, "k", 1, "a"), (1, "k", 2, "a"), (2, "x", 3, None)], 3))
    assert sum(batch.rows for batch in store.shard("t").state().batches) == 1


def test_s33_an_update_after_a_restart_retracts_what_was_there_from_several_batches(store):
    for time in range(3):
        first = [(time, f"k{time}", time, "old")]
        ingest(store, ([], time), (first, time + 1))
    assert ingest(store, ([(3, "k0", 3, "new"), (3, "k2", 4, None)], 4))[0][-1] == {
        "k0": "new",
        "k1": "old",
    }


# ---- S34


def differential(sim: Simulation) -> None:
    """Random commands, replicas of random paces: the same collection at every time."""
    chance = sim.stream("scenario")
    place, script = Place(sim, inline_max_bytes=32 * 1024), Script()
    last = chance.choice((3, 8, 15))
    commands = [
        (chance.randrange(last), f"k{chance.randrange(4)}", order, chance.choice("abc-"))
        for order in range(chance.randrange(1, 40))
    ]
    # Offsets only grow with time, as they do where times are bound to them.
    times = sorted(time for time, *_ in commands)
    script.give(
        *(
            (time, key, order, None if value == "-" else value)
            for time, (_, key, order, value) in zip(times, commands, strict=True)
        ),
        frontier=0,
    )
    paces = [0] * chance.randrange(1, 4)
    replicas = [
        Replica(
            process,
            script,
            feed=ScriptFeed(script, lambda at=at: paces[at]),
            limit_bytes=chance.choice((1, 100, 10_000)),
            memory_bytes=chance.choice((1, 100, 10_000)),
            read_only=at > 0 and chance.random() < 0.2,
        )
        for at, process in enumerate(opened(place, *"abc"[: len(paces)]))
    ]
    while min(paces) < len(script.commands) or script.frontier < last:
        at = chance.randrange(len(paces))
        paces[at] = min(len(script.commands), paces[at] + chance.randrange(6))
        script.frontier = min(last, script.frontier + chance.choice((0, 1, 1, 4)))
        sim.run(until_ms=sim.elapsed_ms() + chance.choice((0.1, 2, 15)))
        if chance.random() < 0.1:
            replicas[at].process.node.suspend(chance.uniform(0, 50))
    sim.run_until(lambda: all(each.upper == last for each in replicas), within_ms=20_000)
    for each in replicas:
        assert each.upserter.status().restarts == 0
    replicas[0].check()
    sim.sometimes("spilled" if replicas[0].count("ingest_spilled_bytes") else "not spilled")
    sim.sometimes("raced" if any(each.count("ingest_lost") for each in replicas) else "alone")


def test_s34_the_operator_and_a_plain_dict_agree_at_every_time() -> None:
    wanted = ("spilled", "not spilled", "raced", "alone")
    assert unreached(differential, *wanted, least=24) == []


@pytest.mark.slow
@pytest.mark.timeout(7_200)
def test_s34_ten_thousand_streams() -> None:
    run_seeds(differential, range(10_000))
