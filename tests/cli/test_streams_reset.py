"""kafka-streams-application-reset where scenes cannot show it: members, a plan that lacks a partition, its files."""

from pathlib import Path
from unittest.mock import Mock, call

import pytest

from ottla.cli.kafka.groups import streams_reset
from ottla.cli.kafka.program.tool import Failed
from ottla.client import Admin, Consumer
from tests.cli.kafka_tool import kafka


def test_a_group_with_members_is_left_alone_until_they_are_sent_away(bootstrap: str, topic: str) -> None:
    words = ("--bootstrap-server", bootstrap, "--application-id", topic, "--input-topics", topic)
    with Consumer(bootstrap, group_id=topic, group_protocol="classic") as consumer:
        consumer.subscribe([topic])
        while not consumer.assignment():
            consumer.poll(0.2)
        refused = kafka("kafka-streams-application-reset", *words)
        assert (refused.code, refused.out) == (1, "")
        assert f"Consumer group '{topic}' is still active and has following members: [" in refused.err
        assert "You can use option '--force' to remove active members from the group." in refused.err
        forced = kafka("kafka-streams-application-reset", *words, "--force", "--dry-run")
        assert forced.code == 0, forced.err
        assert forced.out.startswith(f"Force deleting all active members in the group: {topic}\n----Dry run displays")


def test_a_plan_without_a_partition_names_it(bootstrap: str, topic: str, tmp_path: Path) -> None:
    plan = tmp_path / "plan.csv"
    plan.write_text(f"{topic},0,0\n")
    words = ("--bootstrap-server", bootstrap, "--application-id", topic, "--input-topics", topic)
    said = kafka("kafka-streams-application-reset", *words, "--from-file", str(plan))
    assert (said.code, said.err) == (1, f"ERROR: {plan} has no offset for {topic}-1\n")
    with Admin(bootstrap) as admin:
        assert admin.list_group_offsets(topic) == {}


def test_the_file_of_its_client_has_an_older_name_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    properties = tmp_path / "client.properties"
    properties.write_text("client.id=own\n")
    opened = Mock(side_effect=Failed("there is no client"))
    monkeypatch.setattr(streams_reset, "admin", opened)
    older = (
        "Option --config-file has been deprecated and will be removed in a future version. Use --command-config "
        "instead.\n"
    )
    for name, out in (("command-config", ""), ("config-file", older)):
        said = kafka("kafka-streams-application-reset", "--application-id", "g", f"--{name}", str(properties))
        assert said == (1, out, "ERROR: there is no client\n")
    assert opened.call_args_list == [call("localhost:9092", {"client.id": "own"})] * 2
