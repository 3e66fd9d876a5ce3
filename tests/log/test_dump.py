"""The dump against the lines of Apache's own tool, and damage named."""

import json
import struct
from pathlib import Path

import pytest

from ottla.host.disk import HostDisk
from ottla.log.dump.decoder import DECODERS, as_json, decode_as
from ottla.log.dump.dump_index import Complaints, CorruptIndex
from ottla.log.dump.dump_log import DumpOptions, dump
from ottla.log.log import Log, LogSettings
from ottla.wire.batch import Record, build, headers
from ottla.wire.record.consumer_protocol import (
    AssignedTopicPartition,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    pack,
)
from ottla.wire.record.offset import RECORDS, GroupMetadataKey, GroupMetadataValue, MemberMetadata

_GOLDEN = "tests/golden/log"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("00000000000000000000.log", "dump-log.txt"),
        ("00000000000000000000-0000000000.checkpoint", "dump-checkpoint.txt"),
    ],
)
def test_a_quorums_log_and_snapshot_are_shown_as_apaches_tool_shows_them(name: str, shown: str) -> None:
    # dump-*.txt is what kafka-dump-log --cluster-metadata-decoder of 4.3.1 printed for these files.
    found = list(dump(HostDisk(), f"{_GOLDEN}/__cluster_metadata-0/{name}", DumpOptions(decoder="cluster-metadata")))
    assert found == Path(f"{_GOLDEN}/{shown}").read_text().splitlines()


def _log(path: Path) -> str:
    log = Log.open(HostDisk(), str(path), LogSettings(index_interval_bytes=100), now_ms=1)
    for number in range(10):
        log.append(
            build(
                [(1000 + number, b"k", b"v" * 80, [("h", b"")])],
                producer_id=7,
                producer_epoch=0,
                base_sequence=number,
            ),
            leader_epoch=0,
            now_ms=1000,
        )
    log.close()
    return str(path)


def test_indexes_and_snapshots_are_shown(tmp_path: Path) -> None:
    path = _log(tmp_path / "t-0")
    base = f"{path}/00000000000000000000"
    offsets = list(dump(HostDisk(), f"{base}.index"))
    positions = [position for position, _ in headers(Path(f"{base}.log").read_bytes())]
    assert offsets[1:] == [f"offset: {number} position: {positions[number]}" for number in range(1, 10)]
    times = list(dump(HostDisk(), f"{base}.timeindex"))
    assert times[-1] == "timestamp: 1009 offset: 9"
    assert not any("Mismatch" in line or "mismatch" in line for line in offsets + times)
    (_, producer) = dump(HostDisk(), f"{path}/00000000000000000010.snapshot")
    assert producer.startswith("producerId: 7 producerEpoch: 0 coordinatorEpoch: -1 currentTxnFirstOffset:")
    assert "firstSequence: 9 lastSequence: 9 lastOffset: 9 offsetDelta: 0 timestamp: 1009" in producer


def test_records_are_shown_on_request(tmp_path: Path) -> None:
    path = f"{_log(tmp_path / 't-0')}/00000000000000000000.log"
    plain = list(dump(HostDisk(), path))
    assert len(plain) == 2 + 10
    deep = list(dump(HostDisk(), path, DumpOptions(print_data_log=True)))
    assert deep[3] == (
        "| offset: 0 CreateTime: 1000 keySize: 1 valueSize: 80 sequence: 0 headerKeys: [h] key: k payload: " + "v" * 80
    )
    bare = list(dump(HostDisk(), path, DumpOptions(print_data_log=True, skip_record_metadata=True)))
    assert bare[3] == "| key: k payload: " + "v" * 80


