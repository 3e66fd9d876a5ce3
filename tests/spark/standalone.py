"""A standalone Spark cluster on this machine: a master and workers, each a JVM as an administrator starts it."""

import os
import re
import subprocess
import time
from pathlib import Path

import pyspark

from ottla.spark import java
from tests.crash.pause import pause

HOME = Path(pyspark.__file__).parent
START_TIMEOUT_S = 60


class Standalone:
    """`workers` workers with one core each. `master` is its address, spark://HOST:PORT."""

    def __init__(self, directory: Path, workers: int = 2) -> None:
        self._directory = directory
        self._processes: list[subprocess.Popen[bytes]] = []
        found = self._start("master", "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", "0")
        self.master = self._said(found, r"Starting Spark master at (spark://\S+)")
        worker = "org.apache.spark.deploy.worker.Worker"
        options = ("--cores", "1", "--memory", "1100m", "--host", "127.0.0.1", self.master)
        for number in range(workers):
            self._start(f"worker-{number}", worker, "--work-dir", str(directory / f"work-{number}"), *options)
        for number in range(workers):
            self._said(directory / f"worker-{number}.log", r"(Successfully registered) with master")

    def _start(self, name: str, program: str, *options: str) -> Path:
        output = self._directory / f"{name}.log"
        command = [str(java.find().path), "-Xmx256m", "-XX:+UseSerialGC", "-cp", f"{HOME}/jars/*", program]
        environment = os.environ | {
            "SPARK_HOME": str(HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_SCALA_VERSION": "2.13",
        }
        with output.open("wb") as log:
            process = subprocess.Popen(
                [*command, "--webui-port", "0", *options], stdout=log, stderr=log, env=environment,
                stdin=subprocess.DEVNULL,
            )  # fmt: skip
        self._processes.append(process)
        return output

    def _said(self, output: Path, pattern: str) -> str:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not (found := re.search(pattern, output.read_text(errors="replace"))):
            assert time.monotonic() < deadline, output.read_text(errors="replace")[-2000:]
            pause(0.1)
        return found[1]

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
