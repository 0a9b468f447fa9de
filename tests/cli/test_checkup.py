"""What a measurement means, and what to do about it."""

from __future__ import annotations

import pytest

from strandline.cli import checkup

MOUNTS = """\
/dev/sda1 / ext4 rw 0 0
server:/export /data nfs4 rw 0 0
/dev/sdb1 /data/fast xfs rw 0 0
tmpfs /my\\040place tmpfs rw 0 0
broken
"""


@pytest.mark.parametrize(
    ("finding", "status"),
    [
        (checkup.package_finding("pyarrow", "26.0"), "ok"),
        (checkup.package_finding("pyarrow", None), "fail"),
        (checkup.optional_finding("java", "17.0.15", None), "ok"),
        (checkup.optional_finding("java", "none", "install it"), "warn"),
        (checkup.spark_finding(None), "ok"),
        (checkup.spark_finding("spark.master local[4]\n# spark.authenticate true\n"), "ok"),
        (checkup.spark_finding("spark.master=spark://h:7077"), "warn"),
        (checkup.spark_finding("spark.master yarn\nspark.authenticate\tfalse"), "warn"),
        (checkup.spark_finding("spark.master  yarn\nspark.authenticate  true\n"), "ok"),
        (checkup.files_finding(1024, 4096), "ok"),
        (checkup.files_finding(-1, -1), "ok"),
        (checkup.files_finding(256, 4096), "warn"),
        (checkup.files_finding(256, -1), "warn"),
        (checkup.space_finding(10**12), "ok"),
        (checkup.space_finding(10**8), "warn"),
        (checkup.space_finding(0), "fail"),
        (checkup.disk_finding(0.4), "ok"),
        (checkup.disk_finding(80), "warn"),
        (checkup.filesystem_finding("ext4"), "ok"),
        (checkup.filesystem_finding(""), "ok"),
        (checkup.filesystem_finding("nfs4"), "warn"),
        (checkup.filesystem_finding("fuse.sshfs"), "warn"),
        (checkup.filesystem_finding("tmpfs"), "warn"),
        (checkup.sqlite_finding("3.45", "wal"), "ok"),
        (checkup.sqlite_finding("3.45", "delete"), "warn"),
        (checkup.clock_finding(10_000, 9_000, 9_500), "ok"),
        (checkup.clock_finding(10_000, 9_000, None), "ok"),
        (checkup.clock_finding(100_000, 9_000, None), "warn"),
        (checkup.clock_finding(9_000, 100_000, None), "warn"),
        (checkup.clock_finding(10_000, 10_000, 500_000), "warn"),
    ],
)
def test_a_finding_that_is_not_well_says_what_to_do(finding, status):
    assert finding.status == status
    assert bool(finding.advice) == (status != "ok")
    assert finding.document()["status"] == status


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/srv/lake", "ext4"),
        ("/data/lake", "nfs4"),
        ("/data", "nfs4"),
        ("/database", "ext4"),
        ("/data/fast/lake", "xfs"),
        ("/my place/lake", "tmpfs"),
    ],
)
def test_the_longest_mount_point_above_a_path_decides(path, kind):
    assert checkup.mount_of(path, MOUNTS) == kind


def test_without_mounts_nothing_is_known():
    assert checkup.mount_of("/data", "") == ""


@pytest.mark.parametrize(
    ("total", "limit", "status", "words"),
    [
        (None, None, "ok", "not known"),
        (8_000_000_000, None, "ok", "8.0 GB"),
        (8_000_000_000, 4_000_000_000, "ok", "4.0 GB, a limit of this container"),
        (8_000_000_000, 500_000_000, "warn", "500 MB, a limit"),
        (1_000_000_000, None, "warn", "1.0 GB"),
    ],
)
def test_memory_is_the_machines_or_the_containers(total, limit, status, words):
    found = checkup.memory_finding(total, limit)
    assert found.status == status
    assert words in found.found
    assert bool(found.advice) == (status == "warn")
