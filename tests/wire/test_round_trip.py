"""What we write we read, whole, in pieces, cut off and damaged."""

import tracemalloc
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.wire.api import vote
from ottla.wire.api.broker_registration import BrokerRegistrationRequest
from ottla.wire.api.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
)
from ottla.wire.api.metadata import MetadataRequest, MetadataResponse
from ottla.wire.api.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.wire.compile import decode, decoder, encode, encoder
from ottla.wire.type import Malformed, UnsupportedVersion
from tests.wire.value import message, pairs, seeded

PAIRS = pairs()


def test_every_message_in_every_version_survives_a_round_trip() -> None:
    for cls, version, rng in seeded():
        for _ in range(3):
            made = message(cls, version, rng, unknown=True)
            data = encode(made, version)
            read, end = decode(cls, version, data)
            assert (read, end) == (made, len(data))
            assert encode(read, version) == data


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(PAIRS), st.randoms(use_true_random=False), st.binary(max_size=9), st.binary(max_size=9))
def test_a_message_is_found_at_any_position_in_any_kind_of_buffer(
    pair: tuple[Any, int], rng: Random, before: bytes, after: bytes
) -> None:
    cls, version = pair
    made = message(cls, version, rng, unknown=True)
    data = encode(made, version)
    for buffer in (before + data + after, memoryview(before + data + after), bytearray(before + data + after)):
        assert decode(cls, version, buffer, len(before)) == (made, len(before) + len(data))


def test_a_message_cut_off_at_any_byte_is_malformed() -> None:
    for cls, version, rng in seeded():
        data = encode(message(cls, version, rng, unknown=True), version)
        read = decoder(cls, version)
        for size in range(len(data)):
            if len(data) > 600 and size % 7:
                continue
            with pytest.raises(Malformed):
                read(data[:size])


