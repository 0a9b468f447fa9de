"""Numbers of pipelines, as Prometheus reads them; what shards count comes with them.

| name | meaning |
| --- | --- |
| `strandline_pipeline_committed` | transactions that are committed |
| `strandline_pipeline_lag_seconds` | seconds since the last commit |
| `strandline_pipeline_running` | 1 if a replica said within the last seconds that it runs |
| `strandline_pipeline_stalled` | 1 while its best replica stands still although there is work |
| `strandline_pipeline_still_seconds` | for how long that one has committed nothing |
| `strandline_pipeline_sealed` | 1 while a transaction is sealed and not committed |
| `strandline_pipeline_replicas` | replicas by state |
| `strandline_pipeline_open_transactions` | explicit transactions that are open |
| `strandline_pipeline_unreadable` | 1 if where it stands can't be read: nothing else is told then |
| `strandline_source_behind` | rows that a source has beyond what was taken; for files, bytes |
| `strandline_sink_reached` | transactions that a sink has, or that have nothing for it |
| `strandline_sink_behind` | committed transactions that it has not reached |
| `strandline_sink_lag_seconds` | seconds since the first of them was committed, if it is known |
| `strandline_sink_retries` | how often in a row it was tried in vain |
| `strandline_sink_still_seconds` | for how long there was something to deliver, and nothing was |
| `strandline_sink_stalled` | 1 while its publisher is at one thing for longer than `stall_ms` |
| `strandline_sink_stopped` | 1 if it can't go on until somebody has looked |
| `strandline_sink_paused` | 1 while somebody has paused it |
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from strandline.pipeline.report import PipelineStatus, Unreadable
from strandline.pipeline.states import SinkState, State

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strandline.pipeline.sink_status import SinkReport

GAUGES = {
    "committed": "transactions that are committed",
    "lag_seconds": "seconds since the last commit",
    "running": "1 if a replica said within the last seconds that it runs",
    "stalled": "1 while its best replica stands still although there is work",
    "still_seconds": "for how long that one has committed nothing",
    "sealed": "1 while a transaction is sealed and not committed",
    "open_transactions": "explicit transactions that are open",
    "unreadable": "1 if where it stands can't be read: nothing else is told then",
}
SINKS = {
    "reached": "transactions that a sink has, or that have nothing for it",
    "behind": "committed transactions that it has not reached",
    "lag_seconds": "seconds since the first of them was committed, if it is known",
    "retries": "how often in a row it was tried in vain",
    "still_seconds": "for how long there was something to deliver, and nothing was",
    "stalled": "1 while its publisher is at one thing for longer than `stall_ms`",
    "stopped": "1 if it can't go on until somebody has looked",
    "paused": "1 while somebody has paused it",
}


def exposition(
    registry: CollectorRegistry, pipelines: Sequence[PipelineStatus | Unreadable]
) -> bytes:
    """All numbers of a process's store and of these pipelines."""
    own = CollectorRegistry()
    _tell(own, pipelines)
    _tell_more(own, [each for each in pipelines if isinstance(each, PipelineStatus)])
    return generate_latest(registry) + generate_latest(own)


def _tell(registry: CollectorRegistry, pipelines: Sequence[PipelineStatus | Unreadable]) -> None:
    gauges = {
        name: Gauge(f"strandline_pipeline_{name}", text, ["pipeline"], registry=registry)
        for name, text in GAUGES.items()
    }
    for each in pipelines:
        for name, value in _numbers(each).items():
            gauges[name].labels(each.name).set(value)


def _tell_more(registry: CollectorRegistry, pipelines: Sequence[PipelineStatus]) -> None:
    """Of their replicas, sources and sinks."""
    replicas = Gauge(
        "strandline_pipeline_replicas", "replicas by state", ["pipeline", "state"],
        registry=registry,
    )  # fmt: skip
    behind = Gauge(
        "strandline_source_behind",
        "rows that a source has beyond what was taken; for files, bytes",
        ["pipeline", "source"],
        registry=registry,
    )
    sinks = {
        name: Gauge(f"strandline_sink_{name}", text, ["pipeline", "sink"], registry=registry)
        for name, text in SINKS.items()
    }
    for each in pipelines:
        for state, count in Counter(str(one.state) for one in each.replicas).items():
            replicas.labels(each.name, state).set(count)
        for source in each.endpoints:
            if source.behind is not None:
                behind.labels(each.name, source.name).set(source.behind)
        for sink in each.sinks:
            for name, value in _of_sink(sink).items():
                sinks[name].labels(each.name, sink.name).set(value)


def _numbers(status: PipelineStatus | Unreadable) -> dict[str, float]:
    if isinstance(status, Unreadable):
        return {"unreadable": 1}
    return {
        "committed": status.committed.time or 0,
        "lag_seconds": status.lag_seconds or 0,
        "running": int(status.state == State.RUNNING),
        "stalled": int(status.state == State.STALLED),
        "still_seconds": status.still_seconds,
        "sealed": int(status.sealed is not None),
        "open_transactions": len(status.transactions),
        "unreadable": 0,
    }


def _of_sink(sink: SinkReport) -> dict[str, float]:
    found: dict[str, float] = {
        "reached": 0 if sink.reached is None else sink.reached + 1,
        "behind": sink.behind,
        "retries": sink.retries,
        "still_seconds": sink.still_seconds,
        "stalled": int(sink.state == SinkState.STALLED),
        "stopped": int(sink.stopped),
        "paused": int(sink.paused),
    }
    return found if sink.lag_seconds is None else found | {"lag_seconds": sink.lag_seconds}
