"""The verb `pack`: an archive of this package for the executors of a cluster."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

from strandline.cli.render import counted, pairs, shown, size
from strandline.spark.pack import pack

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from strandline.cli.facts import Document
    from strandline.cli.output import Output


def pack_environment(target: Path | None, extra: Sequence[str], out: Output) -> None:
    """Write the archive, and say what a session has to be given to use it."""
    with out.progress("pack") as step:
        packed = pack(target, extra=extra, report=step)
    python = ".".join(platform.python_version_tuple()[:2])
    document: Document = {
        "archive": str(packed.path),
        "bytes": packed.size,
        "files": packed.files,
        "python": python,
        "versions": dict(packed.versions),
        "settings": packed.settings,
    }
    brought = ", ".join(f"{name} {version}" for name, version in packed.versions.items())
    out.answer(
        document,
        shown(f"{packed.path}: {size(packed.size)}, {counted(packed.files, 'file')}"),
        pairs([("with", brought), ("for", f"Python {python}, as python3 on every executor")]),
        shown("Give your session, or spark-submit --conf:"),
        pairs(packed.settings.items()),
    )
