"""The roles around a pipeline leave behind what they say."""

from __future__ import annotations

from strandline.journal.handles import Handles
from strandline.journal.log import Journal
from strandline.testing.pipelines import (
    LATER,
    NAME,
    SETTINGS,
    TEXT,
    Shop,
    amender,
    feeder,
    keeper,
    promoter,
    replica,
    rig_of,
    shopper,
    sorted_rows,
    taken_all,
)
from strandline.testing.simulation import Simulation
from strandline.testing.world import Host, World
from strandline.views.parse import parse


def _ran(seed: int, shop: Shop, *roles, faults_ms: float = 600) -> World:
    sim = Simulation(seed)
    world = World(sim)
    for number, role in enumerate(roles):
        world.start(f"r{number}", role)
    world.run(faults_ms=faults_ms)
    return world


def _asked(world: World, question):
    answers = []

    def ask(process: Host) -> None:
        answers.append(question(process.store))

    world.start("asker", ask)
    world.sim.run_until(lambda: bool(answers))
    return answers[0]


def test_replicas_take_all_that_is_fed() -> None:
    shop = Shop()
    world = _ran(1, shop, feeder(shop), replica(shop), keeper())
    standing = _asked(world, lambda store: Journal(store.env, NAME).refresh())
    assert shop.fed
    assert shop.sent > 5
    assert taken_all(shop, standing)
    assert standing.sealed is None


def test_a_promoter_switches_and_builds_what_is_new() -> None:
    shop = Shop()
    world = _ran(2, shop, feeder(shop), replica(shop), promoter(shop, 200))
    standing = _asked(world, lambda store: Journal(store.env, NAME).refresh())
    assert shop.text == LATER
    assert standing.program == parse(LATER).hash != parse(TEXT).hash
    assert standing.bindings["large"].since < standing.next_t


def test_a_shopper_keeps_its_word_and_what_it_staged() -> None:
    shop = Shop()
    world = _ran(3, shop, feeder(shop), replica(shop), shopper(shop), faults_ms=3_000)
    handles = _asked(world, lambda store: Handles(store.env, NAME).all())
    assert shop.promised <= shop.asked <= shop.inserted.keys()
    assert {each.id for each in handles} & shop.inserted.keys()


def test_an_amender_replaces_what_is_sealed_and_positions_move_past_it() -> None:
    shop = Shop()
    world = _ran(6, shop, feeder(shop), replica(shop), amender(), faults_ms=2_000)
    standing = _asked(world, lambda store: Journal(store.env, NAME).refresh())
    assert world.sim.seen["a transaction was amended"]
    assert taken_all(shop, standing)


def test_a_rig_is_of_the_program_that_is_asked_for() -> None:
    world = _ran(4, Shop())
    rigs = _asked(
        world,
        lambda store: [rig_of(Shop(), store, SETTINGS, text) for text in (None, TEXT, LATER)],
    )
    assert [each.text for each in rigs] == [TEXT, TEXT, LATER]


def test_rows_are_compared_in_one_order() -> None:
    world = _ran(5, Shop())
    table = _asked(world, lambda store: rig_of(Shop(), store, SETTINGS).program.tables[0])
    rows = table.columns.empty_table()
    assert sorted_rows(rows) == []
