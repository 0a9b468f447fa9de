"""Builds a Spark session with the settings that matter, or prepares one that the user has.

    spark = strandline.spark.session()                       this machine, all cores
    spark = strandline.spark.session(master="spark://…")     a cluster
    spark = strandline.spark.session(connect="sc://host")    Spark Connect
    strandline.spark.register(spark)                         a session that is there already

Java is looked for before Spark starts, because what Spark says without one helps nobody.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from strandline.config import name_worker_python, prefer_python_of, spark_is_chosen
from strandline.errors import NotInstalledError, UsageError
from strandline.spark.confs import (
    ALONE,
    at_any_time,
    at_start,
    cores_of,
    is_given,
    is_local,
    merged,
)
from strandline.spark.cores import cores_for
from strandline.spark.java import require_java
from strandline.spark.runtime import pyspark_trouble, release

try:
    import pyspark
    from pyspark.errors import AnalysisException
    from pyspark.sql import SparkSession

    from strandline.spark.source import StrandlineSource
except ModuleNotFoundError as missing:
    raise NotInstalledError(str(pyspark_trouble(None))) from missing

if TYPE_CHECKING:
    from strandline.spark.confs import Settings

_LOG_CONFIG = Path(__file__).with_name("log4j2.properties")


def session(
    app: str = "strandline",
    *,
    master: str | None = None,
    connect: str | None = None,
    settings: Settings | None = None,
) -> SparkSession:
    """A session with the settings that were measured to matter, registered; yours to stop.

    Without `master` and `connect` it is what the launcher or the environment chose, a session that
    runs already, or else this machine with all its cores. `settings` go before ours. Spark logs
    errors only (`settings={"spark.log.level": "WARN"}` for more), and on a terminal long stages
    show their progress.
    """
    if master is not None and connect is not None:
        raise UsageError("a session has a master or a Connect address: leave one of them out")
    if trouble := pyspark_trouble(pyspark.__version__):
        raise NotInstalledError(trouble)
    # Spark warns of a pandas that we do not use, when it starts and at every job of ours. Whoever
    # has a filter of their own for it keeps it.
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", append=True)
    if connect is not None:
        return register(_connected(app, connect, settings or {}))
    return register(_started(app, master, settings or {}))


def register(spark: SparkSession) -> SparkSession:
    """Prepare a session for tables of Strandline, and return it.

    Only settings that a running session can change are made, and none that was made explicitly:
    the user's choice stays, also where it is slower.
    """
    configure(spark)
    # What `spark.read.format("strandline")` and its siblings find by name.
    spark.dataSource.register(StrandlineSource)
    return spark


def configure(spark: SparkSession) -> None:
    """Make the settings that a running session can be given, unless they were made explicitly."""
    chosen = spark.conf.getAll
    master = chosen.get("spark.master", "")
    cores = cores_of(master, cores_for(spark))
    for name, value in at_any_time(release(spark.version), cores).items():
        if name not in chosen:
            spark.conf.set(name, value)


def _connected(app: str, address: str, settings: Settings) -> SparkSession:
    builder = SparkSession.builder.remote(address).appName(app)
    for name, value in merged({}, settings).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _started(app: str, master: str | None, settings: Settings) -> SparkSession:
    running = SparkSession.getActiveSession()
    if running is not None:
        return _joined(running, master, settings)
    builder = SparkSession.builder.appName(app)
    if master is None and not spark_is_chosen():
        master = "local[*]"
    if master is not None:
        builder = builder.master(master)
        require_java()
        # For a session of this machine too: its Java, with its path, serves the next one.
        prefer_python_of(sys.executable)
        if is_local(master):
            name_worker_python(sys.executable)
    ours = {}
    if master is not None:
        ours = at_start(master, terminal=sys.stderr.isatty(), log_config=_LOG_CONFIG.as_uri())
    for name, value in merged(ours, settings).items():
        builder = builder.config(name, value)
    made = builder.getOrCreate()
    _forget(made, [name for name in ALONE if name in ours and name not in settings])
    return made


def _forget(spark: SparkSession, names: list[str]) -> None:
    """Java keeps what it was started with for all its sessions: the next may be a cluster's.

    It would look for a cluster on this machine alone, or be asked for a secret that it never got.
    No public call does it, so this is the one place that reaches behind them (decision 0015): for
    a session that we started ourselves on this machine, and never for one of Spark Connect.
    """
    if not names:
        return
    # Another Spark may not have it: then the next session of this process is what suffers.
    java = getattr(spark.sparkContext, "_jvm", None)
    if java is None:
        return
    system = java.java.lang.System
    if system.getProperty("spark.authenticate.secret") is None:
        for name in names:
            system.clearProperty(name)


def _joined(running: SparkSession, master: str | None, settings: Settings) -> SparkSession:
    """The session that runs already: Spark allows one in a process, and would not say so."""
    there = running.conf.get("spark.master", "")
    if master is not None and master != there:
        raise UsageError(
            f"a session with master {there} runs in this process: stop it before you ask for "
            f"{master}, or leave out master= to use it"
        )
    for name, value in merged({}, settings).items():
        known = running.conf.get(name, None)
        # What it was started with may be asked for again: the same cell of a notebook is.
        if known is not None and is_given(name, value, known):
            continue
        try:
            running.conf.set(name, value)
        except AnalysisException as error:
            if not (error.getCondition() or "").startswith("CANNOT_MODIFY"):
                raise
            there = "without it" if known is None else f"with {known}"
            raise UsageError(
                f"setting {name} is for the start of a session, and the one that runs in this "
                f"process was started {there}: stop it before you ask for {value}, or leave it out"
            ) from error
    return running
