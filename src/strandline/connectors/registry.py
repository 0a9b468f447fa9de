"""Connectors by name, each loaded when it is first asked for.

A connector is a module with `open_source(options, ports)`, see `source.Open`, and
`fetch(split, resolve)`, see `source.Fetch`. Executors find the latter by the name in the split.
One that takes rows is a module with `open_sink(options, what, ports)`, see `sink.OpenSink`, and
`IDENTITY`, the options that say which target it is; `LEVEL` if it promises less than exactly
once, and `unable(sink, ports)` if not every process can publish to it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, cast

from strandline.connectors.addresses import check_options
from strandline.connectors.secret import without_secrets
from strandline.connectors.sink import EXACTLY_ONCE
from strandline.errors import UsageError
from strandline.model.ids import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from strandline.connectors.sink import Delivered, OpenSink, Sink, SinkPorts
    from strandline.connectors.source import Fetch, Open, Ports, ResolveSecret, Source, Split

CONNECTORS = {
    "files": "strandline.connectors.files",
    "generator": "strandline.connectors.generator",
    "kafka": "strandline.connectors.kafka",
    "push": "strandline.connectors.push",
    "shard": "strandline.connectors.shard",
}
SINKS = {
    "callback": "strandline.connectors.callback_sink",
    "files": "strandline.connectors.files_sink",
    "iceberg": "strandline.connectors.iceberg_sink",
    "kafka": "strandline.connectors.kafka_sink",
    "postgresql": "strandline.connectors.postgres_sink",
}


def open_source(connector: str, options: Mapping[str, str], ports: Ports) -> Source:
    """The source that a table's USING and OPTIONS ask for; secrets must be references in them."""
    opener = cast("Open", _named(connector, "open_source"))
    check_options(ports.reach, connector, without_secrets(options), ports.resolve)
    return opener(dict(options), ports)


def fetch(split: Split, resolve: ResolveSecret) -> Iterator[pa.RecordBatch]:
    """The rows of a split, read by the connector that it names."""
    return cast("Fetch", _named(split.connector, "fetch"))(split, resolve)


def open_sink(
    connector: str, options: Mapping[str, str], what: Delivered, ports: SinkPorts
) -> Sink:
    """The sink that a program's USING and OPTIONS ask for.

    Whoever gives a program is told what is a secret in it. One on record may be older than the rule
    by which it is one, and its sinks go on until another program is promoted.
    """
    opener = cast("OpenSink", _named(connector, "open_sink", SINKS))
    check_options(ports.reach, connector, options, ports.resolve)
    return opener(dict(options), what, ports)


def sink_identity(connector: str, options: Mapping[str, str]) -> dict[str, str]:
    """What says which target it is; other options may change and the target stays the same."""
    names = cast("tuple[str, ...]", _named(connector, "IDENTITY", SINKS))
    return {"connector": connector, **{name: options[name] for name in names if name in options}}


def sink_level(connector: str) -> str:
    """How often a change arrives: exactly once, unless the connector can't promise that."""
    module = import_module(SINKS[connector])
    return str(getattr(module, "LEVEL", EXACTLY_ONCE))


def sink_unable(connector: str, sink: str, ports: SinkPorts) -> str:
    """Why a sink can't be published from this process; empty if it can."""
    unable = getattr(import_module(SINKS[connector]), "unable", None)
    return "" if unable is None else str(unable(sink, ports))


def _named(connector: str, attribute: str, among: Mapping[str, str] = CONNECTORS) -> object:
    module = among.get(connector)
    if module is None:
        raise UsageError(
            f"there is no connector {printable(connector)}: use one of {', '.join(among)}"
        )
    return getattr(import_module(module), attribute)
