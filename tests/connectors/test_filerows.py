"""Rows of files, read as streams within limits."""

import io
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st

from strandline.connectors import filerows
from strandline.connectors.filerows import BATCH_BYTES, File, csv_records, limits_of, rows_of
from strandline.connectors.source import Split
from strandline.errors import SourceError, UsageError


class Zeros(io.RawIOBase):
    """A file of very many bytes that is nowhere; it counts what is read of it."""

    def __init__(self):
        self.given = 0

    def readable(self):
        return True

    def readinto(self, room):
        room[:] = bytes(len(room))
        self.given += len(room)
        return len(room)


def file_of(kind="csv", size=0, record_max=1 << 20):
    return File("a", "a@0", kind, {}, size, record_max, 1 << 30)


def split_of(kind, size, **options):
    told = {"path": "/", "format": kind, **{name: str(each) for name, each in options.items()}}
    return Split("files", told, "a@0123456789abcdef", 0, size)


def rows(content, kind, **options):
    stream = io.BufferedReader(io.BytesIO(content))
    return list(rows_of(stream, "dir/a", split_of(kind, len(content), **options)))


@settings(deadline=None, max_examples=50)
@given(st.lists(st.lists(st.text('a"\n,\r', max_size=4), min_size=1, max_size=3), max_size=5))
def test_records_are_told_apart_whatever_cells_hold(given_rows):
    lines = [",".join('"' + cell.replace('"', '""') + '"' for cell in row) for row in given_rows]
    content = "\r\n".join(lines).encode()
    for marked in (b"", b"\xef\xbb\xbf"):
        records = list(csv_records(io.BytesIO(marked + content), file_of()))
        assert [record.decode() for _, record in records] == lines
        assert all(content[at : at + len(record)] == record for at, record in records)


def told_apart(text, delimiter):
    """The same, a character at a time."""
    records, start, fresh, inside, at = [], 0, True, False, 0
    while at < len(text):
        char = text[at]
        if inside:
            pair = text[at : at + 2] == '""'
            inside, at = char != '"' or pair, at + pair
        elif char == "\n":
            records, start, fresh = [*records, text[start:at]], at + 1, True
        else:
            inside, fresh = fresh and char == '"', char == delimiter
        at += 1
    return [each.rstrip("\r\n") for each in [*records, text[start:]] if each.rstrip("\r\n")]


@settings(deadline=None, max_examples=300)
@given(st.text('a"\n,é', max_size=20), st.sampled_from(",é"))
def test_a_quote_opens_a_cell_at_its_start_alone(content, delimiter):
    file = replace(file_of(), options={"csv.delimiter": delimiter})
    found = [record.decode() for _, record in csv_records(io.BytesIO(content.encode()), file)]
    assert found == told_apart(content, delimiter)


def test_a_stray_quote_costs_its_own_record():
    content = b'id,a\n1,5" pipe\n2,"ok\n,"\n3,6" pipe "\n"4"x,"\n"\n5,z\n'
    records = [record for _, record in csv_records(io.BytesIO(content), file_of())]
    assert records == [
        b"id,a", b'1,5" pipe', b'2,"ok\n,"', b'3,6" pipe "', b'"4"x,"\n"', b"5,z"
    ]  # fmt: skip


def test_a_mark_of_utf_8_is_no_part_of_the_first_value():
    (marked,) = rows(b'\xef\xbb\xbf{"a":1}\r\n{"a":2}\n\xef\xbb\xbf\n', "json")
    assert marked["_value"].to_pylist() == [b'{"a":1}', b'{"a":2}', b"\xef\xbb\xbf"]
    assert marked["_offset"].to_pylist() == [0, 12, 20]
    assert rows(b"\xef\xbb\xbf\n", "json") == []


def test_many_cells_and_long_ones_are_told_apart_in_time():
    cells = b'"' + b'x""y' * 100_000 + b'",' + b'"",a"b,' * 200_000 + b'"\n"'
    records = [record for _, record in csv_records(io.BytesIO(cells), file_of(record_max=1 << 24))]
    assert records == [cells]


@pytest.mark.parametrize("kind", ["json", "csv"])
def test_x11_a_line_without_an_end_is_refused_by_the_name_of_its_file(kind):
    zeros = Zeros()
    split = split_of(kind, 10**12, maxRecordBytes=1 << 20)
    with pytest.raises(SourceError, match=r"'dir/a'.* byte 0 .*1048576.*maxRecordBytes"):
        list(rows_of(io.BufferedReader(zeros), "dir/a", split))
    assert zeros.given < 1 << 22


