"""The engine of plain Arrow answers at the time it is asked about."""

from __future__ import annotations

import strandline
from strandline.pipeline.engine import Question
from strandline.testing.engines import arrow_engine


def test_it_answers_as_of_a_time_with_the_clock_of_that_time():
    text = "CREATE TABLE t (k BIGINT, PRIMARY KEY (k)) USING http;"
    with strandline.open("memory://") as store:
        pipeline = store.pipeline("p", text, engine=arrow_engine)
        for key in (1, 2):
            with pipeline.transaction() as transaction:
                transaction.insert("t", [{"k": key}])
        answer = arrow_engine(store).answer
        asked = "SELECT `k` AS `k` FROM `t`"
        for at, count in ((0, 1), (1, 2)):
            assert answer(Question(asked, {"t": "p.t"}, at, 0)).num_rows == count
