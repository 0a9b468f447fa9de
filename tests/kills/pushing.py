"""Producers that push rows over HTTP to whichever replica is there, until they are told.

A push that is not answered is pushed again, to any replica, under the same number: it counts once.
Each producer has keys of its own, so that the order between producers does not matter.
"""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

from tests.kills.fleet import TOKEN
from tests.kills.inputs import Pushes
from tests.kills.shop import Event
from tests.kills.watch import NAME

KEYS = 20
ANSWER_S = 10.0
PAUSE_S = 0.05


class Producers:
    """Some producers, each a thread. Close it."""

    def __init__(self, count: int, urls: Callable[[], Sequence[str]], seed: int) -> None:
        """`urls` says where replicas serve now."""
        self._urls = urls
        self.pushes = Pushes()
        self.answered: dict[str, int] = {}
        """The last push of each producer that was answered."""
        self.told: Counter[str] = Counter()
        self._ended = threading.Event()
        self._threads = [
            threading.Thread(target=self._produce, args=(each, seed), daemon=True)
            for each in range(count)
        ]
        for each in self._threads:
            each.start()

    def stop(self, within_s: float) -> None:
        """No new pushes; returns when all that were begun are answered, or given up."""
        self._ended.set()
        deadline = time.monotonic() + within_s
        for each in self._threads:
            each.join(max(0.0, deadline - time.monotonic()))

    def _produce(self, number: int, seed: int) -> None:
        chance, name = random.Random(seed + number), f"producer-{number}"
        pushes = self.pushes.rows.setdefault(name, [])
        while not self._ended.is_set():
            events = [self._event(number, chance) for _ in range(chance.randint(1, 4))]
            # Known before it is sent: the journal may have it before we are told.
            pushes.append(events)
            self._insist(name, len(pushes) - 1, events, chance)
            self.answered[name] = len(pushes) - 1
            time.sleep(PAUSE_S)

    def _event(self, number: int, chance: random.Random) -> Event:
        key = number * KEYS + chance.randrange(KEYS)
        row = (key, chance.randrange(1000), chance.randrange(1_000_000), chance.random() < 0.5)
        return Event(key, row)

    def _insist(self, name: str, at: int, events: list[Event], chance: random.Random) -> None:
        names = ("id", "customer", "amount", "paid")
        rows = [dict(zip(names, each.row or (), strict=True)) for each in events]
        body = b"\n".join(json.dumps(row).encode() for row in rows)
        while True:
            urls = self._urls()
            told = "nobody serves"
            if urls:
                told = self._push(chance.choice(urls), name, at, body)
            self.told[told] += 1
            if told.startswith("200"):
                return
            time.sleep(PAUSE_S)

    def _push(self, url: str, name: str, at: int, body: bytes) -> str:
        place = urlsplit(url)
        connection = http.client.HTTPConnection(place.hostname, place.port, timeout=ANSWER_S)
        headers = {"Authorization": f"Bearer {TOKEN}", "X-Producer": name, "X-Sequence": str(at)}
        try:
            path = f"/v1/pipelines/{NAME}/tables/orders/rows"
            connection.request("POST", path, body, headers)
            answer = connection.getresponse()
            said = json.loads(answer.read() or b"{}")
        except (OSError, http.client.HTTPException, ValueError) as error:
            return type(error).__name__
        else:
            again = " again" if said.get("duplicate") else ""
            return f"{answer.status}{again}"
        finally:
            connection.close()
