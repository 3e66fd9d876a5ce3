"""Files of properties for the readers and formatters of Kafka's console tools."""

from pathlib import Path

import pytest

from tests.cli.kafka_tool import kafka


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
