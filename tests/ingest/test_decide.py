"""LATE, DUE or EARLY: the whole table."""

import itertools

import pytest

from strandline.ingest.decide import Plan, Verdict, decide, verdict
from strandline.model.frontier import Frontier
from strandline.testing.tables import rows

CLOSED = Frontier.closed()


class Case:
    def __init__(self, *, held, upper, frontier, limit, late, due, early, end) -> None:
        self.held = numbers(held)
        self.upper, self.frontier = Frontier(upper), Frontier(frontier)
        self.limit = limit
        self.expected = (numbers(late), numbers(due), numbers(early), Frontier(end))

    def __str__(self) -> str:
        return f"{self.held} at {self.upper} until {self.frontier} within {self.limit}"


def numbers(text) -> tuple[int, ...]:
    return () if text in {"-", None} else tuple(int(each) for each in str(text).split(","))


CASES = rows(
    Case,
    """
    held        upper  frontier  limit  late  due    early  end
    -           0      0         9      -     -      -      0
    -           5      9         9      -     -      -      9
    5,7         10     11        9      5,7   -      -      11
    5,7         10     6         9      5,7   -      -      10
    5,10,12     10     13        9      5     10,12  -      13
    5,10,12     10     12        9      5     10     12     12
    7,49,50,53  5      5         9      -     -      7,49,50,53  5
    7,49,50,53  50     51        9      7,49  50     53     51
    7,49,50,53  49     50        9      7     49     50,53  50
    1,2,3       1      9         1      -     1      2,3    2
    1,2,3       1      9         2      -     1,2    3      3
    4,5         1      9         1      -     4      5      5
    1,2,3       2      3         1      1     2      3      3
    0           0      1         0      -     0      -      1
    """,
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_becomes_of_commands(case):
    plan = decide(dict.fromkeys(case.held, 1), case.upper, case.frontier, case.limit)
    assert (plan.late, plan.due, plan.early, plan.end) == case.expected
    assert plan.settles == (plan.upper < plan.end)


def test_after_the_end_of_all_times_everything_is_late():
    plan = decide({3: 1}, CLOSED, Frontier(9), limit=9)
    assert plan == Plan(CLOSED, CLOSED, late=(3,))


def test_an_input_that_has_ended_closes_its_output():
    assert decide({3: 1}, Frontier(2), CLOSED, limit=9) == Plan(Frontier(2), CLOSED, due=(3,))


@pytest.mark.parametrize("upper", range(5))
@pytest.mark.parametrize("frontier", range(5))
@pytest.mark.parametrize("limit", [0, 1, 2, 99])
def test_every_small_case_keeps_the_rules(upper, frontier, limit):
    """D1 to D5, for all sets of times below 5."""
    for held in itertools.chain.from_iterable(
        itertools.combinations(range(5), n) for n in range(6)
    ):
        plan = decide(dict.fromkeys(held, 1), Frontier(upper), Frontier(frontier), limit)
        assert sorted((*plan.late, *plan.due, *plan.early)) == list(held), "nothing is lost"
        assert plan.late == tuple(t for t in held if t < upper), "D1 and D5"
        assert all(t < frontier for t in plan.due), "D2"
        assert plan.end <= max(Frontier(upper), Frontier(frontier)), "D2"
        assert len(plan.due) <= max(1, limit), "D3"
        open_times = [t for t in held if upper <= t < frontier]
        assert bool(plan.due) == bool(open_times), "D3: at least one whole time"
        assert plan.settles == (upper < frontier), "D4"


@pytest.mark.parametrize(
    ("time", "expected"),
    [(4, Verdict.LATE), (5, Verdict.DUE), (8, Verdict.DUE), (9, Verdict.EARLY)],
)
def test_the_one_question(time, expected):
    assert verdict(time, Frontier(5), Frontier(9)) is expected
