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
    "publishing": "green",
    "retrying": "bold yellow",
    "blocked": "bold yellow",
}


def state_text(state: object) -> Text:
    return shown(str(state), _STYLES.get(str(state), ""))


def sink_state_text(state: object) -> Text:
    """A replica that stopped was told to; a sink that did could not go on."""
    return shown("stopped", "bold red") if state == "stopped" else state_text(state)


def summary_table(pipelines: Sequence[Mapping[str, object]]) -> Grid:
    """One line a pipeline."""
    columns = [
        Column("pipeline"),
        Column("state"),
        Column("committed", right=True),
        Column("lag", right=True),
        Column("behind", right=True, spare=1),
        Column("replicas", fold=True, spare=2),
        Column("sinks", fold=True, spare=3),
        Column("why", fold=True),
    ]
    rows = [
        (
            str(each["pipeline"]),
            state_text(each["state"]),
            _last(each),
            span(each["lag_seconds"]),
            number(_behind(each)),
            ", ".join(f"{one['replica']} {one['state']}" for one in listed(each, "replicas")),
            sinks_text(listed(each, "sinks")),
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
    ]
    if not document["readable"]:
        return [pairs(facts)]
    facts += [
        ("committed", f"up to {_last(document)}, {span(document['lag_seconds'])} ago"),
        ("sealed", "nothing" if sealed is None else f"{sealed}, being computed"),
        ("checkpoint", "none yet" if checkpoint is None else f"at {checkpoint}"),
        ("verifiable", f"from {document['verifiable_from']}"),
        ("retained", "all" if document["retain"] is None else f"{document['retain']} transactions"),
        ("program", f"{str(document['program'])[:12]}, e{document['epoch']}"),
    ]
    made: list[Shown] = [pairs(facts)]
    for rows, columns in (
        (_sources(document), _SOURCES),
        (_sinks(document), _SINKS),
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
_SINKS = [
    Column("sink"),
    Column("state"),
    Column("delivered", right=True),
    Column("behind", right=True),
    Column("lag", right=True),
    Column("still", right=True, spare=1),
    Column("tries", right=True, spare=2),
    Column("by", spare=3),
    Column("why", fold=True),
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


def sinks_table(document: Mapping[str, object]) -> list[Shown]:
    """The sinks of a pipeline, if it has any."""
    rows = _sinks(document)
    return [table(_SINKS, rows)] if rows else []


def history_table(transactions: Sequence[Mapping[str, object]]) -> Stack:
    """One line a transaction, the newest first."""
    columns = [
        Column("t", right=True),
        Column("committed", spare=1),
        Column("took", right=True, spare=2),
        Column("rows in", right=True),
        Column("changes", fold=True),
        Column("sinks", fold=True),
    ]
    rows = [
        (
            str(each["time"]),
            str(each["instant"]),
            f"{each['took_ms']} ms",
            number(each["rows"]),
            _changes(each["changes"]) + _amended(each["amended"]),
            _fates(each["sinks"]),
        )
        for each in transactions
    ]
    left = Text(counted(len(rows), "transaction"), style="dim")
    return Stack((table(columns, rows), left))


def _changes(changes: object) -> str:
    found = changes if isinstance(changes, dict) else {}
    return ", ".join(f"{name} {signed(count)}" for name, count in sorted(found.items()))


def _fates(sinks: object) -> str:
    found = sinks if isinstance(sinks, dict) else {}
    return ", ".join(f"{name} {fate}" for name, fate in sorted(found.items()))


def sinks_text(sinks: Sequence[Mapping[str, object]]) -> str:
    """Each sink, and how far it is behind, in a few words."""
    return ", ".join(
        f"{each['sink']} {each['state']}"
        + (f" {number(each['behind'])} behind" if each["behind"] else "")
        for each in sinks
    )


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
    known = [each["behind"] for each in listed(document, "sources")]
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
        for each in listed(document, "sources")
    ]


def _sinks(document: Mapping[str, object]) -> list[tuple[str | Text, ...]]:
    return [
        (
            f"{each['sink']} ({each['connector']}, of {each['source']})",
            sink_state_text(each["state"]),
            "-" if each["delivered"] is None else str(each["delivered"]),
            number(each["behind"]) or "-",
            span(each["lag_seconds"]),
            span(each["still_seconds"]) if each["still_seconds"] else "-",
            number(each["retries"]) or "-",
            str(each["publisher"] or "-"),
            str(each["cause"] or ""),
        )
        for each in listed(document, "sinks")
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
        for each in listed(document, "replicas")
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
        for each in listed(document, "transactions")
    ]


def listed(document: Mapping[str, object], name: str) -> list[dict[str, object]]:
    """The documents under a name."""
    found = document[name]
    return found if isinstance(found, list) else []


def _texts(found: object) -> list[str]:
    return [str(each) for each in found] if isinstance(found, list) else []
