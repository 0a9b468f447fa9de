"""What a check of a store may find: each thing with its reason and what to do. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

import numpy as np

from strandline.errors import StrandlineError
from strandline.model.digest import Digest
from strandline.model.rowhash import row_base
from strandline.model.schema import DIFF_COLUMN, TIME_COLUMN
from strandline.parts.layout import places_of
from strandline.parts.part import PLACE_MAX
from strandline.parts.stats import decode_stats, measure, rules_out
from strandline.shard.state import check_whole

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from strandline.model.schema import Schema
    from strandline.parts.part import Chunk, Part
    from strandline.shard.state import State


class Severity(Enum):
    """How bad a finding is."""

    DAMAGE = "something that is referred to is missing or is not what it should be"
    LEFTOVER = "something is there that nobody needs; `fsck --repair` removes it"
    NOTE = "nothing is wrong, but somebody may want to know"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found."""

    severity: Severity
    shard: str
    """The shard it belongs to; empty for the store as a whole."""
    thing: str
    reason: str
    advice: str = ""
    size: int = 0
    repaired: bool = False


@dataclass(slots=True)
class Report:
    """All that was found, and how much was looked at."""

    findings: list[Finding] = field(default_factory=list)
    shards: int = 0
    journals: int = 0
    objects: int = 0
    object_bytes: int = 0
    deep: bool = False

    @property
    def sound(self) -> bool:
        """Whether everything that is referred to is what it should be."""
        return not self.of(Severity.DAMAGE)

    def of(self, severity: Severity) -> list[Finding]:
        return [finding for finding in self.findings if finding.severity is severity]


def check_rules(state: State) -> Iterator[Finding]:
    """The rules of a state that cost time to prove."""
    try:
        check_whole(state)
    except StrandlineError as error:
        yield damaged(state.name, f"version {state.seqno}", str(error), "keep a copy of the store")


def damaged(shard: str, thing: str, reason: str, advice: str = "") -> Finding:
    how = advice or "restore the object from a backup; until then reads that need it fail"
    return Finding(Severity.DAMAGE, shard, thing, reason, how)


def leftover(shard: str, thing: str, reason: str, *, size: int = 0, repaired: bool) -> Finding:
    how = "" if repaired else "run fsck with --repair"
    return Finding(Severity.LEFTOVER, shard, thing, reason, how, size, repaired)


def note(shard: str, thing: str, reason: str, *, size: int = 0) -> Finding:
    return Finding(Severity.NOTE, shard, thing, reason, size=size)


def check_rows(part: Part, updates: pa.Table, schema: Schema) -> Iterator[str]:
    """What is wrong with a part's rows, compared with what the state says of them."""
    times = updates.column(TIME_COLUMN).to_numpy()
    diffs = updates.column(DIFF_COLUMN).to_numpy()
    rows = updates.select(list(schema.names))
    found = Digest.of(row_base(rows, schema.ids), diffs)
    if found != part.total:
        yield f"its rows add up to {found}, the state says {part.total}"
    if len(times) and (times.min() < part.t_min or times.max() > part.t_max):
        yield f"times {times.min()} to {times.max()} are outside of {part.t_min} to {part.t_max}"
    if not len(times):
        yield "it has no rows"
    if not diffs.all():
        yield "it has updates that change nothing"
    if part.inserts and (diffs != 1).any():
        yield "it has more than single insertions, the state says that it does not"
    yield from _check_places(part, rows, schema)
    yield from _check_stats(part, rows, schema)


def check_list(chunk: Chunk, parts: list[Part]) -> Iterator[str]:
    """What is wrong with a chunk's own facts, compared with the parts that it lists."""
    total = Digest.ZERO
    for part in parts:
        total += part.total
    if total != chunk.total:
        yield f"its parts add up to {total}, the state says {chunk.total}"
    facts = (
        sum(part.rows for part in parts),
        sum(part.size for part in parts),
        min(part.t_min for part in parts),
        max(part.t_max for part in parts),
        min(part.place_lo for part in parts),
        max(part.place_hi for part in parts),
    )
    said = (chunk.rows, chunk.part_bytes, chunk.t_min, chunk.t_max, chunk.place_lo, chunk.place_hi)
    if facts != said:
        yield f"its rows, bytes, times and places are {facts}, the state says {said}"


def _check_stats(part: Part, rows: pa.Table, schema: Schema) -> Iterator[str]:
    """Statistics that rule out a row which is there would make filters lose it."""
    known = decode_stats(part.stats)
    if known is None:
        return
    there = measure(((each.id, rows.column(each.name)) for each in schema.fields), len(rows))
    for column in schema.fields:
        said, found = known.ranges.get(column.id), there.ranges.get(column.id)
        if said is not None and found is not None and rules_out(said, found):
            yield f"the statistics of column {column.name} rule out rows that it has"


def _check_places(part: Part, rows: pa.Table, schema: Schema) -> Iterator[str]:
    places = places_of(rows, schema)
    if places is None or not len(places):
        if (part.place_lo, part.place_hi) != (0, PLACE_MAX):
            yield "it has places although the shard has no key"
        return
    if int(places.min()) < part.place_lo or int(places.max()) > part.place_hi:
        yield "some of its keys lie outside of its places"
    if not bool(np.all(places[1:] >= places[:-1])):
        yield "its rows are not in the order of their places"
