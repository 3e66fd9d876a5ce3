"""What Apache Kafka wrote into its own logs we read, and write again byte for byte (tests/golden)."""

from pathlib import Path
from random import Random
from typing import Any

import pytest

from ottla.kernel.ids import Uuid
from ottla.wire.batch import read
from ottla.wire.record import consumer_protocol, control, metadata, offset, share, transaction
from ottla.wire.record.control import ControlRecordType
from ottla.wire.record.keyed import Keyed, UnknownRecord
from ottla.wire.schema import schema
from ottla.wire.type import Malformed
from tests.wire.value import message

GOLDEN = Path(__file__).parent.parent / "golden"
FILES = (
    "log/__cluster_metadata-0/00000000000000000000.log",
    "log/__cluster_metadata-0/00000000000000000000-0000000000.checkpoint",
    "wire/bootstrap.checkpoint",
)


def _records(name: str) -> list[tuple[bool, bytes | None, bytes]]:
    found = []
    for batch in read((GOLDEN / name).read_bytes()):
        for record in batch.records():
            assert record.value is not None
            found.append((batch.header.is_control, record.key, record.value))
    return found


@pytest.mark.parametrize("name", FILES)
def test_every_record_of_a_real_metadata_log_is_read_and_written_again_byte_for_byte(name: str) -> None:
    records = _records(name)
    for is_control, key, value in records:
        if is_control:
            assert key is not None
            kind, found = control.parse(key, value)
            assert control.key_bytes(kind) == key
            assert control.value_bytes(found, found.version) == value
        else:
            found, version = metadata.parse(value)
            assert key is None
            assert metadata.pack(found, version) == value
    assert len(records) >= 4


def test_the_metadata_log_of_a_first_boot_says_what_happened() -> None:
    records = _records(FILES[0])
    kinds = [control.parse(key, value)[0] for is_control, key, value in records if is_control and key]
    assert kinds == [ControlRecordType.LEADER_CHANGE, ControlRecordType.KRAFT_VERSION, ControlRecordType.KRAFT_VOTERS]
    found = [metadata.parse(value)[0] for is_control, _, value in records if not is_control]
    assert [type(each).__name__ for each in found[:2]] == ["BeginTransactionRecord", "FeatureLevelRecord"]
    features = {each.name: each.feature_level for each in found if isinstance(each, metadata.FeatureLevelRecord)}
    assert features["metadata.version"] == 30
    broker = next(each for each in found if isinstance(each, metadata.RegisterBrokerRecord))
    assert (broker.broker_id, broker.fenced, len(broker.incarnation_id)) == (1, True, 16)


def test_a_metadata_record_that_is_cut_off_or_too_long_is_malformed() -> None:
    for _, _, value in (each for each in _records(FILES[0])[:40] if not each[0]):
        for size in range(len(value)):
            with pytest.raises(Malformed):
                metadata.parse(value[:size])
        with pytest.raises(Malformed, match="leaves 1 bytes"):
            metadata.parse(value + b"\0")


@pytest.mark.parametrize("value", [b"", b"\2\x0c\0", b"\1\x06\0", b"\1\x02\x63", b"\xff\xff\xff\xff\xff\xff"])
def test_a_metadata_record_of_a_frame_key_or_version_that_is_not_known_is_malformed(value: bytes) -> None:
    with pytest.raises(Malformed):
        metadata.parse(value)


@pytest.mark.parametrize("records", [offset.RECORDS, transaction.RECORDS, share.RECORDS])
def test_every_coordinator_record_survives_a_round_trip_and_so_does_its_tombstone(records: Keyed) -> None:
    for type_id, (key_class, value_class) in records.types.items():
        key = message(key_class, 0, Random(type_id))
        key_bytes = records.key_bytes(key)
        assert records.parse(key_bytes, None) == (key, None)
        assert records.value_bytes(None) is None
        for version in schema(value_class).versions or ():
            value = message(value_class, version, Random(version))
            value_bytes = records.value_bytes(value, version)
            assert value_bytes is not None
            assert value_bytes[:2] == version.to_bytes(2, "big")
            assert records.parse(memoryview(key_bytes), memoryview(value_bytes)) == (key, value)
            with pytest.raises(Malformed):
                records.parse(key_bytes[:-1], value_bytes)
            with pytest.raises(Malformed):
                records.parse(key_bytes, value_bytes[:-1])