def test_damage_is_named(tmp_path: Path) -> None:
    path = _log(tmp_path / "t-0")
    log = Path(f"{path}/00000000000000000000.log")
    data = bytearray(log.read_bytes())
    second = [position for position, _ in headers(data)][1]
    data[-1] ^= 1
    log.write_bytes(bytes(data) + b"torn")
    lines = list(dump(HostDisk(), str(log)))
    assert lines[-2].endswith("isvalid: false")
    assert lines[-1] == "Found 4 invalid bytes at the end of 00000000000000000000.log"
    index = Path(f"{path}/00000000000000000000.index")
    index.write_bytes(struct.pack(">ii", 2, second) + struct.pack(">ii", 0, 0) * 3)
    complaints = Complaints()
    assert list(dump(HostDisk(), str(index), complaints=complaints))[1:] == [f"offset: 2 position: {second}"]
    assert complaints.lines() == [f"Mismatches in :{index}", "  Index offset: 2, log offset: 1"]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (struct.pack(">ii", -5, 0), "has non-zero size but the last offset is -5 which is less than the base offset 0"),
        (struct.pack(">ii", 1, 0) + b"x", "is corrupt, found 9 bytes which is neither positive nor a multiple of 8"),
    ],
)
def test_an_index_without_sanity_is_refused(tmp_path: Path, content: bytes, why: str) -> None:
    index = Path(f"{_log(tmp_path / 't-0')}/00000000000000000000.index")
    index.write_bytes(content)
    with pytest.raises(CorruptIndex, match=why):
        list(dump(HostDisk(), str(index), DumpOptions(index_sanity_check=True)))


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (struct.pack(">qiqi", 9, 1, 8, 2), "the last timestamp is 8 which is less than the first timestamp 9"),
        (struct.pack(">qi", 9, -1), "the last offset is -1 which is less than the first offset 0"),
        (struct.pack(">qi", 9, 1) + b"x", "found 13 bytes which is neither positive nor a multiple of 12"),
    ],
)
def test_a_time_index_without_sanity_is_refused(tmp_path: Path, content: bytes, why: str) -> None:
    index = Path(f"{_log(tmp_path / 't-0')}/00000000000000000000.timeindex")
    index.write_bytes(content)
    with pytest.raises(CorruptIndex, match=why):
        list(dump(HostDisk(), str(index), DumpOptions(index_sanity_check=True)))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (1024.0, "1024.0"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (12345678.5, "1.23456785E7"),
        (1e-3, "0.001"),
        (0.00012, "1.2E-4"),
        (-1e21, "-1.0E21"),
        ('caf\u00e9 \x1f \x7f \\ " \n', '"caf\u00e9 \\u001F \x7f \\\\ \\" \\n"'),
    ],
)
def test_json_is_jacksons(value: object, text: str) -> None:
    assert as_json(value) == text


def test_keys_and_values_are_read_by_the_decoders_of_apaches_tool(tmp_path: Path) -> None:
    log = Log.open(HostDisk(), str(tmp_path / "n-0"), LogSettings(), now_ms=1)
    log.append(build([(1, b"\xff\xff\xff\xfe", b"\0\0\0\0\0\0\1\0", [])]), leader_epoch=0, now_ms=1)
    log.close()
    path = f"{tmp_path}/n-0/00000000000000000000.log"
    options = DumpOptions(
        print_data_log=True, skip_record_metadata=True, show=decode_as("IntegerDecoder", "LongDecoder")
    )
    assert list(dump(HostDisk(), path, options))[-1] == "| key: -2 payload: 256"


def test_json_of_a_record_is_json(tmp_path: Path) -> None:
    lines = list(
        dump(
            HostDisk(),
            f"{_GOLDEN}/__cluster_metadata-0/00000000000000000000.log",
            DumpOptions(decoder="cluster-metadata", skip_record_metadata=True),
        )
    )
    payloads = [line.partition("payload: ")[2] for line in lines if "payload: " in line]
    assert {"BEGIN_TRANSACTION_RECORD", "END_TRANSACTION_RECORD"} <= {json.loads(each)["type"] for each in payloads}


def test_a_file_of_another_kind_is_ignored(tmp_path: Path) -> None:
    complaints = Complaints()
    assert list(dump(HostDisk(), f"{tmp_path}/x.txt", complaints=complaints)) == [f"Dumping {tmp_path}/x.txt"]
    assert complaints.lines() == [f"Ignoring unknown file {tmp_path}/x.txt"]


def test_what_the_members_of_a_consumer_group_said_is_read_and_what_cannot_be_read_stays_as_it_is() -> None:
    subscription = ConsumerProtocolSubscription(topics=["t", "u"])
    assignment = ConsumerProtocolAssignment(assigned_partitions=[AssignedTopicPartition(topic="t", partitions=[3, 1])])
    members = [
        MemberMetadata(member_id="good", subscription=pack(subscription), assignment=pack(assignment)),
        MemberMetadata(member_id="cut", subscription=pack(subscription)[:-1], assignment=pack(assignment)),
    ]
    group = GroupMetadataValue(protocol_type="consumer", generation=1, members=members)
    key = RECORDS.key_bytes(GroupMetadataKey(group="g"))
    _, shown = DECODERS["offsets"](Record(0, 1, key, RECORDS.value_bytes(group, 3), []))
    found = json.loads(shown or "")["data"]["members"]
    assert [each["memberId"] for each in found] == ["good", "cut"]
    assert found[0]["subscription"]["topics"] == ["t", "u"]
    assert [each["assignment"]["assignedPartitions"][0]["partitions"] for each in found] == [[3, 1], [3, 1]]
    assert isinstance(found[1]["subscription"], str)


