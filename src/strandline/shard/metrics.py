"""What a process counts about its shards, by names that a test keeps stable.

The counters live in a registry of prometheus-client's, one per store, so that an exporter can
be put on top; `table()` is for people.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge

COUNTERS = {
    "appends": "appends that counted",
    "append_rows": "rows in appends that counted",
    "append_mismatches": "appends that found another upper",
    "append_repeats": "appends of batches that had counted before",
    "commits": "metadata versions committed",
    "conflicts": "commits that another one overtook",
    "doubts": "store calls of unknown outcome, resolved by reading back",
    "retries": "store calls repeated after they did not happen",
    "renewals": "heartbeats committed",
    "downgrades": "holds moved forward",
    "leases_lost": "leases that ran out while their owner was away",
    "lease_errors": "rounds of lease keeping that failed unexpectedly",
    "leases_expired": "leases of others that were dropped",
    "manifests": "manifests written",
    "parts_written": "part objects written",
    "bytes_written": "bytes of part objects written",
    "parts_read": "part objects read",
    "bytes_read": "bytes of part objects read",
    "parts_pruned": "part objects that statistics made unnecessary to read",
    "prune_audits": "pruned parts that were read to prove the pruning right",
    "compactions": "compactions that counted",
    "compactions_stale": "compactions that somebody else overtook",
    "compaction_bytes": "bytes written by compaction",
    "upkeep_errors": "rounds of upkeep that failed",
    "objects_deleted": "objects deleted by garbage collection",
    "orphans_deleted": "objects deleted that nothing ever referred to",
    "stalls": "times a reader was found stalled",
    "slow_reads": "object reads that took suspiciously long",
    "attendant_errors": "times a replica could not say in the store how it is",
    "replica_stalls": "times a replica of a pipeline was found stalled",
    "ingest_commands": "commands that an ingest took in",
    "ingest_dropped": "commands that an ingest dropped, because their times were settled",
    "ingest_won": "intervals that an ingest settled itself",
    "ingest_lost": "intervals that somebody else settled first",
    "ingest_unverified": "intervals of others that could not be compared any more",
    "ingest_spilled_bytes": "bytes of commands spilled, because memory was full",
    "ingest_stalls": "times an ingest was found stalled",
}
GAUGES = {
    "readers": "leased readers of this process",
    "lag_seconds": "seconds since the newest settled time",
    "bytes_in_flight": "bytes of parts being fetched",
}


class Metrics:
    """The counters and gauges of one store in this process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._counters = {
            name: Counter(f"strandline_{name}", text, ["shard"], registry=self.registry)
            for name, text in COUNTERS.items()
        }
        self._gauges = {
            name: Gauge(f"strandline_{name}", text, ["shard"], registry=self.registry)
            for name, text in GAUGES.items()
        }
        self._of_shard: dict[tuple[str, str], Counter] = {}
        """Finding a labelled counter costs more than counting, and every append counts."""

    def add(self, name: str, shard: str = "", by: float = 1) -> None:
        counter = self._of_shard.get((name, shard))
        if counter is None:
            counter = self._of_shard[name, shard] = self._counters[name].labels(shard)
        counter.inc(by)

    def set(self, name: str, value: float, shard: str = "") -> None:
        self._gauges[name].labels(shard).set(value)

    def value(self, name: str, shard: str = "") -> float:
        """One number; zero if it was never counted."""
        suffix = "_total" if name in COUNTERS else ""
        found = self.registry.get_sample_value(f"strandline_{name}{suffix}", {"shard": shard})
        return 0.0 if found is None else found

    def table(self) -> list[tuple[str, str, float]]:
        """All that is not zero, as (name, shard, value), sorted."""
        rows = [
            (sample.name.removeprefix("strandline_").removesuffix("_total"), shard, sample.value)
            for family in self.registry.collect()
            for sample in family.samples
            if not sample.name.endswith("_created") and sample.value
            for shard in (sample.labels["shard"],)
        ]
        return sorted(rows)
