"""What is early is kept, whatever its size: in memory, or spilled."""

import random

import pyarrow as pa
import pytest

from strandline.errors import CorruptionError, NotAppliedError
from strandline.ingest.stash import Stash
from strandline.model.frontier import Frontier
from strandline.store.memory import MemoryBlob
from strandline.testing.streams import SimulatedRandom


def commands(*times):
    return pa.table({"k": pa.array([10 * t for t in times], pa.int64()), "_time": list(times)})


def ids(found):
    return [] if found is None else sorted(found.column("k").to_pylist())


@pytest.fixture
def blob():
    return MemoryBlob()


@pytest.fixture
def stash(blob):
    return Stash(lambda: blob, SimulatedRandom(random.Random(1)), memory_max=100)


def objects(blob):
    return [entry.key for entry in blob.list("")]


def test_commands_are_given_by_time_and_stay_until_they_are_dropped(stash):
    stash.add(commands(5, 3, 5))
    stash.add(commands(4, 9))
    assert list(stash.sizes()) == [3, 5, 4, 9]
    assert ids(stash.take(3, Frontier(5))) == [30, 40]
    assert ids(stash.take(3, Frontier(5))) == [30, 40]
    assert stash.drop(Frontier(5)) == 2
    assert stash.oldest == 5
    assert ids(stash.take(0, Frontier.closed())) == [50, 50, 90]
    assert stash.take(6, Frontier(9)) is None


def test_what_does_not_fit_is_spilled_latest_first_and_comes_back(stash, blob):
    stash.add(commands(*range(20)))
    sizes = stash.sizes()
    assert stash.relieve() > 0
    assert stash.memory_bytes <= stash.memory_max
    assert stash.spilled_bytes > 0
    assert stash.sizes() == sizes, "what is spilled is held all the same"
    assert len(objects(blob)) == 1
    assert ids(stash.take(0, Frontier(2))) == [0, 10]
    assert len(objects(blob)) == 1, "the earliest times were not spilled"
    assert ids(stash.take(0, Frontier(20))) == [10 * t for t in range(20)]
    assert objects(blob) == []


def test_memory_within_its_bound_spills_nothing(stash, blob):
    stash.add(commands(1))
    assert stash.relieve() == 0
    assert objects(blob) == []


def test_what_is_late_goes_from_the_spill_too(stash, blob):
    stash.add(commands(*range(20)))
    stash.relieve()
    stash.drop(Frontier(19))
    assert stash.oldest == 19
    assert len(objects(blob)) == 1
    assert ids(stash.take(0, Frontier(20))) == [190], "what was late does not come back"
    stash.clear()
    assert (stash.sizes(), objects(blob)) == ({}, [])


def test_one_time_may_be_partly_spilled(stash):
    stash.add(commands(*[7] * 20))
    stash.relieve()
    stash.add(commands(7, 8))
    assert ids(stash.take(7, Frontier(8))) == [70] * 21


def test_a_spill_that_fails_loses_nothing(stash, blob, monkeypatch):
    stash.add(commands(*range(20)))

    def refuse(_key, _value):
        raise NotAppliedError("the disk is full")

    with monkeypatch.context() as context:
        context.setattr(blob, "put", refuse)
        with pytest.raises(NotAppliedError):
            stash.relieve()
    assert ids(stash.take(0, Frontier(20))) == [10 * t for t in range(20)]
    assert stash.relieve() > 0


def test_a_spill_that_is_gone_is_an_error_and_not_a_loss(stash, blob):
    stash.add(commands(*range(20)))
    stash.relieve()
    for key in objects(blob):
        blob.delete(key)
    with pytest.raises(CorruptionError, match="are gone"):
        stash.take(0, Frontier(20))


def test_random_histories_keep_everything_that_is_not_late(blob):
    chance = random.Random(3)
    for _ in range(20):
        stash = Stash(lambda: blob, SimulatedRandom(chance), memory_max=chance.choice((0, 60, 400)))
        held: list[int] = []
        done = 0
        for _ in range(30):
            times = [chance.randrange(done, done + 12) for _ in range(chance.randrange(6))]
            if times:
                stash.add(commands(*times))
                held += times
            if chance.random() < 0.5:
                stash.relieve()
            done += chance.choice((0, 0, 1, 4))
            stash.drop(Frontier(done))
            held = [t for t in held if t >= done]
            end = done + chance.randrange(8)
            assert ids(stash.take(done, Frontier(end))) == sorted(10 * t for t in held if t < end)
        stash.clear()
        assert objects(blob) == []
