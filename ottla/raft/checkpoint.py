"""SnapshotSchedule of the metadata log: `<end offset>-<epoch>.checkpoint`, also `bootstrap.checkpoint` (KIP-630).

Rules:
- A file is record batches: a control batch with the header (and, from kraft.version 1 on, the version and the voters),
  the records, a control batch with the footer. Offsets count up from 0 and mean nothing.
- A file without its footer is not a snapshot: its writer died.
- It is written as `.checkpoint.part`, synced, renamed; what is to go is renamed to `.checkpoint.deleted` first.
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

#: What one batch of a snapshot holds, to bound the memory of its reader.
_RECORDS_MAX = 1000
_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint")


class SnapshotId(NamedTuple):
    """A snapshot holds everything below `end_offset`; `epoch` is that of its last record."""

    end_offset: int
    epoch: int


#: What `format` writes: the voters of a quorum before its log has a record.
BOOTSTRAP_ID = SnapshotId(0, 0)


class VoterEndpoint(NamedTuple):
    """Where a voter is found, on one listener."""

    name: str
    host: str
    port: int


#: The lowest and highest kraft.version that this release runs.
KRAFT_VERSIONS = (0, 1)


class VoterNode(NamedTuple):
    """A voter with its addresses."""

    voter: Voter
    endpoints: tuple[VoterEndpoint, ...]
    #: The lowest and highest kraft.version that it runs.
    kraft_versions: tuple[int, int] = KRAFT_VERSIONS


class Membership(NamedTuple):
    """The voters as the log has them; with `kraft_version` 0 the log has none, and the settings do."""

    kraft_version: int = 0
    voters: tuple[VoterNode, ...] = ()


class Checkpoint(NamedTuple):
    """A snapshot that was read."""

    #: The timestamp of the newest record that it stands for.
    last_contained_log_timestamp: int
    membership: Membership
    #: The records' values.
    values: list[bytes]


class BrokenCheckpoint(ValueError):
    """A file that is not a whole snapshot."""


def checkpoint_name(snapshot: SnapshotId) -> str:
    """Such as `00000000000000000042-0000000003.checkpoint`."""
    return f"{snapshot.end_offset:020d}-{snapshot.epoch:010d}{SUFFIX}"


def parse_checkpoint_name(name: str) -> SnapshotId | None:
    """The reverse, or None for any other file."""
    match = _NAME.fullmatch(name)
    return SnapshotId(int(match[1]), int(match[2])) if match else None


def encode_checkpoint(
    values: Iterable[bytes], membership: Membership, *, epoch: int, last_contained_log_timestamp: int, now_ms: int
) -> Iterator[bytes]:
    """The batches of a snapshot."""
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
    """A whole snapshot. BrokenCheckpoint for anything else."""
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
    """`last_contained_log_timestamp` of a snapshot that begins with these bytes, its first batch among them."""
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
    """Metadata records as one batch."""
    return build([(now_ms, None, value, ()) for value in values], base_offset=base_offset, leader_epoch=epoch)


def control_batch(
    records: Iterable[tuple[ControlRecordType, bytes]], *, base_offset: int = 0, epoch: int, now_ms: int
) -> bytes:
    """Control records as one batch."""
    keyed = [(now_ms, key_bytes(kind), value, ()) for kind, value in records]
    return build(keyed, base_offset=base_offset, leader_epoch=epoch, control=True)


def leader_change_record(
    leader_id: int, voters: Iterable[Voter], granting: Iterable[Voter]
) -> tuple[ControlRecordType, bytes]:
    """The first record of an epoch. Version 0, as Apache Kafka 4.3 writes it whatever kraft.version is."""
    message = LeaderChangeMessage(
        leader_id=leader_id,
        voters=[LeaderChangeVoter(voter_id=voter.node_id) for voter in voters],
        granting_voters=[LeaderChangeVoter(voter_id=voter.node_id) for voter in granting],
    )
    return ControlRecordType.LEADER_CHANGE, value_bytes(message)


def membership_records(membership: Membership) -> list[tuple[ControlRecordType, bytes]]:
    """The version and the voters; nothing with kraft.version 0."""
    if membership.kraft_version == 0:
        return []
    version = KRaftVersionRecord(kraft_version=membership.kraft_version)
    voters = VotersRecord(
        voters=[
            VotersRecordVoter(
                voter_id=node.voter.node_id,
                voter_directory_id=node.voter.directory_id,
                endpoints=[Endpoint(name=each.name, host=each.host, port=each.port) for each in node.endpoints],
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
    """After one more control record; those that say nothing of it change nothing."""
    if isinstance(message, KRaftVersionRecord):
        return membership._replace(kraft_version=message.kraft_version)
    if isinstance(message, VotersRecord):
        nodes = [
            VoterNode(
                Voter(each.voter_id, Uuid(each.voter_directory_id)),
                tuple(VoterEndpoint(endpoint.name, endpoint.host, endpoint.port) for endpoint in each.endpoints),
                (
                    each.kraft_version_feature.min_supported_version,
                    each.kraft_version_feature.max_supported_version,
                ),
            )
            for each in message.voters
        ]
        return membership._replace(voters=tuple(nodes))
    return membership
