"""How a table reads its source: what its columns, its key and its options say, checked once.

option            values                              meaning
----------------  ----------------------------------  ----------------------------------------
format            json csv avro (parquet: as it is)   what a value is
envelope          append upsert debezium              what a row means
onError           collect fail                        what becomes of values that can't be
                                                      decoded: error rows, or the end of it
sequenceBy        columns                             which of a key's rows is the last
keepDeleted       7d, 12h, 30m, 45s, forever          for how long the order of deleted keys is
                                                      kept, so that nothing late brings them back
newColumns        ignore add                          fields that the table has no column for
numberUnit        s ms us ns                          of numbers that are timestamps
numberUnit.NAME   d s ms us ns                        of those of one column, dates among them
decimals          text base64                         how decimals are written
csv.delimiter     a character                         between cells
csv.columns       names                               where files have no header
avro.schema       JSON                                the schema that values were written with
avro.framing      none confluent                      whether five bytes precede each value
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.types as is_

from strandline.connectors.values import DAYS, UNITS, Notation
from strandline.errors import UsageError
from strandline.model.ids import printable

if TYPE_CHECKING:
    from collections.abc import Mapping

FORMATS = ("json", "csv", "avro", "parquet")
ENVELOPES = ("append", "upsert", "debezium")

_CHOICES = {
    "format": FORMATS,
    "envelope": ENVELOPES,
    "newColumns": ("ignore", "add"),
    "numberUnit": tuple(UNITS),
    "decimals": ("text", "base64"),
    "avro.framing": ("none", "confluent"),
    "onError": ("collect", "fail"),
}
_UNIT_OF = "numberUnit."
_UNITS_OF = (DAYS, *UNITS)
_WORDS = ("sequenceBy", "keepDeleted", "csv.delimiter", "csv.columns", "avro.schema")
OPTIONS = (*_CHOICES, *_WORDS)
"""Every option that is about rows but for those of one column; all others are the connector's."""


def is_about_rows(option: str) -> bool:
    """Whether an option says how rows are read; all others are the connector's.

    >>> is_about_rows("numberUnit"), is_about_rows("numberUnit.placed"), is_about_rows("subscribe")
    (True, True, False)
    """
    return option in OPTIONS or option.startswith(_UNIT_OF)


@dataclass(frozen=True)
class Reading:
    """What decoding has to know. Two equal ones decode alike, in any process."""

    schema: pa.Schema
    """The table's columns; those that are not nullable may hold no null."""
    key: tuple[str, ...] = ()
    format: str = "json"
    envelope: str = "append"
    sequence_by: tuple[str, ...] = ()
    new_columns: str = "ignore"
    notation: Notation = field(default_factory=Notation)
    delimiter: str = ","
    columns: tuple[str, ...] = ()
    avro_schema: str = ""
    framing: str = "none"
    fails: bool = False
    """Whether an error row stops the pipeline; decoding itself never does."""
    keep_deleted_ms: int | None = None
    """For how long the order of deleted keys is kept; `None`: for ever."""
    units: tuple[tuple[str, str], ...] = ()
    """Of numbers that are dates or times, by column, where it has its own."""

    def notation_of(self, column: str) -> Notation:
        """How the values of a column are written, where no message says so."""
        unit = dict(self.units).get(column)
        return self.notation if unit is None else replace(self.notation, unit=unit, dates=unit)

    @property
    def keyed(self) -> bool:
        """Whether a row replaces the row of its key."""
        return self.envelope != "append"


def reading(schema: pa.Schema, key: tuple[str, ...], options: Mapping[str, str]) -> Reading:
    """What a table's columns, key and options say; refused with every reason at once."""
    envelope = options.get("envelope", "upsert" if key else "append")
    made = Reading(
        schema,
        key,
        options.get("format", "json"),
        envelope,
        names(options.get("sequenceBy", "")),
        options.get("newColumns", "ignore"),
        Notation(options.get("numberUnit", "ms"), options.get("decimals", "text")),
        options.get("csv.delimiter", ","),
        names(options.get("csv.columns", "")),
        options.get("avro.schema", ""),
        options.get("avro.framing", "none"),
        options.get("onError") == "fail",
        _period_ms(options.get("keepDeleted", "7d")),
        tuple(
            (name.removeprefix(_UNIT_OF), options[name])
            for name in sorted(options)
            if name.startswith(_UNIT_OF)
        ),
    )
    wrong = [*_wrong_choices(options), *_wrong_period(options), *_wrong_together(made)]
    if wrong := [*wrong, *_wrong_units(made)]:
        raise UsageError("; ".join(wrong))
    return made


def names(text: str) -> tuple[str, ...]:
    """Names with commas between them.

    >>> names("lsn, ts_ms")
    ('lsn', 'ts_ms')
    """
    return tuple(name for each in text.split(",") if (name := each.strip()))


_PERIOD = re.compile(r"([0-9]{1,9})([smhd])")
_PERIODS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def _period_ms(text: str) -> int | None:
    found = _PERIOD.fullmatch(text)
    return None if found is None else int(found[1]) * _PERIODS_MS[found[2]]


def _wrong_period(options: Mapping[str, str]) -> list[str]:
    text = options.get("keepDeleted")
    if text is None:
        return []
    if text != "forever" and _period_ms(text) is None:
        return [f"keepDeleted {printable(text)} is no period: write 7d, 12h, 30m, 45s or forever"]
    if not options.get("sequenceBy"):
        return ["keepDeleted means nothing without sequenceBy: leave it out"]
    return []


def _wrong_choices(options: Mapping[str, str]) -> list[str]:
    return [
        f"option {name} is {printable(options[name])}: set it to {' or '.join(allowed)}"
        for name, allowed in _CHOICES.items()
        if name in options and options[name] not in allowed
    ]


def _wrong_units(made: Reading) -> list[str]:
    wrong = [
        f"option {_UNIT_OF}{printable(name)} names no column of the table"
        for name, _ in made.units
        if name not in made.schema.names
    ]
    return wrong + [
        f"option {_UNIT_OF}{printable(name)} is {printable(unit)}: set it to "
        f"{' or '.join(_UNITS_OF)}"
        for name, unit in made.units
        if unit not in _UNITS_OF
    ]


def _wrong_together(made: Reading) -> list[str]:
    known, wrong = set(made.schema.names), []
    if made.keyed and not made.key:
        wrong.append(
            f"envelope {made.envelope} needs a PRIMARY KEY: rows replace that of their key"
        )
    wrong += [
        f"key column {printable(name)} is not a column of the table"
        for name in made.key
        if name not in known
    ]
    wrong += [
        f"sequenceBy names {printable(name)}: declare it as a column of the table"
        for name in made.sequence_by
        if name not in known
    ]
    if made.sequence_by and not made.keyed:
        wrong.append("sequenceBy means nothing for envelope append: leave it out")
    return [*wrong, *_wrong_for_format(made)]


def _wrong_for_format(made: Reading) -> list[str]:
    wrong = []
    if made.format == "csv":
        wrong += [
            f"column {printable(each.name)} of type {each.type} can't be read from CSV"
            for each in made.schema
            if is_.is_nested(each.type)
        ]
        if len(made.delimiter) != 1 or made.delimiter in '"\r\n':
            wrong.append(
                f"csv.delimiter {printable(made.delimiter)} is not a character to split at"
            )
    if made.format in {"csv", "parquet"} and made.envelope == "debezium":
        wrong.append(f"envelope debezium is not written as {made.format}: use json or avro")
    return wrong
