"""Where workers run: how many, how they reach the driver, and how they get the user's modules."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ottla.flow.topology import Topology
from ottla.kernel.error import OttlaError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: How long to wait for the executors of a cluster, and for how long their number must stay the same.
EXECUTORS_S, STILL_S = 60, 2
_LOOPBACK = "127.0.0.1"


def is_connect(spark: SparkSession) -> bool:
    """Whether the session belongs to a Spark Connect server."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def slots_of(spark: SparkSession, wanted: int) -> int:
    """How many Spark tasks can run at once. On a cluster, wait until its executors have `wanted` cores, or until their
    number stays the same. OttlaError for Spark Connect, which does not report cores.
    """
    if is_connect(spark):
        raise OttlaError("Spark Connect does not report the number of cores; pass workers=")
    context = spark.sparkContext
    if str(context.master).startswith("local"):
        return int(context.defaultParallelism)
    spark.range(0, 1, 1, 1).collect()  # returns once there is an executor
    deadline = time.monotonic() + EXECUTORS_S
    cores, since = int(context.defaultParallelism), time.monotonic()
    while cores < wanted and time.monotonic() < min(since + STILL_S, deadline):
        time.sleep(0.2)
        if (now := int(context.defaultParallelism)) != cores:
            cores, since = now, time.monotonic()
    return cores


def driver_address(spark: SparkSession) -> tuple[str, str | None]:
    """The host at which workers reach this process, and the address to listen on if it differs."""
    if is_connect(spark):
        return _local_address(spark), None
    host = spark.conf.get("spark.driver.host", _LOOPBACK) or _LOOPBACK
    bind = spark.conf.get("spark.driver.bindAddress", None)
    return host, bind if bind != host else None


def _local_address(spark: SparkSession) -> str:
    """This machine's address on the route to a Spark Connect server."""
    server = urlsplit(spark.client.host if "://" in spark.client.host else f"//{spark.client.host}")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((server.hostname or _LOOPBACK, server.port or 15002))
        return str(probe.getsockname()[0])


def ship(spark: SparkSession, topology: Topology, py_files: Sequence[str]) -> None:
    """Send the user's modules to the workers: those beside the program by value, `py_files` as files."""
    from pyspark import cloudpickle

    for name in own_modules(topology):
        cloudpickle.register_pickle_by_value(sys.modules[name])  # type: ignore[no-untyped-call]
    for path in py_files:
        if not Path(path).exists():
            raise OttlaError(f"py_files: file {path} does not exist")
        if is_connect(spark):
            spark.addArtifacts(path, pyfile=True)
        else:
            spark.sparkContext.addPyFile(path)


def own_modules(topology: Topology) -> list[str]:
    """The modules imported from the directories of the program's files, which workers could not import."""
    directories = {Path(where).parent.resolve() for where in _files(topology) if Path(where).is_file()}
    names = []
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None)
        if not path or name == "__main__" or name.partition(".")[0] in ("ottla", "pyspark"):
            continue
        file = Path(path).resolve()
        parents = [directory for directory in directories if directory in file.parents]
        if any("site-packages" not in file.relative_to(directory).parts for directory in parents):
            names.append(name)
    return names


def _files(topology: Topology) -> Iterable[str]:
    yield from (source.where.file for source in topology.sources.values())
    yield from (processor.where.file for processor in topology.processors.values())
    yield from (sink.where.file for sink in topology.sinks.values())
