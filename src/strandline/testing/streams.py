"""Chance for simulated histories: many independent streams from one seed, and swarm options.

Each stream has a name and its own generator, so drawing more from one (another fault, a
longer workload) leaves the others as they were. Nothing here depends on Python's `hash`.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


def stream(seed: int, name: str) -> random.Random:
    """The generator that this name has under this seed, from its beginning.

    >>> stream(7, "faults").random() == stream(7, "faults").random()
    True
    >>> stream(7, "faults").random() == stream(7, "schedule").random()
    False
    """
    digest = hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=16).digest()
    return random.Random(int.from_bytes(digest, "big"))


class SimulatedRandom:
    """The Random port on one stream."""

    def __init__(self, source: random.Random) -> None:
        self._source = source

    def token(self) -> str:
        return f"{self._source.getrandbits(128):032x}"

    def uniform(self, low: float, high: float) -> float:
        return self._source.uniform(low, high)


@dataclass(frozen=True, slots=True)
class Options:
    """What one history may do: each option is off (0) or has the value it was given.

    Most bugs hide behind the noise of other faults, so each history turns a random part of
    them off ("swarm"). Options print as a dict that can be pasted back into `Options`.
    """

    values: Mapping[str, float]

    @classmethod
    def from_seed(
        cls, source: random.Random, names: Sequence[str] | Mapping[str, Sequence[float]]
    ) -> Options:
        """Draw options; a mapping gives the values each may take when it is on (else 1).

        Each name draws from a stream of its own, so a new name leaves the others alone.
        """
        root = source.getrandbits(64)
        share_on = stream(root, "share").choice((0.0, 0.25, 0.5, 0.75, 1.0))
        choices = names if isinstance(names, Mapping) else dict.fromkeys(names, (1,))
        values: dict[str, float] = {}
        for name in choices:
            own = stream(root, name)
            on = own.random() < share_on
            value = own.choice(tuple(choices[name]))
            values[name] = value if on else 0
        return cls(values)

    def __getitem__(self, name: str) -> float:
        return self.values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.values)

    def __str__(self) -> str:
        return f"Options({dict(self.values)})"

    def on(self, name: str) -> bool:
        return bool(self.values[name])

    def without(self, name: str) -> Options:
        """The same options with this one off."""
        return Options({**self.values, name: 0})


def shrink(fails: Callable[[Options], bool], options: Options) -> Options:
    """Turn off, one by one, every option that the failure does not need.

    >>> shrink(lambda o: o.on("crash"), Options({"crash": 1, "latency": 30}))
    Options(values={'crash': 1, 'latency': 0})
    """
    for name in options:
        if options.on(name) and fails(options.without(name)):
            options = options.without(name)
    return options
