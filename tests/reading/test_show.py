"""Rows as HTML."""

from __future__ import annotations

import pyarrow as pa

from strandline.reading.show import html_rows

TABLE = pa.table({"<b>": ["<script>alert(1)</script>", None, "x" * 200]})


def test_x7_names_and_values_are_escaped():
    shown = html_rows("<i>t</i>", TABLE.schema, TABLE, 3)
    assert "<script>" not in shown
    assert "<b>" not in shown
    assert "&lt;i&gt;t&lt;/i&gt;: 3 rows" in shown
    assert "<i>null</i>" in shown
    assert "x" * 80 not in shown


def test_it_says_what_is_not_shown():
    assert "5 rows, the first 3 of them" in html_rows("t", TABLE.schema, TABLE, 5)
    assert "5 rows, not read yet" in html_rows("t", TABLE.schema, None, 5)
    assert "closed" in html_rows("t", TABLE.schema, None, None)
