"""The verbs that change something, on a real store."""

from __future__ import annotations

import json
from pathlib import Path

from strandline.assembly import open_store


def document(ask, *arguments, code=0):
    said = ask(*arguments, "--json")
    assert (said.code, said.err) == (code, "")
    return json.loads(said.out)


def test_retain_says_what_was_and_what_is(ask, lake):
    assert document(ask, "retain", lake, "orders", "1h or 5 versions") == {
        "shard": "orders",
        "retention": "1h or 5 versions",
        "before": "7d",
    }
    with open_store(lake, upkeep=False) as store:
        assert store.shard("orders").state().retention.count == 5
    assert "it was 1h or 5 versions" in ask("retain", lake, "orders", "forever").out


def test_a_rule_that_is_not_understood_changes_nothing(ask, lake):
    assert ask("retain", lake, "orders", "never").code == 2
    assert document(ask, "show", lake, "orders")["retention"] == "7d"


def test_compact_merges_one_shard_and_keeps_its_answer(ask, lake):
    before = document(ask, "show", lake, "orders", "--rows", "9")["snapshot"]
    ask("retain", lake, "orders", "1 versions")
    (done,) = document(ask, "compact", lake, "orders", "--full")["shards"]
    assert (done["shard"], done["before"]["since"], done["after"]["since"]) == ("orders", 0, 1)
    assert document(ask, "show", lake, "orders", "--rows", "9")["snapshot"] == before


def test_compact_all_covers_every_shard(ask, lake):
    done = document(ask, "compact", lake, "--all")["shards"]
    assert [each["shard"] for each in done] == ["done", "empty", "orders"]
    out = ask("compact", lake, "--all", "--full").out
    assert len(out.splitlines()) == 4


def test_fsck_finds_a_whole_store_sound(ask, lake):
    found = document(ask, "fsck", lake, "--deep")
    assert (found["sound"], found["deep"], found["shards"]) == (True, True, 3)
    assert found["findings"] == []
    assert ask("fsck", lake).out.startswith("sound: 3 shards, ")
    assert document(ask, "fsck", lake, "orders")["shards"] == 1


def test_fsck_ends_with_code_one_on_damage_and_names_the_part(ask, lake):
    (part,) = Path(lake, "blobs").rglob("*.parquet")
    part.write_bytes(part.read_bytes()[:-1] + b"\x00")
    found = document(ask, "fsck", lake, "--deep", code=1)
    assert found["sound"] is False
    (finding,) = [each for each in found["findings"] if each["severity"] == "damage"]
    assert finding["shard"] == "orders"
    assert finding["thing"].endswith(part.name)
    said = ask("fsck", lake, "--deep", "--repair")
    assert said.code == 1
    assert part.name in said.out
    assert "damaged: 1 finding" in said.out
    assert part.exists(), "damage is evidence, and stays"


def test_fsck_repair_removes_what_nobody_needs(ask, lake):
    with open_store(lake, upkeep=False) as store:
        orphan = f"{store.shard('orders').state().id}/w{'0' * 32}/{'1' * 32}.parquet"
        store.env.blob.put(orphan, b"left behind")
    found = document(ask, "fsck", lake)
    assert [(each["severity"], each["thing"]) for each in found["findings"]] == [
        ("leftover", orphan)
    ]
    assert ask("fsck", lake, "--repair").code == 0
    assert document(ask, "fsck", lake)["findings"] == []
    with open_store(lake, upkeep=False) as store:
        assert store.env.blob.get(orphan) is None


def test_fsck_of_an_unknown_shard_is_a_mistake_and_no_damage(ask, lake):
    said = ask("fsck", lake, "nope")
    assert said.code == 2
    assert "shard nope does not exist" in said.err


def test_of_a_pipeline_transactions_are_retained_and_it_is_on_record(run_shop):
    lake = run_shop.lake
    told = run_shop.ask("retain", lake, "shop", "3 transactions", "--json").json()
    assert told == {"pipeline": "shop", "retain": 3, "before": None}
    assert run_shop.ask("status", lake, "--json").json()["pipelines"][0]["retain"] == 3
    said = run_shop.ask("retain", lake, "shop", "forever").out
    assert "shop keeps all transactions; it was 3 transactions" in said
    assert run_shop.ask("retain", lake, "shop", "7d").code == 2
