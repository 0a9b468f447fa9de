"""S72: replicas that share a store and a broker, and nothing else, not even a network."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.broker.broker import Broker, missing as no_broker
from tests.broker.topics import Topics
from tests.kills.feeding import PARTITIONS, Feed
from tests.kills.fleet import Fleet
from tests.kills.network import Networks, missing
from tests.kills.racing import SEED, Racing
from tests.kills.shop import program
from tests.kills.test_kafka_kills import takes_all

# Networks are this machine's: two tests of them do not run at the same time.
pytestmark = [
    pytest.mark.process,
    pytest.mark.xdist_group("networks"),
    pytest.mark.timeout(3600),
]


@pytest.fixture
def networks() -> Iterator[Networks]:
    if trouble := missing():
        pytest.skip(f"NO NETWORKS OF THEIR OWN: {trouble}")
    made = Networks()
    yield made
    made.close()


def reaches(networks: Networks, number: int, host: str, port: int) -> bool:
    words = ["import socket, sys", "socket.create_connection((sys.argv[1], int(sys.argv[2])), 3)"]
    told = [*networks.prefix(number), sys.executable, "-c", "\n".join(words), host, str(port)]
    return subprocess.run(told, capture_output=True, check=False).returncode == 0


def test_s72_the_networks_are_apart(networks: Networks) -> None:
    with (
        socket.create_server((networks.address, 0)) as shared,
        socket.create_server(("127.0.0.1", 0)) as own,
    ):
        for number in range(2):
            assert reaches(networks, number, networks.address, shared.getsockname()[1])
            assert not reaches(networks, number, "127.0.0.1", own.getsockname()[1])


def run(networks: Networks, folder: Path, seed: int, strikes: Sequence[str | None]) -> None:
    """What happens, by name, one after the other; `None` is anything."""
    if trouble := no_broker():
        pytest.skip(f"no Kafka broker: {trouble}")
    broker = Broker(folder / "broker", networks.address)
    broker.start()
    topics = Topics(broker.address)
    feed = Feed(broker.address, topics.make(PARTITIONS), folder / "incoming", seed)
    race = Racing(
        folder,
        seed=seed,
        text=program(feed.using(broker.address)),
        given=feed.given,
        fleets=[Fleet(folder / f"said{each}", prefix=networks.prefix(each)) for each in (0, 1)],
    )
    try:
        race.start()
        for kind in strikes:
            race.strike_at_random() if kind is None else race.strike(kind)
        takes_all(race, feed)
        race.finish()
    finally:
        feed.stop(60)
        race.close()
        topics.close()
        broker.stop()
    assert not race.outcome.wrong, "\n".join([str(race.outcome.facts()), *race.outcome.wrong[:10]])
    assert race.outcome.done.total() == len(strikes)


@pytest.mark.kafka
def test_s72_replicas_in_networks_of_their_own_agree_and_either_survives(
    networks: Networks, tmp_path: Path, seed: int | None
) -> None:
    """The smallest form: one of them dies, twice."""
    run(networks, tmp_path, SEED if seed is None else seed, ["kill one", "kill one"])


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.chaos
def test_s72_replicas_in_networks_of_their_own_agree_again_and_again(
    networks: Networks, tmp_path: Path, cycles: int, seed: int | None
) -> None:
    run(networks, tmp_path, SEED if seed is None else seed, [None] * cycles)
