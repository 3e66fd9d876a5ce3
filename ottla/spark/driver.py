"""The Spark session of this process: Java, the connector's jars, one JVM and the tuned profile, put together."""

import atexit
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.kernel.error import OttlaError
from ottla.spark import jar, java, jvm
from ottla.spark.profile import profile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def session(
    name: str = "ottla",
    *,
    cores: int | None = None,
    memory: str = "1g",
    long_running: bool = False,
    settings: Mapping[str, str] | None = None,
) -> "SparkSession":
    """A Spark session that can read and write Kafka topics; the running one where there is one.

    `cores`: task threads, the machine's number by default. `memory`: of the JVM's heap, as Java writes it.
    `long_running`: compile for throughput rather than for a fast start; for what runs longer than some minutes.
    `settings`: any of Spark's own, which win over the profile's (`ottla.spark.profile`).

    The JVM is started by the first session of a process, with that session's `memory` and `long_running`, and serves
    all later ones: `session.stop()` ends a session, the JVM ends with the process. The first start on a machine brings
    the connector's jars into the user's cache; after that no network is needed. Raises OttlaError when there is no
    suitable Java, when the jars cannot be had, or when the JVM does not start.
    """
    try:
        import pyspark
        from pyspark.sql import SparkSession
    except ImportError as missing:
        raise OttlaError(f"{missing}: `pip install 'ottla[spark]'` brings what Spark needs") from missing
    running = SparkSession.getActiveSession()
    if running is not None:
        for key, value in (settings or {}).items():
            running.conf.set(key, value)
        return running
    scratch = _scratch()
    wanted = profile(cores or os.cpu_count() or 1, scratch) | dict(settings or {})
    # Without this PySpark would run Python functions in whatever `python3` is first on the PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    _ensure_jvm(Path(pyspark.__file__).parent, pyspark.__version__, memory, long_running, wanted)
    return SparkSession.builder.appName(name).config(map=dict(wanted)).getOrCreate()


def _ensure_jvm(home: Path, version: str, memory: str, long_running: bool, settings: Mapping[str, str]) -> None:
    """Start the JVM and give it to PySpark, unless PySpark has one."""
    from pyspark import SparkContext

    if SparkContext._gateway is not None:
        return
    chosen = java.find()
    jars = jar.jars(chosen, version, home / "jars")
    gateway = jvm.start(chosen, jars, spark_home=home, memory=memory, long_running=long_running, settings=settings)
    told = {"PYSPARK_GATEWAY_PORT": str(gateway.port), "PYSPARK_GATEWAY_SECRET": gateway.secret}
    os.environ.update(told)
    try:
        SparkContext._ensure_initialized()
    finally:
        # Only this process may use the gateway: what it starts shall not find it.
        for key in told:
            del os.environ[key]
    atexit.register(_end, gateway)


def _end(gateway: jvm.Gateway) -> None:
    """At the end of the process: PySpark first lets go of the JVM, then it ends."""
    from pyspark import SparkContext

    if SparkContext._active_spark_context is not None:
        SparkContext._active_spark_context.stop()
    if SparkContext._gateway is not None:
        SparkContext._gateway.shutdown()
    jvm.stop(gateway.process)


def _scratch() -> str:
    """A directory for shuffle files, state and the like, which goes with the process."""
    scratch = tempfile.mkdtemp(prefix="ottla-spark-")
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    return scratch
