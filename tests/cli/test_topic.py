"""`ottla topics`."""

import json

from ottla.client import Producer
from tests.cli.tool import Tool, on_terminal


def test_a_created_topic_is_listed_with_its_partitions_and_records(tool: Tool) -> None:
    made = tool("topics", "create", "made", "-p", "3", "-s", "retention.ms=3600000", "--json")
    assert made.json == [{"topic": "made", "partitions": 3, "replicas": 1}]
    assert ["made", "3", "1", "0", "0 B"] in tool("topics").rows
    listed = {each["topic"]: each for each in tool("topics", "--json").json}
    assert listed["made"] == {"topic": "made", "partitions": 3, "replicas": 1, "records": 0, "bytes": 0}


def test_a_described_topic_shows_leaders_offsets_and_its_own_settings(tool: Tool) -> None:
    tool("topics", "create", "described", "-s", "retention.ms=1000")
    described = tool("topics", "describe", "described", "--json").json
    assert described["configs"] == {"retention.ms": "1000"}
    assert described["partitions"] == [
        {"partition": 0, "leader": 1, "replicas": [1], "isr": [1], "start_offset": 0, "end_offset": 0}
    ]


def test_a_topic_grows_and_goes(tool: Tool, topic: str) -> None:
    assert tool("topics", "grow", topic, "-p", "5").code == 0
    assert len(tool("topics", "describe", topic, "--json").json["partitions"]) == 5
    assert tool("topics", "delete", topic, "--yes").code == 0
    assert topic not in [row[0] for row in tool("topics").rows]


def test_a_topic_that_is_there_already_is_an_error_unless_that_is_fine(tool: Tool, topic: str) -> None:
    again = tool("topics", "create", topic)
    assert again.code == 1
    assert topic in again.err
    assert "already" in again.err
    assert tool("topics", "create", topic, "--if-not-exists").code == 0


def test_of_several_topics_those_that_were_created_and_those_that_were_not_are_told(tool: Tool, topic: str) -> None:
    said = tool("topics", "create", topic, f"{topic}_a", f"{topic}_a", "t?", f"{topic}_b")
    assert (said.code, said.out) == (1, "")
    *made, refused = said.err.splitlines()
    assert made == [f"created {topic}_a with 1 partition", f"created {topic}_b with 1 partition"]
    assert refused.startswith(f"ottla: {topic}: Topic '{topic}' already exists; t?: Topic name is invalid")
    said = tool("topics", "create", topic, f"{topic}_c", "-p", "3", "--json")
    assert (said.code, said.json) == (1, [{"topic": f"{topic}_c", "partitions": 3, "replicas": 1}])
    assert json.loads(said.err)["error"] == "TOPIC_ALREADY_EXISTS"
    both = tool("topics", "create", topic, f"{topic}_d", "--if-not-exists")
    assert (both.code, both.err) == (0, f"created {topic}_d with 1 partition\n")


def test_a_wrong_setting_is_one_line_that_says_what_would_be_right(tool: Tool) -> None:
    said = tool("topics", "create", "wrong", "-s", "retention.ms=soon")
    assert said.code == 1
    assert said.err.startswith(
        "ottla: wrong: Invalid value soon for configuration retention.ms: expected a whole number, -1 or more"
    )
    assert said.err.count("\n") == 1
    assert said.out == ""


def test_a_topic_that_is_not_there_is_named(tool: Tool) -> None:
    said = tool("topics", "describe", "nowhere")
    assert (said.code, said.out) == (1, "")
    assert "nowhere" in said.err
    assert "there is no topic" in said.err


def test_an_option_before_the_subcommand_holds_for_it(tool: Tool, bootstrap: str, topic: str) -> None:
    tool._monkeypatch.setenv("OTTLA_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    assert topic in [row[0] for row in tool("topics", "-b", bootstrap, "list").rows]
    assert topic in [each["topic"] for each in tool("topics", "-b", bootstrap, "--json", "list").json]


def test_a_table_has_colours_on_a_terminal_and_none_in_a_pipe(tool: Tool, bootstrap: str, topic: str) -> None:
    shown = on_terminal("topics", "describe", topic, OTTLA_BOOTSTRAP_SERVERS=bootstrap)
    assert shown.code == 0
    assert "\x1b[" in shown.out
    assert "in sync" in shown.out
    assert "\x1b[" not in tool("topics", "describe", topic).out
    plain = on_terminal("topics", "describe", topic, OTTLA_BOOTSTRAP_SERVERS=bootstrap, NO_COLOR="1")
    assert "\x1b[3" not in plain.out


def test_deleting_asks_on_a_terminal(bootstrap: str, tool: Tool, topic: str) -> None:
    with Producer(bootstrap) as producer:
        producer.send(topic, b"one")
    asked = on_terminal("topics", "delete", topic, typed=[("forever?", b"n\n")], OTTLA_BOOTSTRAP_SERVERS=bootstrap)
    assert f"delete {topic} with 1 record forever?" in asked.out
    assert asked.out.endswith("n\nnothing was changed\n")
    assert asked.code == 130
    assert topic in [row[0] for row in tool("topics").rows]


def test_json_is_one_document_in_a_pipe(tool: Tool) -> None:
    assert json.loads(tool("topics", "--json", "list").out) == tool("topics", "list", "--json").json


def test_a_pipe_gets_headings_and_aligned_columns_where_they_are_wanted(tool: Tool, topic: str) -> None:
    head, *rows = tool("topics", "list", topic, "--table").out.splitlines()
    assert head.split() == ["topic", "partitions", "replicas", "records", "size"]
    assert rows[0].split() == [topic, "2", "1", "0", "0", "B"]
    assert head.index("partitions") + len("partitions") == rows[0].index(" 2 ") + 2
