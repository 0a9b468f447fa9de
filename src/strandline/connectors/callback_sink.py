"""A function of the user's as a sink: it is given each transaction, at least once.

    option    meaning
    --------  ------------------------------------------------------------------------------
    delivery  must be `at-least-once`: what a function does can't be told from what it did

A function has no store of its own that could be asked for its progress, so what is on record here
decides: a transaction whose delivery was begun and is not known to be done is delivered again.
`t` tells which one it is, for whoever can drop what came before. It is not called when a new
lineage begins with an empty collection: that it is another one, no rows could tell it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from strandline.connectors.options import refuse_unknown
from strandline.connectors.sink import AT_LEAST_ONCE, NOTHING_YET, filled
from strandline.errors import SinkError, UsageError
from strandline.model.ids import printable
from strandline.model.schema import DIFF_COLUMN

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from strandline.connectors.sink import Callback, Delivered, Progress, ReadBack, SinkPorts

NAME = "callback"
IDENTITY = ()
LEVEL = AT_LEAST_ONCE


class CallbackSink:
    """The sink."""

    def __init__(self, function: Callback, what: Delivered) -> None:
        self._function = function
        self._name = what.address.sink
        self._schema = what.columns.append(pa.field(DIFF_COLUMN, pa.int64(), nullable=False))
        self._first = False

    def prepare(self) -> None: ...

    def progress(self) -> Progress | None:
        return None

    def found(self, at: Progress) -> None:
        self._first = at.t == NOTHING_YET

    def deliver(self, t: int, epoch: int, changes: Iterable[pa.RecordBatch]) -> None:  # noqa: ARG002
        rows = pa.Table.from_batches(filled(t, changes, first=self._first), schema=self._schema)
        try:
            if rows.num_rows:
                self._function(rows, t)
        except (Exception, SystemExit) as error:  # Whoever exits here would end a thread of ours.
            what = f"{type(error).__name__}: {error}"
            raise SinkError(
                f"the function of sink {self._name} raised at transaction {t}: "
                f"{printable(what, limit=300)}"
            ) from error
        self._first = False

    def read_back(self) -> ReadBack | None:
        raise UsageError(
            f"sink {self._name} is a function: what it did with the rows can't be read back"
        )

    def close(self) -> None: ...


def open_sink(options: Mapping[str, str], what: Delivered, ports: SinkPorts) -> CallbackSink:
    refuse_unknown(NAME, options, ())
    function = ports.callbacks.get(what.address.sink)
    if function is None:
        raise UsageError(unable(what.address.sink, ports))
    return CallbackSink(function, what)


def unable(sink: str, ports: SinkPorts) -> str:
    """Why this process can't publish it: another one may."""
    if sink in ports.callbacks:
        return ""
    return f"no function is given here: pipeline.foreach_transaction({sink!r}, function) gives one"
