"""The same seed is the same history: in another process, with another hash seed."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import logging
logging.disable(logging.CRITICAL)
from strandline.testing import CASES, Simulation
for name in ("shard", "timeline", "reads"):
    for seed in (5, 11):
        with Simulation(seed) as sim:
            CASES[name](sim)
            print(name, seed, sim.steps, sim.trace_hash())
"""


@pytest.mark.simulation
@pytest.mark.process
def test_three_processes_with_three_hash_seeds_run_the_same_histories():
    started = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            stdout=subprocess.PIPE,
            text=True,
        )
        for hash_seed in ("0", "1", "4242")
    ]
    printed = [process.communicate(timeout=110)[0] for process in started]
    assert [process.returncode for process in started] == [0, 0, 0]
    assert printed[0].count("\n") == 6
    assert printed[0] == printed[1] == printed[2]
