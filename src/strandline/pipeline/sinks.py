"""The sinks of a program, as their publishers open them.

option    meaning, for every connector
--------  ---------------------------------------------------------------------------------
key       columns that tell rows apart, `a, b`; a table's own key if it is left out
interval  what changed within it is delivered as one transaction: `30s`, `5m`
delivery  what the program is content with: `exactly-once`, or `at-least-once`
"""

from __future__ import annotations

from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING

from strandline.connectors.addresses import check_options
from strandline.connectors.registry import open_sink, sink_identity, sink_level, sink_unable
from strandline.connectors.sink import AT_LEAST_ONCE, EXACTLY_ONCE
from strandline.errors import UsageError
from strandline.model.ids import printable
from strandline.pipeline.place import Target
from strandline.shard.retention import duration_ms

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from strandline.connectors.sink import Delivered, Sink, SinkPorts
    from strandline.views.declared import Sink as Declared
    from strandline.views.program import Program

_OURS = ("interval", "delivery")
_BY_TIME = ("files",)
_KEYED = {"upsert", "debezium"}


def targets(program: Program, ports: SinkPorts) -> list[Target]:
    """One target for each sink; options that its connector refuses are refused here, by name."""
    for each in program.sinks:
        check_options(ports.reach, each.connector, each.options, ports.resolve)
    _refuse_shared([each for each in program.sinks if each.connector == "kafka"])
    return [_target(program, each, ports) for each in program.sinks]


def _refuse_shared(sinks: Sequence[Declared]) -> None:
    """A topic by key is of one sink: messages of upsert do not tell whose they are, and a sink that
    begins anew deletes the keys that it finds."""
    for one, other in combinations(sinks, 2):
        topic, envelopes = _said(one, "topic"), {_said(each, "envelope") for each in (one, other)}
        if (
            topic == _said(other, "topic")
            and _servers(one) & _servers(other)
            and envelopes & _KEYED
        ):
            raise UsageError(
                f"sinks {one.name} and {other.name} publish to one topic, {printable(topic)}, "
                "which has one row a key: the one would delete the keys of the other when it "
                "begins anew; give each a topic of its own"
            )


def _servers(sink: Declared) -> set[str]:
    return {each.strip().casefold() for each in _said(sink, "kafka.bootstrap.servers").split(",")}


def _said(sink: Declared, option: str) -> str:
    return next((said for name, said in sink.options.items() if name.casefold() == option), "")


def _target(program: Program, sink: Declared, ports: SinkPorts) -> Target:
    table = program.table(sink.source)
    key = tuple(name.strip() for name in sink.options.get("key", "").split(",") if name.strip())
    return Target(
        sink.name,
        sink.source,
        sink_identity(sink.connector, sink.options),
        partial(_opened, sink, ports),
        None if table is None else tuple(table.columns.names),
        key or (() if table is None else table.key),
        _every_ms(sink),
        again=_level(sink) == AT_LEAST_ONCE,
        unable=partial(sink_unable, sink.connector, sink.name, ports),
    )


def _level(sink: Declared) -> str:
    """What the connector promises; less than exactly once only if the program says so."""
    promised, wanted = sink_level(sink.connector), sink.options.get("delivery", EXACTLY_ONCE)
    if wanted not in {EXACTLY_ONCE, AT_LEAST_ONCE}:
        raise UsageError(
            f"sink {sink.name}: delivery is {EXACTLY_ONCE} or {AT_LEAST_ONCE}, not "
            f"{printable(wanted)}"
        )
    if promised == AT_LEAST_ONCE and wanted != AT_LEAST_ONCE:
        raise UsageError(
            f"sink {sink.name}: {sink.connector} sinks deliver at least once, and the pipeline "
            "promises exactly once: say that this will do, by the option delivery 'at-least-once'"
        )
    return promised


def _every_ms(sink: Declared) -> int:
    text = sink.options.get("interval")
    if text is None:
        return 0
    if sink.connector in _BY_TIME:
        raise UsageError(
            f"sink {sink.name}: {sink.connector} sinks have no option interval: of two publishers "
            "the second is told by the time of a transaction, so both must cut at every one"
        )
    found = duration_ms(text)
    if found is None:
        raise UsageError(
            f"sink {sink.name}: interval {printable(text)} is not understood: write '30s' or '5m'"
        )
    return found


def _opened(declared: Declared, ports: SinkPorts, what: Delivered) -> Sink:
    return open_sink(declared.connector, _connectors(declared.options), what, ports)


def _connectors(options: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in options.items() if name not in _OURS}
