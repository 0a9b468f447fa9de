"""Writes tests/golden/journal2, journal3 and journal4: a journal of each form, entry by entry, and
what it means.

Run it only to add cases: bytes of a form that are there stay readable for ever, and a test holds
today's code to them. `lacking` holds entries whose records lack a field that they must have, as a
version from before that field would have written them; `journal1` holds an entry of the form
before, which is refused.
"""

from __future__ import annotations

import json
from pathlib import Path

import msgspec

from strandline.journal import record as r
from strandline.journal.chain import Entry, Link, chain_hash, encode_entry, link
from strandline.journal.staging import snapshot_bytes
from strandline.journal.standing import Standing, advance_all, settle
from strandline.model.ids import SeqNo

HERE = Path(__file__).parent / "journal2"
NEWER = Path(__file__).parent / "journal3"
NEWEST = Path(__file__).parent / "journal4"
LACKING = Path(__file__).parent / "lacking"
PIPELINE = "shop"
REF = r.StagedRef("journal/shop/" + "a" * 32, b"r" * 16, 3, 90)
SNAPSHOT = "journal/shop/14-" + "b" * 32 + ".checkpoint"
VERSIONS = {"strandline": "0.1.0", "spark": "4.2.0", "arrow": "22", "python": "3.11", "tz": "2026a"}
INPUTS = {"orders.kafka": b"i" * 24, "orders.push": b"j" * 24}
DELTAS = {"orders": b"d" * 24}


def history() -> list[list[r.Record]]:
    """Entries that together have every kind of record and every field of each."""
    return [
        [
            r.Program("p1", "CREATE TABLE orders (…)", None),
            r.Bind("orders", "shop.orders", "table"),
            r.Bind("old", "shop.old", "view"),
            r.Endpoint("orders.kafka", "added", "kafka orders"),
            r.Promote(1, "p1", VERSIONS),
        ],
        [
            r.Begin(0, 1, "p1", 1_700_000_000_000, VERSIONS, None),
            r.Input(0, "orders.kafka", "orders", {"0": (0, 6), "1": (6, 6)}, (), {}),
            r.Input(0, "orders.push", "orders", None, (REF,), {"till-7": 41}),
            r.Seal(0),
        ],
        [r.Amend(0, "orders.kafka", {"0": (2, 6)}, (), "retention overtook us")],
        [r.Answer(0, 1, INPUTS, DELTAS, VERSIONS)],
        [r.Commit(0, 1, 1_700_000_000_250, INPUTS, DELTAS)],
        [r.Abort("h1", "idle for an hour")],
        [r.Bind("old", None, "")],
        # The checkpoint is put here by `entries`, which knows the standing.
        [],
        [r.Program("p2", None, REF), r.Promote(2, "p2", {})],
        [
            r.Begin(1, 2, "p2", 1_700_000_001_000, {}, "h2"),
            r.Input(1, "handle.h2.orders", "orders", None, (REF, REF), {}),
            r.Seal(1),
        ],
        [r.Evolve(1, "orders", {"note": "STRING", "count": "BIGINT"})],
        [r.Endpoint("orders.kafka", "removed")],
        [r.Answer(1, 2, {"handle.h2.orders": b"k" * 24}, {}, {})],
        [r.Commit(1, 2, 1_700_000_002_000, {"handle.h2.orders": b"k" * 24}, {})],
    ]


def newer() -> list[list[r.Record]]:
    """What form 3 has beyond form 2."""
    return [
        [
            r.Program("p1", "CREATE TABLE orders (…)", None),
            r.Retain(7),
            r.Promote(1, "p1", VERSIONS),
        ],
        [r.Retain(None)],
        [r.Retain(100)],
    ]


