"""Commands and outcomes are plain values."""

from __future__ import annotations

import dataclasses
import typing

import pytest

from strandline.shard import command as c

COMMANDS = typing.get_args(c.Command)
OUTCOMES = typing.get_args(c.Outcome)


@pytest.mark.parametrize("kind", [*COMMANDS, *OUTCOMES], ids=lambda kind: kind.__name__)
def test_commands_and_outcomes_are_frozen_values(kind):
    assert dataclasses.is_dataclass(kind)
    assert kind.__dataclass_params__.frozen


def test_equal_commands_are_equal():
    assert c.Fence(3) == c.Fence(3) != c.Fence(4)
    assert c.Release(readers=("r",)) == c.Release(readers=("r",))


def test_every_command_and_outcome_of_the_module_is_in_its_union():
    classes = {
        value
        for value in vars(c).values()
        if isinstance(value, type) and value.__module__ == c.__name__
    }
    assert classes == {*COMMANDS, *OUTCOMES}
