"""A real Kafka broker for the tests: one KRaft node on loopback, from Apache Kafka's own jars.

`make broker` fetches the jars. The node ends with the process that started it, by the kernel if
need be; `kill` is the end that a power cut would be, and `start` then goes on with the same data
at the same address.
"""

from __future__ import annotations

import base64
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from contextlib import suppress
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from strandline.spark.java import find_java

JARS = Path(__file__).resolve().parents[2] / ".broker" / "jars"
LOOPBACK = "127.0.0.1"
USER, PASSWORD = "reader", "tide-and-strand"

_PATIENCE_S = 120
_STOPPING_S = 30
_ATTEMPTS = 3
_JVM = ("-Xms128m", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
_QUIET = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
_TIED = (
    "import ctypes, os, sys\nctypes.CDLL(None).prctl(1, 9)\nos.execvp(sys.argv[1], sys.argv[1:])\n"
)
"""Lets the kernel kill a program when its parent dies, however that dies (PR_SET_PDEATHSIG)."""

# One node is everything, so each internal topic has one copy; one partition of each is faster to
# create. Rebalances do not wait for members that may come, and nothing is deleted by age: the
# tests say themselves when rows go. A node that was killed may come back when its old session has
# ended, so that is short.
_SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.listener.names=CONTROLLER
controller.quorum.voters=1@{host}:{controller}
listeners=PLAINTEXT://{host}:{plain},SASL://{host}:{sasl},CONTROLLER://{host}:{controller}
advertised.listeners=PLAINTEXT://{host}:{plain},SASL://{host}:{sasl}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT
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
broker.session.timeout.ms=5000
"""


class BrokerError(RuntimeError):
    """The node did not do as it was told; what it said is part of the message."""


class Broker:
    """One node. `address` and `sasl_address` stay the same when it is started again."""

    def __init__(self, folder: Path, host: str = LOOPBACK) -> None:
        """`host` is an address of this machine: another one lets other networks reach it."""
        self._folder = folder
        self._host = host
        self._ports: tuple[int, ...] = ()
        self._running: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"{self._host}:{self._ports[0]}"

    @property
    def sasl_address(self) -> str:
        """Where one has to log in: as `USER`, with `PASSWORD`."""
        return f"{self._host}:{self._ports[1]}"

    @property
    def pid(self) -> int:
        if self._running is None:
            raise BrokerError("the broker does not run")
        return self._running.pid

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
            except BrokerError:
                if attempt + 1 == _ATTEMPTS:
                    raise
            else:
                return

    def stop(self) -> None:
        """End the node in order; in any case it is gone afterwards."""
        if self._running is not None:
            self._signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self._running.wait(_STOPPING_S)
        self.kill()

    def kill(self) -> None:
        """End the node as a power cut would: `kill -9`."""
        if self._running is not None:
            self._signal(signal.SIGKILL)
            self._running.wait()
            self._running = None

    def pause(self) -> None:
        """Stop its threads without closing its connections, until `resume`."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _format(self, node: Path) -> None:
        self._ports = _free_ports(self._host, 3)
        plain, sasl, controller = self._ports
        node.mkdir(parents=True)
        settings = node / "server.properties"
        text = _SETTINGS.format(
            host=self._host,
            plain=plain,
            sasl=sasl,
            controller=controller,
            user=USER,
            password=PASSWORD,
            logs=node / "logs",
        )
        settings.write_text(text, encoding="utf-8")
        settings.chmod(0o600)
        name = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        told = ["format", "--cluster-id", name, "--config", str(settings)]
        done = subprocess.run(
            [*_java(), "kafka.tools.StorageTool", *told],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_PATIENCE_S,
            check=False,
        )
        if done.returncode:
            raise BrokerError(f"formatting failed: {done.stdout.decode('utf-8', 'replace')}")
        self._settings = settings

    def _run(self) -> None:
        if self._running is not None:
            raise BrokerError("the broker runs already")
        with self._said.open("ab") as said:
            self._running = subprocess.Popen(
                [sys.executable, "-c", _TIED, *_java(), "kafka.Kafka", str(self._settings)],
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            self._wait_until_it_answers()
        except BaseException:
            self.kill()
            raise

    @property
    def _said(self) -> Path:
        return self._folder / "said.log"

    def _wait_until_it_answers(self) -> None:
        assert self._running is not None
        until = time.monotonic() + _PATIENCE_S
        while time.monotonic() < until:
            if self._running.poll() is not None:
                raise BrokerError(f"the broker ended at once: {self._last_words()}")
            if _listens(self._host, self._ports[0]) and _answers(self.address):
                return
            time.sleep(0.1)
        raise BrokerError(f"no answer from the broker in {_PATIENCE_S} s: {self._last_words()}")

    def _last_words(self) -> str:
        return self._said.read_text(encoding="utf-8", errors="replace")[-4000:]

    def _signal(self, number: signal.Signals) -> None:
        if self._running is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._running.pid, number)


def missing() -> str | None:
    """What this machine lacks for a broker, or `None`."""
    if not any(JARS.glob("kafka_*.jar")):
        return "no broker in .broker (make broker fetches it, from Maven Central)"
    return None if find_java().program else "no Java"


def _java() -> list[str]:
    program = find_java().program
    if program is None:
        raise BrokerError("no Java")
    return [program, *_JVM, _QUIET, "-cp", f"{JARS}/*"]


def _free_ports(host: str, count: int) -> tuple[int, ...]:
    held = [socket.socket() for _ in range(count)]
    try:
        for each in held:
            each.bind((host, 0))
        return tuple(each.getsockname()[1] for each in held)
    finally:
        for each in held:
            each.close()


def _listens(host: str, port: int) -> bool:
    with suppress(OSError), socket.create_connection((host, port), timeout=1):
        return True
    return False


def _answers(address: str) -> bool:
    """Whether it knows itself and leads every partition that it had before."""
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    try:
        known = admin.list_topics(timeout=2)
    except KafkaException:
        return False
    partitions = [each for topic in known.topics.values() for each in topic.partitions.values()]
    return bool(known.brokers) and all(each.leader >= 0 for each in partitions)
