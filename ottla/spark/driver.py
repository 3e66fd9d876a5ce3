"""The Spark session of this process, with Java, the connector's jars, one JVM and the tuned profile."""

import atexit
import os
import re
import shutil
import socket
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.kernel.error import OttlaError
from ottla.spark import jar, java, jvm
from ottla.spark.profile import cluster_profile, profile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


#: The timeout for connecting to a Spark master.
_REACH_S = 5


def session(
    name: str = "ottla",
    *,
    cores: int | None = None,
    memory: str = "1g",
    long_running: bool = False,
    master: str | None = None,
    settings: Mapping[str, str] | None = None,
) -> "SparkSession":
    """Return a Spark session that can read and write Kafka topics: the running one, or a new one.

    `cores`: the number of task threads (default: the machine's cores). `memory`: the size of the JVM's heap, in Java's
    notation. `long_running`: compile for throughput instead of a fast start; for programs that run longer than a few
    minutes. `master`: where the tasks run, in Spark's notation: `local[4]` (this machine, the default),
    `spark://HOST:PORT`, `yarn`, `k8s://...`, or `sc://HOST:PORT` for a Spark Connect server. `settings`: Spark
    settings, which win over the profile's (`ottla.spark.profile`).

    The first session of a process starts the JVM, with that session's `memory` and `long_running`; later sessions use
    the same JVM. `session.stop()` ends a session; the JVM ends with the process. The first start on a machine downloads
    the connector's jars into the user's cache; after that no network is needed. OttlaError if there is no suitable
    Java, the jars cannot be downloaded, the JVM does not start or finds no cluster at `master`, or a session with
    another master is running.
    """
    try:
        import_module("numpy")  # pyspark does that only when the JVM has started
        import pyspark
        from pyspark.sql import SparkSession
    except ImportError as missing:
        raise OttlaError(f"{missing}; install Spark with `pip install 'ottla[spark]'`") from missing
    wanted = dict(settings or {})
    master = master or wanted.pop("spark.master", None)
    if master is not None and master.startswith("sc://"):
        return _connect(name, master, wanted)
    running = SparkSession.getActiveSession()
    if running is not None:
        _same_master(running, master)
        for key, value in wanted.items():
            running.conf.set(key, value)
        return running
    if master is None or master.startswith("local"):
        wanted = profile(cores or cores_of(master), _scratch()) | wanted
    else:
        check_master(master)
        jars = jar.jars(java.find(), pyspark.__version__, Path(pyspark.__file__).parent / "jars")
        # The executors need the connector too.
        wanted = cluster_profile(master) | {"spark.jars": ",".join(map(str, jars))} | wanted
    # Without this, PySpark would run Python functions in the first `python3` on the PATH.
    python = wanted.get("spark.pyspark.python")
    os.environ.update({"PYSPARK_PYTHON": python} if python else {})
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    _ensure_jvm(Path(pyspark.__file__).parent, pyspark.__version__, memory, long_running, wanted)
    try:
        return SparkSession.builder.appName(name).config(map=dict(wanted)).getOrCreate()
    except Exception as error:
        if master is None or master.startswith("local"):
            raise
        raise OttlaError(
            f"cannot start a Spark session at {master}: {_first_line(error)}; check that a cluster of Spark "
            f"{pyspark.__version__} is running there"
        ) from error


def _connect(name: str, remote: str, settings: Mapping[str, str]) -> "SparkSession":
    """A session of a Spark Connect server. It needs no JVM on this machine."""
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    try:
        return SparkSession.builder.appName(name).remote(remote).config(map=dict(settings)).getOrCreate()
    except ImportError as missing:
        raise OttlaError(f"{_first_line(missing)}; install it with `pip install 'ottla[connect]'`") from missing
    except PySparkException as error:
        raise OttlaError(f"cannot reach a Spark Connect server at {remote}: {_first_line(error)}") from error


def _same_master(running: "SparkSession", master: str | None) -> None:
    if master is None or not hasattr(running, "sparkContext"):
        return
    has = str(running.sparkContext.master)
    if has != master and not (has.startswith("local") and master.startswith("local")):
        raise OttlaError(f"this process already has a Spark session at {has}; stop it before starting one at {master}")


def check_master(master: str) -> None:
    """Check the address of a cluster. OttlaError if it is invalid or nothing listens there; Spark itself would retry
    for minutes.
    """
    if not re.match(r"(spark|k8s)://.|yarn$", master):
        cores_of(master)
    if not master.startswith("spark://"):
        return
    for address in master.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
        if not host or not port.isascii() or not port.isdigit() or int(port) > 65_535:
            raise OttlaError(f"invalid master: {master} (expected spark://HOST:PORT)")
        with suppress(OSError), socket.create_connection((host.strip("[]"), int(port)), _REACH_S):
            return
    raise OttlaError(f"no Spark master answers at {master}; check the address, and that the master is running")


def cores_of(master: str | None) -> int:
    """The N of local[N]: the machine's cores for local[*] and for None, 1 for local. OttlaError for anything else."""
    match = re.fullmatch(r"local(?:\[(\d+|\*)(?:,\s*\d+)?\])?", master or "local[*]")
    if match is None:
        raise OttlaError(
            f"invalid master: {master} (expected local[N], spark://HOST:PORT, yarn, k8s://... or sc://HOST:PORT)"
        )
    if match[1] is None:
        return 1
    return (os.cpu_count() or 1) if match[1] == "*" else int(match[1])


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    cause = next((line for line in lines if line.startswith(("Caused by:", ": "))), lines[0] if lines else "")
    return cause.removeprefix(": ").rstrip(".") or type(error).__name__


def _ensure_jvm(home: Path, version: str, memory: str, long_running: bool, settings: Mapping[str, str]) -> None:
    """Start the JVM and hand it to PySpark, unless PySpark has one."""
    from pyspark import SparkContext

    if SparkContext._gateway is not None:
        return
    chosen = java.find()
    jars = jar.jars(chosen, version, home / "jars")
    gateway = jvm.start(chosen, jars, spark_home=home, memory=memory, long_running=long_running, settings=settings)
    connection = {"PYSPARK_GATEWAY_PORT": str(gateway.port), "PYSPARK_GATEWAY_SECRET": gateway.secret}
    os.environ.update(connection)
    try:
        SparkContext._ensure_initialized()
    finally:
        # Child processes must not find the gateway.
        for key in connection:
            del os.environ[key]
    atexit.register(_end, gateway)


def _end(gateway: jvm.Gateway) -> None:
    """Disconnect PySpark from the JVM, then end the JVM. Called at the end of the process."""
    from pyspark import SparkContext

    if SparkContext._active_spark_context is not None:
        SparkContext._active_spark_context.stop()
    if SparkContext._gateway is not None:
        SparkContext._gateway.shutdown()
    jvm.stop(gateway.process)


def _scratch() -> str:
    """A directory for shuffle files, state and the like, removed at the end of the process."""
    scratch = tempfile.mkdtemp(prefix="ottla-spark-")
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    return scratch
