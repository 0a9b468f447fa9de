"""An engine of plain Arrow for pipelines in tests: `store.pipeline(…, engine=arrow_engine)`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.pipeline.engine import PipelineEngine
from strandline.testing.computing import ArrowComputer
from strandline.views.answer import answer
from strandline.views.rewrite import query_sql

if TYPE_CHECKING:
    import pyarrow as pa

    from strandline.handles.store import Store
    from strandline.pipeline.engine import Question


def arrow_engine(store: Store) -> PipelineEngine:
    """Computes in this process, and answers the small part of SQL that `views.answer` knows."""

    def found(question: Question) -> pa.Table:
        tables = {}
        for name, shard in question.shards.items():
            with store.shard(shard).snapshot(as_of=question.at) as snapshot:
                tables[name] = snapshot.to_arrow()
        relations = {name: name for name in question.shards}
        return answer(query_sql(question.sql, relations, question.now_ms), tables)

    return PipelineEngine(ArrowComputer(store), found)
