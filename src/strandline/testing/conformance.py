"""What every Blob and every Consensus must show, whatever it is built on.

    def test_our_store_is_a_blob(tmp_path):
        check_blob(lambda: OurBlob(tmp_path))

Each clause below checks one sentence of the port's contract. Handles from one factory share
one store, which must be empty at first. A backend whose calls really run beside each other is
checked with `threads=4` as well.
"""

from __future__ import annotations

import threading
from itertools import count
from typing import TYPE_CHECKING, TypeVar

from strandline.errors import NameRefusedError
from strandline.model.ids import SeqNo
from strandline.store.consensus import CasResult, Versioned

if TYPE_CHECKING:
    from collections.abc import Callable

    from strandline.store.blob import Blob
    from strandline.store.consensus import Consensus

_Client = TypeVar("_Client", "Blob", "Consensus")

BAD_KEYS = (
    "", ".", "..", "../x", "/abs", "a//b", "a/", "a/../b", "a/./b", ".hidden", "a/.hidden",
    "a\0b", "a\nb", "a\n", "\na", "a b", "a\\b", "C:\\x", "a:b", "~", "a*", "%41", "a%", "a'b",
    "a';drop table versions;--", 'a"b', "a;b", "аbc", "a/ｂ", "café", "a\u2044b", "a\u202eb", "-a",  # noqa: RUF001
    "a" * 4096, "/".join("abcdefgh"), "a\ud800",
)  # fmt: skip
"""Keys that must be refused before anything is looked up or written (X1, X2)."""


def check_blob(new: Callable[[], Blob], *, threads: int = 0) -> None:
    """Fail unless the handles that `new` makes keep the contract of `Blob`."""
    for clause in (
        _objects_are_kept_whole_and_seen_by_all,
        _ranges_follow_the_contract,
        _deleting_is_idempotent,
        _any_prefix_lists_exactly_its_objects,
        _bad_blob_keys_are_refused,
        _closing_one_handle_leaves_the_objects,
    ):
        clause(new)
    if threads:
        _puts_are_atomic_for_concurrent_readers(new, threads)


def check_consensus(new: Callable[[], Consensus], *, threads: int = 0) -> None:
    """Fail unless the handles that `new` makes keep the contract of `Consensus`."""
    for clause in (
        _only_the_next_version_is_accepted,
        _scans_respect_start_and_limit,
        _truncating_keeps_the_head,
        _keys_are_sorted_and_found_by_prefix,
        _versions_hold_any_bytes,
        _bad_consensus_keys_are_refused,
        _the_clock_is_in_milliseconds,
        _closing_one_handle_leaves_the_versions,
    ):
        clause(new)
    if threads:
        _racing_versions_tile_without_gap(new, threads)


def _objects_are_kept_whole_and_seen_by_all(new: Callable[[], Blob]) -> None:
    ours, theirs = new(), new()
    for key, value in (
        ("whole/empty", b""),
        ("whole/small", b"value"),
        ("whole/zeros", bytes(5000)),
        ("whole/large", bytes(range(256)) * (8 << 12)),  # 8 MB
        ("whole/every.legal-Character_09", b"x"),
        ("whole/" + "n" * 255, b"longest name"),
        ("a-_./b/c/d/e/f", b"deepest"),
        ("top", b"no folder"),
    ):
        assert ours.get(key) is None, f"{key} was there before it was put"
        ours.put(key, value)
        assert theirs.get(key) == value, f"{key} is not seen by another handle"
        ours.put(key, value)
        assert ours.get(key) == value, f"{key} is not the same after putting it again"
    assert ours.get("whole") is None, "a folder of keys is no object"
    assert ours.get("top/below") is None, "nothing lies below an object"


