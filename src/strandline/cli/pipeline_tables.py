"""Documents of pipelines as tables. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from strandline.cli.render import (
    Column,
    Stack,
    counted,
    number,
    pairs,
    shown,
    signed,
    span,
    table,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from strandline.cli.render import Grid, Shown

_STYLES = {
    "running": "green",
    "starting": "cyan",
    "stopping": "cyan",
    "paused": "yellow",
    "stalled": "bold yellow",
    "silent": "bold yellow",
    "failed": "bold red",
    "fenced": "red",
}


def state_text(state: object) -> Text:
    return shown(str(state), _STYLES.get(str(state), ""))


def summary_table(pipelines: Sequence[Mapping[str, object]]) -> Grid:
    """One line a pipeline."""
    columns = [
        Column("pipeline"),
        Column("state"),
        Column("committed", right=True),
        Column("lag", right=True),
        Column("behind", right=True, spare=1),
        Column("replicas", fold=True, spare=2),
        Column("why", fold=True),
    ]
    rows = [
        (
            str(each["pipeline"]),
            state_text(each["state"]),
            _last(each),
            span(each["lag_seconds"]),
            number(_behind(each)),
            ", ".join(f"{one['replica']} {one['state']}" for one in _listed(each, "replicas")),
            str(each["cause"] or ""),
        )
        for each in pipelines
    ]
    return table(columns, rows)


def status_tables(document: Mapping[str, object]) -> list[Shown]:
    """Everything about one pipeline."""
    sealed, checkpoint = document["sealed"], document["checkpoint"]
    facts: list[tuple[str, str | Text]] = [
        ("pipeline", str(document["pipeline"])),
        ("state", _state(document)),
        ("committed", f"up to {_last(document)}, {span(document['lag_seconds'])} ago"),
        ("sealed", "nothing" if sealed is None else f"{sealed}, being computed"),
        ("checkpoint", "none yet" if checkpoint is None else f"at {checkpoint}"),
        ("verifiable", f"from {document['verifiable_from']}"),
        ("program", f"{str(document['program'])[:12]}, e{document['epoch']}"),
    ]
    made: list[Shown] = [pairs(facts)]
    for rows, columns in (
        (_sources(document), _SOURCES),
        (_replicas(document), _REPLICAS),
        (_transactions(document), _TRANSACTIONS),
    ):
        if rows:
            made.append(table(columns, rows))
    made += [shown(f"damaged: {each}", "red") for each in _texts(document["findings"])]
    return made


_SOURCES = [
    Column("source"),
    Column("state"),
    Column("behind", right=True),
    Column("position", fold=True),
]
_REPLICAS = [
    Column("replica"),
    Column("state"),
    Column("committed", right=True),
    Column("seen", right=True),
    Column("where"),
    Column("why", fold=True),
]
_TRANSACTIONS = [
    Column("open transaction"),
    Column("state"),
    Column("rows", right=True),
    Column("touched"),
]


def history_table(transactions: Sequence[Mapping[str, object]]) -> Stack:
    """One line a transaction, the newest first."""
    columns = [
        Column("t", right=True),
        Column("committed", spare=1),
        Column("took", right=True, spare=2),
        Column("rows in", right=True),
        Column("changes", fold=True),
    ]
    rows = [
        (
            str(each["time"]),
            str(each["instant"]),
            f"{each['took_ms']} ms",
            number(each["rows"]),
            _changes(each["changes"]) + _amended(each["amended"]),
        )
        for each in transactions
    ]
    left = Text(counted(len(rows), "transaction"), style="dim")
    return Stack((table(columns, rows), left))


def _changes(changes: object) -> str:
    found = changes if isinstance(changes, dict) else {}
    return ", ".join(f"{name} {signed(count)}" for name, count in sorted(found.items()))


def _amended(reasons: object) -> str:
    found = reasons if isinstance(reasons, dict) else {}
    return "".join(f"; {name} amended: {reason}" for name, reason in sorted(found.items()))


def _state(document: Mapping[str, object]) -> Text:
    text = state_text(document["state"])
    if document["cause"]:
        text = text + shown(f": {document['cause']}")
    return text


def _last(document: Mapping[str, object]) -> str:
    """The last committed time; a frontier is the one after it."""
    committed = document["committed"]
    return str(committed - 1) if isinstance(committed, int) and committed else "-"


def _behind(document: Mapping[str, object]) -> int | None:
    known = [each["behind"] for each in _listed(document, "sources")]
    counts = [each for each in known if isinstance(each, int)]
    return sum(counts) if counts else None


def _sources(document: Mapping[str, object]) -> list[tuple[str | Text, ...]]:
    return [
        (
            str(each["source"]),
            str(each["state"]),
            number(each["behind"]) or "-",
            _position(each["position"]),
        )
        for each in _listed(document, "sources")
    ]


def _position(position: object) -> str:
    found = position if isinstance(position, dict) else {}
    some = sorted(found.items())[-4:]
    more = f"{len(found)} parts, … " if len(found) > len(some) else ""
    return more + ", ".join(f"{part}: {number(offset)}" for part, offset in some)


def _replicas(document: Mapping[str, object]) -> list[tuple[str | Text, ...]]:
    return [
        (
            f"{each['replica']}{' (read-only)' if each['read_only'] else ''}",
            state_text(each["state"]),
            str(each["committed"]),
            f"{span(each['seen_seconds_ago'])} ago",
            f"{each['host']} {each['pid']}",
            "; ".join(filter(None, (str(each["cause"] or ""), audit_text(each["audit"])))),
        )
        for each in _listed(document, "replicas")
    ]


def audit_text(audit: object) -> str:
    """What a read-only replica verified, and what not; nothing for one that writes."""
    if not isinstance(audit, dict):
        return ""
    said = f"verified {number(audit['verified'])}"
    for word in ("differed", "skipped"):
        said += f", {word} {number(audit[word])}" if audit[word] else ""
    said += f", inputs alone {number(audit['inputs'])}" if audit["inputs"] else ""
    told = _texts(audit["told"])
    return f"{said} ({'; '.join(told)})" if told else said


def _transactions(document: Mapping[str, object]) -> list[tuple[str | Text, ...]]:
    return [
        (str(each["transaction"]), str(each["state"]), number(each["rows"]), str(each["touched"]))
        for each in _listed(document, "transactions")
    ]


def _listed(document: Mapping[str, object], name: str) -> list[dict[str, object]]:
    found = document[name]
    return found if isinstance(found, list) else []


def _texts(found: object) -> list[str]:
    return [str(each) for each in found] if isinstance(found, list) else []
