"""The options of `format("strandline")`: each parsed and checked here, for every use. Pure.

    use            options beside path and table
    -------------  ------------------------------------------------------------------------------
    read           versionAsOf | timestampAsOf, columns, leaseMs, maxPartitionBytes
    change feed    readChangeFeed=true, startingVersion, endingVersion, columns, leaseMs,
                   maxPartitionBytes
    stream read    startingVersion, readChangeFeed, maxRowsPerTrigger, maxVersionsPerTrigger,
                   columns, maxPartitionBytes
    write          keys, sequenceBy, deleteWhen, txnAppId with txnVersion, leaseMs
    stream write   the same, and txnAppId or checkpointLocation instead of both

Spark hands options on without regard to case, so names are compared in lower case; an error
shows them as they are written here. A version is a time of the table.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from posixpath import normpath
from typing import TYPE_CHECKING
from urllib.parse import unquote

import msgspec

from strandline.errors import BoundsError, UsageError
from strandline.model.frontier import valid_time
from strandline.model.ids import printable, valid_name
from strandline.spark.source_delete import DeleteWhen, parse_delete_when

if TYPE_CHECKING:
    from collections.abc import Mapping

READ_LEASE_MS = 60 * 60 * 1000
"""How long a scan may take before the parts that it planned to read may be gone."""
WRITE_LEASE_MS = 24 * 60 * 60 * 1000
"""How long a write may take before its parts may be taken for leftovers; holds nothing back."""
PARTITION_BYTES = 64 * 1024 * 1024
"""Compressed; a task holds what it reads decoded, several times as much."""


class Use(Enum):
    """What a session wants of a table."""

    READ = "batch reads"
    FEED = "the change feed"
    STREAM = "streaming reads"
    WRITE = "batch writes"
    SINK = "streaming writes"


_WRITES = {"keys", "sequenceBy", "deleteWhen", "txnAppId", "leaseMs"}
_KNOWN: dict[Use, set[str]] = {
    Use.READ: {
        "versionAsOf",
        "timestampAsOf",
        "columns",
        "leaseMs",
        "maxPartitionBytes",
        "readChangeFeed",
    },
    Use.FEED: {
        "readChangeFeed",
        "startingVersion",
        "endingVersion",
        "columns",
        "leaseMs",
        "maxPartitionBytes",
    },
    Use.STREAM: {
        "readChangeFeed",
        "startingVersion",
        "maxRowsPerTrigger",
        "maxVersionsPerTrigger",
        "columns",
        "maxPartitionBytes",
    },
    Use.WRITE: {*_WRITES, "txnVersion"},
    Use.SINK: {*_WRITES, "checkpointLocation"},
}
_PLACE = {"path", "table"}
_SPELLED = {name.lower(): name for names in (*_KNOWN.values(), _PLACE) for name in names}

# What Spark adds to the options of a table in its catalog.
_CATALOG = {"provider", "owner", "location", "external", "comment", "is_managed_location"}


_LOCATION = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*:(?://[^/]*)?)?(.*)", re.DOTALL)
"""A scheme, maybe with a host, and a path."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a table is."""

    store: str
    table: str


@dataclass(frozen=True, slots=True)
class Scan:
    """A batch read, or what batch and change feed reads have in common."""

    place: Place
    columns: tuple[str, ...] | None = None
    version: int | None = None
    timestamp: datetime | None = None
    lease_ms: int = READ_LEASE_MS
    partition_bytes: int = PARTITION_BYTES


@dataclass(frozen=True, slots=True)
class Feed:
    """The changes of some versions, both ends included."""

    place: Place
    columns: tuple[str, ...] | None = None
    start: int = 0
    end: int | None = None
    lease_ms: int = READ_LEASE_MS
    partition_bytes: int = PARTITION_BYTES


@dataclass(frozen=True, slots=True)
class StreamRead:
    """A stream of rows, or of changes with `feed`."""

    place: Place
    columns: tuple[str, ...] | None = None
    feed: bool = False
    start: int | None = None
    max_rows: int | None = None
    max_versions: int | None = None
    partition_bytes: int = PARTITION_BYTES


