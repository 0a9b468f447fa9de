"""S18 to S20: what people can see of a source, and what the tests of it are worth."""

from __future__ import annotations

import ast
import logging
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from strandline.errors import NotAppliedError
from strandline.ingest.health import Health as IngestHealth
from strandline.reading.watch import Health
from strandline.shard.metrics import COUNTERS, GAUGES
from strandline.testing.faults import Fault
from strandline.testing.seeds import try_seeds
from strandline.testing.simulation import Simulation

from . import test_fetching, test_leases, test_starting, test_stopping
from .conftest import Place, Process, Seen

HERE = Path(__file__).parent
CONTRACT = Path(__file__).parents[2] / "docs" / "metrics.md"
TEN_MINUTES = 600_000


def test_s18_published_names_are_those_of_the_contract_file() -> None:
    page = CONTRACT.read_text()
    metrics = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    words = re.findall(r"^- `(\w+)`", page, re.MULTILINE)
    assert metrics == [f"strandline_{name}" for name in (*COUNTERS, *GAUGES)]
    assert words == [each.value for each in (*Health, *IngestHealth)]


Plant = Callable[[pytest.MonkeyPatch], None]
Scenario = Callable[[Simulation], None]

MUTANTS: list[tuple[str, Plant, Scenario]] = [
    ("S1", test_fetching.failure_is_forgotten, lambda sim: test_fetching.missing_part(sim, 1)),
    ("S2", test_fetching.failure_is_forgotten, lambda sim: test_fetching.missing_part(sim, 0)),
    ("S4", test_fetching.first_come_first_served, test_fetching.arrivals_in_reverse),
    ("S8", test_stopping.drops_on_local_press, test_stopping.one_of_two_workers_stops),
    ("S10", test_stopping.nobody_is_notified, test_stopping.stop_while_parked),
    ("S14", test_starting.opens_after_the_signal, test_starting.waits_for_its_signal),
    ("S42", test_leases.selects_before_it_leases, test_leases.collected_between_pick_and_lease),
]


def _caught(monkeypatch: pytest.MonkeyPatch, plant: Plant, scenario: Scenario, runs: int) -> int:
    with monkeypatch.context() as planted:
        plant(planted)
        report = try_seeds(scenario, range(1_000, 1_000 + runs), failures_max=runs + 1)
    return len(report.failures)


@pytest.mark.simulation
@pytest.mark.parametrize(("name", "plant", "scenario"), MUTANTS, ids=[m[0] for m in MUTANTS])
def test_s19_every_regression_test_fails_on_its_mutant(
    monkeypatch: pytest.MonkeyPatch, name: str, plant: Plant, scenario: Scenario
) -> None:
    assert _caught(monkeypatch, plant, scenario, 20) == 20, name
    assert not try_seeds(scenario, range(1_000, 1_003)).failures, "it fails without the bug, too"


@pytest.mark.slow
@pytest.mark.parametrize(("name", "plant", "scenario"), MUTANTS, ids=[m[0] for m in MUTANTS])
def test_s19_in_99_of_100_runs(
    monkeypatch: pytest.MonkeyPatch, name: str, plant: Plant, scenario: Scenario
) -> None:
    assert _caught(monkeypatch, plant, scenario, 100) >= 99, name


def _steps_by_count(tree: ast.Module) -> list[int]:
    """Lines that let real time pass, or drive a simulation by a number of steps."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = node.func.value
            timed = node.func.attr == "sleep" and isinstance(owner, ast.Name) and owner.id == "time"
            # A replica's step is another thing: a decision, whose outcome is waited for.
            drives = isinstance(owner, ast.Name) and owner.id in {"sim", "scheduler"}
            if timed or (node.func.attr in {"_step", "step"} and drives):
                found.append(node.lineno)
    return found


def test_s19_no_scenario_counts_iterations_or_sleeps() -> None:
    assert _steps_by_count(ast.parse("time.sleep(1)\nsim._step(3)\nsim.run_until(f)")) == [1, 2]
    for path in sorted(HERE.glob("*.py")):
        lines = _steps_by_count(ast.parse(path.read_text()))
        assert not lines, f"{path.name} lines {lines}: wait for quiet or for a virtual deadline"


def _hang(process: Process, key: str) -> list[str]:
    """The first read of an object hangs for ten minutes; those after it do not."""
    hung: list[str] = []

    def rule(call: str, read: str) -> Fault | None:
        if call == "blob.get" and read == key and not hung:
            hung.append(read)
            return Fault(request_ms=TEN_MINUTES)
        return None

    process.fates.add(rule)
    return hung


def _told(caplog: pytest.LogCaptureFixture, key: str) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.name == "strandline.reading.fetch" and key in record.getMessage()
    ]


def test_s20_a_read_that_hangs_is_counted_named_once_and_tried_again(
    sim: Simulation, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    place = Place(sim)
    process = place.open("source")
    place.fill(process, 3)
    (key,) = place.keys_at(1)
    _hang(process, key)
    start = sim.elapsed_ms()
    seen = Seen(process)
    sim.run(until_ms=start + 59_000)
    assert (process.metrics.value("slow_reads", "orders"), _told(caplog, key)) == (0, [])
    sim.run(until_ms=start + 62_000)
    (line,) = _told(caplog, key)
    assert line == f"part {key} of shard orders: its read has taken 60 s so far"
    assert process.metrics.value("slow_reads", "orders") == 1
    status = process.call(seen.subscription.status)
    assert status.health is Health.STALLED
    assert key in str(status)
    assert process.metrics.value("stalls", "orders") == 1
    sim.run(until_ms=start + 299_000)
    assert not seen.told(3)
    sim.run_until(lambda: seen.told(3), within_ms=3_000)
    sim.run(until_ms=start + 2 * TEN_MINUTES)
    assert seen.ids() == [0, 1, 2], "what the hung read brought in the end was thrown away"
    assert process.metrics.value("retries", "orders") == 1
    assert len(_told(caplog, key)) == 1
    assert process.call(seen.subscription.status).health is Health.RUNNING


def test_s20_a_snapshot_that_hangs_ends_with_an_error_to_retry(
    sim: Simulation, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    place = Place(sim)
    process = place.open("source")
    place.fill(process, 3)
    (key,) = place.keys_at(1)
    _hang(process, key)
    shard = process.shard
    start = sim.elapsed_ms()
    with pytest.raises(NotAppliedError, match=f"{key} of shard orders did not arrive within 300 s"):
        process.call(lambda: shard.snapshot().to_arrow())
    assert 300_000 <= sim.elapsed_ms() - start <= 302_000
    assert len(_told(caplog, key)) == 1
    found = process.call(lambda: shard.snapshot().to_arrow())
    assert sorted(found["id"].to_pylist()) == [0, 1, 2]
