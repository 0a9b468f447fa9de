"""A topic that is dropped and made anew under a Kafka sink."""

from __future__ import annotations

import pytest

from strandline.errors import SinkStoppedError

from .kafka_lives import Lives, some


def test_s82_a_topic_that_is_made_anew_under_a_publisher_is_not_gone_on_with(topics) -> None:
    """S82: who has it open could write on, and by its offsets nobody would see it later."""
    lives = Lives(topics, topics.make(1))
    sink, _ = lives.opened()
    sink.deliver(0, 1, some(0))
    topics.drop(lives.topic)
    topics.make(1, lives.topic)
    with pytest.raises(SinkStoppedError, match="is another one than that"):
        sink.deliver(1, 1, some(1))
    with pytest.raises(SinkStoppedError, match="is another one than that"):
        lives.opened()
    lives.close()
