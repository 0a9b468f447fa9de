"""What a history leaves behind in its store: nothing that nobody needs, and nothing missing.

Looked at when all processes have ended, the dead are buried, and upkeep has run once more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.model.ids import SeqNo
from strandline.shard.state import check_whole
from strandline.testing.checkers import HistoryError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from strandline.shard.state import State
    from strandline.testing.world import World

_GARBAGE_MAX = 8
"""Objects that the last commits of the clean-up itself replaced."""
_RECORDS_MAX = 40


def check_remains(world: World) -> None:
    """Raise if something is missing, or more is left than there should be."""
    states = world.observer.states.values()
    wrong = [what for state in states for what in remains(world, state)]
    known = {state.id for state in states}
    kept = {key for state in states for entry in state.garbage for key in entry.keys}
    # A new shard keeps the manifest of the one whose name it took, until it has its own.
    kept.update(key for state in states for key in world.observer.references(state))
    wrong += [
        f"{entry.key} is of a shard that was dropped, and nobody swept it"
        for entry in world.observer.objects.list("")
        if entry.key.partition("/")[0] not in known and entry.key not in kept
    ]
    if wrong:
        raise HistoryError("\n".join(f"remains: {what}" for what in wrong[:10]))


def remains(world: World, state: State) -> Iterator[str]:
    """What is wrong with what is left of one shard."""
    check_whole(state)
    needed = set(world.observer.references(state))
    stored = {entry.key for entry in world.observer.objects.list("")}
    garbage = {key for entry in state.garbage for key in (*entry.keys, *entry.chunks)}
    for key in sorted(needed - stored):
        yield f"{state.name} refers to {key}, which is missing"
    own = {key for key in stored if key.startswith(f"{state.id}/")}
    for key in sorted(own - needed - garbage):
        yield f"{key} of {state.name} is an orphan that nobody swept"
    if len(garbage) > _GARBAGE_MAX:
        yield f"{state.name} still lists {len(garbage)} objects as garbage"
    if state.readers or state.writers:
        yield f"{state.name} still lists {[*state.readers, *state.writers]}"
    key = f"shard/{state.name}"
    records = len(world.consensus.scan(key, SeqNo(0), 100_000))
    if records > world.settings.manifest_every + _RECORDS_MAX:
        yield f"{state.name} still has {records} records"