def _ranges_follow_the_contract(new: Callable[[], Blob]) -> None:
    blob = new()
    value = b"0123456789"
    blob.put("range/ten", value)
    blob.put("range/none", b"")
    for start, length, expected in (
        (0, 10, value),
        (0, 0, b""),
        (3, 4, b"3456"),
        (8, 100, b"89"),
        (10, 1, b""),
        (500, 5, b""),
        (-3, 3, b"789"),
        (-3, 2, b"78"),
        (-3, 100, b"789"),
        (-10, 1, b"0"),
        (-99, 4, b"0123"),  # More than there is: from the first byte.
        (2, -1, b""),
    ):
        got = blob.get_range("range/ten", start, length)
        assert got == expected, f"get_range({start}, {length}) gave {got!r}, not {expected!r}"
    assert blob.get_range("range/none", 0, 5) == b""
    assert blob.get_range("range/none", -5, 5) == b""
    assert blob.get_range("range/absent", 0, 5) is None
    assert blob.get_range("range/absent", -5, 5) is None


def _deleting_is_idempotent(new: Callable[[], Blob]) -> None:
    ours, theirs = new(), new()
    ours.put("delete/it", b"x")
    ours.put("delete/not", b"y")
    assert theirs.delete("delete/it") is True
    assert ours.get("delete/it") is None
    assert ours.delete("delete/it") is False
    assert ours.delete("delete/never/was") is False
    assert ours.delete("delete") is False, "a folder of keys can't be deleted as an object"
    assert ours.get("delete/not") == b"y"


def _any_prefix_lists_exactly_its_objects(new: Callable[[], Blob]) -> None:
    blob = new()
    sizes = {
        "list/ab/1": 1,
        "list/ab/2": 0,
        "list/abc/3": 3,
        "list/abd": 4,
        "list/b/x/y/z": 5,
        "list.2/ab": 6,
        "listing": 7,
    }
    for key, size in sizes.items():
        blob.put(key, bytes(size))
    for prefix in (
        "list", "list/", "list/a", "list/ab", "list/ab/", "list/abc", "list/abd", "list/ab/1",
        "list/b/x/y", "list/b/x/y/z", "list.", "list/none", "list/ab/1/", "list/abd/", "lis",
    ):  # fmt: skip
        expected = {key: size for key, size in sizes.items() if key.startswith(prefix)}
        listed = [(entry.key, entry.size) for entry in blob.list(prefix)]
        assert dict(listed) == expected, f"prefix {prefix!r} lists {listed}"
        assert len(listed) == len(expected), f"prefix {prefix!r} lists an object twice"
    assert sizes.keys() <= {entry.key for entry in blob.list("")}, "'' lists all"
    blob.delete("list/abd")
    assert [*blob.list("list/abd")] == [], "a deleted object is listed"


def _bad_blob_keys_are_refused(new: Callable[[], Blob]) -> None:
    blob = new()
    before = {entry.key for entry in blob.list("")}
    for key in BAD_KEYS:
        _refused(blob.get, key)
        _refused(blob.get_range, key, 0, 1)
        _refused(blob.put, key, b"x")
        _refused(blob.delete, key)
        if key not in ("", "a/"):  # Those two are good prefixes.
            _refused(lambda prefix: [*blob.list(prefix)], key)
    assert {entry.key for entry in blob.list("")} == before, "a refused call wrote something"


def _closing_one_handle_leaves_the_objects(new: Callable[[], Blob]) -> None:
    ours, theirs = new(), new()
    ours.put("close/it", b"x")
    ours.close()
    ours.close()
    assert theirs.get("close/it") == b"x"
    assert new().get("close/it") == b"x"


def _puts_are_atomic_for_concurrent_readers(new: Callable[[], Blob], threads: int) -> None:
    value = bytes(range(256)) * 4096

    def work(blob: Blob, number: int) -> None:
        for turn in range(10):
            mine = f"atomic/{number}/{turn}"
            blob.put(mine, value)
            assert blob.get(mine) == value
            other = blob.get(f"atomic/{(number + 1) % threads}/{turn}")
            assert other in (None, value), "a reader saw part of an object"
            for entry in blob.list("atomic/"):
                assert entry.size == len(value), "a listing shows part of an object"

    _beside_each_other(new, work, threads)


