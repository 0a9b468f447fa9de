"""The real clock, chance and threads keep what the ports promise."""

from __future__ import annotations

import os
import re
import threading

import pytest

from strandline.errors import InvariantError
from strandline.system import SystemClock, SystemRandom, SystemTasks
from strandline.testing.conformance_tasks import check_tasks


def test_threads_pass_the_conformance_check():
    check_tasks(SystemTasks(), SystemClock())


def test_a_task_is_a_named_daemon_thread():
    seen: list[threading.Thread] = []
    SystemTasks().start("renewal", lambda: seen.append(threading.current_thread())).join()
    assert [(thread.name, thread.daemon) for thread in seen] == [("renewal", True)]


def test_tokens_are_32_hex_digits_and_differ():
    random = SystemRandom()
    tokens = {random.token() for _ in range(1000)}
    assert len(tokens) == 1000
    assert all(re.fullmatch("[0-9a-f]{32}", token) for token in tokens)


def test_uniform_stays_within_its_bounds():
    random = SystemRandom()
    drawn = [random.uniform(2.0, 3.0) for _ in range(100)]
    assert all(2.0 <= number <= 3.0 for number in drawn)
    assert len(set(drawn)) > 1


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_draws_other_tokens_than_its_parent():
    random = SystemRandom()
    random.token()
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write_end, random.token().encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read_end, 32).decode() != random.token()
    os.close(read_end)
    os.close(write_end)


def test_the_wall_clock_counts_from_1970_in_milliseconds():
    assert 1_600_000_000_000 < SystemClock().wall_ms() < 10_000_000_000_000


def test_a_timeout_beyond_what_the_platform_can_count_waits():
    tasks = SystemTasks()
    event = tasks.event()
    waiter = tasks.start("waiter", lambda: event.wait(10**18) and None)
    event.set()
    assert waiter.join(10_000)


def test_a_task_that_joins_itself_is_refused():
    tasks = SystemTasks()
    ready, refused, holder = tasks.event(), [], []

    def run() -> None:
        ready.wait()
        try:
            holder[0].join()
        except InvariantError as error:
            refused.append(str(error))

    holder.append(tasks.start("itself", run))
    ready.set()
    assert holder[0].join(10_000)
    assert refused == ["task itself joins itself"]


def test_a_condition_that_another_thread_holds_cannot_be_used():
    tasks = SystemTasks()
    condition, held, go = tasks.condition(), tasks.event(), tasks.event()

    def hold() -> None:
        with condition:
            held.set()
            go.wait()

    holder = tasks.start("holder", hold)
    held.wait()
    with pytest.raises(InvariantError, match="without holding"):
        condition.notify_all()
    go.set()
    assert holder.join(10_000)
