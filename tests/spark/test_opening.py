"""Opening a table: of a shard that exists, with the cache that the environment names."""

from __future__ import annotations

import msgspec
import pyarrow as pa
import pytest

import strandline
from strandline.spark.instruction import Site
from strandline.spark.opening import open_table


def test_a_table_is_opened_with_the_cache_of_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("STRANDLINE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("STRANDLINE_CACHE_BYTES", "12345")
    with strandline.open(str(tmp_path / "lake"), upkeep=False) as store:
        store.shard("t", schema=pa.schema([("k", pa.int64())]), key=["k"])
        table = open_table(store, "t", slots=3)
        stand = table._desk.stand(table.shard.state().schema)
        site = msgspec.msgpack.decode(stand.site, type=Site)
        assert (site.cache_folder, site.cache_bytes) == (str(tmp_path / "cache"), 12345)
        assert site.url == store.url
        with pytest.raises(strandline.NotFoundError):
            open_table(store, "other")
