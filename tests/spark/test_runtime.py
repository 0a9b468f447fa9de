"""What is wrong with a Java or a pyspark, and what to do about it."""

from __future__ import annotations

import pytest

from strandline.spark.runtime import Java, java_trouble, java_version, pyspark_trouble


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', "17.0.15"),
        ('openjdk version "21" 2023-09-19', "21"),
        ('openjdk version "22-ea" 2024-03-19', "22"),
        ('java version "1.8.0_392"\nJava(TM) SE', "8.0_392"),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "25.0.1" 2025', "25.0.1"),
        ("Unable to locate a Java Runtime.", None),
        ("", None),
    ],
)
def test_a_version_is_read_from_what_java_says(said, version):
    assert java_version(said) == version


@pytest.mark.parametrize(
    ("java", "words"),
    [
        (Java(), ["none on the path", "apt-get install openjdk-17-jre-headless", "JAVA_HOME"]),
        (Java(home="/opt/none"), ["JAVA_HOME is /opt/none", "unset it"]),
        (Java(program="/bin/java", said='version "1.8.0_392"'), ["/bin/java is Java 8", "17"]),
        (Java("/opt/j", "/opt/j/bin/java", 'version "11.0.2"'), ["is Java 11.0.2", "JAVA_HOME"]),
        (Java(program="/bin/java", said="no runtime"), ["/bin/java does not say", "install"]),
    ],
)
def test_a_java_that_spark_cannot_use_is_named_with_the_remedy(java, words):
    trouble = java_trouble(java)
    assert trouble is not None
    assert [word for word in words if word not in trouble] == []


@pytest.mark.parametrize("version", ["17.0.15", "17", "21.0.1", "25-ea"])
def test_a_java_of_17_or_newer_is_fine(version):
    assert java_trouble(Java(program="/bin/java", said=f'openjdk version "{version}" x')) is None


@pytest.mark.parametrize(
    ("version", "word"), [(None, "strandline[spark]"), ("4.1.4", "4.2"), ("3.5.9", "upgrade")]
)
def test_a_pyspark_that_is_missing_or_too_old_is_named_with_the_remedy(version, word):
    assert word in str(pyspark_trouble(version))


@pytest.mark.parametrize("version", ["4.2.0", "4.3.0", "4.10.0", "5.0.0.dev1"])
def test_a_pyspark_from_the_floor_on_is_fine(version):
    assert pyspark_trouble(version) is None
