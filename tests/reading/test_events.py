"""What a subscription gives out."""

from __future__ import annotations

import pyarrow as pa

from strandline.reading.events import Updates


def test_times_and_diffs_are_views_of_the_rows():
    updates = Updates(pa.table({"x": ["a", "b"], "_time": [3, 4], "_diff": [1, -1]}))
    assert updates.times.tolist() == [3, 4]
    assert updates.diffs.tolist() == [1, -1]
