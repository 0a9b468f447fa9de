"""Objects that are no longer what was put, for sweeps over every way a blob can be wrong; and a
journal that nobody can read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.journal.chain import journal_key
from strandline.model.ids import SeqNo, valid_key
from strandline.store.blob import BlobEntry
from strandline.store.consensus import Versioned

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from strandline.shard.env import Env
    from strandline.store.blob import Blob


def damage_journal(env: Env, pipeline: str) -> None:
    """Let the newest entry of a pipeline's journal be none of ours."""
    key = journal_key(pipeline)
    head = env.consensus.head(key)
    seqno = SeqNo(0) if head is None else head.seqno.next()
    env.consensus.compare_and_set(key, Versioned(seqno, b"no entry of a journal"))


class DamagedBlob:
    """A Blob that shows some of its objects damaged. The objects themselves stay intact.

    A damage may be set again or taken back with `heal`; a new put of a key does not heal it.
    """

    def __init__(self, inner: Blob) -> None:
        self._inner = inner
        self._damage: dict[str, Callable[[bytes], bytes | None]] = {}

    # What can be done to an object.

    def flip_bit(self, key: str, bit: int) -> None:
        """Flip one bit, counted from the object's first; negative ones from its end."""

        def flipped(value: bytes) -> bytes:
            if not value:
                return value
            at = bit % (8 * len(value))
            changed = bytearray(value)
            changed[at // 8] ^= 1 << (at % 8)
            return bytes(changed)

        self._damage[valid_key(key)] = flipped

    def cut(self, key: str, length: int) -> None:
        """Keep only the first `length` bytes; if negative, lose that many at the end."""
        self._damage[valid_key(key)] = lambda value: value[:length]

    def lose(self, key: str) -> None:
        """Make it missing."""
        self._damage[valid_key(key)] = lambda _value: None

    def replace(self, key: str, value: bytes) -> None:
        """Show other bytes instead: an older version, or garbage."""
        self._damage[valid_key(key)] = lambda _value: value

    def swap(self, one: str, other: str) -> None:
        """Show each of two objects in the other's place."""
        first, second = self._whole(one), self._whole(other)
        self._damage[valid_key(one)] = lambda _value: second
        self._damage[valid_key(other)] = lambda _value: first

    def heal(self, key: str) -> None:
        self._damage.pop(key, None)

    # The port.

    def get(self, key: str) -> bytes | None:
        value = self._whole(key)
        damage = self._damage.get(key)
        return value if value is None or damage is None else damage(value)

    def _whole(self, key: str) -> bytes | None:
        found = self._inner.get(key)
        return None if found is None else bytes(found)

    def get_range(self, key: str, start: int, length: int) -> bytes | None:
        if key not in self._damage:
            return self._inner.get_range(key, start, length)
        value = self.get(key)
        if value is None:
            return None
        first = start if start >= 0 else max(0, len(value) + start)
        return value[first : first + max(0, length)]

    def put(self, key: str, value: bytes) -> None:
        self._inner.put(key, value)

    def delete(self, key: str) -> bool:
        return self._inner.delete(key)

    def list(self, prefix: str) -> Iterator[BlobEntry]:
        for entry in self._inner.list(prefix):
            value = self.get(entry.key) if entry.key in self._damage else None
            if value is not None:
                yield BlobEntry(entry.key, len(value))
            elif entry.key not in self._damage:
                yield entry

    def close(self) -> None:
        self._inner.close()
