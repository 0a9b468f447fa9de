"""A session has the settings that it promises, in this process and after it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from tests.jvm import DRIVER

import strandline
from strandline.errors import UsageError
from strandline.spark import register, session
from strandline.spark.confs import at_any_time
from strandline.spark.runtime import release
from strandline.spark.sessions import _forget
from strandline.system import SystemClock, SystemTasks

PATIENCE_MS = 60_000


@pytest.mark.floor
def test_a_session_has_every_setting_under_a_name_that_spark_knows(spark):
    for name, value in at_any_time(release(spark.version), None).items():
        assert spark.conf.get(name) == value
        assert spark.conf.isModifiable(name), f"Spark does not know {name}"


@pytest.mark.floor
def test_workers_run_the_interpreter_of_the_driver(spark):
    def tell(batches):
        import sys

        for batch in batches:
            yield pa.RecordBatch.from_pydict({"program": [sys.executable] * batch.num_rows})

    found = spark.range(1).mapInArrow(tell, "program string").collect()
    assert [row.program for row in found] == [sys.executable]


def test_a_running_session_is_joined_and_keeps_what_was_set(spark):
    assert session() is spark
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"


def test_a_running_session_is_joined_with_the_settings_that_it_was_started_with(spark):
    same = {"spark.sql.shuffle.partitions": 2, "spark.app.name": "tests", **DRIVER}
    assert session("tests", master="local[2]", settings=same) is spark
    assert session(settings={"spark.sql.shuffle.partitions": "3", "spark.mine": "x"}) is spark
    assert spark.conf.get("spark.sql.shuffle.partitions") == "3"
    spark.conf.set("spark.sql.shuffle.partitions", "2")


@pytest.mark.parametrize("name", ["spark.driver.memory", "spark.driver.extraJavaOptions"])
def test_what_a_running_session_can_no_longer_be_given_is_refused_by_name(spark, name):
    with pytest.raises(UsageError, match=rf"setting {name} is for the start .* stop it before"):
        session(settings={name: "-Xss9m"})


def test_another_master_beside_a_running_session_is_refused(spark):
    with pytest.raises(UsageError, match=r"local\[2\] runs in this process: stop it"):
        session(master="local[1]")


def test_register_leaves_explicit_settings_and_makes_the_others(spark):
    name = "spark.sql.sources.parallelPartitionDiscovery.threshold"
    zone = "spark.sql.session.timeZone"
    spark.conf.unset(name)
    spark.conf.set(zone, "Europe/Berlin")
    try:
        assert register(spark) is spark
        assert spark.conf.get(zone) == "Europe/Berlin"
        assert spark.conf.get(name) == "1000"
    finally:
        spark.conf.set(zone, "UTC")


def test_a_master_and_a_connect_address_exclude_each_other():
    with pytest.raises(UsageError, match="leave one of them out"):
        session(master="local", connect="sc://localhost")


BEHIND = re.compile(r"(?:import|from) py4j|\b_(?:jvm|jsc|jdf|jc|jsparkSession|jconf|gateway)\b")


def test_only_one_line_reaches_behind_the_public_calls_of_spark():
    """Spark Connect has none of what lies there; decision 0015 says why this line has to."""
    source = Path(strandline.__file__).parent
    found = [
        (str(path.relative_to(source)), line.strip())
        for path in sorted(source.rglob("*.py"))
        for line in path.read_text().splitlines()
        if BEHIND.search(line)
    ]
    assert found == [
        ("spark/sessions.py", 'java = getattr(spark.sparkContext, "_jvm", None)'),
    ]


class Java:
    """A Java with system properties."""

    def __init__(self, **properties: str) -> None:
        self.java = SimpleNamespace(lang=SimpleNamespace(System=self))
        self.properties = {name.replace("_", "."): value for name, value in properties.items()}

    def getProperty(self, name: str) -> str | None:  # noqa: N802 - Java's name
        return self.properties.get(name)

    def clearProperty(self, name: str) -> None:  # noqa: N802 - Java's name
        self.properties.pop(name, None)


def holding(java: Java | None) -> SimpleNamespace:
    return SimpleNamespace(sparkContext=SimpleNamespace(_jvm=java))


def test_a_java_forgets_what_its_first_session_had_alone_unless_a_secret_was_given():
    java = Java(spark_authenticate="true", spark_driver_host="localhost", spark_app_name="x")
    _forget(holding(java), ["spark.authenticate", "spark.driver.host"])
    assert java.properties == {"spark.app.name": "x"}
    told = Java(spark_authenticate="true", spark_authenticate_secret="s")
    _forget(holding(told), ["spark.authenticate"])
    assert set(told.properties) == {"spark.authenticate", "spark.authenticate.secret"}


@pytest.mark.parametrize("session", [SimpleNamespace(sparkContext=object()), holding(None)])
def test_a_spark_that_has_no_java_to_reach_is_left_alone(session):
    _forget(session, ["spark.authenticate"])
    _forget(SimpleNamespace(), [])


def run(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )


@pytest.mark.process
def test_without_java_the_error_is_ours_and_comes_before_sparks(tmp_path):
    script = """
        import strandline
        from strandline.spark import session
        try:
            session()
        except strandline.NotInstalledError as error:
            print(error)
    """
    answer = run(script, JAVA_HOME=str(tmp_path))
    assert f"JAVA_HOME is {tmp_path}" in answer.stdout
    assert answer.stderr == ""


@pytest.mark.process
def test_without_pyspark_the_error_says_how_to_get_it():
    script = """
        import sys
        sys.modules["pyspark"] = None
        import strandline.spark
        try:
            strandline.spark.session
        except strandline.NotInstalledError as error:
            print(error)
    """
    assert "pip install 'strandline[spark]'" in run(script).stdout


@pytest.mark.process
@pytest.mark.spark
def test_a_killed_program_leaves_no_jvm_and_a_living_one_says_nothing(tmp_path):
    """The JVM must go with its Python, however that ended."""
    script = """
        import os, sys
        from pathlib import Path
        from strandline.spark import session
        spark = session(master="local[1]")
        assert spark.range(3).count() == 3
        tasks = Path("/proc/self/task").glob("*/children")
        print(*[pid for each in tasks for pid in each.read_text().split()], flush=True)
        sys.stdin.read()
    """
    with (tmp_path / "said").open("w+") as errors:
        started = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        try:
            children = started.stdout.readline().split()
            # Before it is killed: its Python workers complain of their JVM's death, as they may.
            said = (tmp_path / "said").read_text()
        finally:
            started.kill()
            started.communicate()
    assert children, said
    # The one line that nobody can turn off: the JVM prints it before it reads any option of ours.
    assert [line for line in said.splitlines() if "incubator modules" not in line] == []
    clock, tasks = SystemClock(), SystemTasks()
    deadline = clock.monotonic_ms() + PATIENCE_MS
    while alive := [pid for pid in children if Path("/proc", pid).exists()]:
        assert clock.monotonic_ms() < deadline, f"{alive} outlived the program that started them"
        tasks.sleep(50)
