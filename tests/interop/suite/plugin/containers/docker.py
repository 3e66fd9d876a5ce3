"""As much of docker's Python client as aiokafka's tests call. A container is a node on this machine.

`OTTLA_CONTAINERS` tells in JSON: `node`, the command that starts one, which takes the container's environment and the
directory of the certificates; `root`, where it runs; and `scripts`, the directory of Kafka's scripts.
"""

import json
import os
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

_STOP_S = 60
#: Options that address ZooKeeper, each with a value.
_ZOOKEEPER = ("--authorizer-properties", "--zookeeper")


class Container:
    """What aiokafka's tests do with a container."""

    def exec_run(self, cmd: str | Sequence[str], **_: Any) -> tuple[int, bytes]:
        """Run a command in it: its code, and what it said."""
        raise AssertionError(f"nothing runs {cmd} here")

    def stop(self) -> None:
        """Stop it."""


models = SimpleNamespace(containers=SimpleNamespace(Container=Container))


class _Node(Container):
    def __init__(self, environment: Mapping[str, Any], certificates: str) -> None:
        self._told = json.loads(os.environ["OTTLA_CONTAINERS"])
        self._bootstrap = f"{environment['ADVERTISED_HOST']}:{environment['ADVERTISED_PORT']}"
        command = [*self._told["node"], json.dumps(dict(environment)), certificates]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, cwd=self._told["root"])

    def exec_run(self, cmd: str | Sequence[str], **_: Any) -> tuple[int, bytes]:
        """Run one of Kafka's scripts, at this node instead of ZooKeeper."""
        script, *options = shlex.split(cmd) if isinstance(cmd, str) else cmd
        for each in _ZOOKEEPER:
            if each in options:
                place = options.index(each)
                del options[place : place + 2]
        program = Path(self._told["scripts"]) / Path(script).name
        done = subprocess.run(
            [program, "--bootstrap-server", self._bootstrap, *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        return done.returncode, done.stdout

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(_STOP_S)


class _Script(Container):
    """A container that runs a script of the tests in a directory of theirs."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def exec_run(self, cmd: str | Sequence[str], **_: Any) -> tuple[int, bytes]:
        shell, script = list(cmd)
        done = subprocess.run(
            [shell, str(Path(script.lstrip("/")).resolve())],
            cwd=self._directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        return done.returncode, done.stdout


class _Containers:
    def run(self, *, volumes: Mapping[Any, Any], environment: Mapping[str, Any] | None = None, **_: Any) -> Container:
        (directory,) = (str(each) for each in volumes if Path(each).is_dir())
        return _Script(directory) if environment is None else _Node(environment, directory)


class Client:
    """Docker's client, for tests that bring no image."""

    containers = _Containers()

    def close(self) -> None:
        """Do nothing."""


def from_env() -> Client:
    return Client()
