"""Numbers of pipelines, as Prometheus reads them; what shards count comes with them.

| name | meaning |
| --- | --- |
| `strandline_pipeline_committed` | transactions that are committed |
| `strandline_pipeline_lag_seconds` | seconds since the last commit |
| `strandline_pipeline_running` | 1 if a replica said within the last seconds that it runs |
| `strandline_pipeline_sealed` | 1 while a transaction is sealed and not committed |
| `strandline_pipeline_replicas` | replicas by state |
| `strandline_pipeline_open_transactions` | explicit transactions that are open |
| `strandline_source_behind` | rows that a source has beyond what was taken; for files, bytes |
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from strandline.pipeline.states import State

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strandline.pipeline.report import PipelineStatus

GAUGES = {
    "committed": "transactions that are committed",
    "lag_seconds": "seconds since the last commit",
    "running": "1 if a replica said within the last seconds that it runs",
    "sealed": "1 while a transaction is sealed and not committed",
    "open_transactions": "explicit transactions that are open",
}


def exposition(registry: CollectorRegistry, pipelines: Sequence[PipelineStatus]) -> bytes:
    """All numbers of a process's store and of these pipelines."""
    return generate_latest(registry) + generate_latest(_registry(pipelines))


def _registry(pipelines: Sequence[PipelineStatus]) -> CollectorRegistry:
    registry = CollectorRegistry()
    gauges = {
        name: Gauge(f"strandline_pipeline_{name}", text, ["pipeline"], registry=registry)
        for name, text in GAUGES.items()
    }
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
    for each in pipelines:
        for name, value in _numbers(each).items():
            gauges[name].labels(each.name).set(value)
        for state, count in Counter(str(one.state) for one in each.replicas).items():
            replicas.labels(each.name, state).set(count)
        for source in each.endpoints:
            if source.behind is not None:
                behind.labels(each.name, source.name).set(source.behind)
    return registry


def _numbers(status: PipelineStatus) -> dict[str, float]:
    return {
        "committed": status.committed.time or 0,
        "lag_seconds": status.lag_seconds or 0,
        "running": int(status.state == State.RUNNING),
        "sealed": int(status.sealed is not None),
        "open_transactions": len(status.transactions),
    }