def test_a_committed_offset_stands_in_its_log_as_apache_writes_it() -> None:
    key = offset.OffsetCommitKey(group="g", topic="flights", partition=3)
    assert offset.key_bytes(key) == b"\0\1" + b"\0\1g" + b"\0\7flights" + b"\0\0\0\3"
    value = offset.OffsetCommitValue(offset=5, leader_epoch=2, metadata="m", commit_timestamp=9)
    assert offset.value_bytes(value, 3) == b"\0\3" + bytes(7) + b"\5" + b"\0\0\0\2" + b"\0\1m" + bytes(7) + b"\x09"


def test_a_record_of_a_type_that_is_not_known_is_told_apart_from_a_broken_one() -> None:
    with pytest.raises(UnknownRecord):
        offset.parse(b"\0\x63abc", None)
    for key, value in (
        (b"", None),
        (b"\0", None),
        (b"\0\2\0\1g", b"\0"),
        (b"\0\2\0\1g", b"\0\x63"),
        (b"\0\2\0\1g", b"\xff\xff"),
    ):
        with pytest.raises(Malformed) as caught:
            offset.parse(key, value)
        assert not isinstance(caught.value, UnknownRecord)


def test_the_end_of_a_transaction_is_read_in_versions_to_come() -> None:
    marker = control.EndTxnMarker(coordinator_epoch=7)
    assert control.key_bytes(ControlRecordType.COMMIT) == b"\0\0\0\1"
    assert control.value_bytes(marker) == b"\0\0\0\0\0\7"
    assert control.parse(b"\0\0\0\1", b"\0\0\0\0\0\7") == (ControlRecordType.COMMIT, marker)
    assert control.parse(b"\0\0\0\0", b"\0\x09\0\0\0\7more") == (ControlRecordType.ABORT, marker)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", b""),
        (b"\0\0\0", b"\0\0"),
        (b"\xff\xff\0\0", b"\0\0"),
        (b"\0\0\0\1", b""),
        (b"\0\0\0\x63", b"\0\0"),
        (b"\0\0\0\1", b"\xff\xff\0\0\0\0"),
    ],
)
def test_a_broken_control_record_is_malformed(key: bytes, value: bytes) -> None:
    with pytest.raises(Malformed):
        control.parse(key, value)


def test_the_kind_of_a_control_record_that_is_not_known_can_still_be_asked() -> None:
    assert control.kind_of(b"\0\0\0\x63") == 0x63


def test_a_leader_change_with_directories_is_version_1() -> None:
    voter = control.Voter(voter_id=3, voter_directory_id=Uuid(b"d" * 16))
    change = control.LeaderChangeMessage(leader_id=3, voters=[voter])
    data = control.value_bytes(change, 1)
    assert data[:2] == b"\0\1"
    assert control.parse(b"\0\0\0\2", data) == (ControlRecordType.LEADER_CHANGE, change)


@pytest.mark.parametrize("version", range(4))
def test_a_subscription_is_read_in_every_version_and_in_those_to_come(version: int) -> None:
    given: Any = message(consumer_protocol.ConsumerProtocolSubscription, version, Random(version))
    data = consumer_protocol.pack(given, version)
    assert consumer_protocol.parse_subscription(data) == given
    assignment: Any = message(consumer_protocol.ConsumerProtocolAssignment, version, Random(version))
    assert consumer_protocol.parse_assignment(consumer_protocol.pack(assignment, version)) == assignment
    if version == 3:
        assert consumer_protocol.parse_subscription(b"\0\x09" + data[2:] + b"more") == given
    for broken in (b"", b"\0", b"\xff\xff" + data[2:], data[:-1]):
        with pytest.raises(Malformed):
            consumer_protocol.parse_subscription(broken)
