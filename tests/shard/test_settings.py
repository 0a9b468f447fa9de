"""Tests of the numbers of a shard: those that depend on each other."""

from __future__ import annotations

from strandline.shard.settings import Settings


def test_defaults_fit_together() -> None:
    settings = Settings()
    assert settings.inline_max_bytes <= settings.inline_flush_bytes <= settings.inline_total_bytes
    assert settings.poll_first_ms <= settings.poll_cap_ms <= 200
    assert settings.part_target_bytes * 2 <= settings.unit_max_bytes
    assert 8 <= settings.fanout <= 10