def test_damaged_bytes_give_a_message_or_malformed_and_nothing_else() -> None:
    for cls, version, rng in seeded():
        data = encode(message(cls, version, rng, unknown=True), version)
        read = decoder(cls, version)
        for _ in range(12 if data else 0):
            damaged = bytearray(data)
            at = rng.randrange(len(data))
            damaged[at : at + 4] = rng.choice(
                (b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\0\0\0", rng.randbytes(4))
            )
            try:
                _, end = read(bytes(damaged))
            except Malformed:
                continue
            assert 0 <= end <= len(damaged)


@pytest.mark.parametrize(
    "lie", [b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\x7f", b"\x00\xff\xff\xff"]
)
@pytest.mark.parametrize(
    ("cls", "version"),
    [
        (FetchResponse, 11),
        (FetchResponse, 16),
        (MetadataResponse, 8),
        (MetadataResponse, 13),
        (BrokerRegistrationRequest, 4),
    ],
)
def test_a_count_that_lies_costs_no_memory(cls: Any, version: int, lie: bytes) -> None:
    data = encode(message(cls, version, Random(1)), version)
    read = decoder(cls, version)
    tracemalloc.start()
    try:
        for at in range(min(len(data), 400)):
            damaged = data[:at] + lie + data[at + len(lie) :]
            with suppress(Malformed):
                read(damaged)
        assert tracemalloc.get_traced_memory()[1] < 200_000
    finally:
        tracemalloc.stop()


def test_a_version_that_a_message_lacks_is_refused() -> None:
    for version in (-1, 2, 14):
        with pytest.raises(UnsupportedVersion):
            encode(ProduceRequest(), version)
        with pytest.raises(UnsupportedVersion):
            decode(ProduceRequest, version, b"")


def test_a_value_in_a_field_that_the_version_lacks_is_refused_unless_it_may_be_ignored() -> None:
    voter = vote.RequestTopicData(partitions=[vote.RequestPartitionData(pre_vote=True)])
    with pytest.raises(UnsupportedVersion, match="pre_vote"):
        encode(vote.VoteRequest(topics=[voter]), 1)
    with pytest.raises(UnsupportedVersion, match="allow_auto_topic_creation"):
        encode(MetadataRequest(topics=[], allow_auto_topic_creation=False), 3)
    late = ProduceResponse(throttle_time_ms=7)
    assert decode(ProduceResponse, 9, encode(late, 9))[0].throttle_time_ms == 7
    named = MetadataResponse(cluster_id="flights")
    assert decode(MetadataResponse, 1, encode(named, 1))[0].cluster_id is None


def test_null_where_a_version_has_none_is_malformed() -> None:
    with pytest.raises(Malformed, match="null"):
        decode(MetadataRequest, 0, b"\xff\xff\xff\xff")
    assert decode(MetadataRequest, 1, b"\xff\xff\xff\xff")[0].topics is None


def test_text_that_is_not_utf8_is_malformed() -> None:
    with pytest.raises(Malformed):
        decode(MetadataRequest, 0, b"\0\0\0\1\0\2\xff\xfe")


def test_a_compact_string_longer_than_kafka_allows_is_malformed() -> None:
    long = MetadataResponse(cluster_id="x" * 32768)
    with pytest.raises(Malformed, match="string"):
        decode(MetadataResponse, 9, encode(long, 9))


def test_records_are_a_view_into_what_was_read() -> None:
    request = ProduceRequest(topic_data=[TopicProduceData(partition_data=[PartitionProduceData(records=b"batch" * 9)])])
    for buffer in (encode(request, 9), memoryview(encode(request, 9)), encode(request, 9) + bytes(20_000)):
        records = decode(ProduceRequest, 9, buffer)[0].topic_data[0].partition_data[0].records
        assert isinstance(records, memoryview)
        assert records.obj is (buffer.obj if isinstance(buffer, memoryview) else buffer)
        assert records == b"batch" * 9


class _Slice:
    """As a log gives it: it has a length, and its bytes when somebody asks."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data)

    def bytes(self) -> bytes:
        return self.data


def _fetched(*records: Any) -> FetchResponse:
    data = [PartitionData(partition_index=index, records=each) for index, each in enumerate(records)]
    return FetchResponse(responses=[FetchableTopicResponse(topic="flights", partitions=data)])


def test_a_slice_of_a_file_is_a_part_of_its_own() -> None:
    slices = [_Slice(b"one" * 5), _Slice(b""), _Slice(b"three")]
    parts = encoder(FetchResponse, 12)(_fetched(*slices))
    assert [type(part) for part in parts] == [bytes, _Slice, bytes, _Slice, bytes]
    assert (parts[1], parts[3]) == (slices[0], slices[2])
    whole = encode(_fetched(*(each.data for each in slices)), 12)
    assert b"".join(part if isinstance(part, bytes) else part.bytes() for part in parts) == whole
    assert encode(_fetched(*slices), 12) == whole


def test_long_bytes_are_not_copied_and_short_ones_are_joined() -> None:
    long = bytes(100_000)
    parts = encoder(FetchResponse, 12)(_fetched(long, b"short"))
    assert len(parts) == 3
    assert parts[1] is long


def test_a_default_in_a_tagged_field_is_not_written() -> None:
    plain = encode(_fetched(b""), 12)
    told = _fetched(b"")
    told.responses[0].partitions[0].current_leader = LeaderIdAndEpoch(leader_epoch=4)
    assert len(encode(told, 12)) == len(plain) + 2 + 9
    assert decode(FetchResponse, 12, encode(told, 12))[0] == told


def test_messages_have_kafkas_defaults_and_none_changes_anothers() -> None:
    for _ in range(4):  # made by hand, and then by compiled code
        one, other = PartitionData(), PartitionData()
        assert (one.last_stable_offset, one.preferred_read_replica, one.records) == (-1, -1, None)
        assert one == other
        one.aborted_transactions = [AbortedTransaction()]
        assert one != other and other.aborted_transactions == []
        with pytest.raises(AttributeError, match="give the field a new LeaderIdAndEpoch"):
            other.current_leader.leader_id = 5
        other.current_leader = LeaderIdAndEpoch()
        assert other == PartitionData()
        other.current_leader.leader_id = 5
        assert other != PartitionData() and one.current_leader.leader_id == -1
        assert "leader_id=5" in repr(other)


def test_a_field_that_a_message_does_not_have_is_an_error() -> None:
    with pytest.raises(AttributeError):
        ProduceResponse().eror_code = 1  # type: ignore[attr-defined]
    with pytest.raises(TypeError):
        ProduceResponse(eror_code=1)  # type: ignore[call-arg]
