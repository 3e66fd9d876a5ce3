"""What a session is made of, its master, Java and jars, in the words of people and of other programs. No JVM starts."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.client import Results
from ottla.kernel.error import ErrorCode, KafkaError, OttlaError
from ottla.kernel.ids import TopicPartition
from ottla.spark import driver, jar, java
from ottla.spark.jar import Artifact
from ottla.spark.profile import cluster_profile, profile
from ottla.spark.progress import commit_for


@pytest.mark.parametrize(
    ("master", "cores"),
    [
        *((None, os.cpu_count()), ("local", 1), ("local[1]", 1), ("local[16]", 16), ("local[*]", os.cpu_count())),
        *(("local[3,4]", 3), ("local[3, 4]", 3), ("local[*,2]", os.cpu_count())),
        *(("local[]", None), ("local[x]", None), ("local[2", None), ("localhost", None), ("spark://a:1", None)),
    ],
)
def test_a_local_master_has_its_cores(master: str | None, cores: int | None) -> None:
    if cores is not None:
        assert driver.cores_of(master) == cores
        return
    with pytest.raises(OttlaError, match=r"invalid master: .* \(expected local\[N\], spark://HOST:PORT, yarn, k8s"):
        driver.cores_of(master)


@pytest.mark.parametrize("master", ["yarn", "k8s://https://box:443", "local[2]", "local"])
def test_a_master_that_needs_no_answer_is_taken(master: str) -> None:
    driver.check_master(master)


@pytest.mark.parametrize("master", ["spark://", "k8s://", "yarn2", "mesos://a:1", "lokal"])
def test_a_master_of_no_kind_is_refused(master: str) -> None:
    with pytest.raises(OttlaError, match=rf"invalid master: {master} \(expected local\[N\]"):
        driver.check_master(master)


@pytest.mark.parametrize(
    "master", ["spark://here", "spark://:7077", "spark://here:", "spark://here:x", "spark://a:65536", "spark://a:²"]
)
def test_a_master_of_a_cluster_has_a_host_and_a_port(master: str) -> None:
    with pytest.raises(OttlaError, match=rf"invalid master: {master} \(expected spark://HOST:PORT\)"):
        driver.check_master(master)


def test_one_master_of_several_that_answers_is_enough() -> None:
    with socket.socket() as closed, socket.create_server(("127.0.0.1", 0)) as open_:
        closed.bind(("127.0.0.1", 0))  # bound and not listening: refused
        nobody, somebody = (f"127.0.0.1:{each.getsockname()[1]}" for each in (closed, open_))
        driver.check_master(f"spark://{nobody},{somebody}")
        with pytest.raises(OttlaError, match=rf"no Spark master answers at spark://{nobody},{nobody}; check the addr"):
            driver.check_master(f"spark://{nobody},{nobody}")


@pytest.mark.parametrize(
    ("has", "master", "same"),
    [
        *(("local[2,4]", None, True), ("local[2,4]", "local[2]", True), ("local[2,4]", "local", True)),
        *(("spark://a:1", "spark://a:1", True), ("spark://a:1", None, True)),
        *(("spark://a:1", "spark://b:1", False), ("spark://a:1", "local", False), ("local", "yarn", False)),
    ],
)
def test_a_session_is_shared_by_programs_of_its_master(has: str, master: str | None, same: bool) -> None:
    running: Any = SimpleNamespace(sparkContext=SimpleNamespace(master=has))
    if same:
        driver._same_master(running, master)
        driver._same_master(SimpleNamespace(), master)  # type: ignore[arg-type]  # as Spark Connect's, which has none
        return
    with pytest.raises(OttlaError, match=rf"already has a Spark session at {has}; stop it before starting one at"):
        driver._same_master(running, master)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("one.\ntwo", "one"),
        ("\n  one  \n", "one"),
        ("one\nCaused by: it.\nCaused by: more", "Caused by: it"),
        ("one\n: java.io.IOException: no\n at x", "java.io.IOException: no"),
        ("", "ValueError"),
    ],
)
def test_an_error_of_javas_is_told_by_its_cause(text: str, line: str) -> None:
    assert driver._first_line(ValueError(text)) == line


def test_a_session_on_this_machine_and_one_on_a_cluster_differ_in_what_is_theirs() -> None:
    local, cluster = profile(3, "/scratch"), cluster_profile("spark://a:1")
    assert (local["spark.master"], local["spark.sql.shuffle.partitions"]) == ("local[3,4]", "3")
    assert (local["spark.local.dir"], local["spark.sql.warehouse.dir"]) == ("/scratch", "/scratch/warehouse")
    assert cluster["spark.master"] == "spark://a:1"
    assert not {"spark.local.dir", "spark.driver.host", "spark.sql.shuffle.partitions"} & cluster.keys()


# ---- Java


def runtime(home: Path, script: str, release: str | None = None) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    if release is not None:
        (home / "release").write_text(release)
    return program


@pytest.mark.parametrize(
    ("script", "release", "version"),
    [
        ("exit 1", 'JAVA_VERSION="17.0.15"\n', "17.0.15"),
        ("exit 1", 'X="1"\nJAVA_VERSION="21"\n', "21"),
        ("exit 1", "no version", None),
        ("echo 'openjdk version \"25.0.2\" 2026-01-20' >&2", None, "25.0.2"),
        ("echo 'openjdk version \"25.0.2\"'", None, None),
        ("echo 'version \"25.0.2\"' >&2; exit 1", None, None),
    ],
)
def test_the_version_of_a_java_is_in_its_release_or_what_it_says(
    tmp_path: Path, script: str, release: str | None, version: str | None
) -> None:
    assert java._version(runtime(tmp_path, script, release)) == version


def test_a_java_that_may_not_be_run_has_no_version(tmp_path: Path) -> None:
    program = runtime(tmp_path, "exit 0", 'JAVA_VERSION="17"')
    program.chmod(0o644)
    assert java._version(program) is None
    assert java._version(tmp_path / "nowhere" / "bin" / "java") is None


@pytest.mark.parametrize(("version", "taken"), [("16.0.2", False), ("17", True), ("25.0.1", True), ("26", False)])
def test_spark_runs_on_java_17_to_25(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, taken: bool
) -> None:
    program = runtime(tmp_path, "exit 0", f'JAVA_VERSION="{version}"')
    monkeypatch.setattr(java, "_candidates", lambda: iter([("JAVA_HOME", program), ("PATH", tmp_path / "none")]))
    if taken:
        assert java.find() == java.Java(program, version, "JAVA_HOME")
        assert java.find().feature == int(version.partition(".")[0])
        return
    with pytest.raises(OttlaError) as refused:
        java.find()
    assert f"but {program} (JAVA_HOME) is Java {version}; {tmp_path / 'none'} (PATH) does not run;" in str(
        refused.value
    )


# ---- jars


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("a\n\t:: b: not found\nc", "b: not found"),
        ("Server access error at url x\nother", "Server access error at url x"),
        ("a\n last: ", "last"),
        ("", "the resolver had no output"),
    ],
)
def test_the_resolver_is_quoted_by_its_reason(output: str, reason: str) -> None:
    assert jar._reason(output) == reason


@pytest.mark.parametrize(
    ("mirrors", "url"),
    [
        ([("central", "http://one/")], "http://one/"),
        ([("*", "http://one")], "http://one"),
        ([("external:*", "http://one")], "http://one"),
        ([("a, central ,b", " http://one ")], "http://one"),
        ([("other", "http://one"), ("central", "http://two")], "http://two"),
        ([("*,!central", "http://one")], None),
        ([("central", "")], None),
        ([], None),
    ],
)
@pytest.mark.parametrize("space", ["", ' xmlns="http://maven.apache.org/SETTINGS/1.0.0"'])
def test_the_mirror_of_central_is_the_one_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mirrors: list[tuple[str, str]], url: str | None, space: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert jar._mirror() is None
    (tmp_path / ".m2").mkdir()
    listed = "".join(f"<mirror><mirrorOf>{of}</mirrorOf><url>{place}</url></mirror>" for of, place in mirrors)
    (tmp_path / ".m2" / "settings.xml").write_text(f"<settings{space}><mirrors>{listed}</mirrors></settings>")
    assert jar._mirror() == url
    (tmp_path / ".m2" / "settings.xml").write_text("<settings>")
    assert jar._mirror() is None


def test_a_jar_is_the_known_file_or_refused(tmp_path: Path) -> None:
    content = b"jar"
    known = "2fd4e1c67a2d28fced849ee1bb76e7391b93eb12"
    place = tmp_path / "a-1.jar"
    with pytest.raises(OttlaError, match=r"the resolver did not download a-1\.jar"):
        jar._check(Artifact("g", "a", "1"), place)
    place.write_bytes(content)
    jar._check(Artifact("g", "a", "1"), place)
    with pytest.raises(OttlaError, match=rf"invalid file a-1\.jar: its SHA-256 is not {known}"):
        jar._check(Artifact("g", "a", "1", known), place)
    assert Artifact("g", "a", "1").file == "a-1.jar"


def test_jars_that_another_process_has_published_first_are_taken(tmp_path: Path) -> None:
    downloaded, kept = tmp_path / "new", tmp_path / "kept"
    for directory in (downloaded, kept):
        directory.mkdir()
        (directory / "a.jar").write_text(directory.name)
    jar._publish(downloaded, kept)
    assert not downloaded.exists() and (kept / "a.jar").read_text() == "kept"
    again = tmp_path / "again"
    again.mkdir()
    jar._publish(again, tmp_path / "first")
    assert (tmp_path / "first").is_dir() and not again.exists()
    with pytest.raises(OSError, match="nowhere"):
        jar._publish(tmp_path / "nowhere", tmp_path / "second")


# ---- progress


class Commits:
    """An admin that notes what it was asked, and refuses while `refusing`."""

    made: list[Commits] = []

    def __init__(self, client: Any) -> None:
        self.asked: list[dict[TopicPartition, int]] = []
        self.refusing = self.closed = False
        self.made.append(self)

    def alter_group_offsets(self, group: str, offsets: Any) -> Results[TopicPartition, TopicPartition]:
        self.asked.append(dict(offsets))
        if self.refusing:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return Results({each: each for each in offsets}, {})

    def close(self) -> None:
        self.closed = True


def progress(batch: int, *ends: tuple[str, str | None], query: str = "1") -> Any:
    sources = [SimpleNamespace(description=kind, endOffset=end) for kind, end in ends]
    return SimpleNamespace(batchId=batch, sources=sources, id=query)


def test_the_progress_of_a_query_is_committed_for_its_group(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("ottla.spark.progress.Admin", Commits)
    listeners: list[Any] = []
    streams = SimpleNamespace(addListener=listeners.append, removeListener=listeners.remove)
    kafka = "KafkaV2[Subscribe[a]]"
    first = progress(4, (kafka, '{"a": {"0": 3}}'), ("FileStreamSource[x]", '{"b": {"0": 9}}'))
    query: Any = SimpleNamespace(id="1", name="q", lastProgress=first)
    listener = commit_for(SimpleNamespace(streams=streams), query, "g", "nowhere")  # type: ignore[arg-type]
    admin = Commits.made[-1]
    assert listeners == [listener]
    zero, one = TopicPartition("a", 0), TopicPartition("a", 1)
    assert admin.asked == [{zero: 3}]
    for event in (
        progress(3, (kafka, '{"a": {"0": 1}}')),
        progress(5, (kafka, '{"a": {"0": 7}}'), query="2"),
        progress(5, (kafka, '{"a": {"0": 3}}')),
    ):
        listener.onQueryProgress(SimpleNamespace(progress=event))  # type: ignore[arg-type]
    assert len(admin.asked) == 1
    admin.refusing = True
    listener.commit(progress(6, (kafka, '{"a": {"0": 5}}')))
    assert "cannot commit the progress of query q for group g: UNKNOWN_MEMBER_ID" in caplog.text
    assert listener.committed == {zero: 3}
    admin.refusing = False
    listener.commit(progress(6, (kafka, '{"a": {"0": 4, "1": 2}}')))
    assert listener.committed == admin.asked[-1] == {zero: 4, one: 2}
    # A query that began again at an older place is at that place.
    listener.commit(progress(7, (kafka, '{"a": {"0": 2}}')))
    assert listener.committed == {zero: 2, one: 2}
    listener.close()
    assert listeners == [] and admin.closed
    quiet: Any = SimpleNamespace(id="1", name="q", lastProgress=None)
    commit_for(SimpleNamespace(streams=streams), quiet, "g", "nowhere")  # type: ignore[arg-type]
    assert Commits.made[-1].asked == []
