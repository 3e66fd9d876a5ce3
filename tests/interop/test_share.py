"""Share groups with Apache's own consumer and tools, and with franz-go's own tests of its share consumer."""

import os
import subprocess
from itertools import count
from pathlib import Path

import pytest

import ottla
from ottla.broker.share.persister import Persister
from tests.broker.wire_client import WireClient
from tests.interop import toolchain
from tests.interop.apache_tool import ApacheTools
from tests.interop.server import Server
from tests.share.member import create, produce, set_group

pytestmark = pytest.mark.interop

_groups = count()
_TIMEOUT_S = 120


@pytest.fixture
def group(server: Server) -> str:
    """A group that begins at the start of the log."""
    name = f"java-shares-{os.getpid()}-{next(_groups)}"
    with WireClient(server.bootstrap) as client:
        set_group(client, name, {"share.auto.offset.reset": "earliest"})
    return name


def topic_with(server: Server, *sizes: int) -> str:
    """A new topic with batches of these sizes."""
    with WireClient(server.bootstrap) as client:
        topic, _ = create(client)
        for size in sizes:
            produce(client, topic, *(b"%d" % index for index in range(size)))
    return topic


def share(bootstrap: str, group: str, topic: str, *commands: str) -> list[str]:
    """What the Java consumer says to each command."""
    command = [*toolchain.java_peer("Share"), bootstrap, group, topic, *commands]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_java_consumer_accepts_releases_rejects_and_renews(server: Server, group: str) -> None:
    topic = topic_with(server, 4, 2)
    said = share(
        server.bootstrap,
        group,
        topic,
        "open batch_optimized 500",
        "poll 6",
        "ACCEPT 0 1",
        "RELEASE 2 2",
        "REJECT 3 3",
        "RENEW 4 5",
        "commit",
        "poll 2",
        "ACCEPT 4 5",
        "commit",
        "poll 1",
        "ACCEPT 2 2",
        "commit",
        "idle",
        "close",
    )
    assert said[1] == "poll 0x1 1x1 2x1 3x1 4x1 5x1"
    assert said[6] == "commit ok"
    # The consumer gives what was renewed once more before it asks for anything else.
    assert said[7:10] == ["poll 4x1 5x1", "accept", "commit ok"]
    assert said[10:14] == ["poll 2x2", "accept", "commit ok", "idle 0"]


def test_the_java_consumer_takes_over_what_another_had(server: Server, group: str) -> None:
    topic = topic_with(server, 2, 2)
    first = share(server.bootstrap, group, topic, "open record_limit 3", "poll 3", "ACCEPT 0 0", "commit", "close")
    assert first[1:4] == ["poll 0x1 1x1 2x1", "accept", "commit ok"]
    second = share(server.bootstrap, group, topic, "open batch_optimized 500", "take 3", "commit", "idle", "close")
    assert second[1:4] == ["take 1x2 2x2 3x1", "commit ok", "idle 0"]


def test_the_java_consumer_closes_while_its_first_heartbeat_is_held(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The answer to the leave must not wait behind the held heartbeat: the consumer waits for it, for 30 s at most."""
    asked = tmp_path / "asked"
    monkeypatch.setattr("ottla.group.share.heartbeat._HOLD_MS", 600_000)
    # A share coordinator that answers nothing.
    monkeypatch.setattr(Persister, "initialize", lambda *_: asked.touch())
    with ottla.Node() as node:
        with WireClient(node.bootstrap_servers) as client:
            topic, _ = create(client)
        said = share(node.bootstrap_servers, "held", topic, "open batch_optimized 500", f"until {asked}", "timed-close")
    assert said[:2] == ["open", "until true"]
    assert int(said[2].split()[2]) < 15_000, said


def test_apaches_tools_list_describe_reset_and_delete_share_groups(server: Server, group: str) -> None:
    topic = topic_with(server, 5)
    assert share(server.bootstrap, group, topic, "open batch_optimized 500", "poll 5", "ACCEPT 0 2", "commit", "close")[
        1:4
    ]
    with ApacheTools() as tools:

        def run(*words: str) -> str:
            said = tools("kafka-share-groups", "--bootstrap-server", server.bootstrap, *words)
            assert said.code == 0, said
            return said.out

        assert group in run("--list").split()
        assert "Empty" in run("--describe", "--group", group, "--state")
        offsets = run("--describe", "--group", group, "--offsets")
        row = next(line.split() for line in offsets.splitlines() if line.startswith(group))
        assert row[:3] == [group, topic, "0"] and row[-1] == "2", offsets
        reset = ["--reset-offsets", "--to-earliest", "--topic", topic, "--group", group, "--execute"]
        assert topic in run(*reset)
        again = share(server.bootstrap, group, topic, "open batch_optimized 500", "poll 5", "close")
        assert again[1] == "poll 0x1 1x1 2x1 3x1 4x1"
        assert "successful" in run("--delete-offsets", "--group", group, "--topic", topic).lower()
        assert "successful" in run("--delete", "--group", group).lower()
        assert group not in run("--list").split()


def test_franz_gos_own_tests_of_share_groups_pass(server: Server) -> None:
    program, directory = toolchain.kgo_tests()
    environment = {**os.environ, "KGO_SEEDS": server.bootstrap, "KGO_TEST_RF": "1"}
    done = subprocess.run(
        [str(program), "-test.run", "^TestShareGroup(AckOnClose|OffsetsAdmin)$", "-test.timeout", f"{_TIMEOUT_S}s"],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S + 30,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4_000:]
