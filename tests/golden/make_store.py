"""Writes tests/golden/stores/format1.tar.xz: a whole small store as format 1 keeps it.

Run it only when there is a new format, under a new name: what is there stays readable for ever.
`format1.json` says what a reader must see.
"""

from __future__ import annotations

import json
import tarfile
import tempfile
from pathlib import Path

from strandline.store.locate import open_folder
from strandline.testing.specimen import fill, open_ports, read_all

HERE = Path(__file__).parent / "stores"


def main() -> None:
    HERE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        lake = Path(scratch) / "lake"
        with open_ports(*open_folder(str(lake), create=True)) as store:
            fill(store)
            content = read_all(store)
        with tarfile.open(HERE / "format1.tar.xz", "w:xz") as archive:
            archive.add(lake, "lake", filter=_anonymous)
    (HERE / "format1.json").write_text(json.dumps(content, indent=0, sort_keys=True) + "\n")


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    return entry


if __name__ == "__main__":
    main()
