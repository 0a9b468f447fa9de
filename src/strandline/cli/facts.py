"""What a shard's state says about it, as documents with stable field names. Pure.

A document is what `--json` prints and what tables are made from, so both always agree. Times and
frontiers are numbers; a closed frontier is `null`. Instants are text in UTC.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from strandline.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from strandline.model.frontier import Frontier, Time
    from strandline.parts.part import Part
    from strandline.shard.retention import Aged
    from strandline.shard.state import Moment, Retention, State

Document = dict[str, object]

_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000))


@dataclass(frozen=True, slots=True)
class Sight:
    """What was to be seen of one shard at one moment."""

    state: State
    upper: Frontier
    """As readers see it: an attached shard's is its timeline's."""
    now_ms: int
    """By the store's clock."""
    settled_ms: int | None
    """When the newest settled time was settled; `None` if there is none."""
    aged: Aged | None = None
    """By what an attached shard that keeps history by age may merge it."""


def instant(ms: int | None) -> str | None:
    """Milliseconds since 1970 as people write them.

    >>> instant(1_700_000_000_123)
    '2023-11-14T22:13:20.123Z'
    """
    if ms is None:
        return None
    text = datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def retention_text(rule: Retention) -> str:
    """A retention rule in the words that `retain` takes.

    >>> from strandline.shard.state import Retention
    >>> retention_text(Retention(5_400_000, 10)), retention_text(Retention(None, None))
    ('90m or 10 versions', 'forever')
    """
    words = []
    if rule.duration_ms is not None:
        words.append(_duration(rule.duration_ms))
    if rule.count is not None:
        words.append(f"{rule.count} versions")
    return " or ".join(words) or "forever"


def _duration(ms: int) -> str:
    for unit, length in _UNITS:
        if ms and ms % length == 0:
            return f"{ms // length}{unit}"
    return f"{ms}ms"


def check_settled(sight: Sight, as_of: Time | datetime | None) -> None:
    """A verb does not wait for what is yet to come: refuse a time that is not settled."""
    last = sight.upper.last()
    if last is None and not sight.upper.is_closed:
        raise UsageError(f"shard {sight.state.name} has nothing to show yet: no time is settled")
    if isinstance(as_of, int) and not sight.upper.settled(as_of):
        raise UsageError(
            f"shard {sight.state.name} is not settled past {as_of} yet: its newest time is {last}"
        )


def lag_seconds(sight: Sight) -> float | None:
    """Seconds since the newest settled time; a closed shard has nothing to wait for."""
    if sight.settled_ms is None or sight.upper.is_closed:
        return None
    return max(0, sight.now_ms - sight.settled_ms) / 1000


def settled_moments(sight: Sight) -> tuple[Moment, ...]:
    """The listed moments that readers may see; an attached shard may have one more."""
    return tuple(each for each in sight.state.moments if sight.upper.settled(each.time))


def live_rows(sight: Sight) -> int:
    """How many rows the newest settled time has: what all diffs up to it add up to."""
    hidden = [each for each in sight.state.moments if not sight.upper.settled(each.time)]
    return sight.state.total.count - sum(each.total.count for each in hidden)


def shard_facts(sight: Sight) -> Document:
    """One shard in a row: `strandline shards`."""
    state = sight.state
    return {
        "name": state.name,
        "rows": live_rows(sight),
        "updates": sum(batch.rows for batch in state.batches),
        "parts": sum(batch.part_count for batch in state.batches),
        "bytes": stored_bytes(state),
        "since": state.since.time,
        "upper": sight.upper.time,
        "closed": sight.upper.is_closed,
        "lag_seconds": lag_seconds(sight),
        "readers": len(state.readers),
        "writers": len(state.writers),
        "holds": len(state.holds),
        "timeline": state.timeline,
    }


def stored_bytes(state: State) -> int:
    """Bytes of all rows that are referred to, those in the metadata included."""
    parts = sum(part.size for batch in state.batches for part in batch.parts)
    listed = sum(chunk.part_bytes for batch in state.batches for chunk in batch.chunks)
    return parts + listed + state.inline_bytes()


def shard_document(sight: Sight, listed: Iterable[Part] = ()) -> Document:
    """Everything about one shard: `strandline show`. `listed` are the parts that chunks name."""
    state = sight.state
    inline = [batch.inline for batch in state.batches if batch.inline is not None]
    return {
        **shard_facts(sight),
        "id": state.id,
        "version": state.seqno.number,
        "created": instant(state.created_ms),
        "settled": instant(sight.settled_ms),
        "epoch": state.epoch,
        "retention": retention_text(state.retention),
        "key": list(state.schema.key),
        "schema_version": state.schema.version,
        "columns": [
            {"id": f.id, "name": f.name, "type": str(f.type), "nullable": f.nullable}
            for f in state.schema.fields
        ],
        "layout": layout(state, listed),
        "batches": len(state.batches),
        "inline": {
            "batches": len(inline),
            "updates": sum(each.rows for each in inline),
            "bytes": state.inline_bytes(),
        },
        "manifest": None
        if state.manifest is None
        else {"version": state.manifest.seqno, "bytes": state.manifest.size},
        "garbage": {
            "objects": sum(len(each.keys) for each in state.garbage),
            "oldest_version": min((each.seqno for each in state.garbage), default=None),
        },
        "applications": [
            {"name": app, "batch": mark.batch, "appended": instant(mark.instant_ms)}
            for app, mark in sorted(state.txns.items())
        ],
    }


def layout(state: State, listed: Iterable[Part] = ()) -> list[Document]:
    """Parts by level, base parts apart: how much merging there is left to do."""
    levels: defaultdict[tuple[int, bool], list[Part]] = defaultdict(list)
    for part in (*(p for batch in state.batches for p in batch.parts), *listed):
        levels[part.level, part.base].append(part)
    return [
        {
            "level": level,
            "kind": "base" if base else "changes",
            "parts": len(parts),
            "updates": sum(part.rows for part in parts),
            "bytes": sum(part.size for part in parts),
        }
        for (level, base), parts in sorted(levels.items())
    ]


def history(sight: Sight, older: Sequence[Moment] = ()) -> Iterator[Document]:
    """Every time that is still told apart, newest first. `older` are moments listed in objects.

    The digest of a time is what was written at it, so two replicas can be compared by eye.
    """
    exact = {b.lower: b.rows for b in sight.state.batches if b.upper == b.lower + 1}
    rows = live_rows(sight)
    for moment in reversed((*older, *settled_moments(sight))):
        net = moment.total.count
        yield {
            "time": moment.time,
            "instant": instant(moment.instant_ms),
            "updates": exact.get(moment.time, 0 if not moment.total else None),
            "net": net,
            "rows": rows,
            "digest": str(moment.total),
            "readable": sight.state.readable_from() <= moment.time,
        }
        rows -= net
