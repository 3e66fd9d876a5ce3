"""What a person sees who holds a tool wrong: one line that says what is wrong and how to mend it."""

import json
import shlex
import socket
import sys
import threading
from pathlib import Path

import pytest

from ottla.cli.reach import reach
from tests.cli.kafka_tool import kafka
from tests.cli.tool import OTTLA, Said, Tool, in_process, on_terminal


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        ("consume {topic} -n x", 2, "invalid value for '-n' / '--count': 'x' is not a whole number"),
        ("topics create t -p 0", 2, "invalid value for '-p' / '--partitions': 0 is less than 1"),
        ("topics create t?", 1, "contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"),
        ("configs set broker 77 num.io.threads=3", 1, "there is no broker 77 now; the brokers are 1"),
        ("configs show logger 77", 1, "there is no broker 77 now; the brokers are 1"),
        ("features set metadata.version=7", 1, "add --downgrade to allow it if no metadata is lost"),
        ("transactions describe nobody", 1, "transactional id nobody: there is no such transactional id"),
        (
            "topics -X security.protocol=SSL",
            1,
            "does not speak TLS; check security.protocol); check that it is running",
        ),
        ("consume {topic} --share g -e", 2, "--share cannot be combined with -g, --from, -p, -e"),
        ("topics -b 127.0.0.1:99999", 2, "(expected 1 to 65535)"),
        ("topics diff {topic} nothing-of-this-name", 1, "there is no topic nothing-of-this-name"),
        ("import {topic} pyproject.toml", 2, "; the file comes first: ottla import pyproject.toml"),
        ("import README.md {topic}", 2, "ottla: README.md: unknown suffix"),
        ("groups reset g {topic}", 2, "expected either --to WHERE or --by N"),
        ("configs show", 2, "Choose from: topic, broker, group, metrics, logger"),
        ("configs set topic {topic} retention.ms", 2, "ottla: retention.ms: expected KEY=VALUE"),
        ("quotas set -u ann producer_byte_rate", 2, "ottla: producer_byte_rate: expected KEY=VALUE"),
        ("quotas set -u ann producer_byte_rate=much", 2, "producer_byte_rate=much: expected a number"),
        ("features set group.version=x", 2, "group.version=x: expected a whole number"),
        ("acls allow ann rule topic t", 2, "unknown operation: rule (expected all, read, write"),
        ("acls allow ann read topic t --host nohost", 2, "invalid value for --host: nohost"),
        ("-b , topics", 2, "-b names no broker (expected HOST:PORT)"),
        ("consume {topic} -e --where value>", 2, "--where value>: at the end: expected a field"),
        ("consume {topic} -e -o {{nope}}", 2, "unknown field nope (expected topic, partition"),
        ("topics analyze {topic} --where nope", 2, "unknown field nope"),
        ("export {topic} - -F csv --columns nope", 2, "unknown field nope"),
        ("produce {topic} -K : --key k", 2, "use either --key or --key-separator, not both"),
        ("produce {topic} -F jsonl --delimiter ;", 2, "--delimiter needs --format csv, not jsonl"),
        ("produce {topic} -F json --null x", 2, "--null needs --format lines or jsonl, or --value COLUMN, not json"),
        ("produce {topic} -F csv --null x", 2, "--null needs --format lines or jsonl, or --value COLUMN, not csv"),
        ("consume {topic} -e --json --null=", 2, "--json cannot be combined with -o, -k or -Z"),
        ("transactions hanging nothing-of-this-name", 1, "ottla: there is no topic nothing-of-this-name"),
        ("transactions producers nothing-of-this-name 0", 1, "ottla: there is no topic nothing-of-this-name; "),
        ("quotas unset -u nobody producer_byte_rate", 1, "user nobody has no quota producer_byte_rate; `ottla quotas`"),
    ],
)
def test_a_mistake_is_one_sentence(tool: Tool, topic: str, words: str, code: int, sentence: str) -> None:
    said = tool(*words.format(topic=topic).split())
    assert (said.code, said.out) == (code, "")
    first, *rest = said.err.splitlines()
    assert first.startswith("ottla: ")
    assert sentence in first
    assert len(rest) == (code == 2)


@pytest.mark.parametrize(
    ("words", "error", "message"),
    [
        ("topics describe nothing-of-this-name --json", "UNKNOWN_TOPIC_OR_PARTITION", "there is no topic nothing-of"),
        ("topics --json describe nothing-of-this-name", "UNKNOWN_TOPIC_OR_PARTITION", "there is no topic nothing-of"),
        ("groups delete nothing-of-this-name -y --json", "GROUP_ID_NOT_FOUND", "there is no group nothing-of"),
        ("export {topic} /nowhere/at/all.jsonl --json", None, "/nowhere/at/all.jsonl"),
    ],
)
def test_an_error_with_json_is_a_json_object_on_stderr(
    tool: Tool, topic: str, words: str, error: str | None, message: str
) -> None:
    said = tool(*words.format(topic=topic).split())
    assert (said.code, said.out) == (1, "")
    (line,) = said.err.splitlines()
    told = json.loads(line)
    assert list(told) == ["error", "message"]
    assert told["error"] == error
    assert message in told["message"]


