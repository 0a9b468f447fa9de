"""What a sink says about its topic, and what librdkafka is told to write there.

    option         default   meaning
    -------------  --------  ------------------------------------------------------------------
    topic                    where the changes go
    envelope                 upsert, debezium or changes: see `kafka_form`
    key                      columns, 'a,b': what a message's key is made of, and what tells one
                             row from another; else the collection's own key
    headers                  columns that are headers, too
    tombstones     true      of debezium: whether a null follows a deletion
    partitions               of the topic, if it is not there and has to be made
    progressTopic  by sink   a compacted topic, which is made if it is not there
    existing       refuse    keys of the topic if progress was lost and a new lineage begins:
                             refuse stops the sink, replace deletes them, keep leaves them
    timeoutMs      60000     how long an answer is waited for
    kafka.*                  librdkafka's own settings, passed on

A progress topic has the progress of one sink unless it is named: whoever reads progress waits for
all transactions that are open on its topic, and should wait for its own only.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import TYPE_CHECKING

import msgspec

from strandline.connectors.kafka_form import ENVELOPES, KEYED, Form
from strandline.connectors.kafka_options import Topic, admin_settings, client_of, refuse_settings
from strandline.connectors.options import required, whole
from strandline.errors import UsageError
from strandline.model.ids import printable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from strandline.connectors.sink import Address, Delivered
    from strandline.connectors.source import ResolveSecret

NAME = "kafka"
PREFIX = "strandline-"
"""What the names begin with that this sink makes up, for whoever gives rights by prefix."""
REFUSE, REPLACE, KEEP = "refuse", "replace", "keep"
_EXISTING = (REFUSE, REPLACE, KEEP)
_PATIENCE_MS = 60_000
_NAME_MAX = 249
_WORD_MAX = 80
_LEGAL = re.compile(r"[A-Za-z0-9._-]+")
_ILLEGAL = re.compile(r"[^A-Za-z0-9._-]")
_OPTIONS = (
    "topic",
    "envelope",
    "key",
    "headers",
    "tombstones",
    "partitions",
    "progressTopic",
    "existing",
    "timeoutMs",
)
_ELSEWHERE = {
    "includeHeaders": "write headers 'column,…'",
    "checkpointLocation": "progress is kept in the target",
    "subscribe": "write topic 'name'",
    "format": "values are JSON",
}

# What exactly-once rests on. That it was fenced librdkafka writes to the terminal whatever its log
# level, unless its log is a queue; the error says so, too.
_OURS: dict[str, str | int | bool] = {
    "log.queue": True,
    "acks": "all",
    "enable.idempotence": True,
    "delivery.report.only.error": True,
}
_OWNED = frozenset(_OURS) | {"transactional.id", "isolation.level", "enable.gapless.guarantee"}
# Memory is bounded by what is on its way. A transaction may take minutes, but one whose publisher
# has died holds up readers until it runs out, or until the next publisher ends it.
_WRITING: dict[str, str | int | bool] = {
    "partitioner": "murmur2_random",
    "queue.buffering.max.messages": 200_000,
    "queue.buffering.max.kbytes": 64 * 1024,
    "linger.ms": 10,
    "batch.size": 512 * 1024,
    "transaction.timeout.ms": 300_000,
}
_TRUTH = {"true": True, "false": False}


class Target(msgspec.Struct, frozen=True):
    """The options of a sink, understood. `client` may hold references to secrets."""

    topic: str
    progress: str
    client: dict[str, str]
    form: Form
    partitions: int = 0
    """Of the topic if it has to be made; 0: it is not made."""
    patience_ms: int = _PATIENCE_MS
    existing: str = REFUSE
    """What becomes of keys that may be this sink's own or somebody else's."""

    @property
    def patience_s(self) -> float:
        return self.patience_ms / 1000

    def asking(self, topic: str) -> Topic:
        """A topic as those see it who ask how far it goes, open transactions and all."""
        return self._seen(topic, "read_uncommitted")

    def reading(self, topic: str) -> Topic:
        """A topic as those see it who read what counts."""
        return self._seen(topic, "read_committed")

    def _seen(self, topic: str, level: str) -> Topic:
        client = {**self.client, "isolation.level": level}
        return Topic(topic, client, patience_ms=self.patience_ms)


def target_of(options: Mapping[str, str], what: Delivered) -> Target:
    """Understand a sink's options, or say which can't be right."""
    client, given = client_of(options)
    for name, instead in _ELSEWHERE.items():
        if name in given:
            raise UsageError(f"a kafka sink has no option {name}: {instead}")
    for name in given:
        if name not in _OPTIONS:
            raise UsageError(
                f"a kafka sink has no option {printable(name)}: there are "
                f"{', '.join(_OPTIONS)}, kafka.*"
            )
    refuse_settings(client, _OWNED)
    existing = given.get("existing", REFUSE)
    if existing not in _EXISTING:
        raise UsageError(
            f"option existing is {printable(existing)}: use one of {', '.join(_EXISTING)}"
        )
    return Target(
        topic=_topic_name(required(NAME, given, "topic"), "topic"),
        progress=_topic_name(
            given.get("progressTopic") or progress_topic(what.address), "progressTopic"
        ),
        client=client,
        form=_form(given, what),
        partitions=whole(given, "partitions", 0, least=1),
        patience_ms=whole(given, "timeoutMs", _PATIENCE_MS, least=1),
        existing=existing,
    )


def progress_topic(address: Address) -> str:
    """The topic of one sink's progress, whatever its lineage; other sinks have others."""
    whole_name = "\x00".join((address.store, address.pipeline, address.sink))
    digest = blake2b(whole_name.encode(), digest_size=6).hexdigest()
    words = [
        _ILLEGAL.sub("_", each)[:_WORD_MAX] for each in (address.pipeline, address.sink, digest)
    ]
    return f"{PREFIX}progress-{'-'.join(words)}"


