"""`make image`: build the image with podman or docker, run both compose files, and check what these promise.

- The image is built from the Dockerfile as it stands, under the name `ottla`. `--debian-base` builds it on a stand-in
  for its base image: a Debian made by debootstrap (as root), with Debian's Python, for machines that reach no registry.
- The containers, volumes and networks belong to the compose project `ottla-check` and are removed at the end. The ports
  of the compose files must be free.
- `--build` and `--run` pass options to the engine: `--build '--isolation chroot'` where it cannot run containers while
  it builds, `--run '--ulimit nofile=20000'` where the machine allows fewer open files than podman asks for.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.crash.pause import pause

ROOT = Path(__file__).parents[2]
_DOCKER = Path("packaging") / "docker"
_OTTLA = [sys.executable, "-m", "ottla.cli"]
_PROJECT = "ottla-check"
_BASE = "docker.io/library/python:debian-stand-in"
_BUILD_SECONDS_MAX = 1200
_SECONDS_MAX = 120
#: Its restrictions are those of the compose files.
_RESTRICTED = [
    "--read-only",
    "--tmpfs=/tmp",
    "--cap-drop=ALL",
    "--security-opt=no-new-privileges:true",
    "--ulimit=core=0",
]
_LOOK = """
import os
status = open("/proc/1/status").read()
fields = dict(line.split(":\\t", 1) for line in status.splitlines() if ":\\t" in line)
assert fields["Uid"].split() == ["10001"] * 4, fields["Uid"]
assert (fields["CapEff"].strip("0"), fields["CapBnd"].strip("0"), fields["NoNewPrivs"]) == ("", "", "1"), fields
for path in ("/x", "/etc/x", "/opt/ottla/x"):
    try:
        open(path, "w")
    except OSError:
        continue
    raise AssertionError(f"{path} could be written")
"""


def _run(*command: str, text: str | None = None, seconds: int = _SECONDS_MAX) -> str:
    """Run a command and return its stdout. CalledProcessError has its output."""
    done = subprocess.run(command, cwd=ROOT, input=text, capture_output=True, timeout=seconds, check=False, text=True)
    if done.returncode:
        print(f"{shlex.join(command)}\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
        done.check_returncode()
    return done.stdout


def _ottla(*arguments: str, text: str | None = None) -> str:
    return _run(*_OTTLA, *arguments, text=text)


class _Engine:
    """podman or docker, and its compose."""

    def __init__(self, build: str, run: str) -> None:
        self.name = next((each for each in ("podman", "docker") if shutil.which(each)), "")
        if not self.name:
            sys.exit("neither podman nor docker is installed")
        self._build, self._run = shlex.split(build), shlex.split(run)
        self._compose = ["docker", "compose"]
        if self.name == "podman":
            beside = Path(sys.executable).parent / "podman-compose"
            self._compose = [str(beside), *([f"--podman-run-args={run}"] if run else [])]

    def __call__(self, *arguments: str) -> str:
        return _run(self.name, *arguments)

    def make_base(self) -> None:
        """Make the stand-in. The real one has its own Python in /usr/local."""
        with tempfile.TemporaryDirectory() as directory:
            root = Path(directory, "root")
            packages = "--include=python3,python3-venv,ca-certificates"
            _run("debootstrap", "--variant=minbase", packages, "bookworm", str(root), seconds=_BUILD_SECONDS_MAX)
            (root / "usr/local/bin/python").symlink_to("/usr/bin/python3")
            # A machine behind a proxy that reads TLS has an authority of its own.
            shutil.copy("/etc/ssl/certs/ca-certificates.crt", root / "etc/ssl/certs/ca-certificates.crt")
            archive = Path(directory, "base.tar")
            _run("tar", "-C", str(root), "-cf", str(archive), ".")
            self("import", str(archive), _BASE)

    def build(self, *, stand_in: bool) -> None:
        """Build the image. An image in OCI's format, which is podman's own, has no HEALTHCHECK."""
        form = ["--format", "docker"] if self.name == "podman" else []
        base = ["--build-arg", f"PYTHON={_BASE.rpartition(':')[2]}"] if stand_in else []
        file = ["-f", str(_DOCKER / "Dockerfile"), "-t", "ottla", "."]
        _run(self.name, "build", *form, *base, *self._build, *file, seconds=_BUILD_SECONDS_MAX)

    def start(self, name: str, *arguments: str) -> None:
        """Start a container without a project, under the same restrictions."""
        self("run", "-d", "--name", name, *self._run, *_RESTRICTED, "ottla", *arguments)

    @contextmanager
    def up(self, file: str) -> Iterator[None]:
        """Run the containers of a compose file; after an error, show their logs."""
        compose = [*self._compose, "-p", _PROJECT, "-f", str(_DOCKER / file)]
        try:
            _run(*compose, "up", "-d", "--no-build")
            yield
        except BaseException:
            print(
                subprocess.run([*compose, "logs"], cwd=ROOT, capture_output=True, text=True, check=False).stdout[-4000:]
            )
            raise
        finally:
            subprocess.run([*compose, "down", "-v"], cwd=ROOT, capture_output=True, check=False)

    def containers(self) -> list[str]:
        """The names of the project's containers, in order."""
        label = f"label=com.docker.compose.project={_PROJECT}"
        return sorted(self("ps", "-a", "--filter", label, "--format", "{{.Names}}").split())

    def wait_until_healthy(self, name: str) -> None:
        """Wait for HEALTHCHECK. podman runs it itself only under systemd."""
        deadline = time.monotonic() + _SECONDS_MAX
        while time.monotonic() < deadline:
            if self.name == "podman":
                asked = subprocess.run(["podman", "healthcheck", "run", name], capture_output=True, check=False)
                if asked.returncode == 0:
                    return
            elif self("inspect", name, "--format", "{{.State.Health.Status}}").strip() == "healthy":
                return
            pause(0.5)
        raise AssertionError(f"{name} is not healthy after {_SECONDS_MAX} s")

    def exit_code(self, name: str) -> int:
        """The exit code of a stopped container."""
        return int(self("inspect", name, "--format", "{{.State.ExitCode}}"))


