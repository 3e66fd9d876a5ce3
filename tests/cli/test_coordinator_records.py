"""Kafka's formatters for the records of internal topics, on bytes as Apache writes them."""

import io
import json
from struct import pack
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.cli.kafka.records.formatter import FORMATTERS

OFFSETS, GROUPS, TRANSACTIONS, SHARES = (
    f"org.apache.kafka.tools.consumer.{name}MessageFormatter"
    for name in ("Offsets", "GroupMetadata", "TransactionLog", "group.share.ShareGroupState")
)


def text(content: str) -> bytes:
    return pack(">h", len(content)) + content.encode()


def offset_key(kind: int) -> bytes:
    return pack(">h", kind) + text("readers") + text("orders") + pack(">i", 7)


COMMITTED = {
    0: pack(">hq", 0, 100) + text("note") + pack(">q", 1234),
    1: pack(">hq", 1, 100) + text("note") + pack(">qq", 1234, -1),
    2: pack(">hq", 2, 100) + text("note") + pack(">q", 1234),
    3: pack(">hqi", 3, 100, 10) + text("note") + pack(">q", 1234),
}
GROUP_KEY = pack(">h", 2) + text("readers")
GROUP = pack(">h", 3) + text("consumer") + pack(">i", 5) + text("range") + text("m-1") + pack(">qi", 99, 0)
TRANSACTION = pack(">qhib", 42, 3, 500, 4) + pack(">i", -1) + pack(">qq", 1000, 750)
TRANSACTION_V1 = pack(">qhib", 42, 3, 500, 4) + b"\0" + pack(">qq", 1000, 750) + b"\0"
SHARE_KEY = text("workers") + bytes(range(16)) + pack(">i", 2)


def record(key: bytes | None, value: bytes | None) -> Any:
    return SimpleNamespace(topic="internal", partition=0, offset=0, timestamp=0, key=key, value=value, headers=())


def shown(formatter: str, key: bytes | None, value: bytes | None) -> str:
    out = io.BytesIO()
    FORMATTERS[formatter]({}).write(record(key, value), out)
    return out.getvalue().decode()


@pytest.mark.parametrize(
    ("kind", "version", "data"),
    [
        (0, 0, '{"offset":100,"metadata":"note","commitTimestamp":1234}'),
        (1, 0, '{"offset":100,"metadata":"note","commitTimestamp":1234}'),
        (1, 1, '{"offset":100,"metadata":"note","commitTimestamp":1234,"expireTimestamp":-1}'),
        (1, 2, '{"offset":100,"metadata":"note","commitTimestamp":1234}'),
        (1, 3, '{"offset":100,"leaderEpoch":10,"metadata":"note","commitTimestamp":1234}'),
    ],
)
def test_a_committed_offset_is_one_document_without_a_line_end(kind: int, version: int, data: str) -> None:
    key = f'{{"type":{kind},"data":{{"group":"readers","topic":"orders","partition":7}}}}'
    value = f'{{"version":{version},"data":{data}}}'
    assert shown(OFFSETS, offset_key(kind), COMMITTED[version]) == f'{{"key":{key},"value":{value}}}'
    assert shown(OFFSETS, offset_key(kind), None) == f'{{"key":{key},"value":null}}'


@pytest.mark.parametrize(
    ("formatter", "key", "value", "document"),
    [
        (
            GROUPS,
            GROUP_KEY,
            GROUP,
            {
                "key": {"type": 2, "data": {"group": "readers"}},
                "value": {
                    "version": 3,
                    "data": {
                        "protocolType": "consumer",
                        "generation": 5,
                        "protocol": "range",
                        "leader": "m-1",
                        "currentStateTimestamp": 99,
                        "members": [],
                    },
                },
            },
        ),
        (
            TRANSACTIONS,
            pack(">h", 0) + text("payments"),
            pack(">h", 0) + TRANSACTION,
            {
                "key": {"type": 0, "data": {"transactionalId": "payments"}},
                "value": {
                    "version": 0,
                    "data": {
                        "producerId": 42,
                        "producerEpoch": 3,
                        "transactionTimeoutMs": 500,
                        "transactionStatus": 4,
                        "transactionPartitions": None,
                        "transactionLastUpdateTimestampMs": 1000,
                        "transactionStartTimestampMs": 750,
                    },
                },
            },
        ),
        (TRANSACTIONS, pack(">h", 0) + text("payments"), None, "no value"),
        (SHARES, pack(">h", 0) + SHARE_KEY, None, "no value"),
    ],
    ids=["group", "transaction", "transaction without value", "share group without value"],
)
def test_other_records_are_shown_with_their_fields(
    formatter: str, key: bytes, value: bytes | None, document: Any
) -> None:
    found = json.loads(shown(formatter, key, value))
    if value is None:
        assert (found["key"]["type"], found["value"]) == (0, None)
    else:
        assert found == document
        assert list(found["value"]["data"]) == list(document["value"]["data"])


def test_a_transaction_of_the_newer_version_has_the_same_fields() -> None:
    key = pack(">h", 0) + text("payments")
    old, new = (
        json.loads(shown(TRANSACTIONS, key, pack(">h", version) + value))["value"]
        for version, value in ((0, TRANSACTION), (1, TRANSACTION_V1))
    )
    assert new == {"version": 1, "data": old["data"]}


def test_the_id_of_a_topic_is_written_as_kafka_writes_it() -> None:
    key = json.loads(shown(SHARES, pack(">h", 0) + SHARE_KEY, None))["key"]["data"]
    assert key == {"groupId": "workers", "topicId": "AAECAwQFBgcICQoLDA0ODw", "partition": 2}


@pytest.mark.parametrize(
    ("formatter", "key"),
    [
        (OFFSETS, GROUP_KEY),
        (GROUPS, offset_key(1)),
        (OFFSETS, None),
        (OFFSETS, pack(">h", 99) + b"of the future"),
        (TRANSACTIONS, pack(">h", 7) + text("x")),
        (SHARES, pack(">h", 99) + b"x"),
    ],
)
def test_records_of_other_types_write_nothing_and_are_counted(formatter: str, key: bytes | None) -> None:
    out = io.BytesIO()
    made: Any = FORMATTERS[formatter]({})
    made.write(record(key, b"\0\0"), out)
    assert (out.getvalue(), made.shown) == (b"", 1)
