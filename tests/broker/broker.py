"""A real Kafka broker for the tests: one KRaft node on loopback, from Apache Kafka's own jars.

`make broker` fetches the jars. The node ends with the process that started it, by the kernel if
need be; `kill` is the end that a power cut would be, and `start` then goes on with the same data
at the same address.
"""

from __future__ import annotations

import base64
import os
import signal
import uuid
from contextlib import suppress
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from tests.broker.certificate import STORE_PASSWORD, Certificate
from tests.jvm import QUICK
from tests.server_process import (
    LOOPBACK,
    ServerError,
    ServerProcess,
    free_ports,
    listens,
    run,
    tied,
)

from strandline.spark.java import find_java

JARS = Path(__file__).resolve().parents[2] / ".broker" / "jars"
USER, PASSWORD = "reader", "tide-and-strand"

_PATIENCE_S = 120
_STOPPING_S = 30
_ATTEMPTS = 3
_JVM = ("-Xms128m", "-Xmx384m", *QUICK, "-Xshare:auto")
_QUIET = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"

# One node is everything, so each internal topic has one copy; one partition of each is faster to
# create. Rebalances do not wait for members that may come, and nothing is deleted by age: the
# tests say themselves when rows go. A node that was killed may come back when its old session has
# ended, so that is short.
_SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.listener.names=CONTROLLER
controller.quorum.voters=1@{host}:{controller}
listeners=PLAINTEXT://{host}:{plain},SASL://{host}:{sasl},BEHIND://{host}:{behind},\
CONTROLLER://{host}:{controller}
advertised.listeners=PLAINTEXT://{host}:{plain},SASL://{host}:{sasl},BEHIND://{host}:{front}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SASL:{login},BEHIND:PLAINTEXT,\
CONTROLLER:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
sasl.enabled.mechanisms=PLAIN
listener.name.sasl.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule \
required user_{user}="{password}";
log.dirs={logs}
log.retention.ms=-1
log.cleaner.dedupe.buffer.size=2097152
log.cleaner.backoff.ms=200
num.partitions=1
num.network.threads=2
num.io.threads=2
background.threads=2
auto.create.topics.enable=false
default.replication.factor=1
min.insync.replicas=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
group.initial.rebalance.delay.ms=0
broker.heartbeat.interval.ms=500
broker.session.timeout.ms=3000
"""


_SECURED = """\
listener.name.sasl.ssl.keystore.type=PKCS12
listener.name.sasl.ssl.keystore.location={keys}
listener.name.sasl.ssl.keystore.password={password}
"""


class Broker:
    """One node. `address` and `sasl_address` stay the same when it is started again."""

    def __init__(
        self, folder: Path, host: str = LOOPBACK, certificate: Certificate | None = None
    ) -> None:
        """`host` is an address of this machine: another one lets other networks reach it.

        With a certificate one logs in over TLS.
        """
        self._folder = folder
        self._certificate = certificate
        self._host = host
        self._ports: tuple[int, ...] = ()
        self._process = ServerProcess("broker", folder)

    @property
    def address(self) -> str:
        return f"{self._host}:{self._ports[0]}"

    @property
    def sasl_address(self) -> str:
        """Where one has to log in: as `USER`, with `PASSWORD`."""
        return f"{self._host}:{self._ports[1]}"

    @property
    def proxied(self) -> tuple[tuple[str, int], tuple[str, int]]:
        """Where a proxy has to listen, and where it finds the node; see `proxy`."""
        return (self._host, self._ports[4]), (self._host, self._ports[3])

    @property
    def pid(self) -> int:
        return self._process.pid

    def start(self) -> None:
        """Start the node, or start it again on the same folder; returns when it answers."""
        if self._ports:
            self._run()
            return
        for attempt in range(_ATTEMPTS):
            # Between choosing a port and listening on it somebody else may take it.
            self._format(self._folder / f"node-{attempt}")
            try:
                self._run()
            except ServerError:
                if attempt + 1 == _ATTEMPTS:
                    raise
            else:
                return

    def stop(self) -> None:
        """End the node in order; in any case it is gone afterwards."""
        self._signal(signal.SIGTERM)
        self._process.wait(_STOPPING_S)
        self.kill()

    def kill(self) -> None:
        """End the node as a power cut would: `kill -9`."""
        self._signal(signal.SIGKILL)
        self._process.kill()

    def pause(self) -> None:
        """Stop its threads without closing its connections, until `resume`."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _format(self, node: Path) -> None:
        self._ports = free_ports(5, self._host)
        plain, sasl, controller, behind, front = self._ports
        node.mkdir(parents=True)
        settings = node / "server.properties"
        text = _SETTINGS.format(
            host=self._host,
            plain=plain,
            sasl=sasl,
            controller=controller,
            behind=behind,
            front=front,
            user=USER,
            password=PASSWORD,
            logs=node / "logs",
            login="SASL_SSL" if self._certificate else "SASL_PLAINTEXT",
        )
        if self._certificate:
            text += _SECURED.format(keys=self._certificate.keys, password=STORE_PASSWORD)
        settings.write_text(text, encoding="utf-8")
        settings.chmod(0o600)
        name = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        # In one word: a name may begin with a dash.
        told = ["format", f"--cluster-id={name}", "--config", str(settings)]
        run([*_java(), "kafka.tools.StorageTool", *told], node, "formatting", _PATIENCE_S)
        self._settings = settings

    def _run(self) -> None:
        self._process.start([*tied(), *_java(), "kafka.Kafka", str(self._settings)])
        try:
            self._process.wait_until(self._answers, _PATIENCE_S)
        except BaseException:
            self.kill()
            raise

    def _answers(self) -> bool:
        return listens(self._ports[0], self._host) and _leads_all(self.address)

    def _signal(self, number: signal.Signals) -> None:
        if self._process.runs:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)


def missing() -> str | None:
    """What this machine lacks for a broker, or `None`."""
    if not any(JARS.glob("kafka_*.jar")):
        return "no broker in .broker (make broker fetches it, from Maven Central)"
    return None if find_java().program else "no Java"


def _java() -> list[str]:
    program = find_java().program
    if program is None:
        raise ServerError("no Java")
    return [program, *_JVM, _QUIET, "-cp", f"{JARS}/*"]


def _leads_all(address: str) -> bool:
    """Whether it knows itself and leads every partition that it had before."""
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    try:
        known = admin.list_topics(timeout=2)
    except KafkaException:
        return False
    partitions = [each for topic in known.topics.values() for each in topic.partitions.values()]
    return bool(known.brokers) and all(each.leader >= 0 for each in partitions)