@dataclass(frozen=True, slots=True)
class Write:
    """An append, or an upsert if it has keys."""

    place: Place
    keys: tuple[str, ...] = ()
    sequence_by: tuple[str, ...] = ()
    delete_when: DeleteWhen | None = None
    app: str | None = None
    """Whose transactions these are; a batch of one is applied once."""
    batch: int | None = None
    lease_ms: int = WRITE_LEASE_MS

    @property
    def extra(self) -> tuple[str, ...]:
        """The columns that rows may have although the table has not."""
        deciding = () if self.delete_when is None else (self.delete_when.column,)
        return tuple(dict.fromkeys((*self.sequence_by, *deciding)))


class Options:
    """What a user wrote, not yet understood: a table of a catalog gets its options later."""

    def __init__(self, given: Mapping[str, str]) -> None:
        lower = {name.lower(): value for name, value in given.items()}
        self.in_catalog = "provider" in lower
        if self.in_catalog:
            lower = {name: value for name, value in lower.items() if not _of_catalog(name)}
        self._given = lower

    def over(self, stored: str) -> Options:
        """These options over those that `stored` remembers (see `remembered`)."""
        return Options({**msgspec.json.decode(stored, type=dict[str, str]), **self._given})

    def remembered(self) -> str:
        return msgspec.json.encode(self._given, order="sorted").decode()

    @property
    def named(self) -> bool:
        """Whether they say which table is meant."""
        return "path" in self._given

    @property
    def wants_feed(self) -> bool:
        return self._flag("readChangeFeed")

    @property
    def columns(self) -> tuple[str, ...] | None:
        return self._names("columns")

    def place(self) -> Place:
        """The store and the table; without `table`, the last part of the path names it."""
        path = self._given.get("path", "")
        if path.startswith("file:/") and not path.startswith("file://"):
            path = unquote(path.removeprefix("file:"))
        table = self._given.get("table")
        if not path:
            raise UsageError(
                "no path: write load('/folder/of/the/store/table'), or option('table', …) and "
                "load('/folder/of/the/store')"
            )
        if table is None:
            path, _, table = path.rstrip("/").rpartition("/")
        if path.startswith("memory:"):
            raise UsageError(
                "a store in memory belongs to one process, and Spark has several: use a folder"
            )
        if not path:
            raise UsageError(
                f"path {printable(table)} names a table but no store: write store/table"
            )
        return Place(path, valid_name(table, "table"))

    def scan(self) -> Scan:
        self._check(Use.READ)
        version, timestamp = self._time("versionAsOf"), self._instant("timestampAsOf")
        if version is not None and timestamp is not None:
            raise UsageError("versionAsOf and timestampAsOf both say when: leave one of them out")
        return Scan(
            self.place(),
            self._names("columns"),
            version,
            timestamp,
            self._whole("leaseMs", 1) or READ_LEASE_MS,
            self._whole("maxPartitionBytes", 1024) or PARTITION_BYTES,
        )

    def feed(self) -> Feed:
        self._check(Use.FEED)
        start, end = self._time("startingVersion"), self._time("endingVersion")
        if start is None:
            raise UsageError(
                "the change feed needs startingVersion: the first version whose changes you want"
            )
        if end is not None and end < start:
            raise BoundsError(f"endingVersion {end} comes before startingVersion {start}")
        return Feed(
            self.place(),
            self._names("columns"),
            start,
            end,
            self._whole("leaseMs", 1) or READ_LEASE_MS,
            self._whole("maxPartitionBytes", 1024) or PARTITION_BYTES,
        )

    def stream_read(self) -> StreamRead:
        self._check(Use.STREAM)
        return StreamRead(
            self.place(),
            self._names("columns"),
            self.wants_feed,
            self._time("startingVersion"),
            self._whole("maxRowsPerTrigger", 1),
            self._whole("maxVersionsPerTrigger", 1),
            self._whole("maxPartitionBytes", 1024) or PARTITION_BYTES,
        )

    def write(self, *, overwrite: bool) -> Write:
        self._check(Use.WRITE)
        _refuse_overwrite(overwrite=overwrite)
        app, batch = self._given.get("txnappid"), self._whole("txnVersion", 0)
        if (app is None) != (batch is None):
            raise UsageError("txnAppId and txnVersion go together: give both, or none of them")
        return self._write(app, batch)

    def sink(self, *, overwrite: bool) -> Write:
        self._check(Use.SINK)
        _refuse_overwrite(overwrite=overwrite)
        app, location = (self._given.get(name) for name in ("txnappid", "checkpointlocation"))
        if not app and location:
            app = checkpoint_name(location)
        if not app:
            raise UsageError(
                "a streaming write needs option('txnAppId', …), a name that no other stream into "
                "this table has, or option('checkpointLocation', …): Spark does not tell a sink "
                "which query it belongs to, and without that a batch could be written twice"
            )
        return self._write(app, None)

    def _write(self, app: str | None, batch: int | None) -> Write:
        keys = self._names("keys") or ()
        order = self._names("sequenceBy") or ()
        deciding = self._given.get("deletewhen")
        if not keys and (order or deciding):
            raise UsageError("sequenceBy and deleteWhen are for upserts: give keys, too")
        return Write(
            self.place(),
            keys,
            order,
            None if deciding is None else parse_delete_when(deciding),
            app,
            batch,
            self._whole("leaseMs", 1) or WRITE_LEASE_MS,
        )

    def _check(self, use: Use) -> None:
        """Refuse what is unknown, or means nothing for this use."""
        known = {name.lower() for name in _KNOWN[use] | _PLACE}
        for name in sorted(set(self._given) - known):
            others = [each.value for each in Use if name in {n.lower() for n in _KNOWN[each]}]
            listed = ", ".join(sorted(_KNOWN[use] | _PLACE))
            if others:
                raise UsageError(
                    f"option {_SPELLED[name]} is for {' and '.join(others)}, not for {use.value}: "
                    f"leave it out; there are {listed}"
                )
            raise UsageError(
                f"unknown option {printable(name)}: for {use.value} there are {listed}"
            )

    def _names(self, name: str) -> tuple[str, ...] | None:
        text = self._given.get(name.lower())
        if text is None:
            return None
        names = tuple(each.strip() for each in text.split(","))
        if not all(names) or len(set(names)) != len(names):
            raise UsageError(
                f"option {name} is {printable(text)}: write column names joined by commas, each "
                "once"
            )
        return names

    def _whole(self, name: str, least: int) -> int | None:
        text = self._given.get(name.lower())
        if text is None:
            return None
        if not text.isascii() or not text.isdigit() or int(text) < least:
            raise UsageError(f"option {name} is {printable(text)}: write a whole number >= {least}")
        return int(text)

    def _time(self, name: str) -> int | None:
        found = self._whole(name, 0)
        return None if found is None else valid_time(found, name)

    def _flag(self, name: str) -> bool:
        text = self._given.get(name.lower(), "false")
        if text.lower() not in {"true", "false"}:
            raise UsageError(f"option {name} is {printable(text)}: write true or false")
        return text.lower() == "true"

    def _instant(self, name: str) -> datetime | None:
        text = self._given.get(name.lower())
        if text is None:
            return None
        try:
            found = datetime.fromisoformat(text)
        except ValueError as error:
            raise UsageError(
                f"option {name} is {printable(text)}: write it like 2026-01-31T12:00:00Z"
            ) from error
        if found.tzinfo is None:
            raise UsageError(
                f"option {name} is {printable(text)}, which has no time zone: add Z or +02:00"
            )
        return found


def checkpoint_name(location: str) -> str:
    """One name for all spellings of a checkpoint's location.

    As Spark reads them: percents are characters, and links are not followed. A relative one names
    another place in every process that reads it: under Spark Connect this one runs in a folder of
    its session's own.
    """
    found = _LOCATION.fullmatch(location)
    scheme, path = ("", location) if found is None else found.groups(default="")
    if scheme.lower() in {"file:", "file://"}:
        scheme = ""
    if not scheme and not path.startswith("/"):
        raise UsageError(
            f"checkpointLocation {printable(location)} is relative, so it does not tell this "
            "stream from others: give an absolute path, or option('txnAppId', …) besides it"
        )
    return scheme + normpath("/" + path.lstrip("/"))


def _of_catalog(name: str) -> bool:
    return name in _CATALOG or name.startswith("option.")


def _refuse_overwrite(*, overwrite: bool) -> None:
    if overwrite:
        raise UsageError(
            "mode overwrite is refused: it would have to delete every row that it does not know. "
            "Use mode('append'), with option('keys', …) to replace the rows of those keys; or "
            "write to a new table and drop this one"
        )
