"""Loads a shard's newest version: a manifest, and the records after it.

    head ─► its record names the newest manifest ─► manifest ─► records after it ─► newest
      ▲                                               │
      └───────────── gone: collected meanwhile ◄──────┘

A manifest that is superseded may be deleted at any moment, so a missing one only means to
start again at the head; so does a record that is missing before all that are left. One that is
missing between two others is damage: records are truncated from the first on (S84).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.errors import CorruptionError
from strandline.model.ids import SeqNo
from strandline.parts.envelope import checksum
from strandline.shard.change import evolve
from strandline.shard.codec import Record, decode_manifest, decode_record, encode_manifest
from strandline.shard.state import Manifest

if TYPE_CHECKING:
    from strandline.shard.env import Env
    from strandline.shard.state import State
    from strandline.store.consensus import Versioned

_ATTEMPTS = 20


def shard_key(name: str) -> str:
    return f"shard/{name}"


def load(env: Env, name: str) -> State | None:
    """The newest version, or `None` if the shard was never created."""
    for _ in range(_ATTEMPTS):
        head = env.patient(lambda: env.consensus.head(shard_key(name)), shard=name)
        if head is None:
            return None
        record = decode_record(name, head.seqno, head.data)
        if record.manifest is None:
            state = catch_up(env, name, None)
        else:
            base = _manifest(env, name, record.manifest)
            state = None if base is None else catch_up(env, name, base)
        if state is not None and state.seqno >= head.seqno:
            return state
    raise CorruptionError(
        f"shard {name} can't be loaded: its newest manifest or the records after it are missing; "
        f"run `strandline fsck`"
    )


def catch_up(env: Env, name: str, state: State | None) -> State | None:
    """Apply the records after `state`; `None` if they have been truncated meanwhile.

    One page shows the records as they are at one moment, so only its first one may be late.
    """
    while True:
        start = SeqNo(0) if state is None else state.seqno.next()
        page = env.patient(
            lambda start=start: env.consensus.scan(  # type: ignore[misc]
                shard_key(name), start, env.settings.scan_page
            ),
            shard=name,
        )
        if page and page[0].seqno != start:
            return None
        for version in page:
            if version.seqno != start:
                raise CorruptionError(
                    f"version {start} of shard {name} is missing, and version {version.seqno} is "
                    "there: the consensus store is damaged; run `strandline fsck`"
                )
            state = evolve(state, record_of(name, version).change)
            start = version.seqno.next()
        if len(page) < env.settings.scan_page:
            return state


def record_of(name: str, version: Versioned) -> Record:
    return decode_record(name, version.seqno, version.data)


def put_manifest(env: Env, state: State) -> Manifest:
    """Store a copy of `state`; it counts once an `AddManifest` is committed."""
    data = encode_manifest(state)
    key = f"{state.id}/{state.seqno}/{env.random.token()}.manifest"
    env.patient(lambda: env.blob.put(key, data), shard=state.name)
    env.metrics.add("manifests", state.name)
    return Manifest(state.seqno.number, key, len(data), checksum(data))


def _manifest(env: Env, name: str, ref: Manifest) -> State | None:
    data = env.patient(lambda: env.blob.get(ref.key), shard=name)
    if data is None:
        return None
    if len(data) != ref.size or checksum(data) != ref.checksum:
        raise CorruptionError(f"manifest {ref.key} of shard {name} is damaged: wrong checksum")
    return decode_manifest(name, SeqNo(ref.seqno), data, ref.key)
