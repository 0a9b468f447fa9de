"""Feeds a topic and a folder while replicas and the broker come and go, and remembers the rows.

A row counts once the broker has said at which offset it is; the producer tries again until then,
and is idempotent, so each row is there once. A file appears whole, by its name.
"""

from __future__ import annotations

import json
import random
import threading
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Message, Producer
from tests.kills.inputs import Files, Given, Written
from tests.kills.shop import Event

PARTITIONS = 2
PAUSE_S = 0.1
ROWS = 8


class Feed:
    """Rows of `orders` in a topic, rows of `customers` in files. Runs beside; close it."""

    def __init__(self, address: str, topic: str, folder: Path, seed: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._random = random.Random(seed)
        self._topic, self._folder = topic, folder
        self._producer = Producer(
            {
                "bootstrap.servers": address,
                "enable.idempotence": True,
                "linger.ms": 5,
                "log_level": 0,
                "reconnect.backoff.max.ms": 500,
            }
        )
        self.orders, self.customers = Written(), Files()
        self.troubles: list[str] = []
        self._files = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._feed, daemon=True)
        self._thread.start()

    @property
    def given(self) -> dict[str, Given]:
        return {"orders": self.orders, "customers": self.customers}

    def using(self, address: str) -> dict[str, tuple[str, dict[str, str]]]:
        """What a program says of the two sources."""
        kafka = {"kafka.bootstrap.servers": address, "subscribe": self._topic}
        rows = {"format": "json", "envelope": "upsert"}
        return {
            "orders": ("kafka", {**kafka, **rows}),
            "customers": ("files", {"path": str(self._folder), **rows}),
        }

    def stop(self, within_s: float) -> None:
        """No more rows; returns when all that were written are where they belong."""
        self._ended.set()
        self._thread.join()
        left = self._producer.flush(within_s)
        if left:
            self.troubles.append(f"{left} rows were not taken by the broker in {within_s} s")

    def ends(self) -> dict[str, int]:
        """How many rows each partition has."""
        return {name: len(rows) for name, rows in self.orders.rows.items()}

    def files(self) -> set[str]:
        return set(self.customers.rows)

    def _feed(self) -> None:
        while not self._ended.is_set():
            for _ in range(ROWS):
                self._order()
            if self._random.random() < 0.3:
                self._file()
            self._producer.poll(0)
            time.sleep(PAUSE_S)

    def _order(self) -> None:
        chance = self._random
        key = chance.randrange(60)
        row = (key, chance.randrange(1000), chance.randrange(1_000_000), chance.random() < 0.5)
        gone = chance.random() < 0.1
        event = Event(key, None if gone else row)
        named = dict(zip(("id", "customer", "amount", "paid"), row, strict=True))
        self._producer.produce(
            self._topic,
            key=json.dumps({"id": key}).encode(),
            value=None if gone else json.dumps(named).encode(),
            partition=key % PARTITIONS,
            on_delivery=lambda error, message: self._landed(event, error, message),
        )

    def _landed(self, event: Event, error: Any, message: Message) -> None:
        if error is not None:
            self.troubles.append(f"the broker refused a row: {error}")
            return
        rows = self.orders.rows.setdefault(str(message.partition()), [])
        if message.offset() != len(rows):
            self.troubles.append(f"offset {message.offset()} comes after {len(rows)} rows")
        rows.append(event)

    def _file(self) -> None:
        rows = [(self._random.randrange(30), f"name {self._random.random()}") for _ in range(3)]
        # The last row of a key counts, and the order of rows is that of the file.
        lines = [json.dumps({"id": key, "name": name}) for key, name in rows]
        name = f"{self._files:06d}.json"
        self._files += 1
        hidden = self._folder / f".{name}"
        hidden.write_text("\n".join(lines) + "\n")
        self.customers.rows[name] = [Event(row[0], row) for row in rows]
        hidden.rename(self._folder / name)
