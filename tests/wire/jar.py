"""Apache's own definitions: the JSON files inside its jars, from Maven's local repository or through `mvn`."""

import json
import re
import shutil
import subprocess
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

ARTIFACTS = (
    "kafka-clients",
    "kafka-metadata",
    "kafka-group-coordinator",
    "kafka-transaction-coordinator",
    "kafka-share-coordinator",
    "kafka-storage",
    "kafka-raft",
    "kafka-server-common",
)
_COMMENT = re.compile(r"(?m)^\s*//.*$")
_TIMEOUT_S = 300


@cache
def jar(artifact: str, version: str) -> Path:
    """The jar of an artifact of org.apache.kafka."""
    folder = Path.home() / ".m2" / "repository" / "org" / "apache" / "kafka" / artifact / version
    path = folder / f"{artifact}-{version}.jar"
    if not path.exists():
        maven = shutil.which("mvn")
        assert maven, "the definitions of Apache Kafka come through Maven: install mvn"
        wanted = f"-Dartifact=org.apache.kafka:{artifact}:{version}"
        command = [maven, "-q", "-B", "dependency:get", "-Dtransitive=false", wanted]
        subprocess.run(command, check=True, timeout=_TIMEOUT_S)
    return path


def parse(text: str) -> dict[str, Any]:
    """A definition, without its comments."""
    found: dict[str, Any] = json.loads(_COMMENT.sub("", text))
    return found


def definitions(version: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """(artifact, definition) of every message that a release has."""
    for artifact in ARTIFACTS:
        with zipfile.ZipFile(jar(artifact, version)) as archive:
            for name in sorted(archive.namelist()):
                if name.endswith(".json") and name.split("/")[-2] in ("message", "metadata"):
                    definition = parse(archive.read(name).decode())
                    if definition.get("validVersions", "none") != "none":
                        yield artifact, definition
