"""What a pipeline is given reaches its replica."""

from __future__ import annotations

import os
import socket

import strandline
from strandline.testing.engines import arrow_engine


def test_a_replica_says_where_it_is():
    text = "CREATE TABLE t (k BIGINT, PRIMARY KEY (k)) USING http;"
    with strandline.open("memory://") as store:
        pipeline = store.pipeline("p", text, engine=arrow_engine, replica="east")
        pipeline.run(until_idle=True)
        (seen,) = pipeline.status().replicas
        assert (seen.name, seen.said.host, seen.said.pid, seen.said.read_only) == (
            "east",
            socket.gethostname(),
            os.getpid(),
            False,
        )
