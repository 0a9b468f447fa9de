"""Rows that are pushed to us, over HTTP: they are not there a second time, so they are staged.

A push is some rows of one producer under one sequence number, taken whole or not at all. It is
acknowledged once it is sealed in the journal. Which it is when it comes:

    sequence, beside the last of its producer  verdict    answer to the producer
    -----------------------------------------  ---------  ------------------------------------
    no producer named                          ACCEPT     acknowledged when sealed, not retry-safe
    the producer is new, and this is 0         ACCEPT     acknowledged when sealed
    the producer is new, and this is not 0     GAP        refused: it begins with 0
    at most the last sealed                    DUPLICATE  acknowledged already
    at most the last accepted, not sealed      PENDING    acknowledged when that is sealed
    the next after the last accepted           ACCEPT     acknowledged when sealed
    later than that                            GAP        refused: pushes in between are missing

A retry may reach another replica, whose buffer knows nothing of the first try: what the journal
says of producers is compared again when rows are staged, and duplicates are left out there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from strandline.connectors import raw as layout
from strandline.connectors.options import refuse_unknown, whole
from strandline.connectors.position import Position, Range
from strandline.errors import BoundsError, UsageError, invariant
from strandline.model.ids import printable, valid_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from strandline.connectors.source import Limits, Ports, ResolveSecret, Split

NAME = "push"
PARTITION = "staged"
BUFFER_ROWS = 1_000_000
BUFFER_BYTES = 256 << 20


class Verdict(Enum):
    """What becomes of a push."""

    ACCEPT = "accept"
    PENDING = "pending"
    DUPLICATE = "duplicate"
    GAP = "gap"
    FULL = "full"
    """The buffer is: try again later."""


def decide(sequence: int | None, sealed: int | None, accepted: int | None) -> Verdict:
    """The table above; `sealed` and `accepted` are the producer's last sequence numbers."""
    if sequence is None:
        return Verdict.ACCEPT
    if sealed is not None and sequence <= sealed:
        return Verdict.DUPLICATE
    if accepted is not None and sequence <= accepted:
        return Verdict.PENDING
    # What an unknown producer sends out of order would make its earlier pushes look like retries.
    last = max(-1 if each is None else each for each in (sealed, accepted))
    return Verdict.ACCEPT if sequence == last + 1 else Verdict.GAP


@dataclass(frozen=True, slots=True)
class Push:
    """Rows of one producer; `keys` are the rows' own keys, if they have any."""

    values: tuple[bytes | None, ...]
    producer: str | None = None
    sequence: int | None = None
    keys: tuple[bytes | None, ...] | None = None

    def __post_init__(self) -> None:
        if (self.producer is None) != (self.sequence is None):
            raise UsageError("a push names its producer and its sequence number, or neither")
        if self.producer is not None:
            valid_name(self.producer, "producer")
        if self.sequence is not None and self.sequence < 0:
            raise UsageError(f"sequence number {self.sequence} is refused: begin with 0")
        if self.keys is not None and len(self.keys) != len(self.values):
            raise UsageError(f"{len(self.keys)} keys do not fit {len(self.values)} rows")

    @property
    def size(self) -> int:
        return sum(len(each or b"") for each in (*self.values, *(self.keys or ())))


@dataclass(frozen=True, slots=True)
class Staging:
    """Whole pushes that are about to be sealed."""

    taken: Range
    rows: pa.RecordBatch
    producers: dict[str, int]
    """The last sequence number of each, for the journal."""
    pushes: int
    """How many of the buffer's first are in it, duplicates included."""


