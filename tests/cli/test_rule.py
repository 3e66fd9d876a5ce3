"""ottla quotas, acls, features, disks, transactions, and topics trim."""

import pytest

from ottla.client import KafkaError, Producer
from tests.cli.tool import Tool


def test_a_quota_is_set_shown_and_taken_away(tool: Tool) -> None:
    assert tool("quotas", "set", "--user", "ann", "producer_byte_rate=1000", "request_percentage=20").code == 0
    assert tool("quotas", "set", "--user", "ann", "request_percentage=0.5").err == "user ann: request_percentage=0.5\n"
    assert ["user ann", "producer_byte_rate", "1000"] in tool("quotas").rows
    assert ["user ann", "request_percentage", "0.5"] in tool("quotas").rows
    assert tool("quotas", "unset", "--user", "ann", "producer_byte_rate", "connection_creation_rate").code == 1
    assert tool("quotas", "unset", "--user", "ann", "producer_byte_rate", "request_percentage").code == 0
    assert not any(each["entity"] == {"user": "ann"} for each in tool("quotas", "--json").json)


def test_a_quota_that_is_none_is_refused(tool: Tool) -> None:
    assert tool("quotas", "set", "producer_byte_rate=1").code == 2


def test_acls_say_that_there_is_no_authorizer(tool: Tool) -> None:
    said = tool("acls")
    assert said.code == 1
    assert "authorizer.class.name=" in said.err


def test_features_show_the_release(tool: Tool) -> None:
    levels = {row[0]: row for row in tool("features").rows}
    assert levels["metadata.version"][4].startswith("4.")
    assert tool("features", "set", "group.version=1", "--dry-run").err == "group.version=1 would work\n"
    assert tool("features", "set", "group.version=9").code == 1


def test_disks_show_what_topics_take(tool: Tool, topic: str) -> None:
    assert tool("disks", "--json").json[0]["partitions"] >= 2
    assert topic in {each["topic"] for each in tool("disks", "--topics", "--json").json}


def test_an_open_transaction_is_seen_and_ended_by_a_fence(tool: Tool, bootstrap: str, topic: str) -> None:
    with Producer({"bootstrap.servers": bootstrap, "transactional.id": topic}) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"1", partition=0).result()
        listed = {each["id"]: each for each in tool("transactions", "--json").json}
        assert (listed[topic]["state"], listed[topic]["partitions"]) == ("Ongoing", 1)
        assert tool("transactions", "describe", topic, "--json").json["partitions"] == [f"{topic}-0"]
        assert tool("transactions", "producers", topic, "0", "--json").json[0]["open_from"] == 0
        assert tool("transactions", "hanging", topic, "-m", "0").code == 0
        assert tool("transactions", "fence", topic, "-y").code == 0
        states = {each["id"]: each["state"] for each in tool("transactions", "--json").json}
        assert states[topic] != "Ongoing"
        with pytest.raises(KafkaError):
            producer.commit_transaction()


def test_trim_deletes_the_records_before_a_place(tool: Tool, bootstrap: str, topic: str) -> None:
    with Producer(bootstrap) as producer:
        for number in range(10):
            producer.send(topic, str(number), partition=0)
    assert tool("topics", "trim", topic, "--before", "-3", "-y", "--json").json["deleted"] == 7
    assert tool("consume", topic, "--from-beginning", "-e").out == "7\n8\n9\n"
