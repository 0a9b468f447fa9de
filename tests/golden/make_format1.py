"""Writes tests/golden/format1: one history of a shard, its manifests and some pulses, as bytes.

Run it only to add cases: bytes of format 1 that are there stay readable for ever, and a test
holds today's code to them. `facts.json` says what each file means, field by field.
"""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path

import msgspec
import pyarrow as pa

from strandline.model.frontier import Frontier
from strandline.model.ids import SeqNo
from strandline.model.schema import Schema
from strandline.parts.part import PLACE_MAX, Chunk
from strandline.shard import command as c
from strandline.shard.codec import Record, encode_manifest, encode_record
from strandline.shard.decide import decide
from strandline.shard.pulse import Pulse, Status, encode_pulse
from strandline.shard.state import Manifest, MomentChunk, Retention, State
from strandline.shard.txn import Txn
from strandline.testing import toy

HERE = Path(__file__).parent / "format1"
MANIFESTS = (1, 8, 16, 25, 35, 37)
PULSES = {
    "live": Pulse(3, 0, Status.LIVE, 17, 60_000, "host-a 4711"),
    "suspected": Pulse(3, 2, Status.LIVE, 17, 60_000, "host-a 4711", 17, 1_700_000_000_000),
    "ended": Pulse(3, 2, Status.ENDED, 2**40, 5_000, "host-ü 4711"),
}
WIDER = toy.SCHEMA.evolve(pa.schema([("row", pa.int64()), ("note", pa.string())]))
OTHER = Schema.create(pa.schema([("k", pa.string())]))


def history() -> list[c.Command]:
    """Commands that together touch every field of a change."""
    rows = {t: [(t + 1, t, 1), (t, t, -1)] for t in range(8)}
    merged = [*rows[0], *rows[1]]
    total = toy.digest_of(merged).pack()
    chunk = Chunk("k0", 77, 2**64 - 1, 2, 4, 200, total, 0, 1, 0, PLACE_MAX, "k0.stats")
    moments = MomentChunk("m0", 9, 9, 2, 0, 1, 1000, 1001, total)
    flushed = msgspec.structs.replace(
        toy.toy_part("p23", [*rows[2], *rows[3]]), stats=b"\x01\x02", level=2, base=True
    )

    def append(t: int, *, key: str = "", **facts: object) -> c.Append:
        made = toy.toy_append(rows[t], lower=t, upper=t + 1, token=f"{t:032x}", key=key)
        return replace(made, now_ms=1000 + t, **facts)

    through = {"timeline": "line", "epoch": 3}
    return [
        c.Create(toy.NAME, toy.ID, toy.SCHEMA, 1_700_000_000_000),
        c.RegisterWriter(toy.W1, "3.0", "writing"),
        append(0, key="p0"),
        append(1, key="p1"),
        append(2),
        c.RegisterReader(toy.R1, "3.0", 1, "reading"),
        c.AddManifest(Manifest(1, "m1.manifest", 400, 2**63)),
        c.Replace(toy.W1, frozenset({"p0", "p1"}), chunks=(chunk,)),
        c.IndexMoments(toy.W1, moments),
        append(3, key="p3"),
        c.Hold("keep", 1, 4, "for people"),
        c.Downgrade({toy.R1: (2, 8)}),
        c.Unhold("keep", 4),
        c.Retain(Retention(None, 2)),
        c.AdvanceSince(10**6),
        c.Evolve(1, WIDER),
        c.Attach("line", Frontier(4), 3),
        append(4, key="p4", **through),
        c.Withdraw(4, 3, Frontier(4)),
        append(6, **through),
        c.Replace(
            toy.W1,
            frozenset({"p3"}),
            remove_inline=frozenset({2}),
            parts=(flushed,),
            garbage=("p3",),
        ),
        c.Forget(frozenset({"p3", "p4"})),
        c.AddManifest(Manifest(16, "m16.manifest", 900, 5)),
        c.Fence(7),
        c.Drop(7),
        c.Forget(frozenset({"p23"})),
        c.Create(toy.NAME, "s" + "9" * 32, OTHER, 1_700_000_100_000),
        c.RegisterWriter(toy.W2, "4.1"),
        c.Expire(frozenset({"3.0"})),
        toy.toy_append(lower=0, upper=None, token="e" * 32, writer=toy.W2),
        c.Release(writers=(toy.W2,)),
        c.Drop(),
        c.Create(toy.NAME, toy.ID, toy.SCHEMA, 1_700_000_200_000),
        c.RegisterWriter(toy.W1, "5.0"),
        append(0, txn=Txn("query 1", 7)),
        append(1, txn=Txn("load", 0, toy.digest_of(rows[3]))),
        c.ForgetTxn("load", 35),
        c.RegisterTerm(toy.R1, 1, 1_700_000_300_000, 3_600_000, "a plan"),
    ]


def facts_of(value: object) -> object:
    """Everything a decoded value says, as plain JSON; bytes in base64."""
    if isinstance(value, Schema):
        return {"version": value.version, "ids": list(value.ids), "names": list(value.names)}
    if isinstance(value, State):
        return {
            each.name: facts_of(getattr(value, each.name)) for each in fields(value) if each.compare
        }
    return msgspec.to_builtins(value, str_keys=True)


def main() -> None:
    HERE.mkdir(exist_ok=True)
    found: dict[str, object] = {}
    state = None
    for number, command in enumerate(history()):
        outcome = decide(state, command)
        assert isinstance(outcome, c.Changed), (number, command, outcome)
        state = toy.apply(state, outcome, Frontier(4))
        record = Record(outcome.change, state.manifest)
        name = f"record-{number:02}.bin"
        (HERE / name).write_bytes(encode_record(toy.NAME, SeqNo(number), record))
        found[name] = facts_of(record)
        if number in MANIFESTS:
            name = f"manifest-{number:02}.bin"
            (HERE / name).write_bytes(encode_manifest(state))
            found[name] = facts_of(state)
    for label, pulse in PULSES.items():
        name = f"pulse-{label}.bin"
        (HERE / name).write_bytes(encode_pulse(pulse, SeqNo(5)))
        found[name] = facts_of(pulse)
    (HERE / "facts.json").write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
