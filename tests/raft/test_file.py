"""`quorum-state` and snapshots, against what Apache Kafka wrote."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.kernel.error import OttlaError
from ottla.kernel.ids import Uuid, parse_uuid
from ottla.raft.checkpoint import (
    BrokenCheckpoint,
    Membership,
    SnapshotId,
    VoterEndpoint,
    VoterNode,
    checkpoint_name,
    decode_checkpoint,
    encode_checkpoint,
    parse_checkpoint_name,
)
from ottla.raft.role import Election, Voter
from ottla.raft.state import decode_state, encode_state
from ottla.wire.batch import headers, read

GOLDEN = Path(__file__).parent.parent / "golden"
LOG = GOLDEN / "log" / "__cluster_metadata-0"
VOTERS = LOG / "00000000000000000000-0000000000.checkpoint"
BOOTSTRAP = GOLDEN / "wire" / "bootstrap.checkpoint"
ME = VoterNode(Voter(1, parse_uuid("ZuLyBRqURyWuafii9CiUJg")), (VoterEndpoint("CONTROLLER", "127.0.0.1", 19093),))


def test_the_state_is_the_line_that_apache_writes() -> None:
    text = (LOG / "quorum-state").read_text()
    election = decode_state(text, "quorum-state")
    assert election == Election(1, leader_id=1)
    assert encode_state(election, 1, (ME.voter,)) == text


def test_a_vote_comes_back_with_its_directory() -> None:
    election = Election(7, voted=ME.voter)
    assert decode_state(encode_state(election, 1, (ME.voter,)), "") == election


def test_before_kip_853_the_state_has_the_voters_and_no_directory() -> None:
    text = encode_state(Election(7, leader_id=1), 0, (Voter(1),))
    assert text == (
        '{"clusterId":"","leaderId":1,"leaderEpoch":7,"votedId":-1,"appliedOffset":0,'
        '"currentVoters":[{"voterId":1}],"data_version":0}'
    )
    assert decode_state(text, "") == Election(7, leader_id=1)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "nonsense",
        '{"leaderId":1,"leaderEpoch":1,"votedId":-1,"data_version":9}',
        '{"leaderId":1,"leaderEpoch":2147483647,"votedId":-1,"data_version":0}',
        '{"leaderId":1,"leaderEpoch":-1,"votedId":-1,"data_version":0}',
    ],
)
def test_a_damaged_state_is_not_guessed(text: str) -> None:
    with pytest.raises(OttlaError, match="/x/quorum-state is damaged"):
        decode_state(text, "/x/quorum-state")


@pytest.mark.parametrize(
    ("path", "membership", "count"), [(VOTERS, Membership(1, (ME,)), 0), (BOOTSTRAP, Membership(), 6)]
)
def test_a_snapshot_is_byte_for_byte_apaches(path: Path, membership: Membership, count: int) -> None:
    data = path.read_bytes()
    found = decode_checkpoint(data)
    assert (found.membership, len(found.values)) == (membership, count)
    stamps = {batch.header.base_timestamp for batch in read(data)}
    # Apache takes the time anew for each batch; all else is the same, so each of its stamps gives one batch of ours.
    ours = [
        encode_checkpoint(
            found.values,
            membership,
            epoch=0,
            last_contained_log_timestamp=found.last_contained_log_timestamp,
            now_ms=stamp,
        )
        for stamp in stamps
    ]
    assert {bytes(batch.data) for batch in read(data)} <= {batch for batches in ours for batch in batches}


@given(values=st.lists(st.binary(max_size=30), max_size=2500), epoch=st.integers(0, 2**31 - 1))
def test_what_a_snapshot_holds_comes_back(values: list[bytes], epoch: int) -> None:
    batches = list(
        encode_checkpoint(values, Membership(1, (ME,)), epoch=epoch, last_contained_log_timestamp=5, now_ms=9)
    )
    found = decode_checkpoint(b"".join(batches))
    assert (found.values, found.membership, found.last_contained_log_timestamp) == (values, Membership(1, (ME,)), 5)
    offsets = [batch.header for each in batches for batch in read(each)]
    assert [header.base_offset for header in offsets[1:]] == [header.last_offset + 1 for header in offsets[:-1]]


def covered(data: bytes) -> list[int]:
    """Where a flipped bit must show: all but the base offsets and leader epochs, which no CRC covers."""
    positions = []
    for start, header in headers(data):
        positions += [start + at for at in range(header.size) if not (at < 8 or 12 <= at < 16)]
    return positions


def test_a_snapshot_that_was_cut_or_changed_anywhere_is_broken() -> None:
    data = BOOTSTRAP.read_bytes()
    for end in range(len(data)):
        with pytest.raises(BrokenCheckpoint):
            decode_checkpoint(data[:end])
    for position in covered(data):
        flipped = bytearray(data)
        flipped[position] ^= 1
        with pytest.raises(BrokenCheckpoint):
            decode_checkpoint(bytes(flipped))
    with pytest.raises(BrokenCheckpoint, match="records after the footer"):
        decode_checkpoint(data + data)


def test_names_have_the_end_offset_and_the_epoch() -> None:
    name = "00000000000000000042-0000000003.checkpoint"
    assert checkpoint_name(SnapshotId(42, 3)) == name
    assert parse_checkpoint_name(name) == SnapshotId(42, 3)
    for other in (f"{name}.part", f"{name}.deleted", "bootstrap.checkpoint", "00000000000000000042.log"):
        assert parse_checkpoint_name(other) is None


def test_voters_are_told_apart_by_their_directories() -> None:
    assert Voter(1, Uuid(b"a" * 16)) != Voter(1, Uuid(b"b" * 16))
