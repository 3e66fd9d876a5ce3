"""Snapshots of the metadata log: `<end offset>-<epoch>.checkpoint`, and `bootstrap.checkpoint` (KIP-630).

Rules:
- A file is a sequence of record batches: a control batch with the header (and, from kraft.version 1 on, the version
  and the voters), the records, a control batch with the footer. Offsets count up from 0 and carry no meaning.
- A file without its footer is not a snapshot: its writer died.
- A snapshot is written as `.checkpoint.part`, synced and renamed. Before deletion it is renamed to
  `.checkpoint.deleted`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ottla.kernel.error import KafkaError
from ottla.kernel.ids import Uuid
from ottla.kernel.named import NamedTuple
from ottla.kernel.ports import Buffer
from ottla.raft.role import Voter
from ottla.wire.batch import build, check, read
from ottla.wire.record.control import (
    ControlRecordType,
    Endpoint,
    KRaftVersionFeature,
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
    VotersRecordVoter,
    key_bytes,
    parse,
    value_bytes,
)
from ottla.wire.record.control import Voter as LeaderChangeVoter
from ottla.wire.type import Malformed

SUFFIX = ".checkpoint"
PART_SUFFIX = ".checkpoint.part"
DELETED_SUFFIX = ".checkpoint.deleted"
BOOTSTRAP_FILE = "bootstrap.checkpoint"

#: The number of records in one batch of a snapshot, to bound the reader's memory.
_RECORDS_MAX = 1000
_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint")


class SnapshotId(NamedTuple):
    """The identity of a snapshot: it covers everything below `end_offset`; `epoch` is that of its last record."""

    end_offset: int
    epoch: int


#: The snapshot that `format` writes: the voters of a quorum whose log has no record yet.
BOOTSTRAP_ID = SnapshotId(0, 0)


class VoterEndpoint(NamedTuple):
    """A voter's address on one listener."""

    name: str
    host: str
    port: int


#: The lowest and highest kraft.version that this release supports.
KRAFT_VERSIONS = (0, 1)


class VoterNode(NamedTuple):
    """A voter with its addresses."""

    voter: Voter
    endpoints: tuple[VoterEndpoint, ...]
    #: The lowest and highest kraft.version that it supports.
    kraft_versions: tuple[int, int] = KRAFT_VERSIONS


class Membership(NamedTuple):
    """The voters according to the log. With `kraft_version` 0 the log has none: the settings define them."""

    kraft_version: int = 0
    voters: tuple[VoterNode, ...] = ()


class Checkpoint(NamedTuple):
    """A decoded snapshot."""

    #: The timestamp of the newest record that it covers.
    last_contained_log_timestamp: int
    membership: Membership
    #: The records' values.
    values: list[bytes]


class BrokenCheckpoint(ValueError):
    """A file that is not a complete snapshot."""


def checkpoint_name(snapshot: SnapshotId) -> str:
    """Return the file name, such as `00000000000000000042-0000000003.checkpoint`."""
    return f"{snapshot.end_offset:020d}-{snapshot.epoch:010d}{SUFFIX}"


def parse_checkpoint_name(name: str) -> SnapshotId | None:
    """Parse the file name of a snapshot; None for any other name."""
    match = _NAME.fullmatch(name)
    return SnapshotId(int(match[1]), int(match[2])) if match else None


def encode_checkpoint(
    values: Iterable[bytes], membership: Membership, *, epoch: int, last_contained_log_timestamp: int, now_ms: int
) -> Iterator[bytes]:
    """Yield the batches of a snapshot."""
    header = SnapshotHeaderRecord(last_contained_log_timestamp=last_contained_log_timestamp)
    control = [(ControlRecordType.SNAPSHOT_HEADER, value_bytes(header)), *membership_records(membership)]
    yield control_batch(control, base_offset=0, epoch=epoch, now_ms=now_ms)
    offset = len(control)
    batch: list[bytes] = []
    for value in values:
        batch.append(value)
        if len(batch) == _RECORDS_MAX:
            yield record_batch(batch, base_offset=offset, epoch=epoch, now_ms=now_ms)
            offset += len(batch)
            batch = []
    if batch:
        yield record_batch(batch, base_offset=offset, epoch=epoch, now_ms=now_ms)
        offset += len(batch)
    footer = [(ControlRecordType.SNAPSHOT_FOOTER, value_bytes(SnapshotFooterRecord()))]
    yield control_batch(footer, base_offset=offset, epoch=epoch, now_ms=now_ms)


