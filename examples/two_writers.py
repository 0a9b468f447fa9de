"""Two processes write the same shard at once, and neither loses a row.

    python examples/two_writers.py

Both call `append`, which never drops anything: whoever finds that the other was faster takes the
next time. The shard's history shows who came when.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile

import pyarrow as pa

import strandline

SCHEMA = pa.schema([pa.field("writer", pa.string()), pa.field("number", pa.int64())])
APPENDS = 20


def write(folder: str, name: str) -> None:
    """One of the two processes: twenty appends of five rows."""
    with strandline.open(folder) as store, store.shard("readings").writer(name) as writer:
        for turn in range(APPENDS):
            numbers = range(turn * 5, turn * 5 + 5)
            rows = pa.table({"writer": [name] * 5, "number": numbers}, schema=SCHEMA)
            done = writer.append(rows)
            print(
                f"{name:>5}: rows {numbers[0]:>2} to {numbers[-1]:>2}, settled before {done.upper}"
            )


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, strandline.open(folder) as store:
        shard = store.shard("readings", schema=SCHEMA)
        command = [sys.executable, __file__, folder]
        writers = [subprocess.Popen([*command, name]) for name in ("left", "right")]
        codes = [each.wait() for each in writers]
        if any(codes):
            raise SystemExit(f"a writer failed: {codes}")

        rows = shard.snapshot().to_polars()
        counts = dict(rows.group_by("writer").len().sort("writer").iter_rows())
        print(f"\nthe shard is settled before {shard.upper} and holds {rows.height} rows: {counts}")
        assert counts == {"left": 5 * APPENDS, "right": 5 * APPENDS}
        assert rows.unique().height == rows.height, "no row is there twice"


if __name__ == "__main__":
    if len(sys.argv) == 3:
        write(sys.argv[1], sys.argv[2])
    else:
        main()
