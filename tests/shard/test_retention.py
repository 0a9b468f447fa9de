"""What people write, and how far history may be merged."""

from __future__ import annotations

from dataclasses import replace

import pytest

from strandline.errors import UsageError
from strandline.model.digest import Digest
from strandline.model.frontier import Frontier
from strandline.shard.retention import Aged, parse_retention, since_allowed
from strandline.shard.state import Critical, Moment, MomentChunk, Reader, Retention
from strandline.testing import toy

HOUR = 3_600_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("forever", Retention(None, None)),
        ("250ms", Retention(250, None)),
        ("30 s", Retention(30_000, None)),
        ("5m", Retention(300_000, None)),
        ("1h", Retention(HOUR, None)),
        ("7d", Retention(7 * 24 * HOUR, None)),
        ("2w", Retention(14 * 24 * HOUR, None)),
        ("0s", Retention(0, None)),
        ("1 version", Retention(None, 1)),
        ("100 versions", Retention(None, 100)),
        (" 1h or 100 versions ", Retention(HOUR, 100)),
        ("100 versions or 1h", Retention(HOUR, 100)),
    ],
)
def test_a_retention_is_read_as_people_write_it(text, expected):
    assert parse_retention(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("", "1", "h", "1y", "-1h", "1.5h", "1h 2h", "1h or 2h", "0 versions", "1h or"),
        *("9999999999d", "\u0661h", "1\nh", "1 versions or 2 versions", "forever or 1h"),
    ],
)
def test_what_is_not_a_retention_is_refused_with_examples(text):
    with pytest.raises(UsageError, match="7d"):
        parse_retention(text)


def _state(count=10, *, rule, chunked=0, **facts):
    """Time t was settled at instant 1000 * t, for t below `count`."""
    zero = Digest.ZERO.pack()
    moments = tuple(Moment(t, 1000 * t, zero) for t in range(count))
    chunks = ()
    if chunked:
        last = chunked - 1
        chunks = (MomentChunk("m", 1, 1, chunked, 0, last, 0, 1000 * last, zero),)
    state = replace(
        toy.created(),
        upper=Frontier(count),
        moments=moments[chunked:],
        moment_chunks=chunks,
        retention=rule,
    )
    return replace(state, **facts)


NOW = 9500
DURATION, COUNT = Retention(3000, None), Retention(None, 2)


@pytest.mark.parametrize(
    ("state", "now_ms", "expected"),
    [
        pytest.param(_state(rule=Retention(None, None)), NOW, 0, id="forever"),
        pytest.param(_state(rule=DURATION), NOW, 6, id="current at the instant"),
        pytest.param(_state(rule=DURATION), 9000, 6, id="exactly at the instant"),
        pytest.param(_state(rule=DURATION), 8999, 5, id="just before it"),
        pytest.param(_state(rule=DURATION), 0, 0, id="a clock before everything"),
        pytest.param(_state(rule=DURATION), 10**12, 9, id="the newest time always stays"),
        pytest.param(_state(rule=COUNT), NOW, 8, id="the last two moments"),
        pytest.param(_state(rule=Retention(None, 99)), NOW, 0, id="more than there are"),
        pytest.param(_state(rule=Retention(3000, 2)), NOW, 6, id="whichever keeps more: age"),
        pytest.param(_state(rule=Retention(1000, 5)), NOW, 5, id="whichever keeps more: count"),
        pytest.param(_state(rule=DURATION, since=Frontier(7)), NOW, 7, id="never back"),
        pytest.param(_state(0, rule=COUNT), NOW, 0, id="nothing settled"),
        pytest.param(_state(rule=COUNT, chunked=4), NOW, 8, id="not in the chunk"),
        pytest.param(_state(rule=DURATION, chunked=4), 6500, 3, id="the chunk as a whole"),
        pytest.param(_state(rule=DURATION, chunked=4), 5000, 0, id="inside the chunk"),
        pytest.param(_state(rule=Retention(None, 8), chunked=4), NOW, 0, id="count into it"),
        pytest.param(_state(rule=COUNT, upper=Frontier.closed()), NOW, 8, id="closed: as before"),
        pytest.param(
            _state(rule=Retention(0, None), upper=Frontier.closed(), chunked=10),
            10**12,
            9,
            id="closed, all moments in chunks",
        ),
        pytest.param(
            _state(rule=COUNT, readers={"r": Reader("0.0", 3, 0)}), NOW, 3, id="a reader holds"
        ),
        pytest.param(
            _state(rule=COUNT, readers={"r": Reader("0.0", None, 0)}), NOW, 8, id="no time held"
        ),
        pytest.param(_state(rule=COUNT, holds={"h": Critical(1, 0)}), NOW, 1, id="a critical hold"),
    ],
)
def test_how_far_history_may_be_merged(state, now_ms, expected):
    assert since_allowed(state, now_ms=now_ms, committed=None) == expected


@pytest.mark.parametrize(
    ("committed", "expected"),
    [(None, 0), (Frontier(0), 0), (Frontier(5), 3), (Frontier(50), 8), (Frontier.closed(), 8)],
    ids=str,
)
def test_an_attached_shard_goes_by_its_timeline(committed, expected):
    """What is staged and not committed is none of the two versions."""
    state = _state(rule=COUNT, timeline="line")
    assert since_allowed(state, now_ms=NOW, committed=committed) == expected


def test_a_staged_time_beyond_those_in_chunks_is_no_version():
    state = _state(rule=Retention(None, 6), chunked=4, timeline="line")
    assert since_allowed(state, now_ms=NOW, committed=Frontier(10)) == 4
    assert since_allowed(state, now_ms=NOW, committed=Frontier(9)) == 0


@pytest.mark.parametrize(
    ("rule", "aged", "expected"),
    [
        pytest.param(DURATION, Aged(3000, 4), 4, id="committed later than it was staged"),
        pytest.param(DURATION, Aged(3000, 8), 6, id="since stays at a moment"),
        pytest.param(DURATION, Aged(3000, None), 0, id="nothing was committed then"),
        pytest.param(DURATION, None, 0, id="nobody has looked"),
        pytest.param(DURATION, Aged(2999, 4), 0, id="looked up for another rule"),
        pytest.param(Retention(3000, 2), Aged(3000, 4), 4, id="whichever keeps more: age"),
        pytest.param(Retention(3000, 9), Aged(3000, 4), 1, id="whichever keeps more: count"),
        pytest.param(COUNT, None, 8, id="by count alone"),
    ],
)
def test_by_age_an_attached_shard_goes_by_commits(rule, aged, expected):
    state = _state(rule=rule, timeline="line")
    found = since_allowed(state, now_ms=NOW, committed=Frontier(10), aged=aged)
    assert found == expected
