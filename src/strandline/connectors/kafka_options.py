"""What a table says about its topic, in Spark's words, and what librdkafka is told.

    subscribe                    the topic; one
    startingOffsets              earliest (if not given), latest, or {"topic": {"0": 23, "1": -2}};
                                 -2 is the earliest, -1 the latest
    failOnDataLoss               true; rows that are lost are never passed over in silence
    maxRecordsPerPartition       offsets that one task reads, at most
    kafkaConsumer.pollTimeoutMs  how long an answer is waited for
    kafka.*                      librdkafka's own settings, passed on

The options of a split have `topicId` besides: which topic of that name is meant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from strandline.connectors.options import refuse_unknown, required, whole
from strandline.connectors.secret import HIDDEN, is_reference, without_secrets
from strandline.errors import UsageError
from strandline.model.ids import printable

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from strandline.connectors.addresses import Reach
    from strandline.connectors.source import ResolveSecret

EARLIEST, LATEST = -2, -1
IDENTITY, REACH = "topicId", "reach"
NAME = "kafka"

_CLIENT = "kafka."
_SERVERS = "bootstrap.servers"
_ROWS_PER_SPLIT = 500_000
_PATIENCE_MS = 60_000
_OPTIONS = (
    "subscribe",
    "startingOffsets",
    "failOnDataLoss",
    "maxRecordsPerPartition",
    "kafkaConsumer.pollTimeoutMs",
)
_ELSEWHERE = {
    "assign": "write subscribe 'topic'",
    "subscribePattern": "write one table per topic",
    "endingOffsets": "a table has no end",
    "maxOffsetsPerTrigger": "limits are the pipeline's",
    "minPartitions": "write maxRecordsPerPartition",
    "startingTimestamp": "write startingOffsets with offsets",
    "startingOffsetsByTimestamp": "write startingOffsets with offsets",
}

# Ranges are exact only if nothing else moves the reader, and holes are only passed if it says
# where a partition ends.
_OURS: dict[str, str | int | bool] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
}
_OWNED = frozenset(_OURS) | {"key.deserializer", "value.deserializer"}
# A program may be written by somebody who may not run programs here: these would.
_DANGEROUS = ("plugin.library.paths", "sasl.kerberos.kinit.cmd", "ssl.engine.", "ssl.providers")
_CALLBACKS = ("_cb", "logger", "opaque", "interceptors")

_DEFAULTS: dict[str, str | int | bool] = {
    "client.id": "strandline",
    "isolation.level": "read_committed",
    "log_level": 0,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 1_000,
}
# A range that is read is there already, so a fetch never waits for more to come; it would only
# wait where a hole ends the partition. What is queued beyond the end of a range is thrown away.
_READING: dict[str, str | int | bool] = {
    "group.id": "strandline",
    "fetch.wait.max.ms": 10,
    "fetch.queue.backoff.ms": 5,
    "queued.min.messages": 10_000,
    "queued.max.messages.kbytes": 16 * 1024,
    "check.crcs": True,
}
_ONLY_READING = ("group.", "fetch.", "queued.", "session.", "max.poll.", "max.partition.", "check.")


class Topic(msgspec.Struct, frozen=True):
    """The options of a table, understood. `client` may hold references to secrets."""

    name: str
    client: dict[str, str]
    starting: int | dict[str, int] = EARLIEST
    rows_per_split: int = _ROWS_PER_SPLIT
    patience_ms: int = _PATIENCE_MS
    identity: int | None = None

    @property
    def committed_only(self) -> bool:
        return self.client.get("isolation.level", "read_committed") == "read_committed"


def topic_of(options: Mapping[str, str]) -> Topic:
    """Understand a table's options, or say which can't be right."""
    client, given = client_of(options)
    for name, instead in _ELSEWHERE.items():
        if name in given:
            raise UsageError(f"{NAME} has no option {name}: {instead}")
    refuse_unknown(NAME, given, (*_OPTIONS, "kafka.*"))
    if given.get("failOnDataLoss", "true").lower() != "true":
        raise UsageError("option failOnDataLoss can only be true: rows are never lost in silence")
    refuse_settings(client, _OWNED)
    name = _topic_name(required(NAME, given, "subscribe"))
    return Topic(
        name=name,
        client=client,
        starting=_starting(given.get("startingOffsets", "earliest"), name),
        rows_per_split=whole(given, "maxRecordsPerPartition", _ROWS_PER_SPLIT, least=1),
        patience_ms=whole(given, "kafkaConsumer.pollTimeoutMs", _PATIENCE_MS, least=1),
    )


def client_of(options: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """librdkafka's settings among the options, by their own names, and the other options."""
    without_secrets(options)
    client = {
        name.removeprefix(_CLIENT).lower(): value
        for name, value in options.items()
        if name.startswith(_CLIENT)
    }
    return client, {name: value for name, value in options.items() if not name.startswith(_CLIENT)}


