"""Files of properties for the clients, readers and formatters of Kafka's tools."""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

import pytest

from ottla.cli.kafka.program.tool import Failed
from tests.cli.kafka_tool import SCRIPTS, kafka


@pytest.mark.parametrize("group", ["console-consumer", "console-share-consumer"])
def test_the_files_of_properties_are_read_and_the_command_line_goes_first(
    bootstrap: str, topic: str, tmp_path: Path, group: str
) -> None:
    reader, formatter = tmp_path / "reader.properties", tmp_path / "formatter.properties"
    reader.write_text("parse.key=true\nkey.separator=;\n")
    formatter.write_text("print.key=true\nprint.value=false\nkey.separator=>\n")
    where = ("--bootstrap-server", bootstrap, "--topic", topic)
    written = kafka("kafka-console-producer", *where, "--reader-config", str(reader), typed="k;v\n")
    assert written.code == 0, written.err
    other = ("--reader-config", str(reader), "--reader-property", "key.separator=:")
    assert kafka("kafka-console-producer", *where, *other, typed="a:b\n").code == 0

    def read(*words: str) -> list[str]:
        start = ("--from-beginning",) if group == "console-consumer" else ("--group", f"{topic}{len(words)}")
        said = kafka(f"kafka-{group}", *where, *start, "--max-messages", "2", "--timeout-ms", "20000", *words)
        assert said.code == 0, said.err
        return sorted(said.out.splitlines())

    if group == "console-share-consumer":
        for words in range(5):
            kafka(
                "kafka-configs", "--bootstrap-server", bootstrap, "--alter", "--entity-type", "groups", "--entity-name",
                f"{topic}{words}", "--add-config", "share.auto.offset.reset=earliest",
            )  # fmt: skip
    assert read("--formatter-config", str(formatter)) == ["a", "k"]
    both = ("--formatter-config", str(formatter), "--formatter-property", "print.value=true")
    assert read(*both) == ["a>b", "k>v"]


@pytest.mark.parametrize(
    ("tool", "file", "pair", "words"),
    [
        ("kafka-console-consumer", "consumer.config", "consumer-property", ""),
        ("kafka-console-share-consumer", "consumer-config", "consumer-property", ""),
        ("kafka-console-producer", "producer.config", "producer-property", ""),
        ("kafka-consumer-perf-test", "consumer.config", "", "--num-records 1"),
        ("kafka-share-consumer-perf-test", "consumer.config", "", "--num-records 1"),
        (
            "kafka-producer-perf-test",
            "producer.config",
            "producer-props",
            "--num-records 1 --throughput 1 --record-size 1",
        ),
        ("kafka-verifiable-consumer", "consumer.config", "", "--group-id g"),
        ("kafka-verifiable-producer", "producer.config", "", ""),
    ],
)
def test_a_clients_file_and_properties_have_older_names_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tool: str, file: str, pair: str, words: str
) -> None:
    properties = tmp_path / "client.properties"
    properties.write_text("client.id=own\n")
    made: list[object] = []

    def no_client(_: object, properties: Mapping[str, object]) -> None:
        made.append(properties.get("client.id"))
        raise Failed("there is no client")

    monkeypatch.setattr(import_module(SCRIPTS[tool].partition(":")[0]), "settings_for", no_client)
    where = ("--bootstrap-server", "b:1", "--topic", "t", *words.split())
    given = [("command-config", str(properties)), (file, str(properties))]
    given += [(name, "client.id=own") for name in ("command-property", pair) if pair]
    for name, value in given:
        kafka(tool, *where, f"--{name}", value)
    assert made == ["own"] * len(given)
