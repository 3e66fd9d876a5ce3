"""ottla users, quorum, partitions, and what operators do with groups and settings."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import ottla
from ottla.client import Admin, ConfigResource, Producer, ResourceType, ShareConsumer, TopicPartition
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.operations.elections import ElectionOutcome
from ottla.operations.throttle import BROKER_RATES, TOPIC_REPLICAS
from tests.cli.tool import Tool, in_process


@pytest.fixture
def two_disks(tmp_path: Path) -> Iterator[tuple[str, list[str]]]:
    """A node with two log directories, and which."""
    paths = [str(tmp_path / "one"), str(tmp_path / "two")]
    with ottla.Node(settings={"log.dirs": ",".join(paths)}) as node:
        yield node.bootstrap_servers, paths


def test_a_user_gets_a_password_from_stdin_and_loses_it(tool: Tool, bootstrap: str, topic: str) -> None:
    said = in_process("users", "set", topic, stdin=b"secret\n", OTTLA_BOOTSTRAP_SERVERS=bootstrap)
    assert said.code == 0, said.err
    assert "secret" not in said.out + said.err
    mine = [row for row in tool("users").rows if row[0] == topic]
    assert mine == [[topic, "SCRAM-SHA-256", "4096"], [topic, "SCRAM-SHA-512", "4096"]]
    assert tool("users", "delete", topic, "-m", "scram-sha-256", "--json", "-y").json["deleted"] == ["SCRAM-SHA-256"]
    assert [each["mechanism"] for each in tool("users", "--json").json if each["user"] == topic] == ["SCRAM-SHA-512"]
    assert tool("users", "delete", topic, "-y").code == 0
    again = tool("users", "delete", topic)
    assert (again.code, again.err) == (
        1,
        f"ottla: {topic} has no password; `ottla users` lists the users who have one\n",
    )


def test_no_password_in_a_pipe_is_told(bootstrap: str) -> None:
    said = in_process("users", "set", "nobody", OTTLA_BOOTSTRAP_SERVERS=bootstrap)
    assert (said.code, said.err) == (1, "ottla: stdin is empty (expected the password on its first line)\n")


def test_the_quorum_shows_who_leads_and_how_far_each_is(tool: Tool) -> None:
    found = tool("quorum", "--json").json
    [leader] = [each for each in found["replicas"] if each["role"] == "leader"]
    assert (leader["node"], leader["lag"]) == (found["leader"], 0)
    assert tool("quorum").rows[0][:2] == [str(found["leader"]), "leader"]


def test_a_voter_that_is_none_is_refused_in_words(tool: Tool) -> None:
    assert tool("quorum", "remove", "99", "x").err.startswith("ottla: invalid directory id: x")
    assert tool("quorum", "remove", "99", "tqOxGIbdSvGJmEkpqtyV0Q", "-y").code == 1
    assert tool("quorum", "add", "9", "tqOxGIbdSvGJmEkpqtyV0Q", "here:1").code == 2


def test_partitions_without_trouble_are_shown_only_when_all_are_wanted(tool: Tool, topic: str) -> None:
    everything = tool("partitions", "list", "--all")
    assert [topic, "1", "1", "1", "1", ""] in everything.rows
    assert tool("partitions").rows == []
    assert tool("partitions").code == everything.code == 0


def test_a_move_to_where_it_is_ends_at_once_and_one_to_nowhere_is_refused(tool: Tool, topic: str) -> None:
    moved = tool("partitions", "move", topic, "--to", "1", "--json").json
    assert moved == {"topic": topic, "partitions": [0, 1], "to": [1], "done": True}
    assert tool("partitions", "move", topic, "--to", "7").err == "ottla: there is no node 7 now; the nodes are 1\n"
    assert tool("partitions", "move", topic, "--to", "one").code == 2
    assert tool("partitions", "move", topic, "--to", "1,1").code == 2
    assert tool("partitions", "move", topic, "--to", "1", "-p", "9").err.endswith(
        "has no partition 9 (expected 0 to 1)\n"
    )
    assert tool("partitions", "moves").rows == []
    assert tool("partitions", "cancel", topic, "--json").json == {"topic": topic, "cancelled": []}


def test_a_throttle_goes_with_the_move_that_it_was_for(tool: Tool, topic: str, bootstrap: str) -> None:
    def throttles() -> list[str | None]:
        resource, broker = ConfigResource(ResourceType.TOPIC, topic), ConfigResource(ResourceType.BROKER, "1")
        with Admin(bootstrap) as admin:
            found = admin.describe_configs([resource, broker]).check()
        rates = [found[broker][name].value if name in found[broker] else None for name in BROKER_RATES]
        return [*(found[resource][name].value for name in TOPIC_REPLICAS), *rates]

    done = tool("partitions", "move", topic, "--to", "1", "--throttle", "5000")
    assert done.code == 0, done.err
    assert throttles() == ["", "", None, None]
    left = tool("partitions", "move", topic, "--to", "1", "--throttle", "5000", "--no-wait")
    assert "unthrottle" in left.err
    assert throttles() == ["0:1,1:1", "", "5000", "5000"]
    assert tool("partitions", "unthrottle", "--json").json == {"topics": [topic]}
    assert throttles() == ["", "", None, None]
    assert tool("partitions", "unthrottle", "--json").json == {"topics": []}
    assert tool("partitions", "move", topic, "--to", "1", "--throttle", "0").code == 2


def test_leaders_that_lead_already_need_no_election(tool: Tool, topic: str) -> None:
    assert tool("partitions", "elect", topic, "--json").json == {"elected": [], "failed": {}}
    assert tool("partitions", "elect", topic).err == "the preferred replicas already lead\n"
    assert tool("partitions", "elect", "-p", "0").code == 2


def test_elections_that_fail_are_named(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two, three = (TopicPartition("t", number) for number in range(3))
    error = KafkaError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)
    outcomes = iter([ElectionOutcome([one], [], failed) for failed in ({two: error}, {three: error, two: error}) * 2])
    monkeypatch.setattr("ottla.cli.ottla.partition.elect_leaders", lambda *_, **__: next(outcomes))
    alone, both = tool("partitions", "elect"), tool("partitions", "elect")
    for said, more in ((alone, False), (both, True)):
        assert (said.code, said.out) == (1, "")
        assert said.err.startswith("t-0 has a new leader\nottla: t-1: ")
        assert said.err.endswith(" (and 1 more)\n") is more
    failed = {"t-1": "PREFERRED_LEADER_NOT_AVAILABLE"}
    said = tool("partitions", "elect", "--json")
    assert (said.code, said.json) == (1, {"elected": ["t-0"], "failed": failed})
    assert tool("partitions", "elect", "--json").json["failed"] == failed | {"t-2": failed["t-1"]}


def test_a_partition_moves_to_another_directory(tool: Tool, two_disks: tuple[str, list[str]], topic: str) -> None:
    server, paths = two_disks
    assert tool("topics", "create", topic, "-b", server).code == 0
    with Producer(server) as producer:
        for _ in range(100):
            producer.send(topic, b"x")
    wrong = tool("partitions", "move-directory", topic, f"{paths[0]}x", "-b", server)
    assert wrong.code == 1
    assert f"(expected {', '.join(sorted(paths))}" in wrong.err
    for path in paths:
        assert tool("partitions", "move-directory", topic, path, "--json", "-b", server).json["done"]
        assert (Path(path) / f"{topic}-0").is_dir()
    assert len(tool("consume", topic, "-e", "-b", server).rows) == 100


def _write(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap) as producer:
        for _ in range(10):
            producer.send(topic, b"x", partition=0)


def test_a_share_group_is_shown_reset_and_forgets(tool: Tool, bootstrap: str, topic: str) -> None:
    _write(bootstrap, topic)
    group = f"{topic}_queue"
    assert tool("configs", "set", "group", group, "share.auto.offset.reset=earliest").code == 0
    shown = tool("consume", topic, "--share", group, "-n", "4")
    assert (shown.code, shown.out) == (0, "x\n" * 4), shown.err
    assert [group, "share", "Empty", "0", "6"] in tool("groups").rows
    assert [topic, "0", "4", "10", "6", ""] in tool("groups", "describe", group).rows
    assert tool("groups", "reset", group, topic, "--to", "-1", "-p", "0", "-y").rows == [[topic, "0", "4", "9"]]
    with ShareConsumer(bootstrap, group_id=group) as consumer:
        consumer.subscribe([topic])
        given: list[int] = []
        while not given:
            given = [record.offset for record in consumer.poll(1.0)]
    assert given == [9]
    assert tool("groups", "forget", group, topic, "--json", "-y").json == {"group": group, "forgot": [topic]}
    assert tool("groups", "describe", group).rows == []


def test_a_group_is_moved_by_so_many_records_and_forgets_a_topic(tool: Tool, bootstrap: str, topic: str) -> None:
    _write(bootstrap, topic)
    group = f"{topic}_group"
    with Admin(bootstrap) as admin:
        admin.alter_group_offsets(group, {TopicPartition(topic, 0): 5}).check()
    assert tool("groups", "reset", group, "--by", "-2", "-y").rows == [[topic, "0", "5", "3"]]
    assert tool("groups", "reset", group, "--by", "99", "-y").rows == [[topic, "0", "3", "10"]]
    assert tool("groups", "reset", group, "--to", "2h", "-y").rows == [[topic, "0", "10", "0"]]
    assert tool("groups", "reset", group, topic, "--by", "1").err.endswith("use --to instead of --by\n")
    assert tool("groups", "reset", group).code == 2
    assert tool("groups", "forget", group, "elsewhere").code == 1
    assert tool("groups", "forget", group, topic, "-y").code == 0
    assert tool("groups", "reset", group, "--to", "latest").err.startswith(f"ottla: {group} has no committed offsets")


def test_settings_of_metrics_and_loggers_are_shown_and_set(tool: Tool, topic: str) -> None:
    assert tool("configs", "set", "metrics", topic, "interval.ms=1000").code == 0
    assert tool("configs", "show", "metrics", topic).rows == [["interval.ms", "1000", "metrics"]]
    assert ["metrics", topic, "interval.ms", "1000"] in tool("configs", "list").rows
    assert tool("configs", "show", "logger", "1").rows
    assert tool("configs", "show", "logger", "kafka").code == 2
