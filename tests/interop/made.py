"""What is brought or built once, and kept in `.cache/interop/`.

Rules:
- Each part is made in a directory named by the hash of its inputs: a change makes it anew, an interrupted build is
  never taken for a finished one (it is renamed into place at the end).
- A tool that is missing is an error that names the tool and who needs it.
"""

import hashlib
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
CACHE = HERE.parent.parent / ".cache" / "interop"
TIMEOUT_S = 600
#: Tools that fetch, and the pauses before they are run again: a registry may fail once, or be slow.
_FETCHES = {"apt-get", "git", "go", "mvn", "npm"}
_PAUSES_S = (2.0, 10.0)
_making = threading.RLock()


def made(name: str, inputs: Iterable[Path], make: Callable[[Path], None], *also: str) -> Path:
    """What `make` makes of these files and these texts, made once."""
    digest = hashlib.sha256("\n".join(also).encode())
    for path in inputs:
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    done = CACHE / f"{name}-{digest.hexdigest()[:12]}"
    # Suites ask for it on several threads; processes have names of their own.
    with _making:
        if not done.exists():
            making = CACHE / f"{name}-{os.getpid()}.part"
            shutil.rmtree(making, ignore_errors=True)
            making.mkdir(parents=True)
            make(making)
            making.rename(done)
    return done


def tool_path(name: str, needed_by: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise FileNotFoundError(f"`{name}` is not on PATH; {needed_by} cannot run without it")
    return path


def run_tool(
    tool: str, arguments: Sequence[str], needed_by: str, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> str:
    """Run a tool to its end, one that fetches up to three times; what it printed."""
    command = [tool_path(tool, needed_by), *arguments]
    environment = {**os.environ, **(env or {})}
    pauses = iter(_PAUSES_S if tool in _FETCHES else ())
    while True:
        done = subprocess.run(
            command, cwd=cwd, env=environment, capture_output=True, timeout=TIMEOUT_S, stdin=subprocess.DEVNULL
        )
        pause_s = next(pauses, None) if done.returncode else None
        if pause_s is None:
            break
        time.sleep(pause_s)
    if done.returncode:
        said = (done.stdout + done.stderr).decode(errors="replace")
        raise RuntimeError(f"{tool} for {needed_by} ended with {done.returncode}:\n{said[-4000:]}")
    return done.stdout.decode(errors="replace")


def maven_jars(name: str, pom: Path, *options: str) -> Path:
    """The jars that a pom.xml depends on."""

    def bring(into: Path) -> None:
        goal = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
        run_tool("mvn", ["-q", "-B", "-f", str(pom), *options, goal, f"-DoutputDirectory={into}"], "Apache's jars")

    return made(name, [pom], bring, *options)
