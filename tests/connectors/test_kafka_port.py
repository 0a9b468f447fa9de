"""The Cluster port: what goes out is told column by column."""

from __future__ import annotations

from strandline.connectors.kafka_port import Batch, Message


def test_a_batch_has_no_headers_unless_it_is_given_some() -> None:
    assert Batch([b"k"], [None]).headers is None


def test_messages_are_values() -> None:
    assert Message(0, 7, b"k", None) == Message(0, 7, b"k", None, headers=())