def decode_checkpoint(data: Buffer) -> Checkpoint:
    """Decode a complete snapshot; raise BrokenCheckpoint for anything else."""
    timestamp, membership, values, complete = -1, Membership(), [], False
    position = 0
    try:
        for batch in read(data):
            if complete:
                raise BrokenCheckpoint("records after the footer")
            check(data, position)
            position += batch.header.size
            for record in batch.records():
                if not batch.header.is_control:
                    values.append(record.value or b"")
                    continue
                kind, message = parse(record.key or b"", record.value or b"")
                if kind is ControlRecordType.SNAPSHOT_HEADER:
                    timestamp = message.last_contained_log_timestamp
                elif kind is ControlRecordType.SNAPSHOT_FOOTER:
                    complete = True
                else:
                    membership = changed_membership(membership, message)
    except (KafkaError, Malformed) as error:
        raise BrokenCheckpoint(str(error)) from error
    if not complete or position != len(data):
        raise BrokenCheckpoint("it does not end with a footer")
    return Checkpoint(timestamp, membership, values)


def decode_timestamp(head: Buffer) -> int:
    """Return `last_contained_log_timestamp` of a snapshot from its first bytes, which include the first batch."""
    try:
        for batch in read(head):
            check(head, 0)
            for record in batch.records():
                kind, message = parse(record.key or b"", record.value or b"")
                if kind is ControlRecordType.SNAPSHOT_HEADER:
                    timestamp: int = message.last_contained_log_timestamp
                    return timestamp
            break
    except (KafkaError, Malformed) as error:
        raise BrokenCheckpoint(str(error)) from error
    raise BrokenCheckpoint("it does not begin with a header")


# ---- batches


def record_batch(values: Iterable[bytes], *, base_offset: int = 0, epoch: int, now_ms: int) -> bytes:
    """Encode metadata records as one batch."""
    return build([(now_ms, None, value, ()) for value in values], base_offset=base_offset, leader_epoch=epoch)


def control_batch(
    records: Iterable[tuple[ControlRecordType, bytes]], *, base_offset: int = 0, epoch: int, now_ms: int
) -> bytes:
    """Encode control records as one batch."""
    keyed = [(now_ms, key_bytes(kind), value, ()) for kind, value in records]
    return build(keyed, base_offset=base_offset, leader_epoch=epoch, control=True)


def leader_change_record(
    leader_id: int, voters: Iterable[Voter], granting: Iterable[Voter]
) -> tuple[ControlRecordType, bytes]:
    """Return the first record of an epoch: version 0, which Apache Kafka 4.3 writes with every kraft.version."""
    message = LeaderChangeMessage(
        leader_id=leader_id,
        voters=[LeaderChangeVoter(voter_id=voter.node_id) for voter in voters],
        granting_voters=[LeaderChangeVoter(voter_id=voter.node_id) for voter in granting],
    )
    return ControlRecordType.LEADER_CHANGE, value_bytes(message)


def membership_records(membership: Membership) -> list[tuple[ControlRecordType, bytes]]:
    """Return the records of the version and the voters; none with kraft.version 0."""
    if membership.kraft_version == 0:
        return []
    version = KRaftVersionRecord(kraft_version=membership.kraft_version)
    voters = VotersRecord(
        voters=[
            VotersRecordVoter(
                voter_id=node.voter.node_id,
                voter_directory_id=node.voter.directory_id,
                endpoints=[
                    Endpoint(name=endpoint.name, host=endpoint.host, port=endpoint.port) for endpoint in node.endpoints
                ],
                kraft_version_feature=KRaftVersionFeature(
                    min_supported_version=node.kraft_versions[0], max_supported_version=node.kraft_versions[1]
                ),
            )
            for node in membership.voters
        ]
    )
    return [
        (ControlRecordType.KRAFT_VERSION, value_bytes(version)),
        (ControlRecordType.KRAFT_VOTERS, value_bytes(voters)),
    ]


def changed_membership(membership: Membership, message: object) -> Membership:
    """Apply a control record; records that do not concern the membership return it unchanged."""
    if isinstance(message, KRaftVersionRecord):
        return membership._replace(kraft_version=message.kraft_version)
    if isinstance(message, VotersRecord):
        nodes = [
            VoterNode(
                Voter(voter.voter_id, Uuid(voter.voter_directory_id)),
                tuple(VoterEndpoint(endpoint.name, endpoint.host, endpoint.port) for endpoint in voter.endpoints),
                (
                    voter.kraft_version_feature.min_supported_version,
                    voter.kraft_version_feature.max_supported_version,
                ),
            )
            for voter in message.voters
        ]
        return membership._replace(voters=tuple(nodes))
    return membership
