"""Kafka Streams with the streams group protocol (KIP-1071): an application of Apache's own library runs on the node.

Counts are exact throughout (processing.guarantee=exactly_once_v2), through instances that come, go and are killed and
through a node that is restarted and killed.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from time import monotonic, sleep

import pytest

from ottla.client import Admin, ConfigResource, Consumer, Producer, ResourceType, TopicPartition
from tests.interop.server import Server
from tests.interop.streams_app import PATIENCE_S, App

pytestmark = [pytest.mark.interop, pytest.mark.timeout(400)]

_WORDS = ("one", "two", "three", "four", "five")
_ALL = {f"{subtopology}_{partition}" for subtopology in (0, 1) for partition in range(3)}


class Counts:
    """What the application has counted, as its output says."""

    def __init__(self, server: Server, topic: str) -> None:
        self._server = server
        self._topic = topic
        self.seen: dict[str, int] = {}

    def await_counts(self, expected: Counter[str]) -> None:
        """Read the output from its start until it says this; it must never say more."""
        deadline = monotonic() + PATIENCE_S
        settings = {"bootstrap.servers": self._server.bootstrap, "isolation.level": "read_committed"}
        with Consumer(settings, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition(self._topic, 0)])
            self.seen = {}
            while self.seen != dict(expected):
                assert monotonic() < deadline, f"{self.seen} instead of {dict(expected)}"
                for record in consumer.poll(0.5):
                    assert record.key is not None
                    assert record.value is not None
                    word, count = bytes(record.key).decode(), int.from_bytes(record.value, "big")
                    assert count == self.seen.get(word, 0) + 1, f"{word}: {count} follows {self.seen.get(word, 0)}"
                    assert count <= expected[word]
                    self.seen[word] = count


def send(server: Server, topic: str, lines: int) -> Counter[str]:
    """Lines of words; how often each word was in them."""
    with Producer(bootstrap_servers=server.bootstrap) as producer:
        for number in range(lines):
            text = " ".join((_WORDS[number % 5], _WORDS[number % 3]))
            producer.send(topic, text.encode(), key=str(number).encode())
        producer.flush()
    words = [word for number in range(lines) for word in (_WORDS[number % 5], _WORDS[number % 3])]
    return Counter(words)


def until(done: Callable[[], bool], what: str) -> None:
    deadline = monotonic() + PATIENCE_S
    while not done():
        assert monotonic() < deadline, what
        sleep(0.2)


@pytest.fixture
def topics(server: Server, name: str) -> tuple[str, str]:
    """Input and output."""
    with Admin(server.bootstrap) as admin:
        admin.create_topic(f"{name}-in", 3)
        admin.create_topic(f"{name}-out", 1)
    return f"{name}-in", f"{name}-out"


@pytest.fixture
def run(server: Server, name: str, topics: tuple[str, str], tmp_path: Path) -> Iterator[Callable[..., App]]:
    """Starts instances of one application, and ends them."""
    with ExitStack() as stack:
        made: list[App] = []

        def start(**settings: str) -> App:
            directory = tmp_path / f"state-{len(made)}"
            made.append(stack.enter_context(App(server.bootstrap, name, topics, directory, **settings)))
            return made[-1]

        yield start


def shared(*apps: App) -> bool:
    """Does each have something, and nobody what somebody else has?"""
    given = [app.tasks()[0] for app in apps]
    return all(given) and sum(map(len, given)) == len(_ALL) and set().union(*given) == _ALL


def test_an_application_grows_shrinks_and_outlives_kills(
    server: Server, name: str, topics: tuple[str, str], run: Callable[..., App]
) -> None:
    source, out = topics
    exact = {"processing_guarantee": "exactly_once_v2"}
    counts = Counts(server, out)
    sent = send(server, source, 30)
    first = run(**exact)
    counts.await_counts(sent)
    assert first.tasks() == (_ALL, set())
    with Admin(server.bootstrap) as admin:
        made = {topic.name for topic in admin.list_topics() if topic.name.startswith(f"{name}-")}
        assert made == {source, out, f"{name}-words-repartition", f"{name}-counts-changelog"}
        resource = ConfigResource(ResourceType.TOPIC, f"{name}-counts-changelog")
        configs = admin.describe_config(resource)
        assert configs["cleanup.policy"].value == "compact"
    second, third = run(**exact), run(**exact)
    until(lambda: shared(first, second, third), "three instances share the tasks")
    sent += send(server, source, 30)
    counts.await_counts(sent)
    third.kill()
    server.restart()
    sent += send(server, source, 30)
    until(lambda: shared(first, second), "two instances share the tasks of three")
    counts.await_counts(sent)
    server.kill()
    server.start()
    sent += send(server, source, 30)
    second.close()
    until(lambda: first.tasks()[0] == _ALL, "the last instance has all tasks")
    counts.await_counts(sent)
    with Admin(server.bootstrap) as admin:
        group = admin.describe_streams_group(name)
        assert (group.state, len(group.members)) == ("Stable", 1)
    first.close()


def test_standby_tasks_and_hosts_are_told_and_one_instance_ends_all(
    server: Server, name: str, topics: tuple[str, str], run: Callable[..., App]
) -> None:
    with Admin(server.bootstrap) as admin:
        admin.alter_config(ConfigResource(ResourceType.GROUP, name), {"streams.num.standby.replicas": "1"})
    send(server, topics[0], 10)
    one, two = run(application_server="one:1"), run(application_server="two:2")

    def settled() -> bool:
        (active, standby), (other_active, other_standby) = one.tasks(), two.tasks()
        stateful = {task for task in _ALL if task.startswith("1_")}
        return (
            active | other_active == _ALL
            and standby == other_active & stateful
            and other_standby == active & stateful
            and not active & other_active
        )

    until(settled, "each follows the state of the other's tasks")

    def known(app: App) -> bool:
        hosts = app.ask("hosts").split()[1:]
        return [host.split("=")[0] for host in hosts] == ["one:1", "two:2"] and all(
            host.split("=")[1] for host in hosts
        )

    until(lambda: known(one) and known(two), "both know where everything is")
    one.ask("poison", "poisoned")
    two.ask("poison", "poisoned")
    send(server, topics[0], 1)
    for app in (one, two):
        app.await_line("state ERROR")
    with Admin(server.bootstrap) as admin:
        until(lambda: admin.describe_streams_group(name).state == "Empty", "all members leave")
