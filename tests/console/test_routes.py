"""What is served: pushes that count once, transactions, queries, status, metrics."""

from __future__ import annotations

import json

import pytest
from tests.console.conftest import TEXT

from strandline.testing.damage import damage_journal
from strandline.testing.engines import arrow_engine

ROWS = "/v1/pipelines/shop/tables/orders/rows"


def _lines(*rows: dict) -> bytes:
    return b"\n".join(json.dumps(row).encode() for row in rows)


def test_pushed_rows_are_answered_when_sealed_and_can_be_read_then(served):
    body = _lines({"id": 1, "amount": 7}, {"id": 2, "amount": 70})
    answer = served.client.ask("POST", ROWS, body)
    assert answer.status == 200
    assert answer.json() == {"sealed": True, "rows": 2, "duplicate": False}
    transaction = served.pipeline.transaction()
    transaction.commit()
    assert served.pipeline.query("SELECT id FROM large").to_pylist() == [{"id": 2}]


def test_a_reload_replaces_what_a_table_holds_and_never_by_nothing(served):
    path = "/v1/pipelines/shop/tables/orders/reload"
    for rows in ([{"id": 1, "amount": 70}, {"id": 2, "amount": 7}], [{"id": 3, "amount": 80}]):
        answer = served.client.ask("POST", path, _lines(*rows))
        assert (answer.status, answer.json()["rows"]) == (200, len(rows))
    assert served.pipeline.query("SELECT id FROM large").to_pylist() == [{"id": 3}]
    assert served.client.ask("POST", path, b"").status == 400
    assert served.pipeline.query("SELECT id FROM orders").num_rows == 1
    nowhere = path.replace("orders", "nowhere")
    assert served.client.ask("POST", nowhere, _lines({"id": 1})).status == 404


def test_a_push_that_is_repeated_counts_once(served):
    path = "/v1/pipelines/shop/tables/lines/rows"
    for number in (0, 1):
        body = _lines({"id": number, "note": "n"})
        for duplicate in (False, True):
            answer = served.client.ask(
                "POST", path, body, X_Producer="till", X_Sequence=str(number)
            )
            assert answer.json() == {"sealed": True, "rows": 1, "duplicate": duplicate}
    early = served.client.ask("POST", path, _lines({"id": 9}), X_Producer="till", X_Sequence="7")
    assert early.status == 409
    assert "too early" in early.json()["message"]
    served.pipeline.transaction().commit()
    assert served.pipeline.query("SELECT id FROM lines").num_rows == 2


def test_a_transaction_spans_tables_and_requests(served):
    base = "/v1/pipelines/shop/transactions"
    begun = served.client.ask("POST", base).json()["transaction"]
    for _ in range(2):
        answer = served.client.ask(
            "POST", f"{base}/{begun}/tables/orders/rows?chunk=0", _lines({"id": 1, "amount": 1})
        )
        assert answer.json() == {"chunk": 0, "rows": 1}
    served.client.ask("POST", f"{base}/{begun}/tables/lines/rows", _lines({"id": 5, "note": "x"}))
    looked = served.client.ask("GET", f"{base}/{begun}").json()
    assert (looked["state"], looked["rows"], looked["chunks"]) == ("open", 2, 2)
    t = served.client.ask("POST", f"{base}/{begun}/commit").json()["time"]
    assert served.pipeline.query("SELECT id FROM lines", as_of=t).to_pylist() == [{"id": 5}]
    assert served.client.ask("POST", f"{base}/{begun}/abort").status in {400, 409}
    other = served.client.ask("POST", base).json()["transaction"]
    assert served.client.ask("POST", f"{base}/{other}/abort").json() == {"aborted": True}


def test_an_abort_may_be_repeated_and_says_why(served):
    base = "/v1/pipelines/shop/transactions"
    path = f"{base}/{served.client.ask('POST', base).json()['transaction']}"
    assert served.client.ask("POST", f"{path}/abort").status == 200
    while served.client.ask("GET", path).json()["state"] != "aborted":
        served.pipeline.store.env.tasks.sleep(1)
    assert served.client.ask("GET", path).json()["reason"] == "its user aborted it"
    again = served.client.ask("POST", f"{path}/abort")
    assert (again.status, again.json()) == (200, {"aborted": True})
    late = served.client.ask("POST", f"{path}/commit")
    assert late.status == 409
    assert "its user aborted it" in late.json()["message"]


def test_a_row_with_delete_removes_its_key(served):
    base = "/v1/pipelines/shop/transactions"
    for row in ({"id": 1, "amount": 1}, {"id": 1, "_delete": True}):
        begun = served.client.ask("POST", base).json()["transaction"]
        sent = served.client.ask("POST", f"{base}/{begun}/tables/orders/rows", _lines(row))
        assert sent.status == 200, sent.body
        served.client.ask("POST", f"{base}/{begun}/commit")
    assert served.pipeline.query("SELECT id FROM orders").num_rows == 0


