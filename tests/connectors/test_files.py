"""Files are taken whole, once, in order, and never read as if they had not changed."""

import io
import json
import os

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from strandline.connectors.files import Files, fetch, opened, path_of
from strandline.connectors.source import Limits, Split
from strandline.errors import SourceError, SourceGoneError, UsageError
from strandline.testing.conformance_source import Stand, check_source

ROWS = [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]
AVRO = {
    "type": "record",
    "name": "r",
    "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"]}],
}


def as_json(rows):
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def as_csv(rows):
    return ("id,name\n" + "".join(f"{row['id']},{row['name']}\n" for row in rows)).encode()


def as_parquet(rows):
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), sink)
    return sink.getvalue()


def as_avro(rows):
    sink = io.BytesIO()
    fastavro.writer(sink, AVRO, rows, sync_marker=b"0123456789abcdef")
    return sink.getvalue()


WRITERS = {"json": as_json, "csv": as_csv, "parquet": as_parquet, "avro": as_avro}


def read(source, taken):
    return [
        row for split in source.splits(taken) for b in fetch(split, str) for row in b.to_pylist()
    ]


@pytest.mark.parametrize("change", ["gone", "longer", "same size", "a link"])
@pytest.mark.parametrize("kind", WRITERS)
def test_files_of_every_format_are_a_source(tmp_path, kind, change):
    made = iter(range(100))

    def stand():
        folder = tmp_path / f"folder {next(made)}"
        folder.mkdir()
        written = iter(range(100))

        def grow():
            for _ in range(2):
                at = next(written)
                rows = [{"id": at * 2 + i, "name": "x"} for i in range(2)]
                (folder / f"{at:03}").write_bytes(WRITERS[kind](rows))

        def forget(taken):
            path = folder / path_of(min(taken.parts))
            content = path.read_bytes()
            path.unlink()
            if change == "longer":
                path.write_bytes(content + content)
            elif change == "same size":
                path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
            elif change == "a link":
                (folder / "_elsewhere").write_bytes(content)
                path.symlink_to(folder / "_elsewhere")

        options = {"path": str(folder), "format": kind}
        return Stand(
            lambda: Files(options), lambda split: fetch(split, str), grow, forget,
            small=Limits(bytes=1), counts_rows=False, bounded=kind in {"json", "csv"},
        )  # fmt: skip

    check_source(stand)


def test_names_that_are_not_whole_yet_and_links_are_passed_over(tmp_path):
    (tmp_path / "inner").mkdir()
    (tmp_path / "_staging").mkdir()
    (tmp_path / "elsewhere").mkdir()
    for name in ("b", "a", "inner/c", "_x", ".x", "x.tmp", "_staging/y", "empty"):
        (tmp_path / name).write_bytes(b"" if name == "empty" else b"{}\n")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    (tmp_path / "folder link").symlink_to(tmp_path / "inner")
    os.mkfifo(tmp_path / "pipe")
    taken = Files({"path": str(tmp_path)}).plan({}, Limits())
    assert [path_of(each) for each in taken.parts] == ["a", "b", "inner/c"]


def test_a_file_may_be_a_transaction_of_its_own(tmp_path):
    for name in ("1", "2", "3"):
        (tmp_path / f"{name}.json").write_bytes(as_json(ROWS))
    source = Files({"path": str(tmp_path), "transaction": "file"})
    assert source.initiates
    position, seen = {}, []
    while (taken := source.plan(position, Limits())) is not None:
        seen.append([path_of(each) for each in taken.parts])
        position = taken.after(position)
    assert seen == [["1.json"], ["2.json"], ["3.json"]]
    assert not Files({"path": str(tmp_path)}).initiates
    with pytest.raises(UsageError, match="files know 'file'"):
        Files({"path": str(tmp_path), "transaction": "row"})


def test_files_are_taken_in_the_order_of_their_paths_within_the_limits(tmp_path):
    for name in ("10", "9", "a/1", "a-1"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"12345\n")
    source = Files({"path": str(tmp_path)})
    order, position = [], {}
    while (taken := source.plan(position, Limits(bytes=12))) is not None:
        order.append([path_of(each) for each in taken.parts])
        position = taken.after(position)
    assert order == [["10", "9"], ["a-1", "a/1"]]
    assert [*source.plan({}, Limits(bytes=1)).parts] == [*source.plan({}, Limits(rows=1)).parts]


def test_files_are_taken_in_the_order_in_which_their_rows_count(tmp_path):
    """Of one key the last row counts, and rows are ordered by partition: `path@digest`."""
    for name in ("orders", "orders-1", "orders.json", "ordersA"):
        (tmp_path / name).write_bytes(b"{}\n")
    source = Files({"path": str(tmp_path), "transaction": "file"})
    partitions, position = [], {}
    while (taken := source.plan(position, Limits())) is not None:
        partitions += taken.parts
        position = taken.after(position)
    assert partitions == sorted(partitions)
    assert [path_of(each) for each in partitions] == [
        "orders-1", "orders.json", "orders", "ordersA"
    ]  # fmt: skip


