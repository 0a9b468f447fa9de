"""Delta Lake on Spark as a peer: a process of its own that is told what to do, line by line.

It has its own Spark (`make peers`), so what it says is only seconds and counts. While we measure
it does nothing, and the other way round.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    import argparse

_PEERS = Path(__file__).parent.parent / ".peers"
_PROGRAM = Path(__file__).parent / "peers" / "delta.py"


class Delta:
    """A Delta table behind a pipe. Use it with `with`."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        python = _PEERS / "venv" / "bin" / "python"
        jars = sorted((_PEERS / "jars").glob("*.jar"))
        if not python.exists() or not jars:
            raise SystemExit("Delta is not installed: run `make peers`")
        folder.mkdir(parents=True)
        command = [
            *(str(python), str(_PROGRAM), "--folder", str(folder)),
            *("--jars", ",".join(map(str, jars))),
            *("--cores", str(options.cores), "--memory", options.memory),
        ]
        self._log = folder / "log"
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        self._answer()

    def load(self, table: str, plain: Path) -> float:
        """Create a table with deletion vectors from Parquet files; the seconds it took."""
        return float(self._ask(what="load", table=table, plain=str(plain))["seconds"])

    def merge(self, table: str, changes: Path) -> dict[str, float]:
        """MERGE by id: seconds, Spark jobs, and Delta's own counts."""
        return self._ask(what="merge", table=table, plain=str(changes))

    def stream(self, table: str, servers: str, topic: str, rows: int) -> list[float]:
        """MERGE what a topic has since the last time, `rows` a micro-batch; the seconds of each."""
        told = {"servers": servers, "topic": topic, "rows": str(rows)}
        found: Any = self._ask(what="stream", table=table, **told)["batches"]
        return [float(each) for each in found]

    def publish(self, plain: Path, servers: str, topic: str) -> float:
        """Spark's own Kafka sink, at least once, with the rows of Parquet files; the seconds."""
        told = {"plain": str(plain), "servers": servers, "topic": topic}
        return float(self._ask(what="publish", table="", **told)["seconds"])

    def _ask(self, **request: str) -> dict[str, float]:
        assert self._process.stdin is not None
        print(json.dumps(request), file=self._process.stdin, flush=True)
        return self._answer()

    def _answer(self) -> dict[str, float]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                answer: dict[str, float] = json.loads(line)
                return answer
        status, said = self._process.wait(), self._log.read_text()[-4_000:]
        raise SystemExit(f"{said}\nDelta's process ended with status {status}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)