def split_options(options: Mapping[str, str], identity: int | None, reach: Reach) -> dict[str, str]:
    """What a reader has to know of a table's options, which hosts it may reach, and which topic is
    meant, if known. No option of a table has the name of the second: it would be refused."""
    told = {
        name: value
        for name, value in options.items()
        if name.startswith(_CLIENT) or name in _OPTIONS
    }
    told[REACH] = str(reach)
    return told if identity is None else {**told, IDENTITY: str(identity)}


def split_topic(options: Mapping[str, str]) -> Topic:
    """Understand the options of a split."""
    told = {name: value for name, value in options.items() if name != REACH}
    identity = told.pop(IDENTITY, None)
    return msgspec.structs.replace(
        topic_of(told), identity=None if identity is None else int(identity)
    )


def admin_settings(topic: Topic, resolve: ResolveSecret) -> dict[str, str | int | bool]:
    """What a client is told that asks about the topic. Holds secrets: use it and drop it."""
    told = {
        name: value for name, value in topic.client.items() if not name.startswith(_ONLY_READING)
    }
    settings = {**_DEFAULTS, **{name: resolve(value) for name, value in told.items()}}
    del settings["isolation.level"]
    return settings


def reader_settings(topic: Topic, resolve: ResolveSecret) -> dict[str, str | int | bool]:
    """What a client is told that reads the topic. Holds secrets: use it and drop it."""
    told = {name: resolve(value) for name, value in topic.client.items()}
    return {**_DEFAULTS, **_READING, **told, **_OURS}


def hidden(text: str, topic: Topic, settings: Mapping[str, object]) -> str:
    """`text` of somebody else's, for an error: without any value that was a secret."""
    for name, value in topic.client.items():
        secret = settings.get(name)
        if is_reference(value) and isinstance(secret, str) and secret:
            text = text.replace(secret, HIDDEN)
    return printable(text, limit=300)


def _topic_name(subscribe: str) -> str:
    name = subscribe.strip()
    if not name or "," in name:
        raise UsageError(
            f"option subscribe is {printable(subscribe)}: name one topic (a table per topic)"
        )
    return name


def refuse_settings(client: Mapping[str, str], owned: Collection[str]) -> None:
    """Refuse settings without which nothing is reached, that are ours, or that run programs."""
    if not client.get(_SERVERS):
        raise UsageError("option kafka.bootstrap.servers is missing: write 'host:port'")
    for name, value in client.items():
        option = printable(f"{_CLIENT}{name}")
        if name in owned:
            raise UsageError(f"option {option} is Strandline's to set: leave it out")
        if name.startswith(_DANGEROUS) or name.endswith(_CALLBACKS):
            raise UsageError(f"option {option} is refused: it would run or load programs here")
        if name == "isolation.level" and value not in {"read_committed", "read_uncommitted"}:
            raise UsageError(f"option {option} is read_committed or read_uncommitted")


def _starting(text: str, topic: str) -> int | dict[str, int]:
    if (word := text.strip().lower()) in {"earliest", "latest"}:
        return EARLIEST if word == "earliest" else LATEST
    try:
        offsets = msgspec.json.decode(text, type=dict[str, dict[str, int]])
    except msgspec.MsgspecError as wrong:
        raise UsageError(
            "option startingOffsets is earliest, latest or JSON like "
            f'{{"{topic}": {{"0": 23, "1": -2}}}}, not {printable(text)}'
        ) from wrong
    if offsets.keys() != {topic}:
        raise UsageError(f"option startingOffsets is not about the topic {printable(topic)}")
    for partition, offset in offsets[topic].items():
        if not (partition.isascii() and partition.isdigit()) or offset < EARLIEST:
            raise UsageError(
                f"option startingOffsets has {offset} for partition {printable(partition)}: "
                "partitions are numbers, offsets are 0 and more, -1 (latest) or -2 (earliest)"
            )
    return {str(int(partition)): offset for partition, offset in offsets[topic].items()}
