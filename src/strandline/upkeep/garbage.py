"""What may be deleted, and when. Pure.

    R13  what the newest version refers to, itself or through a chunk, is never deletable
    R14  garbage is deletable once no reader holds a version from before it was removed
    R15  what lies under a registered writer's id is never an orphan: it may be about to count
    R16  a manifest is an orphan only if one of its version or a later one counts already
    R17  a shard's records are forgotten only before its newest manifest
    R18  what lies under an id that no shard has, and that no shard holds, is an orphan; it is
         deleted only if a record proves that a shard of this store had that id

Objects are listed *before* the state is loaded. A writer registers before it puts, and an id is
never registered again; so an object that was there, under an id that the newer state does not
know, can never count any more.

R18 is about shards that were dropped and created anew. The drop ended their writers, and all that
a reader may still fetch is garbage that the new shard lists, so nobody holds the rest. Without
a record nothing is proven: the objects may be another store's, or all that is left of one whose
records were lost. Those are reported, and stay.

    object                     and                                     is
    ------------------------   ------------------------------------    ---------------
    referred to                                                        kept
    garbage, or listed in a    a reader holds an older version         kept
    chunk that is              nobody does                             deletable
    of a registered writer     neither                                 kept
    of another writer          neither                                 an orphan
    a manifest                 one as new counts, and is another one   an orphan
    a manifest                 it may still count                      kept
    of a shard that was        no shard lists it as garbage            an orphan
    dropped and replaced
    anything else                                                      kept: not ours
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from strandline.errors import CorruptionError, NameRefusedError, invariant
from strandline.model.ids import SeqNo, valid_id
from strandline.parts.envelope import unseal

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from strandline.shard.state import State
    from strandline.store.blob import BlobEntry


@dataclass(frozen=True, slots=True)
class Deletable:
    """Garbage that nobody holds."""

    keys: frozenset[str]
    chunks: frozenset[str]
    """Those among the keys whose listed parts have to go first."""


def deletable(state: State) -> Deletable:
    """The garbage that may be deleted now."""
    hold = state.seqno_hold()
    free = [entry for entry in state.garbage if entry.seqno <= hold]
    keys = frozenset(key for entry in free for key in (*entry.keys, *entry.chunks))
    invariant(keys.isdisjoint(named(state)), "R13: what is referred to would be deleted")
    return Deletable(keys, frozenset(key for entry in free for key in entry.chunks))


def named(state: State) -> set[str]:
    """The objects that a version names itself; parts listed in chunks are not among them."""
    keys = {key for batch in state.batches for key in batch.object_keys()}
    keys.update(chunk.key for chunk in state.moment_chunks)
    if state.manifest is not None:
        keys.add(state.manifest.key)
    return keys


def held(state: State, lists: Mapping[str, Collection[str]]) -> set[str]:
    """All that is referred to or still garbage; `lists` has what each chunk of them lists.

    A chunk whose list is missing would make its parts look like orphans, so that is refused.
    """
    keys = named(state)
    keys.update(key for entry in state.garbage for key in (*entry.keys, *entry.chunks))
    for chunk in listing_chunks(state):
        invariant(chunk in lists, f"R13: chunk {chunk} was not read")
        keys.update(lists[chunk])
    return keys


def listing_chunks(state: State) -> list[str]:
    """The chunks whose parts are kept because of them."""
    live = [chunk.key for batch in state.batches for chunk in batch.chunks]
    return [*live, *(key for entry in state.garbage for key in entry.chunks)]


def orphans(
    state: State, listed: Iterable[BlobEntry], lists: Mapping[str, Collection[str]]
) -> list[BlobEntry]:
    """The objects of this shard that nothing refers to and nothing ever will.

    `listed` was taken before `state` was loaded.
    """
    kept = held(state, lists)
    return [
        entry for entry in listed if entry.key not in kept and _can_never_count(state, entry.key)
    ]


def orphans_of_dropped(
    ids: Collection[str], kept: Collection[str], listed: Iterable[BlobEntry]
) -> list[BlobEntry]:
    """The objects of shards that were dropped and whose names others have taken since (R18).

    `ids` are those of all shards, and `kept` is what they hold, both loaded after `listed`.
    Their writers went with the drop, so what they put and nobody lists can never count.
    """
    return [entry for entry in listed if entry.key not in kept and _is_foreign(entry.key, ids)]


def shard_of(key: str) -> str:
    """The id of the shard that an object belongs to, from its key."""
    return key.partition("/")[0]


def truncate_before(state: State) -> SeqNo | None:
    """The oldest record that somebody may still need; `None` if all are."""
    return None if state.manifest is None else SeqNo(state.manifest.seqno)


def listed_parts(key: str, listing: bytes | memoryview) -> list[str]:
    """The keys of the parts that a chunk lists, of which nothing but its key is known."""
    what = f"part list {key}"
    _, body = unseal(listing, kind="parts", owner=None, at=key, what=what)
    try:
        listed = pa.ipc.open_stream(pa.py_buffer(body)).read_all().column("key")
        listed.validate(full=True)
        found: list[str] = listed.cast(pa.string()).to_pylist()
    except (pa.ArrowException, OSError, EOFError, KeyError, ValueError) as error:
        raise CorruptionError(f"{what} is damaged: {error}") from error
    return found


def _is_foreign(key: str, ids: Collection[str]) -> bool:
    shard, _, name = key.partition("/")
    try:
        return bool(name) and valid_id(shard, "s") not in ids
    except NameRefusedError:
        return False


def _can_never_count(state: State, key: str) -> bool:
    shard, _, rest = key.partition("/")
    owner, _, name = rest.partition("/")
    if shard != state.id or not name:
        return False
    version = manifest_version(owner, name)
    if version is not None:
        return state.manifest is not None and version <= state.manifest.seqno
    try:
        return valid_id(owner, "w") not in state.writers
    except NameRefusedError:
        return False


def manifest_version(owner: str, name: str) -> int | None:
    """The version that a manifest is of, from its key."""
    if not name.endswith(".manifest") or not owner.startswith("v"):
        return None
    number = owner.removeprefix("v")
    return int(number) if number.isascii() and number.isdigit() else None
