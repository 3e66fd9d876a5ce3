"""The files for operators: each setting and command in them is taken by our parser, and what they start starts."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.broker.metadata.registration import voter_endpoints
from ottla.raft.checkpoint import VoterEndpoint
from ottla.settings.properties import read
from ottla.settings.server.settings import ServerSettings
from ottla.settings.server.unserved import notices
from tests.cli.test_start import running, server_properties
from tests.cli.tool import OTTLA

PACKAGING = Path(__file__).parents[2] / "packaging"
UNIT = PACKAGING / "systemd" / "ottla.service"
_ARGUMENT = re.compile(r"\"([a-z.]+=[^\"]+)\"")
_BLOCKED = ["env", "--block-signal=TERM"]
_ID = "4L6g3nShT-eMCtK--X86sw"


def _dockerfile() -> dict[str, list[str]]:
    """The instructions of the last stage."""
    text = (PACKAGING / "docker" / "Dockerfile").read_text().replace("\\\n", " ")
    found: dict[str, list[str]] = {}
    for line in text.rpartition("FROM ")[2].splitlines():
        name, _, rest = line.partition(" ")
        found.setdefault(name, []).append(rest.strip())
    return found


def _pairs(arguments: list[str]) -> dict[str, str]:
    return dict(each.split("=", 1) for each in arguments)


def _nodes() -> dict[str, dict[str, str]]:
    """By where it stands, the settings of each node that the files describe."""
    base = read((PACKAGING / "kubernetes" / "cluster.properties").read_text())
    compose = (PACKAGING / "docker" / "compose.cluster.yaml").read_text().split("\n  node-")[1:]
    found = {f"compose {each[0]}": base | _pairs(_ARGUMENT.findall(each)) for each in compose}
    manifest = (PACKAGING / "kubernetes" / "ottla.yaml").read_text()
    for pod in range(3):
        # What the shell of the pod makes of them.
        text = manifest.replace("$((${POD##*-} + 1))", str(pod + 1)).replace("${POD}", f"ottla-{pod}")
        arguments = _ARGUMENT.findall(text.replace("${NAMESPACE}", "ottla").partition("exec ottla-node")[2])
        found[f"pod {pod}"] = base | _pairs([each for each in arguments if not each.startswith("OTTLA")])
    found["systemd"] = read((PACKAGING / "systemd" / "server.properties").read_text())
    return found


@pytest.mark.parametrize("where", _nodes())
def test_every_setting_is_known_and_served(where: str) -> None:
    settings = ServerSettings.parse(_nodes()[where])
    assert settings.unknown() == []
    assert notices(settings) == []
    voters = {each.id: each.port for each in settings.controller_quorum_voters}
    if voters:
        assert set(voters) == {1, 2, 3}
        assert settings.node_id in voters
        ports = {each.name: each.port for each in settings.listeners}
        assert set(voters.values()) == {ports["CONTROLLER"]}
        # A leader tells the other voters where it is: not localhost, and not this machine's name.
        [own] = [each for each in settings.controller_quorum_voters if each.id == settings.node_id]
        assert voter_endpoints(settings) == (VoterEndpoint("CONTROLLER", own.host, own.port),)


def test_the_unit_starts_a_node(tmp_path: Path) -> None:
    """`ExecStart` as it stands, in a temporary directory."""
    [command] = re.findall(r"^ExecStart=(.*)$", UNIT.read_text(), re.MULTILINE)
    program, *arguments = command.split()
    assert program == "/opt/ottla/bin/ottla"
    text = (PACKAGING / "systemd" / "server.properties").read_text()
    file = tmp_path / "server.properties"
    text = text.replace("/var/lib/ottla", str(tmp_path))
    file.write_text(re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:0", text))
    subprocess.run([*OTTLA, "storage", "format", "-t", _ID, "-c", file, "--standalone"], check=True, timeout=30)
    arguments = [each.replace("/etc/ottla", str(tmp_path)) for each in arguments]
    with running(*arguments) as (process, _):
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


def test_wrong_settings_end_with_the_code_that_the_unit_does_not_restart(tmp_path: Path) -> None:
    (tmp_path / "server.properties").write_text("process.roles=broker\nnode.id=x\n")
    done = subprocess.run([*OTTLA, "start", str(tmp_path / "server.properties")], capture_output=True, timeout=30)
    assert f"RestartPreventExitStatus={done.returncode}" in UNIT.read_text().splitlines()


def test_the_image_starts_a_node_that_is_healthy_until_it_stops(tmp_path: Path) -> None:
    """CMD as it stands, with this machine's directories and free ports, and HEALTHCHECK's command."""
    instructions = _dockerfile()
    assert json.loads(instructions["ENTRYPOINT"][0]) == [*_BLOCKED, "ottla"]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
    arguments = json.loads(instructions["CMD"][0])
    arguments = [
        each.replace("0.0.0.0", "127.0.0.1")
        .replace("localhost", "127.0.0.1")
        .replace("/data", str(tmp_path))
        .replace("9308", port)
        for each in arguments
    ]
    python, *check = json.loads(instructions["HEALTHCHECK"][0].partition("CMD ")[2])
    assert python == "python"
    healthy = [sys.executable, *(each.replace("9308", port) for each in check)]
    with running(*arguments, "--port", "0") as (process, _):
        # Metrics are served a turn of the loop after the line; the check's own retries stand for this one.
        assert any(subprocess.run(healthy, capture_output=True, timeout=30).returncode == 0 for _ in range(3))
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    assert subprocess.run(healthy, capture_output=True, timeout=30).returncode != 0


def test_the_script_of_the_image_formats_once_and_becomes_the_node(tmp_path: Path) -> None:
    base = tmp_path / "cluster.properties"
    base.write_text((PACKAGING / "kubernetes" / "cluster.properties").read_text().replace("/data", str(tmp_path)))
    settings = ["node.id=1", "listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0"]
    settings += ["controller.quorum.voters=1@127.0.0.1:1", "metrics.listener=127.0.0.1:0"]
    script = [str(PACKAGING / "docker" / "ottla-node"), str(base), *settings]
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "OTTLA_CLUSTER_ID": _ID,
        "OTTLA_SETTINGS": str(tmp_path / "server.properties"),
    }
    for _ in range(2):
        with subprocess.Popen(
            script, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as node:
            try:
                assert node.stdout is not None
                lines = iter(node.stdout)
                assert " ready on " in next(line for line in lines if line.startswith("ottla: node"))
                node.send_signal(signal.SIGTERM)
                assert node.wait(30) == 0
            finally:
                node.kill()
    assert _ID in (tmp_path / "log" / "meta.properties").read_text()
    readable = [each for each in tmp_path.rglob("*") if each != base and each.stat().st_mode & 0o007]
    assert readable == [], "they hold passwords and records"


def test_the_script_of_the_image_needs_an_id(tmp_path: Path) -> None:
    """The manifests set an empty one, which the operator replaces: two clusters must not share an id."""
    [default] = re.findall(r"OTTLA_CLUSTER_ID=(\S*)", (PACKAGING / "kubernetes" / "kustomization.yaml").read_text())
    without = subprocess.run(
        [PACKAGING / "docker" / "ottla-node", tmp_path / "cluster.properties"],
        env=os.environ | {"OTTLA_CLUSTER_ID": default},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (without.returncode != 0, "the same for all its nodes" in without.stderr) == (True, True)


def test_sigterm_ends_the_script_of_the_image_before_it_becomes_the_node(tmp_path: Path) -> None:
    """A container's first process ignores the signals that it does not handle. A file without an end holds it up."""
    base = tmp_path / "cluster.properties"
    os.mkfifo(base)
    environment = os.environ | {"OTTLA_CLUSTER_ID": _ID, "OTTLA_SETTINGS": str(tmp_path / "server.properties")}
    with subprocess.Popen([PACKAGING / "docker" / "ottla-node", base], env=environment) as script:
        with base.open("w"):
            script.send_signal(signal.SIGTERM)
        assert script.wait(30) == 128 + signal.SIGTERM