@dataclass
class PushSource:
    """What was pushed to this process and is not sealed yet. Its owner lets in one at a time."""

    rows_max: int = BUFFER_ROWS
    bytes_max: int = BUFFER_BYTES
    replayable: bool = False
    _pushes: list[Push] = field(default_factory=list)
    _rows: int = 0
    _bytes: int = 0
    _accepted: dict[str, int] = field(default_factory=dict)

    def offer(self, push: Push, sealed: Mapping[str, int]) -> Verdict:
        """Take a push into the buffer, if that is the verdict; `sealed` is the journal's word."""
        name = push.producer or ""
        verdict = decide(push.sequence, sealed.get(name), self._accepted.get(name))
        if verdict is not Verdict.ACCEPT:
            return verdict
        if self._full(push):
            return Verdict.FULL
        self._pushes.append(push)
        self._rows += len(push.values)
        self._bytes += push.size
        if push.sequence is not None:
            self._accepted[name] = push.sequence
        return verdict

    def _full(self, push: Push) -> bool:
        """A push that is larger than the buffer is let in when there is nothing else."""
        rows, size = self._rows + len(push.values), self._bytes + push.size
        return bool(self._pushes) and (rows > self.rows_max or size > self.bytes_max)

    def latest(self) -> Position:
        return {PARTITION: 0}

    def plan(self, start: Position, limits: Limits) -> Range | None:
        staged = self.stage(start, limits, {})
        return None if staged is None or staged.taken.empty else staged.taken

    def stage(self, start: Position, limits: Limits, sealed: Mapping[str, int]) -> Staging | None:
        """The first pushes within the limits, at least one, numbered from `start` on; `None` if
        there are none. Those that the journal has already are counted and left out."""
        first = start.get(PARTITION, 0)
        some: list[Push] = []
        rows, size = 0, 0
        for push in self._pushes:
            rows, size = rows + len(push.values), size + push.size
            if some and (rows > (limits.rows or rows) or size > (limits.bytes or size)):
                break
            some.append(push)
        if not some:
            return None
        new = [each for each in some if not _is_sealed(each, sealed)]
        values = [value for each in new for value in each.values]
        keys = [key for each in new for key in each.keys or (None,) * len(each.values)]
        taken = Range({PARTITION: (first, first + len(values))})
        batch = layout.raw_batch(values, PARTITION, range(*taken.parts[PARTITION]), keys=keys)
        producers = {each.producer: each.sequence for each in new if each.producer is not None}
        return Staging(
            taken, batch, {k: v for k, v in producers.items() if v is not None}, len(some)
        )

    def sealed(self, staged: Staging) -> list[Push]:
        """The journal holds it: forget its pushes, and return them to be acknowledged."""
        invariant(staged.pushes <= len(self._pushes), "a push was sealed twice")
        done, self._pushes = self._pushes[: staged.pushes], self._pushes[staged.pushes :]
        self._rows -= sum(len(each.values) for each in done)
        self._bytes -= sum(each.size for each in done)
        waiting = {each.producer for each in self._pushes}
        self._accepted = {k: v for k, v in self._accepted.items() if k in waiting}
        return done

    def splits(self, taken: Range) -> list[Split]:
        raise BoundsError(f"{taken.rows} pushed rows can't be read again: stage them first")

    def check(self, taken: Range) -> None:
        """What is sealed is staged, and staged rows are checked where they are."""

    def acknowledge(self, upto: Position) -> None:
        """Producers are told when their rows are sealed (`sealed`)."""

    def close(self) -> None: ...


def _is_sealed(push: Push, sealed: Mapping[str, int]) -> bool:
    if push.producer is None or push.sequence is None:
        return False
    return push.sequence <= sealed.get(push.producer, -1)


def open_source(options: Mapping[str, str], ports: Ports) -> PushSource:  # noqa: ARG001 - the port
    refuse_unknown(NAME, options, ("bufferRows", "bufferBytes"))
    return PushSource(
        whole(options, "bufferRows", BUFFER_ROWS, least=1),
        whole(options, "bufferBytes", BUFFER_BYTES, least=1),
    )


def fetch(split: Split, resolve: ResolveSecret) -> Iterator[pa.RecordBatch]:  # noqa: ARG001 - the port
    """Refused: pushed rows are read where they were staged."""
    raise UsageError(f"pushed rows of {printable(split.partition)} are read where they are staged")
