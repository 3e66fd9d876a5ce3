"""What the foreign peers need, brought once into `.cache/interop/` by each language's own client.

Rules:
- Versions are pinned in java/pom.xml, go/go.mod + go.sum and node/package-lock.json.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

from tests.interop.made import HERE, TIMEOUT_S, made, maven_jars, run_tool, tool_path

ROOT = HERE.parent.parent
_QUICK = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")

#: The npm package whose archive carries librdkafka's sources with their tests, and the digest of that archive.
LIBRDKAFKA_PACKAGE = "@confluentinc/kafka-javascript@1.10.1"
LIBRDKAFKA_SHA256 = "ada7d703bb1d3237e2292bfabf438d663b6160c9f1ac2a2406b5dc4257c81b66"
#: A test of librdkafka that asks for three replicas gets one: none of these tests looks at the others.
LIBRDKAFKA_REPLICAS = (
    "0098-consumer-txn.cpp",
    "0103-transactions.c",
    "0107-topic_recreate.c",
    "0111-delay_create_topics.cpp",
    "0126-oauthbearer_oidc.c",
    "0135-sasl_credentials.cpp",
    "0142-reauthentication.c",
)
#: Unoptimised, it is built in half the time. It can do without Kerberos.
LIBRDKAFKA_OPTIONS = ("--disable-gssapi", "--disable-optimization", "--disable-debug-symbols")

#: confluent-kafka-python at its release 2.15.0; OTTLA_CONFLUENT_REPOSITORY names a copy of the repository.
CONFLUENT_REPOSITORY = "https://github.com/confluentinc/confluent-kafka-python"
CONFLUENT_COMMIT = "8b1c7a613434eee3d0e1287d624d7af04932f410"
#: The client of that release, and what its tests import.
CONFLUENT_PACKAGES = (
    "confluent-kafka[avro,json,protobuf,rules,schemaregistry]==2.15.0",
    "pytest==9.2.0",
    "pytest-timeout==2.4.0",
    "trivup==0.12.2",
)

#: aiokafka at its release 0.14.0; OTTLA_AIOKAFKA_REPOSITORY names a copy of the repository.
AIOKAFKA_REPOSITORY = "https://github.com/aio-libs/aiokafka"
AIOKAFKA_COMMIT = "672947afe85c91b7d953f0259e69837a711d3246"
AIOKAFKA_PACKAGES = ("aiokafka[all]==0.14.0", "pytest==9.0.2", "pytest-asyncio==1.3.0", "pytest-mock", "pytest-timeout")

#: kafka-python, whose sources on PyPI have its tests, and what these import.
KAFKA_PYTHON = "kafka-python==3.0.12"
KAFKA_PYTHON_PACKAGES = ("lz4", "zstandard", "python-snappy", "pytest==9.2.0", "pytest-mock", "pytest-timeout==2.4.0")

#: Frameworks in Python that work over Kafka. Quix Streams has librdkafka, Faust aiokafka.
FRAMEWORKS = ("quixstreams==3.28.1", "faust-streaming==0.15.3")

#: The version of the proxy, a Go module, between sarama's tests and the node.
TOXIPROXY = "v2.5.0"

#: Kafka's scripts that librdkafka's tests call, and the class of each.
KAFKA_SCRIPTS = {
    "kafka-acls.sh": "org.apache.kafka.tools.AclCommand",
    "kafka-configs.sh": "kafka.admin.ConfigCommand",
    "kafka-run-class.sh": "",
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
}


@cache
def jars() -> Path:
    """Apache Kafka's jars and their dependencies (java/pom.xml)."""
    return maven_jars("jars", HERE / "java" / "pom.xml")


def classpath() -> str:
    return f"{jars()}/*"


def quick_jvm(heap: str = "768m") -> tuple[str, ...]:
    """The options of a JVM that starts fast and does not run for long. Its class path is this one or begins with it."""
    return (f"-Xmx{heap}", *_QUICK, f"-XX:SharedArchiveFile={class_archive() / 'kafka.jsa'}")


