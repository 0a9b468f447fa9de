"""What a client did is written down with what it was told."""

from contextlib import suppress

import pytest

from strandline.errors import LeaseLostError, MaybeAppliedError
from strandline.model.frontier import Frontier
from strandline.shard.command import UpperMismatch
from strandline.testing.history import NO_TIME, Result
from strandline.testing.roles import opened
from strandline.testing.simulation import Simulation
from strandline.testing.task import SimulatedCrash
from strandline.testing.workload import Client
from strandline.testing.world import World


class Answer:
    """A writer that answers as told."""

    def __init__(self, answer):
        self.answer = answer

    def append(self, rows):
        return self.compare_and_append(rows, lower=0, upper=1)

    def compare_and_append(self, rows, *, lower, upper):
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


def within(role):
    with Simulation(1) as sim:
        world = World(sim)
        world.start("process", role)
        world.run(faults_ms=100)
        return world.history


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        (MaybeAppliedError("?"), Result.UNKNOWN),
        (SimulatedCrash("killed"), Result.UNKNOWN),
        (LeaseLostError("lost"), Result.REFUSED),
        (UpperMismatch(Frontier(9)), Result.MISMATCH),
    ],
)
def test_each_answer_has_its_result(answer, result):
    def role(process):
        client, shard = Client(process), opened(process, "a")
        with suppress(MaybeAppliedError, LeaseLostError, SimulatedCrash):
            client.compare_and_append(Answer(answer), shard, client.fresh(1), (0, 1))

    (call,) = within(role).appends
    assert call.result is result
    assert call.seen == (9 if result is Result.MISMATCH else None)
    assert (call.lower, call.upper) == (0, 1)


def test_an_append_that_was_never_answered_has_no_time():
    def role(process):
        client, shard = Client(process), opened(process, "a")
        with pytest.raises(MaybeAppliedError):
            client.append(Answer(MaybeAppliedError("?")), shard, client.fresh(1))

    (call,) = within(role).appends
    assert call.lower is None
    assert call.updates[0][1] == NO_TIME


def test_reads_are_recorded_with_their_rows_and_filters_are_compared():
    def role(process):
        client, shard = Client(process), opened(process, "a")
        with shard.writer() as writer:
            for _ in range(4):
                client.append(writer, shard, client.fresh(3))
        read = client.read(shard, None)
        for _ in range(20):
            client.read_some(shard, read)

    history = within(role)
    (read,) = history.reads
    assert read.as_of == 3
    assert len(read.content) == 12


def test_rows_are_never_made_up_twice():
    def role(process):
        client = Client(process)
        rows = [*client.fresh(5), *client.fresh(5, lower=3, upper=7)]
        assert len({row["id"] for row in rows}) == 10
        assert {row["_time"] for row in rows[5:]} <= {3, 4, 5, 6}

    within(role)