@pytest.mark.parametrize(
    ("version", "names"),
    [
        (0, ["topics", "userData"]),
        (1, ["topics", "userData", "ownedPartitions"]),
        (3, ["topics", "userData", "ownedPartitions", "generationId", "rackId"]),
        # A newer one is read as the newest that is known.
        (9, ["topics", "userData", "ownedPartitions", "generationId", "rackId"]),
    ],
)
def test_a_subscription_is_shown_with_the_fields_of_its_version(version: int, names: list[str]) -> None:
    sent = pack(ConsumerProtocolSubscription(topics=["t"]), min(version, 3))
    member = MemberMetadata(member_id="m", subscription=version.to_bytes(2, "big") + sent[2:], assignment=b"")
    group = GroupMetadataValue(protocol_type="consumer", generation=1, members=[member])
    key = RECORDS.key_bytes(GroupMetadataKey(group="g"))
    _, shown = DECODERS["offsets"](Record(0, 1, key, RECORDS.value_bytes(group, 3), []))
    (found,) = json.loads(shown or "")["data"]["members"]
    assert list(found["subscription"]) == names
    assert found["assignment"] == "", "no assignment yet"


def test_members_of_another_protocol_stay_bytes() -> None:
    member = MemberMetadata(member_id="m", subscription=pack(ConsumerProtocolSubscription(topics=["t"])))
    group = GroupMetadataValue(protocol_type="connect", generation=1, members=[member])
    key = RECORDS.key_bytes(GroupMetadataKey(group="g"))
    _, shown = DECODERS["offsets"](Record(0, 1, key, RECORDS.value_bytes(group, 3), []))
    (found,) = json.loads(shown or "")["data"]["members"]
    assert isinstance(found["subscription"], str)


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        (None, b"", ("Error at offset 5, skipping. The record has no key.", None)),
        (b"\0\x63", b"", ("Unknown record type 99 at offset 5, skipping.", None)),
        (b"\0\2\0\1g", None, ('{"type":"2","data":{"group":"g"}}', "<DELETE>")),
    ],
)
def test_a_record_of_a_coordinator_without_a_value_or_a_known_key(
    key: bytes | None, value: bytes | None, shown: tuple[str, str | None]
) -> None:
    assert DECODERS["offsets"](Record(5, 1, key, value, [])) == shown


def test_a_record_that_cannot_be_read_is_named_by_its_offset() -> None:
    key, value = DECODERS["offsets"](Record(5, 1, b"\0\2\0\7g", b"", []))
    assert (key or "").startswith("Error at offset 5, skipping. ")
    assert value is None
    key, value = DECODERS["cluster-metadata"](Record(6, 1, None, b"\1", []))
    assert key is None
    assert (value or "").startswith("Error at 6, skipping. ")


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\xff", "\ufffd"),
        (b"\xed\xa0\x80", "\ufffd"),
        (b"\xed\xbf\xbf!", "\ufffd!"),
        (b"\xed\xa0", "\ufffd"),
        (b"\xed\xa0!", "\ufffd!"),
        (b"\xed", "\ufffd"),
        (b"\xed!", "\ufffd!"),
        (b"\xed\x9f\xbf", "\ud7ff"),
    ],
)
def test_text_that_is_no_utf_8_is_shown_as_java_shows_it(data: bytes, text: str) -> None:
    assert decode_as("StringDecoder", "StringDecoder")(Record(0, 1, data, None, [])) == (text, None)


@pytest.mark.parametrize(("decoder", "size"), [("IntegerDecoder", 4), ("LongDecoder", 8)])
def test_a_number_needs_its_bytes(decoder: str, size: int) -> None:
    show = decode_as(decoder, "DefaultDecoder")
    assert show(Record(0, 1, b"\0" * (size - 1) + b"\7\xff", b"\x0a\xff", [])) == ("7", "0aff")
    with pytest.raises(ValueError, match=f"{size - 1} bytes are too few for a number of {size}"):
        show(Record(0, 1, bytes(size - 1), None, []))
