"""What came of work on a store, as tables. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from strandline.cli.escape import visible
from strandline.cli.render import Column, Stack, counted, frontier, number, size, table
from strandline.upkeep.findings import Severity

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from strandline.cli.facts import Document
    from strandline.cli.render import Grid
    from strandline.upkeep.findings import Finding, Report

_STYLES = {Severity.DAMAGE: "bold red", Severity.LEFTOVER: "yellow", Severity.NOTE: "dim"}


def compaction_table(shards: Iterable[Mapping[str, object]]) -> Grid:
    """Before and after, side by side, one line a shard."""
    rows = []
    for each in shards:
        before, after = each["before"], each["after"]
        if not isinstance(before, dict) or not isinstance(after, dict):
            continue
        rows.append(
            [
                str(each["shard"]),
                _moved(number(before["parts"]), number(after["parts"])),
                _moved(number(before["updates"]), number(after["updates"])),
                _moved(size(before["bytes"]), size(after["bytes"])),
                _moved(frontier(before["since"]), frontier(after["since"])),
                number(each["objects_deleted"]),
            ]
        )
    columns = [
        Column("shard", style="cyan", fold=True),
        Column("parts", right=True),
        Column("updates", right=True),
        Column("bytes", right=True),
        Column("since", right=True),
        Column("deleted", right=True),
    ]
    return table(columns, rows)


def _moved(before: str, after: str) -> str:
    return after if before == after else f"{before} → {after}"


def fsck_document(report: Report) -> Document:
    """What a check found: `strandline fsck`."""
    return {
        "sound": report.sound,
        "deep": report.deep,
        "shards": report.shards,
        "journals": report.journals,
        "objects": report.objects,
        "bytes": report.object_bytes,
        "findings": [
            {
                "severity": each.severity.name.lower(),
                "shard": each.shard or None,
                "thing": each.thing,
                "reason": each.reason,
                "advice": each.advice or None,
                "bytes": each.size,
                "repaired": each.repaired,
            }
            for each in report.findings
        ],
    }


def fsck_lines(report: Report, limit: int = 50) -> Stack:
    """The worst first, each with its reason and what to do; then one line that sums it up."""
    ranked = sorted(report.findings, key=lambda each: list(Severity).index(each.severity))
    lines = [line for each in ranked[:limit] for line in _finding_lines(each)]
    if len(ranked) > limit:
        lines.append(Text(f"and {number(len(ranked) - limit)} more: --json", style="dim"))
    return Stack((*lines, _verdict(report)))


def _finding_lines(finding: Finding) -> list[Text]:
    """What, where and why in one line each: keys are long, and must not be cut."""
    severity = finding.severity.name.lower()
    where = f"{visible(finding.shard)}: " if finding.shard else ""
    told = f" ({size(finding.size)})" if finding.size else ""
    lines = [
        Text.assemble(
            (f"{severity:<9}", _STYLES[finding.severity]), where, visible(finding.thing), told
        ),
        Text(f"{'':9}{visible(finding.reason)}"),
    ]
    step = "repaired" if finding.repaired else visible(finding.advice)
    if step:
        lines.append(Text(f"{'':9}→ {step}", style="green" if finding.repaired else "bold"))
    return lines


def _verdict(report: Report) -> Text:
    depth = "every object read" if report.deep else "sizes compared; --deep reads every object"
    looked = (
        f"{counted(report.shards, 'shard')}, {counted(report.journals, 'journal')}, "
        f"{counted(report.objects, 'object')}, "
        f"{size(report.object_bytes)}; {depth}"
    )
    damage = len(report.of(Severity.DAMAGE))
    if damage:
        return Text.assemble(
            (f"damaged: {counted(damage, 'finding')}", "bold red"), f" in {looked}"
        )
    return Text.assemble(("sound", "bold green"), f": {looked}")
