"""What came of work on a store, as tables."""

from __future__ import annotations

from strandline.cli.reports import compaction_table, fsck_document, fsck_lines
from strandline.upkeep.findings import Report, damaged, leftover, note


def test_compaction_shows_before_and_after_only_where_they_differ():
    before = {"parts": 9, "updates": 12, "bytes": 5_000, "since": 0}
    after = {"parts": 1, "updates": 10, "bytes": 5_000, "since": 4}
    entry = {"shard": "orders", "before": before, "after": after, "objects_deleted": 9}
    header, line = compaction_table([entry]).lines()
    assert header.split() == ["shard", "parts", "updates", "bytes", "since", "deleted"]
    assert " ".join(line.split()) == "orders 9 → 1 12 → 10 5.0 kB {0} → {4} 9"


def test_the_worst_findings_come_first_and_the_rest_are_counted():
    findings = [note("a", f"n{number}", "so it is") for number in range(3)]
    findings.append(damaged("a", "part p\x1b[31m", "it is missing"))
    report = Report(findings, shards=1, objects=2, object_bytes=3_000)
    lines = list(fsck_lines(report, limit=2).lines())
    assert lines[0] == "damage   a: part p\\x1b[31m"
    assert lines[1].strip() == "it is missing"
    assert lines[2].strip().startswith("→ restore the object")
    assert lines[-2] == "and 2 more: --json"
    assert lines[-1].startswith("damaged: 1 finding in 1 shard, 0 journals, 2 objects, 3.0 kB")


def test_what_was_repaired_says_so():
    report = Report([leftover("", "x.tmp", "broke off", size=10, repaired=True)], deep=True)
    lines = list(fsck_lines(report).lines())
    assert lines[0] == "leftover x.tmp (10 B)"
    assert lines[2].strip() == "→ repaired"
    assert lines[-1] == "sound: 0 shards, 0 journals, 0 objects, 0 B; every object read"


def test_the_document_has_stable_names():
    report = Report([leftover("a", "k", "r", size=1, repaired=False)], shards=1)
    found = fsck_document(report)
    assert " ".join(found) == "sound deep shards journals objects bytes findings"
    assert found["findings"] == [
        {
            "severity": "leftover",
            "shard": "a",
            "thing": "k",
            "reason": "r",
            "advice": "run fsck with --repair",
            "bytes": 1,
            "repaired": False,
        }
    ]
