"""Columns of numbers end at the right, below their titles; columns of Kafka's helps are wrapped side by side."""

import pytest

from ottla.cli.kafka.program.option import Option, help_text
from ottla.client import Admin, Producer, TopicPartition
from tests.cli.tool import Tool


@pytest.mark.parametrize(
    ("words", "numbers"),
    [
        ("topics list", ["partitions", "replicas", "records", "size"]),
        ("topics describe {topic}", ["partition", "leader", "start", "end", "records"]),
        ("groups list", ["members", "lag"]),
        ("groups describe {topic}_group", ["partition", "committed", "end", "lag"]),
        ("groups reset {topic}_group --to 0 -n", ["partition", "before", "after"]),
        ("features", ["level", "least", "most"]),
        ("disks", ["node", "partitions", "logs", "free", "total"]),
        ("cluster", ["node", "logs", "free"]),
        ("quotas", ["limit"]),
        ("transactions producers {topic} 0", ["producer", "epoch", "last sequence"]),
    ],
)
def test_numbers_end_below_the_end_of_their_title(
    tool: Tool, bootstrap: str, topic: str, words: str, numbers: list[str]
) -> None:
    with Producer(bootstrap) as producer:
        for _ in range(12):
            producer.send(topic, b"x", partition=0)
    with Admin(bootstrap) as admin:
        admin.alter_group_offsets(f"{topic}_group", {TopicPartition(topic, 0): 11, TopicPartition(topic, 1): 0}).check()
        admin.alter_client_quotas(
            [({"user": name}, {"consumer_byte_rate": rate}) for name, rate in (("bob", 5.0), ("eve", 1_000_000.0))]
        ).check()
    header, *rows = tool(*words.format(topic=topic).split(), "--table").out.splitlines()
    assert rows
    at = 0
    for title in numbers:
        at = header.index(title, at) + len(title)
        for row in rows:
            assert row[at - 1] != " ", (title, row)
            assert row[at : at + 1] in ("", " "), (title, row)


def test_kafkas_help_shows_every_line_of_a_name_and_of_its_text() -> None:
    long_name = Option("a-name", "Short.", "a value that is described at some length")
    long_text = Option("b", " ".join(f"word{number}" for number in range(30)))
    lines = help_text([long_name, long_text]).splitlines()
    joined = " ".join(" ".join(lines).split())
    assert all(f"word{number}" in joined.split() for number in range(30))
    assert sum("word" in line for line in lines) > 1
    (first, second), ((name, about), *_) = lines[:2], [line.split("  ", 1) for line in lines if line.startswith("--b")]
    assert first.index("Description") == second.index("-----------")
    assert (name, about.strip().startswith("word0 ")) == ("--b", True)
    start = next(line.index("word0") for line in lines if "word0" in line)
    assert start == first.index("Description")
    assert "at some length>" in joined
