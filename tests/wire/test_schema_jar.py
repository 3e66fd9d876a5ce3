"""Every message against the JSON definitions in Apache Kafka's jars, and its bytes against Apache's own classes."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ottla.wire.api import API
from ottla.wire.compile import decode, encode
from ottla.wire.record.metadata import RECORDS as METADATA
from ottla.wire.record.offset import RECORDS as OFFSETS
from ottla.wire.record.share import RECORDS as SHARE
from ottla.wire.record.transaction import RECORDS as TRANSACTIONS
from ottla.wire.schema import schema, span
from tests.wire.definition import CHANGED_SINCE_4_3_1, differences
from tests.wire.jar import ARTIFACTS, definitions, jar
from tests.wire.value import classes, message, seeded

pytestmark = [pytest.mark.interop, pytest.mark.timeout(400)]

HERE = Path(__file__).parent
#: In which package of Apache's the classes of an artifact are.
PACKAGES = {
    "kafka-clients": "org.apache.kafka.common.message",
    "kafka-metadata": "org.apache.kafka.common.metadata",
    "kafka-group-coordinator": "org.apache.kafka.coordinator.group.generated",
    "kafka-transaction-coordinator": "org.apache.kafka.coordinator.transaction.generated",
    "kafka-share-coordinator": "org.apache.kafka.coordinator.share.generated",
    "kafka-storage": "org.apache.kafka.server.log.remote.metadata.storage.generated",
    "kafka-raft": "org.apache.kafka.raft.generated",
}


@pytest.mark.parametrize(("release", "changed"), [("4.3.1", CHANGED_SINCE_4_3_1), ("4.4.0", frozenset())])
def test_every_definition_in_the_jars_is_declared_as_it_stands_there(release: str, changed: frozenset[str]) -> None:
    ours = classes()
    theirs = {definition["name"]: definition for _, definition in definitions(release)}
    wrong = [f"{name} is missing" for name in theirs if name not in ours]
    for name, definition in theirs.items():
        if name in ours:
            wrong += differences(ours[name], definition, whole=release == "4.4.0")
    assert {each.partition(":")[0] for each in wrong} == changed, "\n".join(wrong)
    assert len(theirs) > 260


def test_nothing_is_declared_that_apache_does_not_have() -> None:
    assert not set(classes()) - {definition["name"] for _, definition in definitions("4.4.0")}


@pytest.mark.parametrize("release", ["4.3.1", "4.4.0"])
def test_the_table_of_apis_is_apaches(release: str) -> None:
    requests = {each["apiKey"]: each for _, each in definitions(release) if each.get("type") == "request"}
    for key, definition in requests.items():
        api = API[key]
        assert api.name + "Request" == definition["name"]
        assert (api.versions if release == "4.3.1" else api.preview) == span(definition["validVersions"])
        flexible = definition["flexibleVersions"]
        assert api.flexible_from == (None if flexible == "none" else int(flexible.rstrip("+")))
        assert api.listeners == set(definition["listeners"])
        assert api.latest_unstable == bool(definition.get("latestVersionUnstable", False))
    served = {key for key, api in API.items() if (api.versions if release == "4.3.1" else api.preview)}
    assert served == set(requests)


def test_the_types_of_records_are_apaches() -> None:
    keys = {definition["name"]: definition.get("apiKey") for _, definition in definitions("4.4.0")}
    assert {cls.__name__: key for key, cls in METADATA.items()}.items() <= keys.items()
    for records in (OFFSETS, TRANSACTIONS, SHARE):
        for key, types in records.types.items():
            assert [keys[cls.__name__] for cls in types] == [key, key]


@pytest.mark.parametrize("release", ["4.3.1", "4.4.0"])
def test_apaches_classes_read_what_we_write_and_write_the_same(release: str, tmp_path: Path) -> None:
    assert shutil.which("java"), "Apache's classes need a Java runtime"
    where: dict[str, tuple[str, range]] = {}
    for artifact, definition in definitions(release):
        suffix = "Data" if definition["type"] in ("request", "response", "header") else ""
        name = f"{PACKAGES[artifact]}.{definition['name']}{suffix}"
        where[definition["name"]] = (name, span(definition["validVersions"]))
    sent: list[tuple[Any, int, bytes]] = []
    lines = []
    for cls, version, rng in seeded():
        name, versions = where.get(cls.__name__, ("", range(0)))
        for _ in range(4 if version in versions else 0):
            data = encode(message(cls, version, rng, unknown=True), version)
            sent.append((cls, version, data))
            lines.append(f"{name} {version} {data.hex()}")
    (tmp_path / "messages").write_text("\n".join(lines) + "\n")
    classpath = ":".join(str(jar(artifact, release)) for artifact in ARTIFACTS)
    command = [
        "java",
        "-Xmx256m",
        "-XX:+UseSerialGC",
        "-cp",
        classpath,
        str(HERE / "Referee.java"),
        str(tmp_path / "messages"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    answers = done.stdout.split("\n")[:-1]
    assert len(answers) == len(sent)
    assert len(sent) > 2000
    wrong = []
    for (cls, version, data), answer in zip(sent, answers, strict=True):
        if answer != data.hex():
            wrong.append(f"{cls.__name__} {version}: {answer[:300]} for {data.hex()[:300]}")
        else:
            assert schema(cls).versions
            assert encode(decode(cls, version, bytes.fromhex(answer))[0], version) == data
    assert not wrong, "\n".join(wrong[:20])
