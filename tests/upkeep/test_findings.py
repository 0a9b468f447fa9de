"""What is wrong with rows, compared with what a state says of them."""

from __future__ import annotations

import msgspec
import pytest

from strandline.model.digest import Digest
from strandline.upkeep.findings import Report, Severity, check_rows, damaged, leftover, note

from .upkeep_lab import Table


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({}, None),
        ({"t_max": 0, "t_min": 0}, "times"),
        ({"place_lo": 2**64 - 1}, "places"),
        ({"digest": Digest(1, 2, 3).pack()}, "add up"),
        ({"inserts": True}, "single insertions"),
    ],
)
def test_facts_that_are_not_true_are_found(lab, facts, reason):
    table = Table(lab, inline_max_bytes=0)
    table.append((0, "x", 1))
    table.append((1, "x", 1), (2, "y", 2))
    part = table.parts()[1]
    rows = list(table.tables())[1]
    wrong = list(check_rows(msgspec.structs.replace(part, **facts), rows, table.state.schema))
    assert (not wrong) if reason is None else any(reason in each for each in wrong)


def test_a_report_is_sound_unless_there_is_damage():
    report = Report([note("s", "a", "b"), leftover("s", "a", "b", repaired=False)])
    assert report.sound
    report.findings.append(damaged("s", "a", "b"))
    assert not report.sound
    assert [len(report.of(severity)) for severity in Severity] == [1, 1, 1]
    assert all(finding.advice for finding in report.of(Severity.DAMAGE))
