"""Spark as a service on this machine: a standalone cluster of a master and workers, and a Spark Connect server. And a
wait for what Spark does by itself.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyspark

from ottla.spark import java
from ottla.spark.jvm import OPENS
from tests.crash.pause import pause

HOME = Path(pyspark.__file__).parent
START_TIMEOUT_S = 180
WAIT_S = 240


def start(output: Path, *words: str) -> "subprocess.Popen[bytes]":
    """A JVM with Spark's classes."""
    options = ("-Xmx512m", "-XX:+UseSerialGC", "-Dio.netty.tryReflectionSetAccessible=true")
    opens = (f"--add-opens={package}=ALL-UNNAMED" for package in OPENS)
    said = {"SPARK_HOME": str(HOME), "SPARK_SCALA_VERSION": "2.13", "SPARK_LOCAL_IP": "127.0.0.1"}
    with output.open("wb") as log:
        return subprocess.Popen(
            [str(java.find().path), *options, *opens, "-cp", f"{HOME}/jars/*", *words],
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            env=os.environ | said | {"PYSPARK_PYTHON": sys.executable},
        )


def until(true: Callable[[], bool]) -> None:
    """Wait until this is so."""
    deadline = time.monotonic() + WAIT_S
    while not true():
        assert time.monotonic() < deadline
        pause(0.1)


def said(output: Path, pattern: str) -> str:
    """What stands in the log, once it does."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while not (found := re.search(pattern, output.read_text(errors="replace"))):
        assert time.monotonic() < deadline, output.read_text(errors="replace")[-2000:]
        pause(0.1)
    return found[1]


class Standalone:
    """`workers` workers with one core each. `master` is its address, spark://HOST:PORT."""

    def __init__(self, directory: Path, workers: int = 2) -> None:
        place = ("--host", "127.0.0.1", "--webui-port", "0")
        log = directory / "master.log"
        self._processes = [start(log, "org.apache.spark.deploy.master.Master", *place, "--port", "0")]
        try:
            self._await(directory, place, workers, log)
        except BaseException:
            self.close()
            raise

    def _await(self, directory: Path, place: tuple[str, ...], workers: int, log: Path) -> None:
        self.master = said(log, r"Starting Spark master at (spark://\S+)")
        logs = [directory / f"worker-{number}.log" for number in range(workers)]
        for log in logs:
            room = ("--cores", "1", "--memory", "1100m", "--work-dir", str(log.with_suffix(".work")))
            self._processes.append(start(log, "org.apache.spark.deploy.worker.Worker", *place, *room, self.master))
        for log in logs:
            said(log, "(Successfully registered) with master")

    @property
    def executors(self) -> list[int]:
        """The process ids of the executors that run now: the children of the workers."""
        workers = {process.pid for process in self._processes[1:]}
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                except OSError:
                    continue
                if parent in workers:
                    found.append(int(entry.name))
        return found

    def close(self) -> None:
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            process.wait(20)


class ConnectServer:
    """A Spark Connect server on `local[3]`. `master` is its address, sc://HOST:PORT."""

    def __init__(self, directory: Path) -> None:
        log = directory / "connect.log"
        server = "org.apache.spark.sql.connect.service.SparkConnectServer"
        conf = ("--master", "local[3]", "--conf", "spark.connect.grpc.binding.port=0")
        submit = ("org.apache.spark.deploy.SparkSubmit", *conf, "--class", server, "spark-internal")
        self._process = start(log, *submit)
        try:
            port = said(log, r"Spark Connect server started at: .*:(\d+)")
        except BaseException:
            self.close()
            raise
        self.master = f"sc://127.0.0.1:{port}"

    def close(self) -> None:
        self._process.kill()
        self._process.wait(20)
