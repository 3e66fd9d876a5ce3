"""Corners of Kafka's tools: kinds of groups, what a cluster refuses, records of coordinators, how a tool ends.

The cluster is a table of answers; nothing is sent.
"""

from __future__ import annotations

import errno
import io
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from ottla.cli.kafka.configs import client_metrics, config
from ottla.cli.kafka.groups import group
from ottla.cli.kafka.program import tool as program
from ottla.cli.kafka.program.option import Usage
from ottla.cli.kafka.program.tool import Failed
from ottla.cli.kafka.records import get_offsets
from ottla.cli.kafka.records.formatter import FORMATTERS
from ottla.client import ErrorCode, GroupType, KafkaError, TopicPartition
from ottla.client.admin.credential import ScramMechanism
from ottla.client.admin.result import GroupListing, ListedOffset, Results
from ottla.kernel.error import OttlaError
from tests.cli.test_kafka_shown import run

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
REFUSED = KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "not you")


# ---- kafka-groups


def listing(name: str, kind: GroupType, protocol: str) -> GroupListing:
    return GroupListing(name, kind, "Stable", protocol)


GROUPS = [
    listing("c", GroupType.CONSUMER, "consumer"),
    listing("old", GroupType.CLASSIC, "consumer"),
    listing("simple", GroupType.CLASSIC, ""),
    listing("connect", GroupType.CLASSIC, "connect"),
    listing("s", GroupType.SHARE, "share"),
    listing("st", GroupType.STREAMS, "streams"),
]


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("", "c old simple connect s st"),
        ("--consumer", "c old simple"),
        ("--share", "s"),
        ("--streams", "st"),
        ("--group-type Classic", "old simple connect"),
        ("--group-type classic --protocol connect", "connect"),
        ("--protocol consumer", "c old"),
        ("--group-type share --protocol consumer", ""),
    ],
)
def test_groups_are_listed_by_their_kind(words: str, names: str) -> None:
    client = Mock(list_groups=Mock(return_value=GROUPS))
    said = run(group, "kafka-groups", client, "--list", *words.split())
    assert [line.split()[0] for line in said.out.splitlines()] == ["GROUP", *names.split()]
    assert {len(line.rstrip("\n")) for line in said.out.splitlines()[1:]} <= {63}


def test_groups_that_cannot_be_listed_are_told_on_stdout() -> None:
    why = "org.apache.kafka.common.errors.ClusterAuthorizationException: not you"
    said = run(group, "kafka-groups", Mock(list_groups=Mock(side_effect=REFUSED)), "--list")
    assert said == (1, f"Error while executing groups command : {why}\n", "")


# ---- kafka-configs and kafka-client-metrics


def test_users_whose_credentials_cannot_be_told_are_named() -> None:
    client = Mock()
    client.describe_client_quotas.return_value = {}
    client.describe_scram_credentials.return_value = Results(
        {"ann": {ScramMechanism.SCRAM_SHA_256: 4096, ScramMechanism.SCRAM_SHA_512: 8192}},
        {"ben": KafkaError(ErrorCode.DUPLICATE_RESOURCE, "twice"), "bo": KafkaError(ErrorCode.RESOURCE_NOT_FOUND)},
    )
    said = run(config, "kafka-configs", client, "--describe", "--entity-type", "users")
    assert said.out.splitlines() == [
        "Error retrieving SCRAM credential configs for user-principal 'ben': DuplicateResourceException: twice",
        (
            "SCRAM credential configs for user-principal 'ann' are SCRAM-SHA-256=iterations=4096, "
            "SCRAM-SHA-512=iterations=8192"
        ),
    ]


def test_quotas_need_a_name_for_each_kind() -> None:
    client = Mock()
    words = ("--entity-type", "users", "--entity-type", "clients", "--entity-name", "ann")
    said = run(config, "kafka-configs", client, "--alter", *words, "--add-config", "producer_byte_rate=1")
    assert said.code == 1
    assert "name must be specified" in said.err
    assert not client.alter_client_quotas.called


def test_what_metrics_of_clients_cannot_do_is_told_on_stdout() -> None:
    client = Mock(list_config_resources=Mock(side_effect=REFUSED))
    said = run(client_metrics, "kafka-client-metrics", client, "--list")
    assert said == (1, "Error while executing client metrics command : not you\n", "")
    client = Mock(list_config_resources=Mock(return_value=[SimpleNamespace(name=name) for name in ("b", "a")]))
    assert run(client_metrics, "kafka-client-metrics", client, "--list") == (0, "a\nb\n", "")


# ---- kafka-get-offsets