@pytest.mark.parametrize(
    ("kind", "content"),
    [("json", b'{"a":1}\n"%s"\n'), ("csv", b'a\n1\n"%s"\n'), ("csv", b'a\n1\n"%s\n')],
)
def test_x11_the_longest_record_is_taken_and_one_byte_more_is_not(kind, content):
    whole = content % (b"x" * 50)
    longest = max(len(line) for line in whole.splitlines(keepends=True))
    assert sum(each.num_rows for each in rows(whole, kind, maxRecordBytes=longest)) == 2
    with pytest.raises(SourceError, match="maxRecordBytes"):
        rows(whole, kind, maxRecordBytes=longest - 1)


def test_x11_a_quote_that_is_never_closed_does_not_make_one_record_of_the_rest():
    content = b'a\n"' + b"x\n" * 100_000
    with pytest.raises(SourceError, match="the record at byte 2 is longer"):
        rows(content, "csv", maxRecordBytes=1000)


@pytest.mark.parametrize("kind", ["json", "csv"])
def test_large_lines_come_in_batches_of_bounded_size(kind):
    content = (b"x" * (1 << 20) + b"\n") * 40
    batches = rows(content, kind)
    assert len(batches) >= 4
    assert max(each.nbytes for each in batches) < BATCH_BYTES + (3 << 20)


def parquet(table, **options):
    stream = io.BytesIO()
    pq.write_table(table, stream, **options)
    return stream.getvalue()


def repeated(value, count):
    return pa.DictionaryArray.from_arrays(pa.array([0] * count, pa.int32()), pa.array([value]))


def test_x11_one_long_value_that_is_meant_often_comes_in_batches_of_bounded_size():
    content = parquet(pa.table({"c": repeated("x" * 500_000, 200)}), store_schema=False)
    assert len(content) < 50_000
    batches = rows(content, "parquet")
    assert sum(each.num_rows for each in batches) == 200
    assert max(each.nbytes for each in batches) < 5 * BATCH_BYTES


def test_x11_a_parquet_bomb_is_refused_by_its_name_in_little_memory(monkeypatch):
    monkeypatch.setattr(filerows, "UNPACKED_FREE", 100 << 20)
    content = parquet(pa.table({"c": repeated("x" * 500_000, 20_000)}), store_schema=False)
    assert len(content) < 50_000, "which would be 10 GB of rows"
    before, most = pa.total_allocated_bytes(), []
    stream = io.BufferedReader(io.BytesIO(content))
    batches = rows_of(stream, "dir/a", split_of("parquet", len(content)))
    with pytest.raises(SourceError, match=r"'dir/a' is not read: .* unpack .*maxRatio"):
        most.extend(pa.total_allocated_bytes() - before for _ in batches)
    assert len(most) > 2, "it was read for as long as it might have been right"
    assert max(most) < 200 << 20
    small = parquet(pa.table({"c": repeated("x" * 500_000, 300)}), store_schema=False)
    with pytest.raises(SourceError, match="maxRatio"):
        rows(small, "parquet")
    assert sum(each.num_rows for each in rows(small, "parquet", maxRatio=1_000_000)) == 300


def test_x11_a_list_of_one_long_value_is_refused_before_it_is_unpacked():
    values = repeated("x" * 500_000, 20_000)
    lists = pa.ListArray.from_arrays(pa.array([0, 20_000], pa.int32()), values)
    content = parquet(pa.table({"c": lists}), store_schema=False)
    before = pa.total_allocated_bytes()
    with pytest.raises(SourceError, match="maxRatio"):
        rows(content, "parquet")
    assert pa.total_allocated_bytes() - before < 100 << 20


def test_x11_pages_that_unpack_to_too_much_are_refused_by_the_footer(monkeypatch):
    monkeypatch.setattr(filerows, "PAGES_FREE", 1 << 20)
    table = pa.table({"c": ["x" * (4 << 20)]})
    content = parquet(table, compression="zstd", use_dictionary=False, write_statistics=False)
    with pytest.raises(SourceError, match=r"column 'c' has \d+ bytes that unpack to 419"):
        rows(content, "parquet")
    honest = parquet(table, compression="none", use_dictionary=False, write_statistics=False)
    assert rows(honest, "parquet")[0].num_rows == 1


def test_typed_rows_of_all_kinds_come_as_they_are():
    table = pa.table(
        {
            "a": list(range(25_000)),
            "b": ["x", "yy", None, "z", ""] * 5_000,
            "c": [["p", None], [], None, ["q" * 9], ["p"]] * 5_000,
            "d": [{"e": "v", "f": 1}] * 25_000,
        }
    )
    batches = rows(parquet(table, row_group_size=8_000), "parquet")
    found = pa.Table.from_batches(batches)
    assert found.select(table.column_names).equals(table)
    assert found["_offset"].to_pylist() == list(range(25_000))
    assert len(batches) == 4, "small values do not make small batches"


@pytest.mark.parametrize(
    "options", [{"maxRatio": "0"}, {"maxRecordBytes": "-1"}, {"maxRatio": "x"}]
)
def test_limits_are_whole_numbers(options):
    with pytest.raises(UsageError, match="max"):
        limits_of(options)