def _only_the_next_version_is_accepted(new: Callable[[], Consensus]) -> None:
    ours, theirs = new(), new()
    assert ours.head("next/k") is None
    for number in (1, 5, -1, 2**70):
        assert _set(ours, "next/k", number) is CasResult.MISMATCH, f"v{number} came first"
    assert ours.head("next/k") is None
    assert _set(ours, "next/k", 0, b"ours") is CasResult.COMMITTED
    assert theirs.head("next/k") == Versioned(SeqNo(0), b"ours"), "another handle does not see it"
    # The loser of a race changes nothing, even with the very same bytes.
    assert _set(theirs, "next/k", 0, b"theirs") is CasResult.MISMATCH
    assert _set(ours, "next/k", 0, b"ours") is CasResult.MISMATCH
    assert _set(theirs, "next/k", 2) is CasResult.MISMATCH
    assert _set(theirs, "next/k", 1, b"theirs") is CasResult.COMMITTED
    assert ours.head("next/k") == Versioned(SeqNo(1), b"theirs")
    assert ours.head("next/other") is None, "one key's versions are not another's"
    assert [*ours.scan("next/k", SeqNo(0), 10)] == [
        Versioned(SeqNo(0), b"ours"),
        Versioned(SeqNo(1), b"theirs"),
    ]


def _scans_respect_start_and_limit(new: Callable[[], Consensus]) -> None:
    consensus = new()
    _fill(consensus, "scan/k", 5)
    for start, limit, expected in (
        (0, 5, [0, 1, 2, 3, 4]),
        (0, 100, [0, 1, 2, 3, 4]),
        (0, 2**70, [0, 1, 2, 3, 4]),
        (0, 2, [0, 1]),
        (3, 10, [3, 4]),
        (4, 1, [4]),
        (5, 10, []),
        (2**70, 10, []),
        (2, 0, []),
        (2, -1, []),
    ):
        found = [version.seqno.number for version in consensus.scan("scan/k", SeqNo(start), limit)]
        assert found == expected, f"scan from {start} limit {limit} gave {found}"
    assert [*consensus.scan("scan/none", SeqNo(0), 10)] == []


def _truncating_keeps_the_head(new: Callable[[], Consensus]) -> None:
    ours, theirs = new(), new()
    _fill(ours, "truncate/k", 5)
    _fill(ours, "truncate/other", 3)
    for before, left in (
        (0, [0, 1, 2, 3, 4]),
        (2, [2, 3, 4]),
        (2, [2, 3, 4]),
        (1, [2, 3, 4]),
        (4, [4]),
        (5, [4]),
        (2**70, [4]),
    ):
        theirs.truncate("truncate/k", SeqNo(before))
        found = [version.seqno.number for version in ours.scan("truncate/k", SeqNo(0), 10)]
        assert found == left, f"truncate before {before} left {found}"
    assert ours.head("truncate/k") == Versioned(SeqNo(4), b"4")
    assert len(ours.scan("truncate/other", SeqNo(0), 10)) == 3, "another key was truncated"
    # A stale initialisation finds the head, however much was truncated (S36).
    for number in (0, 1, 2, 3, 4, 6):
        assert _set(ours, "truncate/k", number) is CasResult.MISMATCH, f"v{number} came again"
    assert _set(ours, "truncate/k", 5) is CasResult.COMMITTED
    ours.truncate("truncate/none", SeqNo(3))
    assert ours.head("truncate/none") is None


def _keys_are_sorted_and_found_by_prefix(new: Callable[[], Consensus]) -> None:
    consensus = new()
    names = ["keys/z", "keys/a", "keys/ab", "keys/a/b", "keys/A", "keys/_", "keys.x", "keysy"]
    for name in names:
        _fill(consensus, name, 3)
        consensus.truncate(name, SeqNo(2))
    _set(consensus, "keys/loser", 7)
    consensus.head("keys/looked")
    for prefix in ("keys", "keys/", "keys/a", "keys/a/", "keys/ab", "keys/none", "keys."):
        expected = sorted(name for name in names if name.startswith(prefix))
        assert [*consensus.keys(prefix)] == expected, f"keys with prefix {prefix!r}"
    everything = [*consensus.keys("")]
    assert everything == sorted(everything)
    assert set(names) <= set(everything)