def newest() -> list[list[r.Record]]:
    """What form 4 has beyond form 3."""
    words = {"born": "DATE", "at": "TIMESTAMP", "local": "TIMESTAMP_NTZ", "paid": "DECIMAL(10, 2)"}
    return [
        [
            r.Program("p1", "CREATE TABLE orders (…)", None),
            r.Bind("orders", "shop.orders", "table"),
            r.Endpoint("orders.kafka", "added", "kafka orders"),
            r.Promote(1, "p1", VERSIONS),
        ],
        [
            r.Begin(0, 1, "p1", 1_700_000_000_000, VERSIONS, None),
            r.Input(0, "orders.kafka", "orders", {"0": (0, 6)}, (), {}),
            r.Seal(0),
        ],
        [r.Evolve(0, "orders", words)],
    ]


def checkpoint(standing: Standing) -> r.Checkpoint:
    body = snapshot_bytes(standing)
    ref = r.StagedRef(SNAPSHOT, b"s" * 16, 0, len(body))
    uppers = {"shop.orders": 1}
    return r.Checkpoint(0, 1, "p1", "config-hash", uppers, b"t" * 24, ref, ("h1",))


def entries(
    form: int = 2, given_entries: list[list[r.Record]] | None = None
) -> list[tuple[Standing, Entry]]:
    """Each entry, with the standing after it."""
    standing = Standing.empty(PIPELINE)
    found = []
    for number, given in enumerate(history() if given_entries is None else given_entries):
        records = given or [checkpoint(standing)]
        links = link(records, standing.lsn, standing.digest)
        after = advance_all(standing, records)
        token = f"{number:032x}"
        entry = Entry(form, token, after.next_t, after.committed_ms, after.epoch, links, None)
        standing = settle(after, number, entry.digest)
        found.append((standing, entry))
    return found


def shortened(entry: Entry, drop: int) -> Entry:
    """The same entry, whose first record lacks its last fields; all hashes are right."""
    bodies = [each.body for each in entry.links]
    bodies[0] = msgspec.msgpack.encode(msgspec.msgpack.decode(bodies[0])[:-drop])
    links: list[Link] = []
    prev = entry.links[0].prev
    for lsn, body in enumerate(bodies, entry.first):
        links.append(Link(lsn, prev, chain_hash(prev, lsn, body), body))
        prev = links[-1].hash
    return msgspec.structs.replace(entry, links=tuple(links))


def facts_of(value: object) -> object:
    return msgspec.to_builtins(value, str_keys=True)


def write_newer(folder: Path, form: int, given: list[list[r.Record]]) -> None:
    folder.mkdir(exist_ok=True)
    facts = {}
    for number, (standing, entry) in enumerate(entries(form, given)):
        name = f"entry-{number:02}.bin"
        (folder / name).write_bytes(encode_entry(PIPELINE, SeqNo(number), entry))
        facts[name] = facts_of(standing)
        (folder / "snapshot.bin").write_bytes(snapshot_bytes(standing))
    (folder / "facts.json").write_text(json.dumps(facts, indent=1, sort_keys=True) + "\n")


def main() -> None:
    HERE.mkdir(exist_ok=True)
    write_newer(NEWER, 3, newer())
    write_newer(NEWEST, 4, newest())
    LACKING.mkdir(exist_ok=True)
    facts: dict[str, object] = {}
    for number, (standing, entry) in enumerate(entries()):
        name = f"entry-{number:02}.bin"
        (HERE / name).write_bytes(encode_entry(PIPELINE, SeqNo(number), entry))
        records = [msgspec.msgpack.decode(each.body, type=r.Record) for each in entry.links]
        facts[name] = {"standing": facts_of(standing), "records": facts_of(records)}
    for number, drop, field in (
        (1, 1, "handle"),
        (3, 1, "versions"),
        (4, 1, "deltas"),
        (7, 1, "forgotten"),
    ):
        _, entry = entries()[number]
        made = encode_entry(PIPELINE, SeqNo(number), shortened(entry, drop))
        (LACKING / f"entry-{number:02}-{field}.bin").write_bytes(made)
    slim = msgspec.structs.replace(entries()[9][1], links=(), spilled=REF)
    (HERE / "large.bin").write_bytes(encode_entry(PIPELINE, SeqNo(9), slim))
    before = entries()[6][0]
    (HERE / "snapshot.bin").write_bytes(snapshot_bytes(before))
    (HERE / "facts.json").write_text(json.dumps(facts, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