def test_a_file_that_was_taken_is_not_taken_again_when_it_changes(tmp_path):
    (tmp_path / "a").write_bytes(b"{}\n")
    source = Files({"path": str(tmp_path)})
    after = source.plan({}, Limits()).after({})
    (tmp_path / "a").write_bytes(b"{}\n{}\n")
    assert source.plan(after, Limits()) is None


def test_only_names_with_the_suffix_are_taken(tmp_path):
    for name in ("a.json", "b.csv"):
        (tmp_path / name).write_bytes(b"{}\n")
    source = Files({"path": str(tmp_path), "suffix": ".json"})
    assert [path_of(each) for each in source.plan({}, Limits()).parts] == ["a.json"]


def test_lines_keep_their_offsets_and_empty_ones_are_none(tmp_path):
    (tmp_path / "a").write_bytes(b'{"a":1}\n\n  {"a":2}  \r\n{"a":3}')
    source = Files({"path": str(tmp_path)})
    rows = read(source, source.plan({}, Limits()))
    assert [(r["_offset"], r["_value"]) for r in rows] == [
        (0, b'{"a":1}'), (9, b'{"a":2}'), (22, b'{"a":3}')
    ]  # fmt: skip


def test_csv_records_may_hold_line_ends_and_carry_the_first_line(tmp_path):
    (tmp_path / "a").write_bytes(b'\xef\xbb\xbfid,"a name"\r\n1,"x\ny"\r\n2,z\r\n')
    source = Files({"path": str(tmp_path), "format": "csv"})
    rows = read(source, source.plan({}, Limits()))
    assert [r["_value"] for r in rows] == [b'1,"x\ny"', b"2,z"]
    assert rows[0]["_headers"] == [("csv.columns", b'["id","a name"]')]
    headless = Files({"path": str(tmp_path), "format": "csv", "csv.columns": "a,b"})
    assert len(read(headless, headless.plan({}, Limits()))) == 3


@pytest.mark.parametrize("kind", ["parquet", "avro"])
def test_typed_files_give_their_columns(tmp_path, kind):
    (tmp_path / "a").write_bytes(WRITERS[kind](ROWS))
    source = Files({"path": str(tmp_path), "format": kind})
    rows = read(source, source.plan({}, Limits()))
    assert [(r["id"], r["name"], r["_offset"]) for r in rows] == [(1, "a", 0), (2, "b", 1)]


@pytest.mark.parametrize("kind", ["parquet", "avro"])
def test_a_file_that_is_none_of_its_format_is_named(tmp_path, kind):
    for content in (
        b"PAR1 but not really PAR1",
        b"Obj\x01 but not really",
        WRITERS[kind](ROWS)[:-9],
    ):
        (tmp_path / "broken").write_bytes(content)
        source = Files({"path": str(tmp_path), "format": kind})
        taken = source.plan({}, Limits())
        with pytest.raises(SourceError, match=f"'broken' is no {kind} file"):
            read(source, taken)


@pytest.mark.parametrize(
    "path", ["../secret", "/etc/passwd", "a/../../secret", "link", "inner link/x", "", ".", "a\0b"]
)
def test_nothing_outside_of_the_folder_is_read(tmp_path, path):
    folder = tmp_path / "folder"
    (folder / "inner").mkdir(parents=True)
    (folder / "inner" / "x").write_bytes(b"x")
    (tmp_path / "secret").write_bytes(b"secret")
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "inner link").symlink_to(folder / "inner")
    with pytest.raises(SourceError):
        opened(folder, path)
    split = Split("files", {"path": str(folder)}, f"{path}@0123456789abcdef", 0, 6)
    with pytest.raises(SourceGoneError):
        list(fetch(split, str))


@pytest.mark.parametrize("name", [b"caf\xe9.json", b"caf\xe9/a.json"])
def test_a_name_that_is_no_utf_8_is_an_error_and_not_an_end(tmp_path, name):
    path = tmp_path / os.fsdecode(name)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b'{"id": 1}\n')
    source = Files({"path": str(tmp_path)})
    for asked in (source.latest, lambda: source.plan({}, Limits())):
        with pytest.raises(SourceError, match=r"file 'caf\\udce9.*rename it"):
            asked()
    assert Files({"path": str(tmp_path), "suffix": ".csv"}).plan({}, Limits()) is None
    path.rename(tmp_path / "cafe.json")
    assert len(read(source, source.plan({}, Limits()))) == 1


def test_a_folder_that_is_not_there_is_an_error_and_not_an_end(tmp_path):
    with pytest.raises(SourceError, match="can't be read"):
        Files({"path": str(tmp_path / "none")}).plan({}, Limits())


@pytest.mark.parametrize("options", [{}, {"path": "/x", "format": "xml"}, {"path": "/x", "y": "z"}])
def test_wrong_options_are_refused(options):
    with pytest.raises(UsageError, match=r"path|xml|'y'"):
        Files(options)