@cache
def class_archive() -> Path:
    """The archive of the classes that a broker loads: with it, Apache's programs start in half the time."""
    # It asks this module for the class path.
    from tests.interop.server import Server, apache

    def write(into: Path) -> None:
        writes = apache((*_QUICK, f"-XX:ArchiveClassesAtExit={into / 'kafka.jsa'}"))
        node = Server(replace(apache(_QUICK), start=writes.start), into / "node")
        node.start()
        node.stop(timeout_s=TIMEOUT_S)
        shutil.rmtree(node.directory)

    java = Path(tool_path("java", "Apache Kafka")).resolve()
    return made(
        "classes", [HERE / "java" / "pom.xml"], write, *_QUICK, str(jars()), f"{java} {java.stat().st_mtime_ns}"
    )


@cache
def java_peer(program: str = "Peer") -> list[str]:
    """The command of a Java program: `Peer`, the client, or `Tools`, which runs Apache's command-line tools."""
    return java_program("java", HERE / "java", classpath(), program)


@cache
def old_java_peer(release: str) -> list[str]:
    """The command of the Java peer with the client of an earlier release, from 2.5 on."""
    sources = [HERE / "java" / name for name in ("Peer.java", "Secured.java")]
    jars = old_jars(release)

    def build(into: Path) -> None:
        for source in sources:
            # The names that these releases have for it.
            text = source.read_text().replace("listGroups()", "listConsumerGroups()")
            if release < "3.1":
                text = text.replace("allTopicNames()", "all()")
            (into / source.name).write_text(text)
        written = [str(into / source.name) for source in sources]
        run_tool("javac", ["-nowarn", "-cp", f"{jars}/*", "-d", str(into), *written], "the old Java peer")

    classes = made("old-java", sources, build, release)
    return [*_old_java(), "-cp", f"{jars}/*:{classes}", "Peer"]


def old_tool(release: str, name: str) -> list[str]:
    """The command of a program of Apache's system tests of an earlier release."""
    return [*_old_java(), "-cp", f"{old_jars(release)}/*", f"org.apache.kafka.tools.{name}"]