def test_a_partition_whose_offset_is_not_known_is_skipped_with_its_reason() -> None:
    client = Mock()
    client.list_topics.side_effect = lambda **_: [SimpleNamespace(name="t")]
    parts = [SimpleNamespace(partition=number) for number in (1, 0)]
    client.describe_topics.return_value = Results({"t": SimpleNamespace(partitions=parts)}, {})
    client.list_offsets.side_effect = lambda _: Results({T0: ListedOffset(7, -1, None)}, {T1: REFUSED})
    said = run(get_offsets, "kafka-get-offsets", client, "--topic", "t")
    assert (said.code, said.out) == (0, "t:0:7\n")
    why = "org.apache.kafka.common.errors.ClusterAuthorizationException: not you"
    assert said.err == f"Skip getting offsets for topic-partition t-1 due to error: {why}\n"


@pytest.mark.parametrize(("words", "shown"), [((), "__i:0:7\nt:0:7\n"), (("--exclude-internal-topics",), "t:0:7\n")])
def test_internal_topics_have_offsets_until_they_are_left_out(words: tuple[str, ...], shown: str) -> None:
    client = Mock()
    names = ("__i", "t")
    client.list_topics.side_effect = lambda internal: [SimpleNamespace(name=name) for name in names[not internal :]]
    parts = [SimpleNamespace(partition=0)]
    client.describe_topics.side_effect = lambda names: Results(
        {n: SimpleNamespace(partitions=parts) for n in names}, {}
    )
    client.list_offsets.side_effect = lambda asked: Results(dict.fromkeys(asked, ListedOffset(7, -1, None)), {})
    assert run(get_offsets, "kafka-get-offsets", client, *words) == (0, shown, "")


# ---- records of coordinators


def formatted(name: str, key: bytes | None, value: bytes | None, **properties: str) -> str:
    out = io.BytesIO()
    formatter = FORMATTERS[f"org.apache.kafka.tools.consumer.{name}"](properties)
    record: Any = SimpleNamespace(
        topic="t", partition=3, offset=5, timestamp=-1, key=key, value=value, headers=[("h", None), ("i", b"1")]
    )
    formatter.write(record, out)
    assert formatter.shown == 1
    return out.getvalue().decode()


OFFSET_KEY = b"\0\1" + b"\0\1g" + b"\0\1t" + b"\0\0\0\2"
OFFSET_VALUE = b"\0\3" + (7).to_bytes(8, "big") + (1).to_bytes(4, "big") + b"\0\1m" + (9).to_bytes(8, "big")


@pytest.mark.parametrize(
    ("name", "key", "value", "text"),
    [
        (
            "OffsetsMessageFormatter",
            OFFSET_KEY,
            OFFSET_VALUE,
            (
                '{"key":{"type":1,"data":{"group":"g","topic":"t","partition":2}},"value":{"version":3,"data":'
                '{"offset":7,"leaderEpoch":1,"metadata":"m","commitTimestamp":9}}}'
            ),
        ),
        (
            "OffsetsMessageFormatter",
            OFFSET_KEY,
            None,
            '{"key":{"type":1,"data":{"group":"g","topic":"t","partition":2}},"value":null}',
        ),
        ("OffsetsMessageFormatter", None, OFFSET_VALUE, ""),
        ("OffsetsMessageFormatter", b"\0\2\0\1g", None, ""),
        ("OffsetsMessageFormatter", b"\x7f\0", None, ""),
        ("GroupMetadataMessageFormatter", b"\0\2\0\1g", None, '{"key":{"type":2,"data":{"group":"g"}},"value":null}'),
        ("GroupMetadataMessageFormatter", OFFSET_KEY, OFFSET_VALUE, ""),
        (
            "TransactionLogMessageFormatter",
            b"\0\0\0\1x",
            None,
            '{"key":{"type":0,"data":{"transactionalId":"x"}},"value":null}',
        ),
        ("NoOpMessageFormatter", b"k", b"v", ""),
    ],
)
def test_records_of_coordinators_are_json(name: str, key: bytes | None, value: bytes | None, text: str) -> None:
    assert formatted(name, key, value) == text


PREFIX = "org.apache.kafka.common.serialization."


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("StringDeserializer", b"a\xff", "a\ufffd"),
        ("ByteArrayDeserializer", b"ab", "ab"),
        ("IntegerDeserializer", b"\xff\xff\xff\xfe", "-2"),
        ("LongDeserializer", b"\0" * 7 + b"\7", "7"),
        ("ShortDeserializer", b"\1\0", "256"),
        ("DoubleDeserializer", b"\x3f\xf8" + b"\0" * 6, "1.5"),
        ("FloatDeserializer", b"\x3f\xc0\0\0", "1.5"),
        ("BooleanDeserializer", b"\1", "true"),
        ("BooleanDeserializer", b"\0", "false"),
        ("UUIDDeserializer", b"00000000-0000-0000-0000-00000000000A", "00000000-0000-0000-0000-00000000000a"),
    ],
)
def test_values_are_read_by_javas_deserializers(kind: str, value: bytes, text: str) -> None:
    for name in (kind, PREFIX + kind):
        assert formatted("DefaultMessageFormatter", None, value, **{"value.deserializer": name}) == f"{text}\n"


