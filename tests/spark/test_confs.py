"""Settings are chosen by facts, and the user's go first."""

from __future__ import annotations

import pytest

from strandline.spark.confs import at_any_time, at_start, cores_of, is_local, merged

SHUFFLE = "spark.sql.shuffle.partitions"
OPTIONS = "spark.driver.extraJavaOptions"


@pytest.mark.parametrize(
    ("master", "local", "cores"),
    [
        ("local", True, 1),
        ("local[2]", True, 2),
        ("local[*]", True, 8),
        ("local[*, 3]", True, 8),
        ("local[4,2]", True, 4),
        ("local-cluster[2,1,1024]", False, None),
        ("spark://local:7077", False, None),
        ("yarn", False, None),
        ("", False, None),
    ],
)
def test_only_a_local_master_has_a_known_number_of_cores(master, local, cores):
    assert is_local(master) == local
    assert cores_of(master, 8) == cores


@pytest.mark.parametrize(("cores", "partitions"), [(1, "2"), (8, "16"), (None, None)])
def test_shuffles_follow_the_cores_where_they_are_known(cores, partitions):
    assert at_any_time((4, 3), cores).get(SHUFFLE) == partitions


def test_a_setting_that_an_older_spark_does_not_know_is_left_out():
    newer = at_any_time((4, 3), None).keys() - at_any_time((4, 2), None).keys()
    assert newer == {"spark.sql.optimizer.singleTaskExecution.enabled"}


def test_progress_is_for_terminals_only():
    shown = [at_start("local", terminal=watched, log_config="x") for watched in (True, False)]
    assert [each["spark.ui.showConsoleProgress"] for each in shown] == ["true", "false"]


@pytest.mark.parametrize(("master", "alone"), [("local[2]", True), ("spark://x:7077", False)])
def test_only_a_local_master_listens_on_loopback_alone(master, alone):
    settings = at_start(master, terminal=False, log_config="x")
    assert ("spark.driver.bindAddress" in settings) == alone
    assert ("spark.authenticate" in settings) == alone


def test_the_users_settings_win_and_options_for_java_add_up():
    ours = {"a": "1", "b": "2", OPTIONS: "-Dours"}
    assert merged(ours, {"b": True, "c": 3, OPTIONS: "-Dtheirs"}) == {
        "a": "1",
        "b": "true",
        "c": "3",
        OPTIONS: "-Dours -Dtheirs",
    }
