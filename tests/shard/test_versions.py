"""Tests of loading a shard's newest version."""

from __future__ import annotations

import pytest

from strandline.errors import CorruptionError
from strandline.model.ids import SeqNo
from strandline.shard import command as c
from strandline.shard.machine import Machine
from strandline.shard.versions import catch_up, load, put_manifest, shard_key
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