def _one_node(engine: _Engine) -> None:
    """compose.yaml: restrictions, endpoints, a client; records survive a stop, a kill and a new container."""
    with engine.up("compose.yaml"):
        [name] = engine.containers()
        engine.wait_until_healthy(name)
        engine("exec", name, "python", "-c", _LOOK)
        for path in ("health", "ready"):
            with urllib.request.urlopen(f"http://127.0.0.1:9308/{path}", timeout=10) as answer:
                assert json.load(answer)["state"] == "ready"
        _ottla("topics", "create", "checked")
        _ottla("produce", "checked", text="".join(f"{number}\n" for number in range(1000)))
        began = time.monotonic()
        engine("stop", "-t", "60", name)
        assert (engine.exit_code(name), time.monotonic() - began < 20) == (0, True)
        for _ in range(2):
            engine("start", name)
            engine.wait_until_healthy(name)
            assert len(_ottla("consume", "checked", "--from-beginning", "--count", "1000").split()) == 1000
            engine("kill", name)


def _stopped_early(engine: _Engine) -> None:
    """SIGTERM while the node starts: the first process of a container ignores signals that it does not handle."""
    name = f"{_PROJECT}-early"
    try:
        engine.start(name)
        # Python itself needs a moment until it can handle a signal.
        pause(0.3)
        began = time.monotonic()
        engine("stop", "-t", "30", name)
        assert time.monotonic() - began < 15, "SIGTERM was ignored"
    finally:
        subprocess.run([engine.name, "rm", "-f", "-v", name], capture_output=True, check=False)


def _three_nodes(engine: _Engine) -> None:
    """compose.cluster.yaml: three nodes form a cluster, which serves while one of them is down."""
    os.environ["OTTLA_CLUSTER_ID"] = _ottla("storage", "random-uuid").strip()
    with engine.up("compose.cluster.yaml"):
        names = engine.containers()
        for name in names:
            engine.wait_until_healthy(name)
        _ottla("topics", "create", "checked", "-b", "localhost:19092")
        _ottla("produce", "checked", "-b", "localhost:19093", text="one\n")
        engine("kill", names[0])
        _ottla("produce", "checked", "-b", "localhost:19093,localhost:19094", text="two\n")
        found = _ottla("consume", "checked", "--from-beginning", "--count", "2", "-b", "localhost:19094")
        assert sorted(found.split()) == ["one", "two"]
        engine("start", names[0])
        engine.wait_until_healthy(names[0])
        _ottla("cluster", "health", "-b", "localhost:19092")


def main() -> int:
    """Exit code 1 when a check fails; its output is printed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--debian-base", action="store_true", help="make the base image with debootstrap")
    parser.add_argument("--build", default="", metavar="OPTIONS", help="options for the engine's build")
    parser.add_argument("--run", default="", metavar="OPTIONS", help="options for every container")
    words = parser.parse_args()
    engine = _Engine(words.build, words.run)
    if words.debian_base:
        engine.make_base()
    engine.build(stand_in=words.debian_base)
    size = int(engine("image", "inspect", "ottla", "--format", "{{.Size}}"))
    print(f"built with {engine.name}: {size / 1e6:.0f} MB")
    failed = False
    for check in (_one_node, _stopped_early, _three_nodes):
        began = time.monotonic()
        try:
            check(engine)
            verdict = "ok"
        except (AssertionError, OSError, subprocess.SubprocessError) as error:
            verdict, failed = f"FAILED ({error})", True
        print(f"{verdict}: {(check.__doc__ or '').partition(':')[0]}, {time.monotonic() - began:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
