"""Two replicas upsert the same stream into one shard; one of them is gone half-way.

    python examples/ingest.py

A source here is anything that gives the same rows for the same offsets: this one is a list. Which
offset belongs to which time is agreed on in a binding shard, so both replicas compute the same
updates, and the shard takes each of them once.
"""

from __future__ import annotations

import tempfile

import pyarrow as pa

import strandline
from strandline.ingest import Bindings, BoundFeed, Options, Upserter

STOCK = pa.schema([("item", pa.string()), ("count", pa.int64())])
EVENTS = [("apples", 5), ("pears", 2), ("apples", 4), ("plums", 9), ("pears", None), ("plums", 7)]
"""A count of `None` says that the item is gone."""


class Events:
    """A tap: the rows of one partition, by offset."""

    def __init__(self) -> None:
        self.end = 0

    def latest(self) -> dict[str, int]:
        return {"0": self.end}

    def read(self, taken: dict[str, tuple[int, int]]) -> pa.Table:
        start, stop = taken["0"]
        rows = EVENTS[start:stop]
        return pa.table(
            {
                "item": pa.array([item for item, _ in rows], pa.string()),
                "count": pa.array([count for _, count in rows], pa.int64()),
                "_delete": pa.array([count is None for _, count in rows], pa.bool_()),
                "_partition": pa.array(["0"] * len(rows), pa.string()),
                "_offset": pa.array(range(start, stop), pa.int64()),
            }
        )

    def close(self) -> None:
        """Nothing is held."""


def replica(store: strandline.Store, events: Events) -> Upserter:
    stock = store.shard("stock", schema=STOCK, key=["item"])
    feed = BoundFeed(events, Bindings(store, "stock.times"), name="stock")
    return Upserter(store, stock, feed, Options(errors="stock_errors"))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, strandline.open(folder) as store:
        events = Events()
        with replica(store, events) as left, replica(store, events) as right:
            for events.end in range(1, len(EVENTS) + 1):
                if events.end <= 3:
                    left.step()
                elif events.end == 4:
                    print("one replica stops here, in the middle of the stream")
                right.step()
            while right.step():
                pass
            print(f"the other is {right.status().health.value}, settled up to {right.upper}")
        stock = store.shard("stock")
        for t in range(stock.upper.time or 0):
            rows = stock.snapshot(t).to_arrow().to_pylist()
            print(f"as of {t}:", ", ".join(sorted(f"{row['item']} {row['count']}" for row in rows)))


if __name__ == "__main__":
    main()
