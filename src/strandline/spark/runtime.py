"""What is known of a Java or a pyspark, and what is wrong with it. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

JAVA_MIN = 17
PYSPARK_MIN = (4, 2)

_VERSION = re.compile(r'version "(\d+(?:[._]\d+)*)[^"]*"')
_INSTALL = f"install Java {JAVA_MIN} or newer (apt-get install openjdk-{JAVA_MIN}-jre-headless)"


@dataclass(frozen=True, slots=True)
class Java:
    """The Java that Spark would run: that of JAVA_HOME if it is set, else the first on the path.

    `program` is `None` if there is none; `said` is what `java -version` answered, empty if it
    could not be run.
    """

    home: str | None = None
    program: str | None = None
    said: str = ""


def java_version(said: str) -> str | None:
    """The version in an answer to `java -version`; Java 8 and older call themselves 1.x.

    >>> java_version('openjdk version "17.0.15" 2025-04-15')
    '17.0.15'
    >>> java_version('java version "1.8.0_392"')
    '8.0_392'
    """
    found = _VERSION.search(said)
    return found.group(1).removeprefix("1.") if found else None


def java_trouble(java: Java) -> str | None:
    """Why Spark can't run with this Java and what to do, or `None` if it can."""
    if java.program is None and java.home is not None:
        return (
            f"JAVA_HOME is {java.home}, and there is no bin/java in it: "
            f"point it to Java {JAVA_MIN} or newer, or unset it to use the java on the path"
        )
    if java.program is None:
        return f"Spark needs Java, and there is none on the path: {_INSTALL}, or set JAVA_HOME"
    version = java_version(java.said)
    if version is None:
        return f"{java.program} does not say which Java it is: {_INSTALL}, or set JAVA_HOME"
    if int(re.split("[._]", version)[0]) < JAVA_MIN:
        found = f"Spark needs Java {JAVA_MIN} or newer, and {java.program} is Java {version}"
        return f"{found}: {_INSTALL}, or set JAVA_HOME to one"
    return None


def pyspark_trouble(version: str | None) -> str | None:
    """Why this version of pyspark does not do, or `None` if it does."""
    wanted = ".".join(str(number) for number in PYSPARK_MIN)
    if version is None:
        return "pyspark is not installed: pip install 'strandline[spark]'"
    if release(version) < PYSPARK_MIN:
        return f"pyspark is {version}, and {wanted} is the oldest that works: upgrade it"
    return None


def release(version: str) -> tuple[int, int]:
    """The first two numbers of a version.

    >>> release("4.3.0"), release("4.2.0.dev1"), release("5")
    ((4, 3), (4, 2), (5, 0))
    """
    numbers = [int(number) for number in re.findall(r"\d+", version)[:2]]
    first, second, *_ = [*numbers, 0, 0]
    return first, second