@pytest.mark.parametrize("given", [["start", "--port", "0"], ["start", "FILE"]])
def test_sigterm_before_the_node_can_handle_it_is_kept_and_stops_it(tmp_path: Path, given: list[str]) -> None:
    """What `env` of the entry points does: the signal is blocked when the interpreter starts, and comes at once."""
    more = ["--data", str(tmp_path)] if "FILE" not in given else []
    arguments = [server_properties(tmp_path) if each == "FILE" else each for each in given]
    if "FILE" in given:
        subprocess.run([*OTTLA, "storage", "format", "-s", "-t", _ID, "-c", arguments[1]], check=True, timeout=60)
    blocked = "import os, signal, sys; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM]); "
    blocked += "os.kill(os.getpid(), signal.SIGTERM); os.execv(sys.argv[1], sys.argv[1:])"
    done = subprocess.run(
        [sys.executable, "-c", blocked, *OTTLA, *arguments, *more], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, "stopped" in done.stdout) == (0, True), done.stderr
    script = (PACKAGING / "docker" / "ottla-node").read_text()
    assert f"exec {' '.join(_BLOCKED)} ottla start" in script


def test_files_name_files_that_are_there() -> None:
    root = PACKAGING.parent
    text = (PACKAGING / "docker" / "Dockerfile").read_text()
    for sources in re.findall(r"^COPY (?!--from)(?:--\S+ )*(.+) \S+$", text, re.MULTILINE):
        assert [each for each in sources.split() if not (root / each).exists()] == []
    kept = (PACKAGING / "docker" / "Dockerfile.dockerignore").read_text()
    for each in re.findall(r"^!(.+)$", kept, re.MULTILINE):
        assert (root / each).exists()
    for name in ("compose.yaml", "compose.cluster.yaml"):
        compose = (PACKAGING / "docker" / name).read_text()
        assert (PACKAGING / "docker" / "../.." / "packaging/docker/Dockerfile").exists()
        assert "dockerfile: packaging/docker/Dockerfile" in compose
        # A container that asks for more than its daemon may give does not start; the node uses all that it gets.
        assert "nofile" not in compose
        for mounted in re.findall(r"\"(\.\./[^:\"]+):", compose):
            assert (PACKAGING / "docker" / mounted).exists()
