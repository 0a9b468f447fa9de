"""Tests of loading a shard's newest version."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from strandline.errors import CorruptionError
from strandline.model.ids import SeqNo
from strandline.shard import command as c
from strandline.shard.machine import Machine
from strandline.shard.versions import catch_up, load, put_manifest, shard_key
from strandline.store.consensus import Versioned
from strandline.store.memory import MemoryConsensus
from strandline.testing.lab import Lab


def _with_manifest(lab: Lab) -> Machine:
    machine = lab.machine()
    for epoch in range(1, 6):
        machine.demand(c.Fence(epoch))
    manifest = put_manifest(machine.env, machine.state)
    machine.demand(c.AddManifest(manifest))
    machine.demand(c.Fence(9))
    return machine


def test_a_shard_that_was_never_created_has_no_version(lab: Lab) -> None:
    assert load(lab.env(), "orders") is None


def test_loading_gives_the_same_state_with_and_without_a_manifest(lab: Lab) -> None:
    machine = _with_manifest(lab)
    env = lab.env()
    loaded = load(env, "orders")
    replayed = catch_up(env, "orders", None)
    assert loaded == replayed == machine.state


def test_records_below_the_manifest_are_not_needed(lab: Lab) -> None:
    machine = _with_manifest(lab)
    manifest = machine.state.manifest
    assert manifest is not None
    lab.consensus.truncate(shard_key("orders"), SeqNo(manifest.seqno + 1))
    env = lab.env()
    assert load(env, "orders") == machine.state
    assert catch_up(env, "orders", None) is None


def test_a_view_older_than_the_truncation_starts_again(lab: Lab) -> None:
    old = lab.machine()
    old.refresh()
    machine = _with_manifest(lab)
    lab.consensus.truncate(shard_key("orders"), SeqNo(6))
    assert old.refresh() == machine.state


def test_small_pages_read_the_same(lab: Lab) -> None:
    machine = _with_manifest(lab)
    assert load(lab.env(scan_page=1), "orders") == machine.state


def test_a_damaged_manifest_is_named(lab: Lab) -> None:
    machine = _with_manifest(lab)
    manifest = machine.state.manifest
    assert manifest is not None
    lab.blob.put(manifest.key, b"not a manifest")
    with pytest.raises(CorruptionError, match="manifest"):
        load(lab.env(), "orders")


def test_a_missing_manifest_is_reported_with_what_to_do(lab: Lab) -> None:
    machine = _with_manifest(lab)
    manifest = machine.state.manifest
    assert manifest is not None
    lab.blob.delete(manifest.key)
    with pytest.raises(CorruptionError, match="fsck"):
        load(lab.env(), "orders")


class Holed(MemoryConsensus):
    """A store that has lost one version and shows all others."""

    lost: int | None = None

    def scan(self, key: str, start: SeqNo, limit: int) -> Sequence[Versioned]:
        found = super().scan(key, start, limit + 1)
        return [version for version in found if version.seqno.number != self.lost][:limit]


@pytest.mark.parametrize("page", [1, 2, 3, 100])
@pytest.mark.parametrize("lost", [3, 4, 5])
def test_s84_who_follows_refuses_a_record_that_is_missing_below_the_head(
    lab: Lab, lost: int, page: int
) -> None:
    """Wherever in a page: where one begins with it, the records from the first on show it."""
    writer = lab.machine()
    writer.demand(c.Fence(1))
    writer.demand(c.Fence(2))
    consensus = Holed(lab.clock, lab.consensus._logs)
    follower = Machine(replace(lab.env(scan_page=page), consensus=consensus), "orders")
    before = follower.refresh()
    assert before.seqno == SeqNo(2)
    for epoch in range(3, 7):
        writer.demand(c.Fence(epoch))
    consensus.lost = lost
    for _ in range(2):
        with pytest.raises(CorruptionError, match=r"shard orders .*fsck"):
            follower.refresh()
        with pytest.raises(CorruptionError, match=r"shard orders .*fsck"):
            follower.demand(c.Fence(9))
    assert follower.state == before
    consensus.lost = None
    assert follower.refresh() == writer.refresh()
