"""Several jobs beside each other."""

import pytest

from strandline.handles.parallel import run_all
from strandline.system import SystemTasks


@pytest.mark.parametrize("count", [0, 1, 2, 50])
def test_results_come_in_the_order_of_the_jobs(count: int):
    jobs = [lambda n=n: n * n for n in range(count)]
    assert run_all(SystemTasks(), "squares", jobs, 4) == [n * n for n in range(count)]


def test_jobs_run_beside_each_other():
    tasks = SystemTasks()
    met = tasks.event()

    def wait() -> bool:
        return met.wait(10_000)

    def meet() -> bool:
        met.set()
        return True

    assert run_all(tasks, "meeting", [wait, meet], 2) == [True, True]


def test_an_error_is_raised_once_all_running_jobs_have_ended():
    tasks = SystemTasks()
    failed = tasks.event()
    ended = []

    def fail() -> None:
        failed.set()
        raise ValueError("no")

    def slow() -> None:
        failed.wait(10_000)
        ended.append(1)

    with pytest.raises(ValueError, match="no"):
        run_all(tasks, "failing", [slow, fail, *[slow] * 50], 2)
    assert 1 <= len(ended) <= 2
