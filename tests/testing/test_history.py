"""A history names every shard that somebody touched."""

from collections import Counter

from strandline.testing.history import Append, History, Read, Result, Stream


def test_every_shard_that_was_touched_is_listed_once():
    history = History()
    assert history.shards() == []
    history.appends.append(Append("b", "w", 1, 2, Result.APPLIED, 0, 1))
    history.reads.append(Read("a", "r", 1, 2, 0, Counter()))
    history.streams.append(Stream("c", "s", 0))
    history.streams.append(Stream("a", "s", 0))
    assert history.shards() == ["a", "b", "c"]
