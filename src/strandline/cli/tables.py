"""Documents as tables for people: one function for each verb's answer. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from strandline.cli.escape import cell, visible
from strandline.cli.render import (
    Column,
    Stack,
    counted,
    frontier,
    number,
    pairs,
    shown,
    signed,
    size,
    span,
    table,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from strandline.cli.render import Grid, Shown


def shards_table(shards: Sequence[Mapping[str, object]]) -> Grid:
    """One line a shard; an attached one is `name @ timeline`."""
    columns = [
        Column("shard", style="cyan", fold=True),
        Column("rows", right=True),
        Column("updates", right=True, spare=2),
        Column("parts", right=True),
        Column("bytes", right=True),
        Column("since", right=True),
        Column("upper", right=True, style="bold"),
        Column("lag", right=True),
        Column("readers", right=True, spare=1),
        Column("writers", right=True, spare=1),
    ]
    rows = [
        [
            f"{each['name']} @ {each['timeline']}" if each["timeline"] else str(each["name"]),
            number(each["rows"]),
            number(each["updates"]),
            number(each["parts"]),
            size(each["bytes"]),
            frontier(each["since"]),
            frontier(each["upper"]),
            "closed" if each["closed"] else span(each["lag_seconds"]),
            number(each["readers"]),
            number(each["writers"]),
        ]
        for each in shards
    ]
    return table(columns, rows)


def shards_answer(
    shards: Sequence[Mapping[str, object]], unreadable: Sequence[Mapping[str, object]], store: str
) -> list[Shown]:
    """The shards that can be read, then those that can't; a store may have neither."""
    if not shards and not unreadable:
        return [Text("no shards yet", style="dim")]
    readable: list[Shown] = [shards_table(shards)] if shards else []
    return [*readable, *unreadable_lines(unreadable, store)]


def unreadable_lines(shards: Sequence[Mapping[str, object]], store: str) -> list[Text]:
    """Shards of which nothing can be told, each with the reason; and what to try next."""
    lines = [
        Text.assemble(
            ("unreadable", "bold red"),
            f"  {visible(str(each['name']))}: {visible(str(each['reason']))}",
        )
        for each in shards
    ]
    step = Text(f"next: strandline fsck {visible(store)}", style="bold")
    return [Text("\n").join([*lines, step])] if lines else []


def history_table(entries: Iterable[Mapping[str, object]], *, digests: bool) -> Grid:
    columns = [
        Column("time", right=True, style="bold"),
        Column("instant (UTC)"),
        Column("updates", right=True),
        Column("net", right=True),
        Column("rows", right=True),
        Column("digest", style="dim"),
    ]
    rows = []
    for each in entries:
        digest = str(each["digest"]).partition(":")[2]
        rows.append(
            [
                str(each["time"]),
                str(each["instant"]).replace("T", " ").removesuffix("Z"),
                "merged" if each["updates"] is None else number(each["updates"]),
                signed(each["net"]),
                number(each["rows"]),
                digest if digests else digest[:12],
            ]
        )
    return table(columns, rows)


def history_note(document: Mapping[str, object]) -> list[Text]:
    """What a list of times does not show, if there is any of it."""
    lines = []
    if document["more"]:
        lines.append(Text(f"{number(document['more'])} more: --limit", style="dim"))
    if document["since"]:
        lines.append(Text(f"times before {document['since']} have been merged", style="dim"))
    return [Text("\n").join(lines)] if lines else []


def shard_tables(shard: Mapping[str, object]) -> list[Shown]:
    """One shard from all sides: facts, columns, layout, applications."""
    inline, garbage, manifest = shard["inline"], shard["garbage"], shard["manifest"]
    upper = "closed" if shard["closed"] else f"settled {span(shard['lag_seconds'])} ago"
    if shard["lag_seconds"] is None and not shard["closed"]:
        upper = "nothing settled yet"
    batches = counted(shard["batches"], "batch", "batches")
    rows = f"{number(shard['rows'])} live, from {counted(shard['updates'], 'update')} in {batches}"
    facts: list[tuple[str, str | Text]] = [
        ("shard", shown(str(shard["name"]), "bold cyan")),
        ("id", shown(str(shard["id"]), "dim")),
        ("version", f"v{shard['version']}, created {_day(shard['created'])}"),
        ("upper", f"{frontier(shard['upper'])}, {upper}"),
        ("since", f"{frontier(shard['since'])}, keeps {shard['retention']}"),
        ("rows", rows),
        ("key", ", ".join(_texts(shard["key"])) or "none"),
    ]
    if shard["timeline"]:
        facts.append(("timeline", str(shard["timeline"])))
    if shard["epoch"]:
        facts.append(("epoch", f"e{shard['epoch']}"))
    if isinstance(inline, dict) and inline["batches"]:
        batches = counted(inline["batches"], "batch", "batches")
        updates = counted(inline["updates"], "update")
        facts.append(("in metadata", f"{batches}, {updates}, {size(inline['bytes'])}"))
    if isinstance(manifest, dict):
        facts.append(("manifest", f"v{manifest['version']}, {size(manifest['bytes'])}"))
    if isinstance(garbage, dict) and garbage["objects"]:
        facts.append(("garbage", f"{counted(garbage['objects'], 'object')} to be deleted"))
    leased = (("readers", "reader"), ("writers", "writer"), ("holds", "critical hold"))
    holders = [counted(shard[name], one) for name, one in leased if shard[name]]
    facts.append(("held by", ", ".join(holders) or "nobody"))
    tables = (*_layout_table(shard), *_applications_table(shard))
    return [pairs(facts), _columns_table(shard), *tables]


