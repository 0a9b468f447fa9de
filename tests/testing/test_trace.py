"""Two traces hash alike exactly when they hold the same records."""

from __future__ import annotations

import pytest

from strandline.testing.trace import Trace

RECORDS = [(10, 1, "put"), (20, 2, "get"), (30, 1, "end")]


def traced(names: list[str], records: list[tuple[int, int, str]]) -> Trace:
    trace = Trace()
    for name in names:
        trace.name(name)
    for record in records:
        trace.add(*record)
    return trace


def test_equal_records_hash_alike_however_often_one_looks():
    looked_at = Trace()
    looked_at.name("a")
    looked_at.digest()
    looked_at.name("b")
    for record in RECORDS:
        looked_at.add(*record)
        looked_at.digest()
    assert looked_at.digest() == traced(["a", "b"], RECORDS).digest()


@pytest.mark.parametrize(
    ("names", "records"),
    [
        (["a", "b"], RECORDS[::-1]),
        (["a", "b"], RECORDS[:2]),
        (["a", "b"], [(11, 1, "put"), *RECORDS[1:]]),
        (["a", "b"], [(10, 2, "put"), *RECORDS[1:]]),
        (["a", "b"], [(10, 1, "pat"), *RECORDS[1:]]),
        (["a", "c"], RECORDS),
    ],
)
def test_any_difference_shows_in_the_hash(names, records):
    assert traced(names, records).digest() != traced(["a", "b"], RECORDS).digest()


def test_lines_name_the_task_and_the_time():
    assert traced(["a/writer", "b"], RECORDS).lines(2) == [
        "       0.020 ms  b: get",
        "       0.030 ms  a/writer: end",
    ]


def test_only_the_last_lines_stay_unless_all_are_kept():
    short, whole = Trace(), Trace(keep=True)
    for trace in (short, whole):
        for number in range(10_000):
            trace.add(number, 0, "step")
    assert (len(short.lines()), len(whole.lines())) == (200, 10_000)
    assert short.digest() == whole.digest()