def test_queries_status_history_and_metrics(served):
    served.client.ask("POST", ROWS, _lines({"id": 1, "amount": 7}))
    served.pipeline.transaction().commit()
    asked = {"sql": "SELECT id, amount FROM orders"}
    answer = served.client.ask("POST", "/v1/pipelines/shop/query", _lines(asked)).json()
    assert answer == {
        "columns": ["id", "amount"],
        "rows": [{"id": 1, "amount": 7}],
        "total": 1,
    }
    twice = _lines({"sql": "SELECT id, amount AS id FROM orders"})
    refused = served.client.ask("POST", "/v1/pipelines/shop/query", twice)
    assert (refused.status, "two columns are called 'id'" in refused.json()["message"]) == (
        400,
        True,
    )
    assert served.client.ask("GET", "/v1/pipelines").json() == {"pipelines": ["shop"]}
    status = served.client.ask("GET", "/v1/pipelines/shop/status").json()
    assert status["committed"] == 2
    assert [each["replica"] for each in status["replicas"]] == ["r1"]
    history = served.client.ask("GET", "/v1/pipelines/shop/history?count=1").json()
    assert [each["time"] for each in history["transactions"]] == [1]
    metrics = served.client.ask("GET", "/metrics").body.decode()
    assert 'strandline_pipeline_committed{pipeline="shop"} 2.0' in metrics
    assert "strandline_appends_total" in metrics


def test_sinks_are_told_over_http_too(served, tmp_path):
    text = f"""CREATE TABLE orders (id BIGINT, PRIMARY KEY (id)) USING http;
        CREATE SINK out FROM orders USING files OPTIONS (path '{tmp_path}/out');"""
    pipeline = served.store.pipeline("sold", text, engine=arrow_engine)
    with pipeline.transaction() as work:
        work.insert("orders", [{"id": 1}])
    pipeline.run(until_idle=True)
    (sink,) = served.client.ask("GET", "/v1/pipelines/sold/status").json()["sinks"]
    assert (sink["sink"], sink["state"], sink["delivered"], sink["behind"]) == (
        "out",
        "ended",
        0,
        0,
    )
    history = served.client.ask("GET", "/v1/pipelines/sold/history").json()
    assert history["transactions"][0]["sinks"] == {"out": "delivered"}
    assert [(each["sink"], each["retries"], each["cause"]) for each in history["sinks"]] == [
        ("out", 0, None)
    ]
    metrics = served.client.ask("GET", "/metrics").body.decode()
    assert 'strandline_sink_reached{pipeline="sold",sink="out"} 1.0' in metrics


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/v1/pipelines/nope/status", None, 404),
        ("GET", "/v1/pipelines/..%2F..%2Fetc/status", None, 404),
        ("POST", "/v1/pipelines/shop/tables/nope/rows", b"{}", 404),
        ("POST", "/v1/pipelines/shop/tables/orders/rows", b" \n\n", 400),
        ("POST", "/v1/pipelines/shop/query", b"not json", 400),
        ("POST", "/v1/pipelines/shop/query", b'{"sql": "DROP TABLE orders"}', 400),
        ("POST", "/v1/pipelines/shop/query", b'{"sql": "SELECT 1", "also": 2}', 400),
        ("GET", "/v1/pipelines/shop/history?count=x", None, 400),
        ("POST", "/v1/pipelines/shop/transactions/h0-00/commit", None, 404),
        ("POST", "/v1/pipelines/shop/amend", b"{}", 400),
        (
            "POST",
            "/v1/pipelines/shop/amend",
            b'{"time": 0, "endpoint": "orders", "reason": "gone", "empty": true}',
            400,
        ),
        (
            "POST",
            "/v1/pipelines/shop/amend",
            b'{"time": 0, "endpoint": "orders", "reason": "gone", "rows": [{"id": 1}]}',
            400,
        ),
        ("GET", "/nowhere", None, 404),
        ("DELETE", "/v1/pipelines/shop/status", None, 405),
    ],
)
def test_what_can_not_be_answered_says_why(served, method, path, body, status):
    served.pipeline.transaction().abort()
    answer = served.client.ask(method, path, body)
    assert answer.status == status, answer.body


def test_a_sequence_number_without_a_producer_is_refused(served):
    answer = served.client.ask("POST", ROWS, b"{}", X_Sequence="0")
    assert answer.status == 400
    assert "producer" in answer.json()["message"]


def test_x11_what_is_too_long_or_too_deep_is_refused_and_is_no_failure_of_ours(served):
    nested = b'{"time": 0, "endpoint": "o", "reason": "x", "rows": [%b]}' % (b"[" * 9_999)
    assert served.client.ask("POST", "/v1/pipelines/shop/amend", nested).status == 400
    for digits in (300, 5_000):
        path = f"/v1/pipelines/shop/transactions/h{'9' * digits}-x"
        answer = served.client.ask("GET", path)
        assert (answer.status, answer.json()["error"]) == (404, "NotFoundError")


def test_s84_metrics_tell_of_the_others_where_one_pipeline_can_not_be_read(served):
    with served.store.pipeline("hurt", TEXT, engine=arrow_engine) as hurt:
        hurt.transaction().commit()
    damage_journal(served.store.env, "hurt")
    served.pipeline.transaction().commit()
    metrics = served.client.ask("GET", "/metrics")
    text = metrics.body.decode()
    assert metrics.status == 200
    assert 'strandline_pipeline_unreadable{pipeline="hurt"} 1.0' in text
    assert 'strandline_pipeline_unreadable{pipeline="shop"} 0.0' in text
    assert 'strandline_pipeline_committed{pipeline="shop"} 1.0' in text
    assert 'strandline_pipeline_committed{pipeline="hurt"}' not in text, "nobody knows it"
