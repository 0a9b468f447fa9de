"""A table that remembers: read it as of a time, as of an instant, and follow what changed.

python examples/time_travel.py
"""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime

import pyarrow as pa

import strandline

SCHEMA = pa.schema([pa.field("item", pa.string(), nullable=False), pa.field("price", pa.int64())])


def change(*updates: tuple[str, int, int]) -> pa.Table:
    """Rows with a diff: +1 puts a row in, -1 takes it out."""
    items, prices, diffs = zip(*updates, strict=True)
    schema = SCHEMA.append(pa.field("_diff", pa.int64()))
    return pa.table({"item": items, "price": prices, "_diff": diffs}, schema=schema)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, strandline.open(folder) as store:
        prices = store.shard("prices", schema=SCHEMA, key=["item"])
        with prices.writer() as writer:
            first = writer.append(change(("tea", 3, +1), ("coffee", 4, +1)))
            writer.append(change(("tea", 3, -1), ("tea", 5, +1)))
            writer.append(change(("coffee", 4, -1)))

        for time in range(3):
            rows = prices.snapshot(as_of=time).to_arrow().sort_by("item").to_pylist()
            print(f"as of {time}: " + ", ".join(f"{row['item']} {row['price']}" for row in rows))

        instant = datetime.fromtimestamp(first.instant_ms / 1000, UTC)
        by_instant = prices.snapshot(as_of=instant)
        print(f"as of {instant:%H:%M:%S.%f} the newest time was {by_instant.as_of}")

        print("what changed after 0:")
        with prices.listen(as_of=0, until=3) as changes:
            for event in changes:
                match event:
                    case strandline.Updates(rows):
                        for row in rows.to_pylist():
                            sign = f"{row['_diff']:+d}"
                            print(f"  {sign} {row['item']} {row['price']} at {row['_time']}")
                    case strandline.Progress(frontier):
                        print(f"  settled before {frontier}")

        assert prices.snapshot(as_of=2).to_arrow().to_pylist() == [{"item": "tea", "price": 5}]


if __name__ == "__main__":
    main()
