"""X12: a program can't make a connector speak to an address inside."""

from __future__ import annotations

import socket

import pytest

import strandline
from strandline.errors import StrandlineError
from strandline.testing.engines import arrow_engine


@pytest.mark.parametrize(
    "path", ["http://127.0.0.1:{port}/x", "//127.0.0.1:{port}/x", "[::1]:{port}"]
)
@pytest.mark.parametrize("connector", ["files", "http", "generator", "strandline"])
def test_x12_no_option_reaches_a_listener_of_ours(connector, path):
    with socket.create_server(("127.0.0.1", 0)) as canary:
        canary.settimeout(0.2)
        target = path.format(port=canary.getsockname()[1])
        text = f"""CREATE TABLE t (k BIGINT, PRIMARY KEY (k)) USING {connector}
            OPTIONS (path '{target}', url '{target}', shard '{target}', format 'json');"""
        with strandline.open("memory://") as store, pytest.raises(StrandlineError):
            store.pipeline("p", text, engine=arrow_engine).run(until_idle=True)
        with pytest.raises(TimeoutError):
            canary.accept()
