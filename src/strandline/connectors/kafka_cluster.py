"""Asks a Kafka cluster about a topic, and says what its answers and errors mean.

Waits are bounded. What may pass by itself is a `SourceError`; what somebody has to change, a
login or a setting, is a `UsageError` that names it, without secrets (S89).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Protocol, TypeVar

from strandline.connectors.addresses import Address, Reach, check_address
from strandline.connectors.kafka_options import Topic, admin_settings, hidden
from strandline.connectors.kafka_plan import Bounds, Found, identity_of
from strandline.errors import HandleClosedError, NotInstalledError, SourceError, UsageError
from strandline.model.ids import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from concurrent.futures import Future
    from types import ModuleType

    from confluent_kafka import KafkaError, KafkaException, TopicPartition
    from confluent_kafka.admin import AdminClient

    from strandline.connectors.source import ResolveSecret

Answer = TypeVar("Answer")

_ANY = Reach()
_SLICE_S = 0.1
_ASKING_MS = 15_000
_ATTEMPTS = 50
_LOGIN = ("_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED", "UNSUPPORTED_SASL_MECHANISM", "_SSL")
_RIGHTS = ("TOPIC_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED")
_UNKNOWN = ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION", "UNKNOWN_TOPIC_ID")
# Somebody else leads a partition now, or will in a moment: the answer is to ask again.
_PASSING = (
    *_UNKNOWN,
    "_NOENT",
    "NOT_LEADER_FOR_PARTITION",
    "LEADER_NOT_AVAILABLE",
    "REPLICA_NOT_AVAILABLE",
    "OFFSET_NOT_AVAILABLE",
    "FENCED_LEADER_EPOCH",
    "UNKNOWN_LEADER_EPOCH",
    "KAFKA_STORAGE_ERROR",
)


def kafka_module(name: str = "confluent_kafka") -> ModuleType:
    """The client library, or how to get it: it is an extra, and the package works without it."""
    try:
        import_module(f"{name}.admin")
        return import_module(name)
    except ImportError as missing:
        raise NotInstalledError(
            "Kafka needs the package confluent-kafka, which is not installed: "
            "pip install 'strandline[kafka]'"
        ) from missing


class Node(Protocol):
    """What is used of the library's brokers."""

    host: str
    port: int


class Place(Protocol):
    """What is used of the library's partitions."""

    id: int
    leader: Node | None


class Description(Protocol):
    """What is used of the library's description of a topic."""

    topic_id: object
    partitions: list[Place]


class Offset(Protocol):
    """What is used of the library's answer about an offset."""

    offset: int


class Complaints:
    """What librdkafka says beside its answers: it retries by itself, and tells why it must."""

    def __init__(self, topic: Topic, settings: Mapping[str, object]) -> None:
        self._topic = topic
        self._settings = settings
        self._refusal: str | None = None
        self.last = "no answer"
        self.names: set[str] = set()
        """The errors that were told so far."""
        self.count = 0
        self._answered = False

    def __call__(self, error: KafkaError) -> None:
        """What the library calls, in the middle of its own work."""
        text = self.shown(error)
        self.count += 1
        self.names.add(error.name())
        if not self._answered:
            self._refusal = self._refusal or self._permanent(error.name(), text)
        if error.name() != "_ALL_BROKERS_DOWN":
            self.last = text

    def shown(self, error: KafkaError) -> str:
        """An error's text, without secrets."""
        return hidden(error.str(), self._topic, self._settings)

    def hear(self, error: KafkaError | None = None) -> None:
        """Raise if something was said, now or before, that waiting can't mend."""
        refusal = None
        if error is not None:
            self(error)
            refusal = self._permanent(error.name(), self.shown(error))
        if refusal or self._refusal:
            raise UsageError(refusal or self._refusal)

    def answered(self) -> None:
        """The client has logged in: what it says from here on beside its answers, of a connection
        that it makes anew, may pass. If it does not, whoever opens a new one is told."""
        self._answered, self._refusal = True, None

    def made(self, make: Callable[[dict[str, object]], Answer]) -> Answer:
        """A client with the settings; those that librdkafka refuses are named."""
        kafka = kafka_module()
        try:
            return make({**self._settings, "error_cb": self})
        except kafka.KafkaException as refused:
            text = self.shown(refused.args[0])
        raise UsageError(f"an option kafka.* is refused by librdkafka: {text}")

    def _permanent(self, error: str, text: str) -> str | None:
        servers = printable(self._topic.client.get("bootstrap.servers"))
        # A connection that breaks in the middle of a login is no refusal of it.
        if error in _LOGIN and "isconnected" not in text:
            return (
                f"Kafka at {servers} and this client do not accept each other; see options "
                f"kafka.security.protocol, kafka.sasl.* and kafka.ssl.*: {text}"
            )
        if error in _RIGHTS:
            topic = printable(self._topic.name)
            return f"Kafka at {servers} gives no right to topic {topic}: {text}"
        return None


