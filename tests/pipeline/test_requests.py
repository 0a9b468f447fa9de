"""What is asked of replicas, and by whom it is heard."""

from __future__ import annotations

import msgspec
import pytest

from strandline.errors import NameRefusedError
from strandline.pipeline.requests import Asked, Requests
from strandline.testing.lab import Lab


@pytest.fixture
def requests():
    lab = Lab()
    yield Requests(lab.env(), "shop")
    lab.close()


def test_nothing_is_asked_at_first(requests):
    assert requests.read() == Asked()


def test_pause_is_a_state_and_stop_a_number(requests):
    requests.pause()
    requests.pause()
    assert requests.read().paused
    requests.resume()
    assert not requests.read().paused
    requests.stop()
    requests.stop("a")
    assert [requests.read().stops_of(name) for name in ("a", "b")] == [2, 1]
    requests.checkpoint()
    requests.checkpoint()
    assert requests.read().checkpoints == 2


def test_a_name_is_checked_before_it_is_written(requests):
    with pytest.raises(NameRefusedError):
        requests.stop("../x")
    assert requests.read() == Asked()


def test_a_sink_is_paused_by_its_name_and_nothing_else_is(requests):
    requests.pause("out")
    requests.pause("more")
    requests.pause("out")
    assert requests.read() == Asked(sinks=("more", "out"))
    requests.resume("out")
    requests.resume("never")
    assert requests.read().sinks == ("more",)
    assert requests.read().resumes == {"out": 1, "never": 1}, "heard also if it was not paused"
    with pytest.raises(NameRefusedError):
        requests.pause("../x")


def test_what_older_versions_asked_is_read(requests):
    assert msgspec.msgpack.decode(msgspec.msgpack.encode([True, {"": 2}, 3]), type=Asked) == Asked(
        paused=True, stops={"": 2}, checkpoints=3
    )
