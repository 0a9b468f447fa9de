"""S83 for files: whatever was delivered survives a power cut, whoever died on the way to it.

Two histories at every step of founding and of the first deliveries: the power goes there, or the
process is killed there, another one goes on, and the power goes after its last delivery. What a
publisher was told to be delivered it has on record, so all of it must be there, and whole.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
from tests.scenarios.forgetful_folder import ForgetfulFolder, NoFileSync, NoFolderSync

from strandline.connectors.files_sink import FilesSink, read_published
from strandline.connectors.folder import LocalFolder
from strandline.connectors.sink import NOTHING_YET, Delivered, Progress
from strandline.errors import SinkStoppedError
from strandline.testing.conformance_sink import DiedError, SinkStand, changes, opened

UPTO = 2
TOKENS = count()


class Machine:
    """A computer with one folder, to which one publisher after the other delivers."""

    def __init__(self, root: Path) -> None:
        self.root = root / "deep" / "out"
        self.delivered = NOTHING_YET
        """The last one that is on record."""

    def work(self, upto: int = UPTO, steps: int | None = None) -> bool:
        """One life: deliver what is missing, until it ends before a step; whether it did."""
        left = count(steps, -1) if steps is not None else count(1)

        def step(_: str) -> None:
            if next(left) == 0:
                raise DiedError

        try:
            sink, at = opened(SinkStand(self._new), step=step)
            if at is None:
                sink.found(at := Progress(NOTHING_YET, 1))
            self.delivered = max(self.delivered, at.t)
            for t in range(at.t + 1, upto + 1):
                sink.deliver(t, 1, changes(t, t - 1))
                self.delivered = t
        except DiedError:
            return True
        return False

    def _new(self, what: Delivered, step: Callable[[str], None]) -> FilesSink:
        token = f"{next(TOKENS):08}"
        return FilesSink(LocalFolder(self.root, lambda: token, step), "json", what, token)

    def lost(self) -> list[str]:
        """What is on record and is not there, after the power came back."""
        try:
            found = {each.t: each.to_arrow().num_rows for each in read_published(self.root)}
        except (SinkStoppedError, OSError) as error:
            return [str(error)]
        wanted = {t: sum(each.num_rows for each in changes(t, t - 1)) for t in range(UPTO + 1)}
        return [
            f"{t} has {found.get(t)} rows of {rows}"
            for t, rows in wanted.items()
            if (t <= self.delivered or t in found) and found.get(t) != rows
        ]


def losses(kind: type[ForgetfulFolder], root: Path, *, killed: bool) -> tuple[list[str], int]:
    """End a life before each step in turn, by a kill or a power cut; what went missing, and how
    many steps there are."""
    wrong: list[str] = []
    for steps in range(1_000):
        place = root / f"{steps}"
        place.mkdir()
        with kind(place).watched() as folder:
            machine = Machine(place)
            died = machine.work(steps=steps)
            if killed:
                machine.work(upto=machine.delivered + 1)
            folder.power_cut()
            wrong += [f"step {steps}: {each}" for each in machine.lost()]
        if not died:
            return wrong, steps
    raise AssertionError("the work has no end")


@pytest.mark.parametrize("killed", [False, True])
def test_s83_whatever_was_delivered_survives_a_power_cut(tmp_path: Path, *, killed: bool) -> None:
    lost, steps = losses(ForgetfulFolder, tmp_path, killed=killed)
    assert steps > 30, "founding and deliveries were all cut"
    assert lost == []


@pytest.mark.parametrize("mutant", [NoFolderSync, NoFileSync])
def test_s83_a_sink_that_does_not_sync_is_caught(
    tmp_path: Path, mutant: type[ForgetfulFolder]
) -> None:
    lost, _ = losses(mutant, tmp_path, killed=False)
    assert lost