def transactional_id(address: Address) -> str:
    return PREFIX + address.digest


def writer_settings(
    target: Target, resolve: ResolveSecret, transactional: str
) -> dict[str, str | int | bool]:
    """What a client is told that writes. Holds secrets: use it and drop it."""
    told = admin_settings(target.asking(target.topic), resolve)
    return {**_WRITING, **told, **_OURS, "transactional.id": transactional}


def _form(given: Mapping[str, str], what: Delivered) -> Form:
    envelope = given.get("envelope", "")
    if envelope not in ENVELOPES:
        raise UsageError(
            f"option envelope is {printable(envelope)}: use one of {', '.join(ENVELOPES)}"
        )
    names = tuple(what.columns.names)
    key = _columns(given, "key", names) or what.key
    if envelope in KEYED and not key:
        raise UsageError(
            f"envelope {envelope} needs a key: write key 'a,b' with the columns that tell one "
            "row from another, or publish with envelope 'changes'"
        )
    tombstones = _TRUTH.get(given.get("tombstones", "true").lower())
    if tombstones is None or ("tombstones" in given and envelope != "debezium"):
        raise UsageError("option tombstones is true or false, and of envelope debezium alone")
    return Form(
        envelope=envelope,
        columns=names,
        key=key,
        headers=_columns(given, "headers", names),
        tombstones=tombstones,
        ordered=bool(key) and key == what.key,
    )


def _columns(given: Mapping[str, str], option: str, names: tuple[str, ...]) -> tuple[str, ...]:
    text = given.get(option)
    if text is None:
        return ()
    chosen = tuple(each.strip() for each in text.split(","))
    for each in chosen:
        if each not in names:
            raise UsageError(
                f"option {option} names {printable(each)}, which is no column: there are "
                f"{', '.join(printable(name) for name in names)}"
            )
    if len(set(chosen)) < len(chosen):
        raise UsageError(f"option {option} names a column twice: {printable(text)}")
    return chosen


def _topic_name(name: str, option: str) -> str:
    if not _LEGAL.fullmatch(name) or len(name) > _NAME_MAX or name in {".", ".."}:
        raise UsageError(
            f"option {option} is {printable(name)}: topics have letters, digits, '.', '_' and '-' "
            f"in their names, and {_NAME_MAX} of them at most"
        )
    return name
