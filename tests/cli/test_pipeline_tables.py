"""Documents of pipelines as tables: nothing in them is obeyed by a terminal."""

from __future__ import annotations

from tests.cli.conftest import EVIL

from strandline.cli.pipeline_tables import (
    history_table,
    sink_state_text,
    state_text,
    status_tables,
    summary_table,
)
from strandline.cli.render import text_lines

DOCUMENT = {
    "pipeline": "shop",
    "state": "stalled",
    "cause": f"SourceError: {EVIL}",
    "readable": True,
    "paused": False,
    "epoch": 2,
    "program": "0123456789abcdef",
    "committed": 8,
    "lag_seconds": 75.0,
    "sealed": 8,
    "checkpoint": None,
    "verifiable_from": 3,
    "retain": 5,
    "sources": [
        {"source": "a", "state": "live", "position": {str(n): n for n in range(9)}, "behind": 1234},
        {"source": "b", "state": "paused", "position": {}, "behind": None},
    ],
    "sinks": [
        {
            "sink": "out",
            "source": "large",
            "connector": "files",
            "state": "stopped",
            "cause": f"its target's progress is gone {EVIL}",
            "paused": False,
            "publisher": None,
            "delivered": 5,
            "reached": 6,
            "behind": 1500,
            "lag_seconds": 90.0,
            "retries": 0,
            "still_seconds": 0.0,
        },
        {
            "sink": "more",
            "source": "b",
            "connector": "kafka",
            "state": "publishing",
            "cause": None,
            "paused": False,
            "publisher": "r2",
            "delivered": None,
            "reached": None,
            "behind": 0,
            "lag_seconds": None,
            "retries": 2,
            "still_seconds": 0.0,
        },
    ],
    "replicas": [
        {
            "replica": "r1",
            "state": "silent",
            "cause": None,
            "read_only": True,
            "committed": 8,
            "host": EVIL,
            "pid": 7,
            "seen_seconds_ago": 9.0,
            "audit": {
                "verified": 1200,
                "differed": 0,
                "skipped": 3,
                "inputs": 0,
                "told": ["4 to 6: cut"],
            },
        }
    ],
    "transactions": [
        {"transaction": "h0-1", "state": "open", "rows": 3, "touched": "2026-01-01T00:00:00.000Z"}
    ],
    "findings": ["checkpoint #9 is not intact"],
}


def text(*shown) -> str:
    return "\n".join(line for each in shown for line in text_lines(each))


def test_everything_about_a_pipeline_is_shown_and_harmless():
    told = text(*status_tables(DOCUMENT))
    for words in (
        *("stalled: SourceError", "up to 7, 75 s ago", "8, being computed", "none yet", "from 3"),
        *("0123456789ab, e2", "1,234", "9 parts, …", "r1 (read-only)", "silent", "h0-1"),
        *("out (files, of large)", "1,500", "90 s", "its target's progress is gone"),
        *("more (kafka, of b)", "publishing", "r2"),
        *("damaged: checkpoint #9", "verified 1,200, skipped 3 (4 to 6: cut)"),
    ):
        assert words in told
    assert "\x1b" not in told


def test_one_line_is_enough_for_a_pipeline():
    nothing = DOCUMENT | {"committed": 0, "lag_seconds": None, "sources": [], "cause": None}
    told = text(summary_table([DOCUMENT, nothing]))
    assert "r1 silent" in told
    assert "out stopped 1,500 behind, more publishing" in told
    assert told.splitlines()[2].split()[:4] == ["shop", "stalled", "-", "-"]
    assert "\x1b" not in told


def test_transactions_are_told_by_what_they_changed():
    entry = {
        "time": 7,
        "instant": "2026-01-01T00:00:00.000Z",
        "took_ms": 12,
        "rows": 1000,
        "changes": {"b": -2, "a": 3},
        "amended": {},
        "sinks": {"out": "delivered", "more": "no change"},
    }
    told = text(history_table([entry]))
    assert "1,000  a +3, b -2" in told
    assert "more no change, out delivered" in told
    assert told.splitlines()[-1] == "1 transaction"
    amended = text(history_table([{**entry, "amended": {"a": "gone"}}]))
    assert "b -2; a amended: gone" in " ".join(amended.split())


def test_a_sink_that_stopped_stands_out():
    assert sink_state_text("stopped").style == "bold red"
    assert (state_text("stopped").style, sink_state_text("publishing").style) == ("", "green")


def test_states_without_a_colour_are_shown_too():
    assert state_text("stopped").plain == "stopped"
