"""A connection that threads share and that survives a fork."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from strandline.errors import HandleClosedError
from strandline.store.lane import Lane


def _connect() -> sqlite3.Connection:
    return sqlite3.connect(":memory:", check_same_thread=False)


def test_one_thread_at_a_time_has_the_connection():
    lane = Lane(_connect, "x")
    inside, most = 0, 0

    def work() -> None:
        nonlocal inside, most
        for _ in range(100):
            with lane.connection() as connection:
                inside += 1
                most = max(most, inside)
                connection.execute("select 1").fetchone()
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1
    lane.close()


def test_a_discarded_connection_is_replaced_and_a_closed_lane_stays_closed():
    lane = Lane(_connect, "x")
    with lane.connection() as first:
        lane.discard(first)
    with lane.connection() as second:
        assert second is not first
    lane.close()
    with pytest.raises(HandleClosedError), lane.connection():
        pass


FORKS = """
import os, sys, threading
from pathlib import Path
from subprocess import run
from strandline.model.ids import SeqNo
from strandline.store.consensus import Versioned
from strandline.store.sqlite import SqliteConsensus

path = Path(sys.argv[1])
STRANGER = '''
import sys
from pathlib import Path
from strandline.model.ids import SeqNo
from strandline.store.consensus import Versioned
from strandline.store.sqlite import SqliteConsensus
consensus = SqliteConsensus(Path(sys.argv[1]))
head = consensus.head("k")
print("stranger sees", head.seqno, flush=True)
consensus.compare_and_set("k", Versioned(head.seqno.next(), b"stranger"))
consensus.close()
'''

def step(who, consensus):
    head = consensus.head("k")
    seqno = SeqNo(0) if head is None else head.seqno.next()
    print(who, "sets", seqno, consensus.compare_and_set("k", Versioned(seqno, b"x")).name,
          flush=True)

consensus = SqliteConsensus(path)
step("parent", consensus)
stop = threading.Event()
def keep_writing():
    number = 0
    while not stop.is_set():
        consensus.compare_and_set("busy", Versioned(SeqNo(number), bytes(9000)))
        number += 1
thread = threading.Thread(target=keep_writing)
thread.start()
ready, go = os.pipe()
child = os.fork()
if child == 0:
    os.read(ready, 1)  # From here on the parent has closed the store.
    for _ in range(2):
        step("child", consensus)
        # A stranger that believed to be the last one would take the log away with it.
        run([sys.executable, "-c", STRANGER, str(path)])
    os._exit(0)
stop.set()
thread.join()
consensus.close()
os.write(go, b"x")
os.waitpid(child, 0)
run([sys.executable, "-c", STRANGER, str(path)])
"""


@pytest.mark.process
def test_a_forked_child_takes_locks_of_its_own_and_loses_nothing(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-c", FORKS, str(tmp_path / "c.db")],
        capture_output=True, text=True, check=True, timeout=100,
    )  # fmt: skip
    assert done.stdout.splitlines() == [
        "parent sets v0 COMMITTED",
        "child sets v1 COMMITTED",
        "stranger sees v1",
        "child sets v3 COMMITTED",
        "stranger sees v3",
        "stranger sees v4",
    ]
