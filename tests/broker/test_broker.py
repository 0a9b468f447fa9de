"""The broker of the tests: it keeps its rows when it is killed, and outlives nobody."""

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 60
STARTER = """
import sys
from pathlib import Path
from tests.broker.broker import Broker
made = Broker(Path(sys.argv[1]))
made.start()
print(made.pid, flush=True)
sys.stdin.read()
"""


def ended(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


def test_it_ends_with_the_process_that_started_it_even_if_that_is_killed(broker, tmp_path):
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTER, str(tmp_path)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        pid = int(starter.stdout.readline())
        assert not ended(pid)
    finally:
        starter.kill()
        starter.communicate()
    until = time.monotonic() + PATIENCE_S
    while not ended(pid):
        assert time.monotonic() < until, f"broker {pid} outlived its starter"
        time.sleep(0.05)


def test_it_keeps_rows_and_address_when_it_is_killed_and_started_again(broker, topics):
    name = topics.make()
    topics.write(name, [b"a", b"b"])
    address, pid = broker.address, broker.pid
    broker.kill()
    assert ended(pid)
    broker.start()
    assert broker.address == address
    assert broker.pid != pid
    topics.write(name, [b"c"])
    assert topics.end_of(name) == 3
