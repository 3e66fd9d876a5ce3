"""What the foreign peers need, brought once into `.cache/interop/` by each language's own client.

Rules:
- Versions are pinned in java/pom.xml, go/go.mod + go.sum and node/package-lock.json.
- Each part is made in a directory named by the hash of its inputs: a change makes it anew, an interrupted build is
  never taken for a finished one (it is renamed into place at the end).
- A tool that is missing is an error that names the tool and who needs it.
"""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CACHE = ROOT / ".cache" / "interop"
TIMEOUT_S = 600


@cache
def jars() -> Path:
    """Apache Kafka's jars and their dependencies (java/pom.xml)."""
    pom = HERE / "java" / "pom.xml"

    def bring(into: Path) -> None:
        goal = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
        _run("mvn", ["-q", "-B", "-f", str(pom), goal, f"-DoutputDirectory={into}"], "Apache's jars")

    return _made("jars", [pom], bring)


def classpath() -> str:
    return f"{jars()}/*"


@cache
def java_peer() -> list[str]:
    """The command of the Java client's program."""
    sources = sorted((HERE / "java").rglob("*.java"))

    def build(into: Path) -> None:
        _run("javac", ["-nowarn", "-cp", classpath(), "-d", str(into), *map(str, sources)], "the Java peer")

    classes = _made("java", [HERE / "java" / "pom.xml", *sources], build)
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
    return [
        "java",
        "-Xmx256m",
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        quiet,
        "-cp",
        f"{classes}:{classpath()}",
        "Peer",
    ]


@cache
def go_peer(name: str) -> list[str]:
    """The command of a Go client's program: `franz` or `sarama`."""
    module = HERE / "go"
    sources = [module / "go.mod", module / "go.sum", *sorted(module.rglob("*.go"))]

    def build(into: Path) -> None:
        _run("go", ["build", "-o", f"{into}/", "./..."], "franz-go and sarama", cwd=module)

    return [str(_made("go", sources, build) / name)]


@cache
def node_peer() -> list[str]:
    """The command of the kafkajs program."""
    sources = [HERE / "node" / name for name in ("package.json", "package-lock.json", "peer.js")]

    def bring(into: Path) -> None:
        for source in sources:
            shutil.copy(source, into)
        _run("npm", ["ci", "--no-audit", "--no-fund", "--loglevel=error"], "kafkajs", cwd=into)

    return [_tool("node", "kafkajs"), str(_made("node", sources, bring) / "peer.js")]


def _made(name: str, inputs: Iterable[Path], make: Callable[[Path], None]) -> Path:
    digest = hashlib.sha256()
    for path in inputs:
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    done = CACHE / f"{name}-{digest.hexdigest()[:12]}"
    if not done.exists():
        making = CACHE / f"{name}-{os.getpid()}.part"
        shutil.rmtree(making, ignore_errors=True)
        making.mkdir(parents=True)
        make(making)
        making.rename(done)
    return done


def _tool(name: str, needed_by: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise FileNotFoundError(f"`{name}` is not on PATH; {needed_by} cannot run without it")
    return path


def _run(tool: str, arguments: Sequence[str], needed_by: str, cwd: Path | None = None) -> None:
    command = [_tool(tool, needed_by), *arguments]
    done = subprocess.run(command, cwd=cwd, capture_output=True, timeout=TIMEOUT_S, stdin=subprocess.DEVNULL)
    if done.returncode:
        said = (done.stdout + done.stderr).decode(errors="replace")
        raise RuntimeError(f"{tool} for {needed_by} ended with {done.returncode}:\n{said[-4000:]}")
