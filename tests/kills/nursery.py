"""One process that loads Strandline once, and forks replicas off: `python -m tests.kills.nursery`.

Loading takes a second, and what is tested begins after it. A replica that is forked is a process
like any other: a session of its own, its own files, killed like any other. Lines of JSON come in,
one for each replica; its process id goes out. Everybody here ends with whoever started it.

`python -m tests.kills.nursery arrow run …` is the command `strandline run …` in a process of its
own; `spark:4` in place of `arrow` is Spark with so many cores, and `arrow!some_mutant` has that one
thing wrong. `publisher` is a publisher alone: see `dying`.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

_PARENT_DEATH = 1


def tie() -> None:
    """Let the kernel kill this process when its parent dies (PR_SET_PDEATHSIG)."""
    ctypes.CDLL(None).prctl(_PARENT_DEATH, signal.SIGKILL)


def enter(engine: str, words: Sequence[str]) -> int:
    """The command, in this process; its last line says how it ended."""
    code = _command(engine, words)
    sys.stdout.write(json.dumps({"kind": "exit", "code": code}) + "\n")
    sys.stdout.flush()
    return code


def _command(engine: str, words: Sequence[str]) -> int:
    if engine == "publisher":
        from tests.kills.dying import publish

        return publish(*words)
    from strandline.cli.main import main

    name, _, cores = engine.partition(":")
    if name.startswith("arrow"):
        plant(name.partition("!")[2])
        from strandline.testing.engines import arrow_engine

        return main(list(words), engine=arrow_engine)
    from tests.jvm import DRIVER

    from strandline.spark import session

    settings = {"spark.sql.shuffle.partitions": cores, **DRIVER}
    session("kills", master=f"local[{cores}]", settings=settings)
    return main(list(words))


def plant(mutant: str) -> None:
    """Make one thing wrong in this process, for good; nothing if none is named."""
    if mutant:
        from strandline.testing.mutants import Planting, all_mutants

        (wrong,) = [each for each in all_mutants() if each.name == mutant]
        wrong.plant(Planting())


def breed() -> None:
    import tests.kills.dying  # noqa: F401 - loaded for those who are forked

    import strandline.assembly
    import strandline.cli.running
    import strandline.cli.serving
    import strandline.pipeline.pipeline
    import strandline.testing.engines  # noqa: F401 - the same

    # Nobody waits for those who end; whoever started them watches.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        wanted = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _live(wanted["words"], Path(wanted["out"]), wanted["env"])
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()


def _live(words: Sequence[str], out: Path, env: dict[str, str]) -> None:
    tie()
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.environ.update(env)
    nothing = os.open(os.devnull, os.O_RDONLY)
    said = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    errors = os.open(f"{out}.errors", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for place, file in enumerate((nothing, said, errors)):
        os.dup2(file, place)
    code = 70
    try:
        code = enter(words[0], words[1:])
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    tie()
    if len(sys.argv) > 1:
        sys.exit(enter(sys.argv[1], sys.argv[2:]))
    breed()