class Cluster:
    """A connection that asks about one topic."""

    def __init__(self, topic: Topic, resolve: ResolveSecret, reach: Reach = _ANY) -> None:
        self._kafka = kafka_module()
        self._topic = topic
        self._reach = reach
        self._checked: set[tuple[str, int]] = set()
        settings = admin_settings(topic, resolve)
        self._complaints = Complaints(topic, settings)
        self._client: AdminClient | None = self._complaints.made(self._kafka.admin.AdminClient)

    def admit(self) -> None:
        """See to it that all brokers of the topic may be reached, before anybody speaks to them;
        one that can't be asked just now is asked again, for as long as the topic has patience."""
        for left in range(self._topic.patience_ms // _ASKING_MS, -1, -1):
            try:
                self._describe()
            except SourceError:
                if left <= 1:
                    raise
                self._admin.poll(_SLICE_S * 5)
            else:
                return

    def find(self, *, bounds: bool = True) -> Found | None:
        """The topic as it is now, or `None` if there is none; its partitions only with bounds."""
        for _ in range(_ATTEMPTS):
            described = self._describe() or self._describe_again()
            if described is None:
                return None
            topic_id, partitions = described
            found = self._bounds(partitions) if bounds else {}
            if found is not None:
                return Found(self._topic.name, identity_of(topic_id), found)
            self._admin.poll(_SLICE_S * 2)
        raise SourceError(self._silence())

    def compacted(self) -> bool:
        """Whether rows may vanish from the middle of a partition. Who may not know is told yes."""
        policy = self.policy()
        return not policy or "compact" in policy

    def policy(self) -> str:
        """The topic's `cleanup.policy`; empty for who may not know."""
        admin = self._kafka.admin
        resource = admin.ConfigResource(admin.ConfigResource.Type.TOPIC, self._topic.name)
        asked = self._admin.describe_configs([resource])[resource]
        try:
            settings = self._wait(asked)
        except self._kafka.KafkaException as refused:
            if refused.args[0].name() in _RIGHTS:
                return ""
            raise self._failed(refused) from None
        return str(settings["cleanup.policy"].value)

    def create(self, partitions: int, config: Mapping[str, str]) -> None:
        """Make the topic, with as many copies as the cluster says, unless it is there."""
        name = self._topic.name
        new = self._kafka.admin.NewTopic(name, partitions, -1, config=dict(config))
        try:
            self._wait(self._admin.create_topics([new])[name])
        except self._kafka.KafkaException as refused:
            if refused.args[0].name() != "TOPIC_ALREADY_EXISTS":
                raise self._failed(refused) from None

    def close(self) -> None:
        """Nothing is asked any more; the library ends the connection when nobody holds it."""
        self._client = None

    @property
    def _admin(self) -> AdminClient:
        if self._client is None:
            raise HandleClosedError("this source was closed: open a new one")
        return self._client

    def _describe(self) -> tuple[str, list[int]] | None:
        try:
            described = self._wait(self._asked())
        except self._kafka.KafkaException as refused:
            if refused.args[0].name() in _UNKNOWN:
                return None
            raise self._failed(refused) from None
        self._check(each.leader for each in described.partitions)
        return str(described.topic_id), sorted(each.id for each in described.partitions)

    def _check(self, leaders: Iterable[Node | None]) -> None:
        """A cluster says itself where its brokers are: a program may have led us to one that
        sends us on to where nobody may go (X12). Nothing is asked of them before this."""
        brokers = {(each.host, each.port) for each in leaders if each is not None}
        for host, port in sorted(brokers - self._checked):
            check_address(self._reach, "kafka.bootstrap.servers", Address(host, port))
            self._checked.add((host, port))

    def _asked(self) -> Future[Description]:
        name = self._topic.name
        asked: Future[Description] = self._admin.describe_topics(
            self._kafka.TopicCollection([name])
        )[name]
        return asked

    def _describe_again(self) -> tuple[str, list[int]] | None:
        # A broker that has just started may not know yet what there is.
        self._admin.poll(_SLICE_S * 5)
        return self._describe()

    def _bounds(self, partitions: Iterable[int]) -> dict[str, Bounds] | None:
        """The offsets of each partition that may be read; `None` if it can't be told just now."""
        spec, level = self._kafka.admin.OffsetSpec, self._kafka.IsolationLevel
        isolation = level.READ_COMMITTED if self._topic.committed_only else level.READ_UNCOMMITTED
        places = [self._kafka.TopicPartition(self._topic.name, each) for each in partitions]
        try:
            low, high = [
                self._numbers(
                    self._admin.list_offsets(
                        dict.fromkeys(places, which), isolation_level=isolation
                    )
                )
                for which in (spec.earliest(), spec.latest())
            ]
        except self._kafka.KafkaException as refused:
            if refused.args[0].name() not in _PASSING:
                raise self._failed(refused) from None
            self._complaints.hear(refused.args[0])
            return None
        if any(each < 0 for each in (*low.values(), *high.values())):
            # No offset and no error: librdkafka says so of a connection that broke in between.
            return None
        return {str(each): Bounds(low[each], high[each]) for each in partitions}

    def _numbers(self, asked: Mapping[TopicPartition, Future[Offset]]) -> dict[int, int]:
        return {place.partition: self._wait(answer).offset for place, answer in asked.items()}

    def _wait(self, asked: Future[Answer]) -> Answer:
        for _ in range(_slices(min(_ASKING_MS, self._topic.patience_ms))):
            try:
                answer = asked.result(timeout=_SLICE_S)
            except TimeoutError:
                self._admin.poll(0)
                self._complaints.hear()
            else:
                self._complaints.answered()
                return answer
        raise SourceError(self._silence())

    def _failed(self, refused: KafkaException) -> SourceError:
        self._admin.poll(0)
        self._complaints.hear(refused.args[0])
        return SourceError(self._silence())

    def _silence(self) -> str:
        servers = printable(self._topic.client.get("bootstrap.servers"))
        return (
            f"Kafka at {servers} could not be asked about topic {printable(self._topic.name)}: "
            f"{self._complaints.last}"
        )


def _slices(patience_ms: int) -> int:
    return max(1, round(patience_ms / 1000 / _SLICE_S))