@pytest.mark.parametrize(
    ("kind", "value", "why"),
    [
        ("IntegerDeserializer", b"\1", "Size of data received by the deserializer is not 4"),
        ("LongDeserializer", b"\1" * 9, "Size of data received by the deserializer is not 8"),
        ("BooleanDeserializer", b"\2", "Unexpected byte received by BooleanDeserializer"),
    ],
)
def test_values_of_another_size_are_refused(kind: str, value: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        formatted("DefaultMessageFormatter", None, value, **{"value.deserializer": kind})


def test_a_record_is_shown_with_what_is_asked_for_in_kafkas_order() -> None:
    wanted = dict.fromkeys(("print.timestamp", "print.partition", "print.offset", "print.headers", "print.key"), "true")
    shown = formatted("DefaultMessageFormatter", None, None, **wanted)
    assert shown == "NO_TIMESTAMP\tPartition:3\tOffset:5\th:null,i:1\tnull\tnull\n"
    wanted |= {"print.value": "false", "key.separator": "|", "line.separator": ";", "null.literal": "~"}
    wanted |= {"headers.separator": "&", "print.delivery": "true"}
    shown = formatted("DefaultMessageFormatter", None, None, **wanted)
    assert shown == "NO_TIMESTAMP|Partition:3|Offset:5|Delivery:NOT_PRESENT|h:~&i:1|~;"
    with pytest.raises(Usage):
        formatted("DefaultMessageFormatter", None, b"v", **{"value.deserializer": "com.example.StringDeserializer"})


# ---- how a tool ends


@pytest.mark.parametrize(
    ("error", "code", "err"),
    [
        (Failed("no"), 1, "no\n"),
        (OttlaError("no"), 1, "no\n"),
        (REFUSED, 1, "org.apache.kafka.common.errors.ClusterAuthorizationException: not you\n"),
        (FileNotFoundError(errno.ENOENT, "No such file", "/x"), 1, "/x: No such file\n"),
        (OSError(errno.ENOSPC, "No space left"), 1, "No space left\n"),
        (OSError("odd"), 1, "odd\n"),
        (KeyboardInterrupt(), 130, ""),
        (BrokenPipeError(), 1, ""),
    ],
)
def test_a_tool_ends_with_one_line_and_a_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: BaseException, code: int, err: str
) -> None:
    discarded = Mock()
    monkeypatch.setattr(program, "discard", discarded)
    with pytest.raises(SystemExit) as left:
        program.leave(Mock(side_effect=error))
    assert (left.value.code, discarded.called) == (code, isinstance(error, BrokenPipeError))
    assert capsys.readouterr() == ("", err)


@pytest.mark.parametrize(
    ("code", "error", "left_with", "err"),
    [
        (0, None, 0, ""),
        (0, OSError(errno.ENOSPC, "No space left"), 1, "No space left\n"),
        (0, OSError("odd"), 1, "odd\n"),
        (0, BrokenPipeError(errno.EPIPE, "Broken pipe"), 1, ""),
        (3, OSError(errno.ENOSPC, "No space left"), 3, ""),
    ],
)
def test_a_tool_whose_last_words_cannot_be_written_fails(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    code: int,
    error: OSError | None,
    left_with: int,
    err: str,
) -> None:
    monkeypatch.setattr(program, "finish", lambda: error)
    with pytest.raises(SystemExit) as left:
        program.leave(lambda: code)
    assert left.value.code == left_with
    assert capsys.readouterr() == ("", err)


def test_a_file_of_properties_that_does_not_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"a=\xff")
    for name, why in (
        ("none", "java.nio.file.NoSuchFileException: {path}"),
        ("", "{path}: Is a directory"),
        ("latin", "{path}: 'utf-8' codec can't decode"),
    ):
        path = f"{tmp_path}/{name}".rstrip("/")
        with pytest.raises(Failed, match=re.escape(why.format(path=path))):
            program.load(path)
    with pytest.raises(Failed, match=f"Unable to read file {tmp_path}"):
        program.read_text(str(tmp_path))


@pytest.mark.parametrize("text", [None, "", " ", "h", "h:", "h:x", "h:1,", "h:1,g"])
def test_addresses_have_a_port(text: str | None) -> None:
    program.check_addresses("h:1, g:2")
    with pytest.raises(Usage) as raised:
        program.check_addresses(text)
    blank = "Error while validating the bootstrap address\n"
    wrong = "Please provide valid host:port like host1:9091,host2:9092\n"
    assert str(raised.value) == (wrong if (text or "").strip() else blank)