def _old_java() -> list[str]:
    return ["java", "-Xmx256m", *_QUICK, "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]


@cache
def old_jars(release: str) -> Path:
    """The client and the tools of an earlier release of Apache Kafka."""
    return maven_jars("old-jars", HERE / "java" / "old" / "pom.xml", f"-Dkafka={release}")


@cache
def streams_peer() -> list[str]:
    """The command of an application of Kafka Streams."""
    directory = HERE / "java" / "streams"
    return java_program("streams", directory, f"{maven_jars('streams-jars', directory / 'pom.xml')}/*", "Streams")


@cache
def streams_driver(program: str = "Driver") -> list[str]:
    """The command of TopologyTestDriver: `Driver` runs programs given as JSON, `Options` those of test_option.py."""
    directory = HERE / "java" / "driver"
    return java_program("streams-driver", directory, f"{maven_jars('driver-jars', directory / 'pom.xml')}/*", program)


def streams_jars() -> list[Path]:
    """The jars with Kafka Streams' public classes."""
    jars = maven_jars("driver-jars", HERE / "java" / "driver" / "pom.xml")
    return [path for path in sorted(jars.glob("kafka-streams-*.jar")) if "scala" not in path.name]


@cache
def trogdor_agent() -> list[str]:
    """The command of the agent of Apache's load tests."""
    jars = maven_jars("trogdor-jars", HERE / "java" / "trogdor" / "pom.xml")
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
    return ["java", "-Xmx256m", quiet, "-cp", f"{jars}/*", "org.apache.kafka.trogdor.agent.Agent"]


@cache
def cluster_tests(kind: str) -> list[str]:
    """JUnit's launcher with Apache Kafka's integration tests, whose nodes are of this kind; its arguments follow."""
    directory = HERE / "java" / "cluster"
    jars = f"{maven_jars('cluster-jars', directory / 'pom.xml')}/*"
    sources = sorted(directory.glob("*.java"))

    def build(into: Path) -> None:
        run_tool("javac", ["-nowarn", "-cp", jars, "-d", str(into), *map(str, sources)], "Apache's integration tests")

    ours = made("cluster", [directory / "pom.xml", *sources], build)
    path = {"apache": jars, "ottla": f"{ours}:{jars}"}[kind]
    program = f"-Dottla.program={sys.executable}|-m|ottla.cli"
    log = f"-Dlog4j2.configurationFile={directory / 'log4j2.properties'}"
    launcher = "org.junit.platform.console.ConsoleLauncher"
    # For the tests' own Kerberos server.
    exports = "--add-exports=java.security.jgss/sun.security.krb5=ALL-UNNAMED"
    return ["java", "-Xmx1500m", "-XX:+UseSerialGC", exports, program, log, "-cp", path, launcher]


@cache
def connect() -> list[str]:
    """The JVM for Apache's Connect and MirrorMaker 2; the class and its arguments follow."""
    jars = maven_jars("connect-jars", HERE / "java" / "connect" / "pom.xml")
    return ["java", "-Xmx256m", *_QUICK, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", f"{jars}/*"]


@cache
def streams_smoke() -> list[str]:
    """The command of Apache's system test of Kafka Streams."""
    jars = maven_jars("smoke-jars", HERE / "java" / "smoke" / "pom.xml")
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    return ["java", "-Xmx400m", *_QUICK, quiet, "-cp", f"{jars}/*", "org.apache.kafka.streams.tests.StreamsSmokeTest"]


def java_program(name: str, directory: Path, jars: str, program: str) -> list[str]:
    sources = sorted(directory.glob("*.java"))

    def build(into: Path) -> None:
        run_tool("javac", ["-nowarn", "-cp", jars, "-d", str(into), *map(str, sources)], "the Java peer")

    classes = made(name, [directory / "pom.xml", *sources], build)
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
    jvm = quick_jvm("256m") if jars == classpath() else ("-Xmx256m", *_QUICK)
    return ["java", *jvm, quiet, "-cp", f"{jars}:{classes}", program]


@cache
def go_peer(name: str) -> list[str]:
    """The command of a Go client's program: `franz` or `sarama`."""
    module = HERE / "go"
    sources = [module / "go.mod", module / "go.sum", *sorted(module.rglob("*.go"))]

    def build(into: Path) -> None:
        run_tool("go", ["build", "-o", f"{into}/", "./..."], "franz-go and sarama", cwd=module)

    return [str(made("go", sources, build) / name)]


@cache
def node_peer() -> list[str]:
    """The command of the kafkajs program."""
    sources = [HERE / "node" / name for name in ("package.json", "package-lock.json", "peer.js", "secured.js")]

    def bring(into: Path) -> None:
        for source in sources:
            shutil.copy(source, into)
        run_tool("npm", ["ci", "--no-audit", "--no-fund", "--loglevel=error"], "kafkajs", cwd=into)

    return [tool_path("node", "kafkajs"), str(made("node", sources, bring) / "peer.js")]


@cache
def kgo_tests() -> tuple[Path, Path]:
    """The program of franz-go's own tests, and the directory of their sources, in which it wants to run."""
    module = HERE / "go"
    package = "github.com/twmb/franz-go/pkg/kgo"

    def build(into: Path) -> None:
        run_tool("go", ["test", "-c", "-o", str(into / "kgo.test"), package], "franz-go's tests", cwd=module)

    program = made("kgo", [module / "go.mod", module / "go.sum"], build) / "kgo.test"
    return program, Path(run_tool("go", ["list", "-f", "{{.Dir}}", package], "franz-go's tests", cwd=module).strip())


@cache
def sarama_tests() -> tuple[Path, Path]:
    """The program of sarama's functional tests, and the directory of their sources. Their topics get one replica, and
    the environment may have them come in by TLS and a password (suite/sarama_secured.go).
    """
    module = HERE / "go"
    secured = HERE / "suite" / "sarama_secured.go"

    def build(into: Path) -> None:
        where = run_tool("go", ["list", "-m", "-f", "{{.Dir}}", "github.com/IBM/sarama"], "sarama's tests", cwd=module)
        source = into / "sarama"
        shutil.copytree(where.strip(), source, copy_function=shutil.copyfile)
        for path in (source, *source.rglob("*/")):
            path.chmod(0o755)
        topics = source / "functional_test.go"
        topics.write_text(re.sub(r"(ReplicationFactor: +)3,", r"\g<1>1,", topics.read_text()))
        shutil.copy(secured, source)
        config = source / "config.go"
        changed, count = re.subn(
            r"(func NewConfig\(\) .*?\n\treturn )c\n", r"\1secured(c)\n", config.read_text(), flags=re.S
        )
        assert count == 1, "NewConfig of sarama is not what it was"
        config.write_text(changed)
        command = ["test", "-c", "-tags", "functional", "-o", str(into / "sarama.test"), "."]
        run_tool("go", command, "sarama's tests", cwd=source)

    built = made("sarama", [module / "go.mod", module / "go.sum", secured], build)
    return built / "sarama.test", built / "sarama"


@cache
def toxiproxy() -> str:
    """The proxy through which sarama's tests reach their brokers."""

    def build(into: Path) -> None:
        where = {"GOBIN": str(into)}
        run_tool(
            "go", ["install", f"github.com/Shopify/toxiproxy/v2/cmd/server@{TOXIPROXY}"], "sarama's tests", env=where
        )

    return str(made("toxiproxy", [], build, TOXIPROXY) / "server")


@cache
def prometheus() -> str:
    """Prometheus: that of the machine, or Debian's package, unpacked."""
    there = shutil.which("prometheus")
    if there is not None:
        return there

    def bring(into: Path) -> None:
        run_tool("apt-get", ["-o", "APT::Sandbox::User=root", "download", "prometheus"], "Prometheus", cwd=into)
        for package in into.glob("*.deb"):
            run_tool("dpkg-deb", ["-x", str(package), str(into)], "Prometheus")

    return str(made("prometheus", [], bring) / "usr" / "bin" / "prometheus")


@cache
def librdkafka_tests() -> Path:
    """The directory of librdkafka's tests, built. It needs gcc, g++, zlib, zstd, OpenSSL, curl and RapidJSON."""

    def build(into: Path) -> None:
        run_tool("npm", ["pack", "--silent", LIBRDKAFKA_PACKAGE], "librdkafka's tests", cwd=into)
        (archive,) = into.glob("*.tgz")
        digest = hashlib.sha256(archive.read_bytes()).hexdigest()
        if digest != LIBRDKAFKA_SHA256:
            raise RuntimeError(f"{LIBRDKAFKA_PACKAGE} is not the archive that was reviewed: its digest is {digest}")
        with tarfile.open(archive) as tar:
            tar.extractall(into, filter="data")
        archive.unlink()
        source = into / "package" / "deps" / "librdkafka"
        for name in LIBRDKAFKA_REPLICAS:
            path = source / "tests" / name
            text = path.read_text()
            path.write_text(re.sub(r"(create_topic(?:_wait_exists)?\([^;]*), 3(, \d+)?\);", r"\1, 1\2);", text))
        run_tool(str(source / "configure"), LIBRDKAFKA_OPTIONS, "librdkafka's tests", cwd=source)
        lacking = {"SSL", "ZLIB", "ZSTD", "CURL", "RAPIDJSON"} - set(
            re.findall(r"define WITH_(\w+) 1", (source / "config.h").read_text())
        )
        if lacking:
            raise FileNotFoundError(f"librdkafka's tests need the headers of {', '.join(sorted(lacking))}")
        jobs = f"-j{os.cpu_count() or 1}"
        for target in (["-C", "src"], ["-C", "src-cpp"], ["-C", "tests", "build"]):
            run_tool("make", [jobs, *target], "librdkafka's tests", cwd=source)
        run_tool("make", ["-C", "tests", "java", f"KAFKA_JARS={jars()}"], "librdkafka's tests", cwd=source)

    how = (LIBRDKAFKA_SHA256, *LIBRDKAFKA_REPLICAS, *LIBRDKAFKA_OPTIONS)
    built = made("librdkafka", [HERE / "java" / "pom.xml"], build, *how)
    return built / "package" / "deps" / "librdkafka" / "tests"


@cache
def confluent_tests() -> tuple[Path, Path]:
    """A Python with confluent-kafka-python, and the directory of its tests, from its repository."""

    def build(into: Path) -> None:
        what = "confluent-kafka-python's tests"
        where = os.environ.get("OTTLA_CONFLUENT_REPOSITORY", CONFLUENT_REPOSITORY)
        _check_out(where, CONFLUENT_COMMIT, ["tests"], into / "source", what)
        run_tool(sys.executable, ["-m", "venv", str(into / "venv")], what)
        run_tool(str(into / "venv" / "bin" / "python"), ["-m", "pip", "install", "-q", *CONFLUENT_PACKAGES], what)

    built = made("confluent", [], build, CONFLUENT_COMMIT, *CONFLUENT_PACKAGES)
    return built / "venv" / "bin" / "python", built / "source"


def _check_out(where: str, commit: str, paths: Iterable[str], into: Path, what: str) -> None:
    """Bring these paths of a repository."""
    run_tool("git", ["clone", "-q", "--no-checkout", where, str(into)], what)
    run_tool("git", ["checkout", "-q", commit, "--", *paths], what, cwd=into)
    shutil.rmtree(into / ".git")


@cache
def aiokafka_tests() -> tuple[Path, Path]:
    """A Python with aiokafka, and the directory of its tests, from its repository."""

    def build(into: Path) -> None:
        what = "aiokafka's tests"
        where = os.environ.get("OTTLA_AIOKAFKA_REPOSITORY", AIOKAFKA_REPOSITORY)
        _check_out(where, AIOKAFKA_COMMIT, ["tests", "docker/scripts", "gen-ssl-certs.sh"], into / "source", what)
        run_tool(sys.executable, ["-m", "venv", str(into / "venv")], what)
        run_tool(str(into / "venv" / "bin" / "python"), ["-m", "pip", "install", "-q", *AIOKAFKA_PACKAGES], what)

    built = made("aiokafka", [], build, AIOKAFKA_COMMIT, *AIOKAFKA_PACKAGES)
    return built / "venv" / "bin" / "python", built / "source"


@cache
def kafka_python_tests() -> tuple[Path, Path]:
    """A Python with kafka-python, and its sources with their tests."""
    service = HERE / "suite" / "plugin" / "kafka_python_service.py"

    def build(into: Path) -> None:
        what = "kafka-python's tests"
        python = str(into / "venv" / "bin" / "python")
        run_tool(sys.executable, ["-m", "venv", str(into / "venv")], what)
        sources = ["--no-deps", "--no-binary", ":all:", "-d", str(into), KAFKA_PYTHON]
        run_tool(python, ["-m", "pip", "download", "-q", *sources], what)
        (archive,) = into.glob("*.tar.gz")
        with tarfile.open(archive) as packed:
            packed.extractall(into, filter="data")
        (into / archive.name.removesuffix(".tar.gz")).rename(into / "source")
        # The archive lacks these two.
        (into / "source" / "test" / "__init__.py").touch()
        shutil.copy(service, into / "source" / "test" / "service.py")
        run_tool(python, ["-m", "pip", "install", "-q", str(archive), *KAFKA_PYTHON_PACKAGES], what)

    built = made("kafka-python", [service], build, KAFKA_PYTHON, *KAFKA_PYTHON_PACKAGES)
    return built / "venv" / "bin" / "python", built / "source"


@cache
def frameworks() -> Path:
    """A Python with the frameworks."""

    def build(into: Path) -> None:
        run_tool(sys.executable, ["-m", "venv", str(into)], "the frameworks")
        run_tool(str(into / "bin" / "python"), ["-m", "pip", "install", "-q", *FRAMEWORKS], "the frameworks")

    return made("frameworks", [], build, *FRAMEWORKS, sys.version) / "bin" / "python"


@cache
def kafka_home() -> Path:
    """A directory like an unpacked Kafka: bin/ with the scripts that librdkafka's tests call, and libs/."""

    def write(into: Path) -> None:
        (into / "libs").symlink_to(jars())
        (into / "bin").mkdir()
        options = "-XX:TieredStopAtLevel=1 -Xmx256m -Dorg.slf4j.simpleLogger.defaultLogLevel=error"
        for name, main in KAFKA_SCRIPTS.items():
            script = into / "bin" / name
            script.write_text(
                f'#!/bin/sh\nexec java {options} -cp "{jars()}/*${{CLASSPATH:+:$CLASSPATH}}" {main} "$@"\n'
            )
            script.chmod(0o755)

    return made("kafka", [HERE / "java" / "pom.xml"], write, *KAFKA_SCRIPTS.values())


def bring() -> None:
    """Bring what the short form needs, so that no test waits for a registry. What cannot be had is named on stderr."""
    java = (
        class_archive,
        java_peer,
        streams_peer,
        streams_driver,
        connect,
        kafka_home,
        partial(cluster_tests, "ottla"),
    )
    for each in (*java, node_peer, partial(go_peer, "franz"), kgo_tests, librdkafka_tests):
        try:
            each()
        except (OSError, RuntimeError, subprocess.SubprocessError) as error:
            print(error, file=sys.stderr)


if __name__ == "__main__":
    bring()
