"""The scheduler moves time only to the next timer, and runs one task at a time."""

from __future__ import annotations

from strandline.testing.picking import Mode, Picker
from strandline.testing.scheduler import Scheduler
from strandline.testing.streams import stream
from strandline.testing.task import Life
from strandline.testing.trace import Trace


def new_scheduler(mode: Mode = Mode.ROUND_ROBIN) -> Scheduler:
    return Scheduler(1, Trace(), Picker(stream(1, "schedule"), mode))


def run_all(scheduler: Scheduler) -> None:
    while scheduler.step(float("inf")):
        pass


def test_time_jumps_to_the_next_timer_when_nobody_is_ready():
    scheduler, log = new_scheduler(), []

    def sleep(duration_ms: int) -> None:
        scheduler.pause("sleep", duration_ms)
        log.append((duration_ms, scheduler.now_us // 1000))

    for duration_ms in (3_600_000, 5, 70):
        scheduler.start(Life("a"), "t", lambda duration_ms=duration_ms: sleep(duration_ms))
    run_all(scheduler)
    assert log == [(5, 5), (70, 70), (3_600_000, 3_600_000)]


def test_a_task_that_never_sleeps_cannot_stop_time():
    scheduler, stop = new_scheduler(Mode.STICKY), []

    def spin() -> None:
        while not stop:
            scheduler.pause("spin")

    scheduler.start(Life("a"), "spins", spin)
    scheduler.at(2, lambda: stop.append(True))
    run_all(scheduler)
    assert 1990 < scheduler.steps < 2010


def test_nothing_happens_beyond_the_limit():
    scheduler, log = new_scheduler(), []
    scheduler.at(10, lambda: log.append("act"))
    assert not scheduler.step(9_999)
    assert (scheduler.now_us, log) == (0, [])
    assert scheduler.step(10_000)
    assert log == ["act"]


def test_timers_of_one_moment_fire_in_an_order_of_the_seed():
    orders = set()
    for seed in range(50):
        scheduler = Scheduler(seed, Trace(), Picker(stream(seed, "schedule")))
        order: list[int] = []
        for number in range(3):
            scheduler.at(10, lambda number=number, order=order: order.append(number))
        run_all(scheduler)
        orders.add(tuple(order))
    assert len(orders) == 6


def test_stale_timers_do_not_move_time():
    scheduler = new_scheduler()
    life = Life("a")
    waiter = scheduler.start(life, "waits", lambda: scheduler.block("wait", 1000, None) and None)
    scheduler.step(0)
    scheduler.at(1, lambda: scheduler.wake(waiter))
    run_all(scheduler)
    assert waiter.ended
    assert scheduler.next_due_us() is None
    assert scheduler.now_us < 1100


def test_an_ended_task_is_forgotten():
    scheduler = new_scheduler()
    for _ in range(100):
        scheduler.start(Life("a"), "short", lambda: None)
    run_all(scheduler)
    assert scheduler.living == {}
    assert scheduler.steps == 100
