"""The programs that a stranger would run first: each one runs, and shows what it promises."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def run(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=280,
    )


def test_every_example_has_a_line_here():
    shown = {line.split()[0] for line, _ in SHOWN}
    assert {path.name for path in EXAMPLES.glob("*.py")} == shown


SHOWN = [
    (
        "demo.py --transactions 6 --rows 500",
        [
            "CREATE MATERIALIZED VIEW large",
            "agreed on and not committed",
            "the survivor's frontier moved after",
            "6 transactions, none lost, none twice",
            "rows a second by two replicas",
            "every order is as the last of them says",
            "6 transactions computed again, all digests equal",
            "Everything held.",
        ],
    ),
    (
        "tables.py --rows 60000",
        [
            "all of them are there",
            "orders have a new status",
            "the first version is untouched",
            "every update has an image before and one after",
            "both say",
            "Everything held.",
        ],
    ),
    (
        "shards.py",
        [
            "one is dead in the middle of its work",
            "none of the",
            "ReplicaDivergedError",
            "twice the same rows",
            "no gap, no overlap",
            "fewer parts",
            "fsck found nothing wrong",
            "What you saw:",
        ],
    ),
    (
        "ingest.py",
        ["one replica stops here", "running, settled up to {6}", "as of 5: apples 4, plums 7"],
    ),
    ("two_writers.py", ["holds 200 rows: {'left': 100, 'right': 100}"]),
    (
        "time_travel.py",
        ["as of 0: coffee 4, tea 3", "as of 1: coffee 4, tea 5", "as of 2: tea 5", "-1 tea 3 at 1"],
    ),
]


# Both have a Spark of their own; one is enough where every second counts.
SLOW = {"tables.py --rows 60000"}


@pytest.mark.process
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("line", "words"),
    [pytest.param(*each, marks=[pytest.mark.slow] if each[0] in SLOW else []) for each in SHOWN],
)
def test_an_example_runs_and_shows_what_it_promises(line, words):
    done = run(*line.split())
    shown = " ".join(done.stdout.split())
    assert done.returncode == 0, done.stdout + done.stderr
    # Java and Spark say things of their own there.
    assert done.stderr == "" or line.startswith("tables.py")
    for each in words:
        assert each in shown
    assert "✗" not in done.stdout
