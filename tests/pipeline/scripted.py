"""The shop with a sink whose target is scripted, and its publishers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tests.pipeline.shop import rig_of

from strandline.connectors.sink import Delivered
from strandline.handles.store import Store
from strandline.pipeline.place import Target
from strandline.pipeline.publish import Publisher
from strandline.pipeline.rig import Rig
from strandline.testing.scripted_sink import ScriptedSink, ScriptedTarget

Before = Callable[[str], str | None]


def calm(_: str) -> None:
    """Nothing goes wrong."""


def publishing_rig(
    store: Store,
    target: ScriptedTarget,
    before: Before = calm,
    unable: Callable[[], str] = str,
    **settings: int,
) -> Rig:
    """The shop, whose orders are published to a target that does as it is told."""

    def opened(what: Delivered) -> ScriptedSink:
        return ScriptedSink(target, what, before)

    sinks = [Target("out", "orders", {"connector": "scripted"}, opened, unable=unable)]
    return replace(rig_of(store, **settings), sinks=sinks)


def publisher_of(rig: Rig) -> Publisher:
    return Publisher(rig.store, rig.journal, rig.sinks[0], rig.settings, "a")


def until(holds: Callable[[], bool], store: Store) -> None:
    for _ in range(6_000):
        if holds():
            return
        store.env.tasks.sleep(10)
    raise AssertionError("it did not come to that within a minute")


def published(store: Store, rig: Rig, *, reached: int = 9) -> Publisher:
    """A publisher that ran until everything was delivered, and was stopped."""
    rig.journal.refresh()
    publisher = publisher_of(rig)
    publisher.start()
    try:
        until(lambda: publisher.status().reached >= reached, store)
    finally:
        publisher.stop()
    return publisher


def times(target: ScriptedTarget) -> list[int]:
    (log,) = target.logs.values()
    return [each.t for each in log.landed]
