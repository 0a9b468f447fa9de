"""A transaction that is larger than what a process may hold leaves in pieces."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROWS, PIECE, TEXT = 600_000, 5_000, "x" * 500
HELD_MAX_MB = 120
"""Of the 300 MB that are sent: what the client queues, 64 MB, and what is in flight around it."""

PROGRAM = f"""
import resource, sys
from tests.connectors.kafka_lives import batch, own, targeted
from strandline.connectors.kafka_client import KafkaCluster
from strandline.connectors.kafka_sink import KafkaSink
from strandline.connectors.sink import NOTHING_YET, Progress

def pieces(count):
    for start in range(0, count, {PIECE}):
        yield batch([(n, {TEXT!r}, 1) for n in range(start, start + {PIECE})])

def most_mb():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

what = own("memory")
target = targeted(sys.argv[1], sys.argv[2], what)
sink = KafkaSink(KafkaCluster(target, str), target, what)
sink.prepare()
sink.found(Progress(NOTHING_YET, 1))
sink.deliver(0, 1, pieces({PIECE}))
before = most_mb()
sink.deliver(1, 1, pieces({ROWS}))
print(most_mb() - before, flush=True)
sink.close()
"""


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_large_transaction_is_never_held_whole(broker, topics) -> None:
    name = topics.make(3)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, broker.address, name],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) < HELD_MAX_MB