def _columns_table(shard: Mapping[str, object]) -> Grid:
    key = set(_texts(shard["key"]))
    rows = [
        (
            str(each["id"]),
            str(each["name"]),
            str(each["type"]),
            "" if each["nullable"] else "not null",
            "key" if each["name"] in key else "",
        )
        for each in _documents(shard["columns"])
    ]
    columns = [
        Column("id", right=True, style="dim"),
        Column("column", style="cyan", fold=True),
        Column("type", fold=True),
        Column(""),
        Column("", style="bold"),
    ]
    return table(columns, rows)


def _layout_table(shard: Mapping[str, object]) -> list[Grid]:
    levels = _documents(shard["layout"])
    rows = [
        (
            str(each["level"]) if each["kind"] != "base" else "bottom",
            "rows as of since" if each["kind"] == "base" else str(each["kind"]),
            number(each["parts"]),
            number(each["updates"]),
            size(each["bytes"]),
        )
        for each in levels
    ]
    columns = [
        Column("level", right=True),
        Column("holds"),
        Column("parts", right=True),
        Column("updates", right=True),
        Column("bytes", right=True),
    ]
    return [table(columns, rows)] if rows else []


def _applications_table(shard: Mapping[str, object]) -> list[Grid]:
    rows = [
        (shown(str(each["name"])), number(each["batch"]), _day(each["appended"]))
        for each in _documents(shard["applications"])
    ]
    columns = [Column("application", fold=True), Column("newest batch", right=True), Column("at")]
    return [table(columns, rows)] if rows else []


def rows_table(rows: Mapping[str, object], *, raw: bool, cell_limit: int) -> Stack:
    """Rows of a snapshot, in its own columns."""
    names, found = _texts(rows["columns"]), rows["rows"]
    lines = found if isinstance(found, list) else []
    limit = None if raw else cell_limit
    made = table(
        [
            Column(visible(name), right=_numeric(lines, at), fold=True)
            for at, name in enumerate(names)
        ],
        [[_cell(each, limit, raw=raw) for each in line] for line in lines],
    )
    left = f"{number(len(lines))} of {counted(rows['matching'], 'row')} as of {rows['as_of']}"
    return Stack((made, Text(left, style="dim")))


def _numeric(lines: Sequence[Sequence[object]], at: int) -> bool:
    values = [line[at] for line in lines if line[at] is not None]
    return bool(values) and all(type(value) in {int, float} for value in values)


def _cell(value: object, limit: int | None, *, raw: bool) -> Text:
    return shown(cell(value, limit), "dim" if value is None else "", raw=raw)


def holds_tables(shards: Sequence[Mapping[str, object]], *, raw: bool) -> list[Shown]:
    """Who holds what, shard by shard; shards that nobody holds share one line."""
    made: list[Shown] = []
    for shard in shards:
        holders = _holders(shard, raw=raw)
        heading = Text.assemble(
            (visible(str(shard["shard"])), "bold cyan"),
            f"  since {frontier(shard['since'])}, upper {frontier(shard['upper'])}: ",
            (bound_sentence(shard), "bold" if _held(shard) else ""),
        )
        made.append(Stack((heading, holders)) if holders is not None else heading)
    return made or [Text("no shards yet", style="dim")]


def bound_sentence(shard: Mapping[str, object]) -> str:
    """What keeps history from being merged further, in words."""
    bound = shard["bounded_by"]
    if not isinstance(bound, dict):
        return ""
    kind, time = bound["kind"], bound["time"]
    sentences = {
        "reader": f"reader {visible(str(bound['name']))[:9]} holds history from {time} on",
        "hold": f"hold {visible(str(bound['name']))} keeps history from {time} on",
        "retention": f"retention keeps history from {time} on",
        "newest": "nothing holds history back",
    }
    return sentences[str(kind)]


def _held(shard: Mapping[str, object]) -> bool:
    bound = shard["bounded_by"]
    return isinstance(bound, dict) and bound["kind"] in {"reader", "hold"}


def _holders(shard: Mapping[str, object], *, raw: bool) -> Grid | None:
    rows: list[list[str | Text]] = []
    for each in _documents(shard["critical"]):
        note = shown(str(each["note"]), raw=raw)
        rows.append(["hold", str(each["name"]), str(each["since"]), "", f"e{each['epoch']}", note])
    for role in ("reader", "writer"):
        for each in _documents(shard[f"{role}s"]):
            since = "" if each.get("since") is None else str(each["since"])
            version = f"v{each['version']}" if role == "reader" else ""
            purpose = shown(str(each["purpose"]), raw=raw)
            rows.append([role, str(each["id"])[:9], since, version, _whereabouts(each), purpose])
    columns = [
        Column("  what"),
        Column("who", style="cyan"),
        Column("since", right=True, style="bold"),
        Column("objects", right=True),
        Column("by", fold=True),
        Column("for", fold=True),
    ]
    return table(columns, ([f"  {row[0]}", *row[1:]] for row in rows)) if rows else None


def _whereabouts(holder: Mapping[str, object]) -> Text:
    """The process behind a lease; one that is not plainly alive stands out."""
    status = str(holder["status"])
    if status in {"gone", "ended"}:
        return Text(f"{status}, to be dropped", style="yellow")
    if status.startswith("until "):
        return Text(f"nobody, until {_day(status.removeprefix('until '))}")
    where = visible(
        f"{holder['host']} {holder['pid'] if holder['pid'] is not None else ''}".strip()
    )
    if status != "alive":
        return Text(f"{where}, {status}", style="yellow")
    age = holder["age_seconds"]
    return Text(f"{where}, {span(age)}" if age else f"{where}, new")


def _day(text: object) -> str:
    return str(text)[:19].replace("T", " ")


def _texts(value: object) -> list[str]:
    return [str(each) for each in value] if isinstance(value, list) else []


def _documents(value: object) -> list[Mapping[str, object]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
