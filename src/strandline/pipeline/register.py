"""One small value in the store that any process may read and change.

Only the newest version of its key is kept. A change is a function of what is there, and may be
applied twice where the store did not answer: writing the same again is no change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from strandline.errors import MaybeAppliedError
from strandline.model.ids import SeqNo
from strandline.parts.envelope import decoded, seal, unseal
from strandline.shard.env import PATIENCE
from strandline.store.consensus import CasResult, Versioned

if TYPE_CHECKING:
    from collections.abc import Callable

    from strandline.shard.env import Env

_Value = TypeVar("_Value", bound=msgspec.Struct)


class Register(Generic[_Value]):
    """The value of one key."""

    def __init__(self, env: Env, key: str, kind: str, value: type[_Value]) -> None:
        self._env = env
        self._key = key
        self._kind = kind
        self._decoder = msgspec.msgpack.Decoder(value)

    def read(self) -> _Value | None:
        """The newest value; `None` before the first."""
        return self._read()[1]

    def change(self, change: Callable[[_Value | None], _Value]) -> _Value:
        """Put what `change` makes of the value that is there in its place, and return it."""
        for pause_ms in PATIENCE.delays(self._env.random):
            seqno, old = self._read()
            new = change(old)
            if new == old or self._write(seqno, new):
                return new
            self._env.tasks.sleep(pause_ms)
        raise MaybeAppliedError(f"{self._key}: the store did not say whether it happened")

    def _read(self) -> tuple[SeqNo, _Value | None]:
        """The place of the next version, and the newest value."""
        found = self._env.patient(lambda: self._env.consensus.head(self._key))
        if found is None:
            return SeqNo(0), None
        what = f"version {found.seqno} of {self._key}"
        _, body = unseal(
            found.data, kind=self._kind, owner=self._key, at=str(found.seqno), what=what
        )
        return found.seqno.next(), decoded(self._decoder, body, what)

    def _write(self, seqno: SeqNo, value: _Value) -> bool:
        data = seal(self._kind, self._key, str(seqno), msgspec.msgpack.encode(value))
        try:
            result = self._env.insistent(
                lambda: self._env.consensus.compare_and_set(self._key, Versioned(seqno, data))
            )
        except MaybeAppliedError:
            return False
        if result is CasResult.COMMITTED:
            self._env.patient(lambda: self._env.consensus.truncate(self._key, seqno))
        return result is CasResult.COMMITTED