def _versions_hold_any_bytes(new: Callable[[], Consensus]) -> None:
    ours, theirs = new(), new()
    values = (b"", b"\0", b"'; drop table versions; --", bytes(range(256)) * (1 << 12))
    for number, value in enumerate(values):
        assert _set(ours, "bytes/k", number, value) is CasResult.COMMITTED
        head = theirs.head("bytes/k")
        assert head is not None
        assert head.data == value
        assert isinstance(head.data, bytes)


def _bad_consensus_keys_are_refused(new: Callable[[], Consensus]) -> None:
    consensus = new()
    before = [*consensus.keys("")]
    for key in BAD_KEYS:
        _refused(consensus.head, key)
        _refused(consensus.compare_and_set, key, Versioned(SeqNo(0), b"x"))
        _refused(consensus.scan, key, SeqNo(0), 1)
        _refused(consensus.truncate, key, SeqNo(1))
        if key not in ("", "a/"):  # Those two are good prefixes.
            _refused(consensus.keys, key)
    assert [*consensus.keys("")] == before, "a refused call wrote something"


def _the_clock_is_in_milliseconds(new: Callable[[], Consensus]) -> None:
    now = new().now_ms()
    assert isinstance(now, int)
    assert 0 <= now < 1 << 45, f"{now} are not milliseconds since 1970"


def _closing_one_handle_leaves_the_versions(new: Callable[[], Consensus]) -> None:
    ours, theirs = new(), new()
    _fill(ours, "close/k", 2)
    ours.close()
    ours.close()
    assert _set(theirs, "close/k", 2, b"2") is CasResult.COMMITTED
    assert new().head("close/k") == Versioned(SeqNo(2), b"2")


def _racing_versions_tile_without_gap(new: Callable[[], Consensus], threads: int) -> None:
    each = 25

    def work(consensus: Consensus, number: int) -> None:
        won = 0
        for turn in count():
            head = consensus.head("race/k")
            seqno = SeqNo(0) if head is None else head.seqno.next()
            new = Versioned(seqno, f"{number} {turn}".encode())
            if consensus.compare_and_set("race/k", new) is CasResult.COMMITTED:
                won += 1
                found = consensus.scan("race/k", seqno, 1)
                assert [*found] == [new], "a committed version is not what was set"
            if won == each:
                return

    _beside_each_other(new, work, threads)
    versions = new().scan("race/k", SeqNo(0), 10 * each * threads)
    assert [v.seqno.number for v in versions] == [*range(each * threads)]
    assert len({v.data for v in versions}) == each * threads, "a version was set twice"


def _beside_each_other(
    new: Callable[[], _Client], work: Callable[[_Client, int], None], threads: int
) -> None:
    """Run `work` in that many threads, half of which share a handle; raise what they raised."""
    shared = new()
    clients = [shared if number % 2 else new() for number in range(threads)]
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            work(clients[number], number)
        except BaseException as error:
            errors.append(error)

    started = [threading.Thread(target=run, args=(number,)) for number in range(threads)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    if errors:
        raise errors[0]


def _set(consensus: Consensus, key: str, number: int, value: bytes = b"x") -> CasResult:
    return consensus.compare_and_set(key, Versioned(SeqNo(number), value))


def _fill(consensus: Consensus, key: str, versions: int) -> None:
    for number in range(versions):
        set_to = _set(consensus, key, number, str(number).encode())
        assert set_to is CasResult.COMMITTED, f"{key} v{number} could not be set"


def _refused(call: Callable[..., object], key: str, *rest: object) -> None:
    try:
        call(key, *rest)
    except NameRefusedError:
        return
    raise AssertionError(f"{call} did not refuse key {key!r}")
