"""Rows of every type, and how a source would write them: the other way round than decoding."""

import base64
import datetime as dt
import math
from decimal import Decimal

import pyarrow as pa
from hypothesis import strategies as st

UTC = dt.UTC


def _ints(bits, *, signed=True):
    low = -(2 ** (bits - 1)) if signed else 0
    return st.integers(low, low + 2**bits - 1)


def _moments(kind):
    zones = st.just(UTC) if kind.tz else st.none()
    made = st.datetimes(dt.datetime(1700, 1, 1), dt.datetime(2250, 1, 1), timezones=zones)  # noqa: DTZ001
    step = {"s": 1_000_000, "ms": 1_000}.get(kind.unit, 1)
    return made.map(lambda m: m.replace(microsecond=m.microsecond // step * step))


PLAIN = {
    pa.bool_(): st.booleans(),
    pa.int8(): _ints(8),
    pa.int16(): _ints(16),
    pa.int32(): _ints(32),
    pa.int64(): _ints(64),
    pa.uint8(): _ints(8, signed=False),
    pa.uint64(): _ints(64, signed=False),
    pa.float16(): st.floats(width=16),
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(),
    pa.decimal128(12, 2): st.decimals(-(10**9), 10**9, places=2),
    pa.decimal128(38, 0): st.integers(-(10**37), 10**37).map(Decimal),
    pa.decimal256(60, 10): st.decimals(-(10**20), 10**20, places=10),
    pa.string(): st.text(st.characters(exclude_categories=["Cs"])),
    pa.large_string(): st.text(st.characters(exclude_categories=["Cs"])),
    pa.binary(): st.binary(),
    pa.binary(3): st.binary(min_size=3, max_size=3),
    pa.date32(): st.dates(),
    pa.time32("ms"): st.times().map(lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000)),
    pa.time64("us"): st.times(),
    pa.timestamp("us", "UTC"): _moments(pa.timestamp("us", "UTC")),
    pa.timestamp("ms"): _moments(pa.timestamp("ms")),
    pa.timestamp("us"): _moments(pa.timestamp("us")),
    pa.duration("us"): st.timedeltas(dt.timedelta(days=-9999), dt.timedelta(days=9999)),
}


def nested(kind):
    return {
        pa.list_(kind): st.lists(PLAIN[kind] | st.none(), max_size=3),
        pa.list_(kind, 2): st.lists(PLAIN[kind] | st.none(), min_size=2, max_size=2),
        pa.struct([("a b", kind), ("c", pa.list_(kind))]): st.fixed_dictionaries(
            {
                "a b": PLAIN[kind] | st.none(),
                "c": st.lists(PLAIN[kind], max_size=2) | st.none(),
            }
        ),
        pa.map_(pa.string(), kind): st.dictionaries(
            st.text("ab", max_size=3), PLAIN[kind] | st.none(), max_size=3
        ),
    }


EVERY = PLAIN | {
    each: made
    for kind in (pa.int64(), pa.decimal128(12, 2), pa.timestamp("us", "UTC"), pa.float64())
    for each, made in nested(kind).items()
}


def written(value):  # noqa: PLR0911 - one line a type
    """A value as JSON has it."""
    if isinstance(value, dict):
        return {key: written(each) for key, each in value.items()}
    if isinstance(value, list):
        return [written(each) for each in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dt.timedelta):
        sign, whole = ("-", -value) if value < dt.timedelta(0) else ("", value)
        return f"{sign}P{whole.days}DT{whole.seconds}.{whole.microseconds:06}S"
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    return str(value) if isinstance(value, Decimal) else value
