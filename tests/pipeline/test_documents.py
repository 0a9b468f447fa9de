"""The names in documents are a contract."""

from __future__ import annotations

import strandline
from strandline.journal.handles import Closed, Frozen, Handle
from strandline.pipeline.documents import (
    audit_document,
    open_document,
    status_document,
    summary_document,
    verified_document,
)
from strandline.pipeline.said import Audit
from strandline.testing.engines import arrow_engine

TEXT = """CREATE TABLE t (k BIGINT, PRIMARY KEY (k)) USING http;
CREATE SINK out FROM t USING files OPTIONS (path '{}');"""


def test_the_names_stay(tmp_path):
    with strandline.open("memory://") as store:
        text = TEXT.format(tmp_path)
        pipeline = store.pipeline("p", text, engine=arrow_engine, replica="a")
        with pipeline.transaction() as transaction:
            transaction.insert("t", [{"k": 1}])
        pipeline.run(until_idle=True)
        pipeline.transaction()
        status = status_document(pipeline.status())
        history = summary_document(pipeline.history()[0])
        verified = pipeline.verify_sink("out")
    assert list(status) == [
        *("pipeline", "readable", "state", "cause", "paused", "epoch", "program", "committed"),
        *("lag_seconds", "still_seconds", "sealed", "checkpoint", "verifiable_from", "retain"),
        *("sources", "sinks", "replicas", "transactions", "findings"),
    ]
    assert list(status["sources"][0]) == ["source", "state", "position", "behind"]
    assert list(status["sinks"][0]) == [
        *("sink", "source", "connector", "state", "cause", "paused", "publisher", "delivered"),
        *("reached", "behind", "lag_seconds", "retries", "still_seconds"),
    ]
    assert list(verified_document(verified)) == [
        *("sink", "source", "time", "equal", "reason", "target", "view", "differences"),
    ]
    assert list(status["replicas"][0]) == [
        *("replica", "state", "cause", "read_only", "committed", "transactions", "host", "pid"),
        *("started", "seen_seconds_ago", "audit"),
    ]
    assert status["replicas"][0]["audit"] is None, "it writes"
    assert list(audit_document(Audit())) == ["verified", "differed", "skipped", "inputs", "told"]
    assert list(status["transactions"][0]) == [
        *("transaction", "state", "time", "opened", "touched", "chunks", "rows", "reason"),
    ]
    assert list(history) == [
        *("time", "instant", "took_ms", "epoch", "rows", "inputs", "changes", "transaction"),
        *("amended", "sinks"),
    ]
    assert history["sinks"] == {"out": "delivered"}
    assert history["transaction"] == transaction.id


def test_a_transaction_is_in_one_of_five_states():
    made = {
        "open": Handle("h", 0, 0),
        "committing": Handle("h", 0, 0, frozen=Frozen(True, 0)),
        "aborting": Handle("h", 0, 0, frozen=Frozen(False, 0)),
        "committed": Handle("h", 0, 0, closed=Closed(7, "", 0)),
        "aborted": Handle("h", 0, 0, closed=Closed(None, "idle", 0)),
    }
    assert {name: open_document(each)["state"] for name, each in made.items()} == {
        name: name for name in made
    }
