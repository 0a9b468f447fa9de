"""Tests of what a process counts; the names are a contract (S18)."""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline.shard.metrics import COUNTERS, GAUGES, Metrics


def test_counters_and_gauges_are_read_back() -> None:
    metrics = Metrics()
    metrics.add("appends", "orders")
    metrics.add("appends", "orders", by=2)
    metrics.set("readers", 4)
    assert metrics.value("appends", "orders") == 3
    assert metrics.value("appends", "stock") == 0
    assert metrics.table() == [("appends", "orders", 3.0), ("readers", "", 4.0)]


def test_a_name_that_is_not_declared_is_a_bug() -> None:
    with pytest.raises(KeyError):
        Metrics().add("apends")


def test_s18_published_names_change_only_together_with_the_contract_file() -> None:
    page = Path(__file__).parents[2] / "docs" / "metrics.md"
    listed = [
        line.split("`")[1] for line in page.read_text().splitlines() if line.startswith("| `")
    ]
    assert listed == [f"strandline_{name}" for name in (*COUNTERS, *GAUGES)]
