"""S24 for pipelines, with a real process: what can't go on says so, and goes on by itself."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.kills.watch import NAME, Watch

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]

PATIENCE_S = 200
REPLICA = """
import json, sys
import strandline
from strandline import PipelineSettings
from strandline.testing.engines import arrow_engine
settings = PipelineSettings(delay_ms=0, poll_ms=20, stall_ms=1_000)
lake, name, text = sys.argv[1:]
with strandline.open(lake) as store:
    with store.pipeline(name, text, settings=settings, engine=arrow_engine) as pipeline:
        pipeline.start()
        told = None
        while pipeline.wait(50) is None:
            now = pipeline.here
            said = None if now is None else [str(now.state), now.cause]
            if said is not None and said != told:
                told = said
                print(json.dumps(said), flush=True)
"""


class Replica:
    """A process that says in which state it is, whenever that changes."""

    def __init__(self, folder: Path, text: str) -> None:
        self._said = folder / "said"
        with self._said.open("wb") as out:
            words = [sys.executable, "-c", REPLICA, str(folder / "lake"), NAME, text]
            self.child = subprocess.Popen(words, stdout=out)

    def said(self) -> list[list[str]]:
        whole = self._said.read_bytes().rpartition(b"\n")[0]
        return [json.loads(line) for line in whole.splitlines()]

    def until(self, state: str, after: int = 0, naming: str = "") -> int:
        """Wait until it says so, later than what it said before; how much it has said by then."""
        deadline = time.monotonic() + PATIENCE_S
        while (found := self._found(state, after, naming)) is None:
            assert self.child.poll() is None, f"it ended: {self.said()}"
            assert time.monotonic() < deadline, f"it is not {state}: {self.said()[-3:]}"
            time.sleep(0.05)
        return found

    def _found(self, state: str, after: int, naming: str) -> int | None:
        for at, (said, cause) in enumerate(self.said()):
            if at >= after and said == state and naming in cause:
                return at
        return None

    def close(self) -> None:
        self.child.kill()
        self.child.wait()


@pytest.fixture
def topic(topics) -> str:
    name = topics.make()
    topics.write(name, [b'{"id": 1, "n": 1}'], key=b"1")
    return name


@pytest.fixture
def replica(topics, topic: str, tmp_path: Path) -> Iterator[Replica]:
    text = f"""CREATE TABLE t (id BIGINT, n BIGINT, PRIMARY KEY (id)) USING kafka OPTIONS (
        kafka.bootstrap.servers '{topics.address}', subscribe '{topic}',
        kafkaConsumer.pollTimeoutMs '1000');"""
    made = Replica(tmp_path, text)
    yield made
    made.close()


def test_s24_a_process_whose_broker_is_away_says_so_and_goes_on_without_a_restart(
    broker, topics, topic: str, replica: Replica, tmp_path: Path
) -> None:
    running = replica.until("running")
    watch = Watch(tmp_path / "lake")
    try:
        assert watch.wait(lambda: watch.committed() >= 1, PATIENCE_S)
        broker.kill()
        try:
            # At first it can only say what it is at; once its client gave up, what is away.
            stalled = replica.until("stalled", after=running + 1, naming=topic)
        finally:
            broker.start()
        replica.until("running", after=stalled + 1)
        topics.write(topic, [b'{"id": 1, "n": 2}'], key=b"1")
        assert watch.wait(lambda: watch.committed() >= 2, PATIENCE_S)
        assert watch.content("t", 1) == {(1, 2): 1}
        assert replica.child.poll() is None, "a restart is no cure"
    finally:
        watch.close()
