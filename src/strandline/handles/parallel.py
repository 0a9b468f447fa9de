"""Runs several jobs beside each other and waits for all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from strandline.model.tasks import Tasks

_Result = TypeVar("_Result")


def run_all(
    tasks: Tasks, name: str, jobs: Sequence[Callable[[], _Result]], width: int
) -> list[_Result]:
    """The results in order. If a job raises, no new one starts, and its error is raised here
    once all that run have ended: nothing of it goes on behind the caller's back.
    """
    if len(jobs) <= 1:
        return [job() for job in jobs]
    results: dict[int, _Result] = {}
    errors: list[BaseException] = []
    # A list's `pop` is one step for threads and greenlets alike, so no lock is needed.
    waiting = list(range(len(jobs)))[::-1]

    def work() -> None:
        while waiting and not errors:
            try:
                at = waiting.pop()
            except IndexError:
                return
            try:
                results[at] = jobs[at]()
            except BaseException as error:  # noqa: BLE001 - a task must not raise: its starter does
                errors.append(error)

    others = [tasks.start(f"{name} {n}", work) for n in range(1, min(width, len(jobs)))]
    work()
    for task in others:
        task.join()
    if errors:
        raise errors[0]
    return [results[at] for at in range(len(jobs))]