def without(name: str, path: Path) -> str:
    """A PYTHONPATH under which this module is missing."""
    (path / f"{name}.py").write_text(f"raise ModuleNotFoundError(\"No module named '{name}'\", name='{name}')\n")
    return str(path)


def test_a_base_without_an_extra_names_it(tmp_path: Path, bootstrap: str, topic: str) -> None:
    program = tmp_path / "app.py"
    program.write_text(
        "from ottla.streams import StreamsBuilder\nbuilder = StreamsBuilder()\n"
        f"builder.stream('{topic}').to('{topic}')\nrun = builder.build(application_id='lacks-spark')\n"
    )
    words = ("streams", "run", str(program), "-b", bootstrap)
    said = in_process(*words, PYTHONPATH=without("numpy", tmp_path))
    assert said.code == 1
    assert said.err.endswith("No module named 'numpy'; install Spark with `pip install 'ottla[spark]'`\n")


@pytest.mark.parametrize("words", ["streams", "streams list", "streams describe app", "streams reset app -y"])
def test_who_only_looks_at_programs_needs_no_extra(words: str, tmp_path: Path, bootstrap: str) -> None:
    missing = without("numpy", tmp_path)
    for name in ("pandas", "pyarrow", "pyspark"):
        without(name, tmp_path)
    said = in_process(*words.split(), "-b", bootstrap, PYTHONPATH=missing)
    if "app" in words:
        assert said.code == 1
        assert said.err.startswith("ottla: no application app has run on this cluster")
    else:
        assert (said.code, said.err) == (0, "")


def test_a_wrong_use_with_json_is_text(tool: Tool, topic: str) -> None:
    assert tool("topics", "describe", topic, "--json", "--nothing").err.startswith(
        "ottla: there is no option --nothing"
    )


def test_a_port_with_tls_is_told_from_one_without(tool: Tool) -> None:
    """A server that ends the handshake with an alert can speak TLS."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def refuse() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                # alert: fatal, handshake_failure
                connection.sendall(b"\x15\x03\x03\x00\x02\x02\x28")

        thread = threading.Thread(target=refuse)
        thread.start()
        reach(f"127.0.0.1:{server.getsockname()[1]}", {"security.protocol": "SSL"})
        thread.join()


def test_a_directory_that_cannot_be_one_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("here")
    said = in_process("start", "--port", "0", "--data", str(file))
    assert said.code == 1
    assert said.err == f"ottla: {file}: File exists\n"


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_is_told_in_one_line(bootstrap: str, topic: str, unbuffered: str) -> None:
    in_process("produce", topic, stdin=b"x\n" * 10, OTTLA_BOOTSTRAP_SERVERS=bootstrap)
    for words in (f"consume {topic} -e", "topics", "--version"):
        said = _on_a_full_disk([*OTTLA, *words.split()], PYTHONUNBUFFERED=unbuffered, OTTLA_BOOTSTRAP_SERVERS=bootstrap)
        assert (said.code, said.out.strip()) == (1, "ottla: No space left on device"), words


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_kafkas_tools_tell_of_a_full_disk_in_one_line(unbuffered: str) -> None:
    program = "import sys; sys.argv[0] = 'kafka-topics'; from ottla.cli.kafka.topics.topic import main; main()"
    said = _on_a_full_disk([sys.executable, "-c", program, "--version"], PYTHONUNBUFFERED=unbuffered)
    assert (said.code, said.out) == (1, "No space left on device\n")


def _on_a_full_disk(command: list[str], **environment: str) -> Said:
    return on_terminal(
        typed=(),
        command=["bash", "-c", f"{shlex.join(command)} > /dev/full"],
        **{"NO_COLOR": "1", "TERM": "dumb", **environment},
    )


def test_a_file_of_properties_that_is_not_there_is_named() -> None:
    said = kafka("kafka-topics", "--bootstrap-server", "127.0.0.1:1", "--list", "--command-config", "/nowhere")
    assert (said.code, said.err) == (1, "java.nio.file.NoSuchFileException: /nowhere\n")


def test_a_topic_id_that_is_none_is_told_before_any_topic_is_described(bootstrap: str, topic: str) -> None:
    said = kafka("kafka-topics", "--bootstrap-server", bootstrap, "--describe", "--topic-id", "no/id")
    assert said.code == 1
    assert "Input string `no/id`" in said.out + said.err
    assert topic not in said.out
    # The id of no topic counts as no id.
    said = kafka("kafka-topics", "--bootstrap-server", bootstrap, "--describe", "--topic-id", "A" * 22)
    assert said.code == 0
    assert f"Topic: {topic}" in said.out


@pytest.mark.parametrize(("states", "code"), [("stable", 0), ("Stable, EMPTY", 0), ("bogus", 1), ("stable,bogus", 1)])
def test_share_groups_are_listed_by_states_that_there_are(bootstrap: str, states: str, code: int) -> None:
    said = kafka("kafka-share-groups", "--bootstrap-server", bootstrap, "--list", "--state", states)
    assert said.code == code
    assert (f"Invalid state list '{states}'" in said.out + said.err) is (code == 1)
    assert ("STATE" in said.out.split()) is (code == 0)
