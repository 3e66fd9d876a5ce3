"""Topics that the brokers do not describe to this client: the program is told, and the others are read."""

from typing import Any

import pytest

import ottla
from ottla.client import Admin, Consumer, ErrorCode, KafkaError, Producer, ShareConsumer, TopicPartition
from ottla.wire.api import ApiKey
from tests.client.conftest import eventually, share_from_the_start

_KINDS: dict[str, tuple[Any, dict[str, str]]] = {
    "classic": (Consumer, {"auto.offset.reset": "earliest"}),
    "consumer": (Consumer, {"auto.offset.reset": "earliest", "group.protocol": "consumer"}),
    "share": (ShareConsumer, {}),
}


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        *((kind, ErrorCode.TOPIC_AUTHORIZATION_FAILED) for kind in _KINDS),
        ("consumer", ErrorCode.INVALID_TOPIC_EXCEPTION),
    ],
)
def test_a_poll_tells_which_subscribed_topic_is_refused(
    node: ottla.Node, name: str, kind: str, code: ErrorCode
) -> None:
    make, more = _KINDS[kind]
    with Admin(node.bootstrap_servers) as admin, Producer(node.bootstrap_servers) as producer:
        share_from_the_start(admin, name)
        for topic in (f"{name}-open", f"{name}-secret"):
            admin.create_topic(topic, 1)
            producer.send(topic, topic).result(30)
    settings = {"bootstrap.servers": node.bootstrap_servers, "metadata.max.age.ms": "300", "client.id": name, **more}
    seen: list[bytes] = []
    told: list[tuple[ErrorCode, bool]] = []
    with make(settings, group_id=name) as consumer:
        with node.faults.error(ApiKey.METADATA, code, topic=f"{name}-secret", times=None, client_id=name):
            consumer.subscribe([f"{name}-open", f"{name}-secret"])

            def refused() -> bool:
                try:
                    seen.extend(record.value for record in consumer.poll(0.1))
                except KafkaError as error:
                    told.append((error.code, f"{name}-secret" in str(error)))
                    return True
                return False

            def gives(*topics: str) -> bool:
                refused()
                return {f"{name}-{each}".encode() for each in topics} == set(seen)

            eventually(refused, 20)
            eventually(lambda: gives("open"), 20)
            # The next answer says so again.
            eventually(refused, 20)
        eventually(lambda: gives("open", "secret"), 20)
    assert set(told) == {(code, True)}


def test_a_poll_tells_that_an_assigned_topic_is_refused(node: ottla.Node, name: str) -> None:
    with Admin(node.bootstrap_servers) as admin:
        admin.create_topic(name, 1)
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    with (
        node.faults.error(ApiKey.METADATA, code, topic=name, times=None, client_id=name),
        Consumer(node.bootstrap_servers, client_id=name) as consumer,
    ):
        partition = TopicPartition(name, 0)
        consumer.assign([partition])
        consumer.seek(partition, 0)
        with pytest.raises(KafkaError) as raised:
            consumer.poll(20)
        assert raised.value.code is code and name in str(raised.value)
