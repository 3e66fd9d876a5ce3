"""Control records: written by brokers and the quorum's leader between the records of a log.

The key is an int16 version (0), then an int16 type. The value of a transaction marker is an int16 version, then the
message. The quorum's messages (flexible) have no prefix; their first field is the version.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct as Format
from typing import Any

from ottla.kernel.ports import Buffer
from ottla.wire.compile import decode, encode
from ottla.wire.schema import on, schema, wire
from ottla.wire.type import NO_UUID, Int16, Int32, Int64, Malformed, String, Uint16, Uuid


@wire(versions="0", flexible="none")
class ControlRecordTypeSchema:
    """The key of every control record, after its version."""

    type: Int16 = on("0+", default=0)


@wire(versions="0", flexible="none")
class EndTxnMarker:
    """The end of a transaction in a partition; the key says commit or abort."""

    coordinator_epoch: Int32 = on("0+", default=0)


@wire
class Voter:
    voter_id: Int32 = on("0+", default=0)
    voter_directory_id: Uuid = on("1+", default=NO_UUID)


@wire(versions="0-1", flexible="0+")
class LeaderChangeMessage:
    """The first record of a quorum epoch. Version 1 adds the voters' directory ids."""

    version: Int16 = on("0+", default=0)
    leader_id: Int32 = on("0+", default=0)
    voters: list[Voter] = on("0+", factory=list)
    granting_voters: list[Voter] = on("0+", factory=list)


@wire(versions="0", flexible="0+")
class SnapshotHeaderRecord:
    """The first record of a snapshot."""

    version: Int16 = on("0+", default=0)
    last_contained_log_timestamp: Int64 = on("0+", default=0)


@wire(versions="0", flexible="0+")
class SnapshotFooterRecord:
    """The last record of a snapshot."""

    version: Int16 = on("0+", default=0)


@wire(versions="0", flexible="0+")
class KRaftVersionRecord:
    """The finalized kraft.version (KIP-853)."""

    version: Int16 = on("0+", default=0)
    kraft_version: Int16 = on("0+", default=0)


@wire
class Endpoint:
    name: String = on("0+", default="")
    host: String = on("0+", default="")
    port: Uint16 = on("0+", default=0)


@wire
class KRaftVersionFeature:
    min_supported_version: Int16 = on("0+", default=0)
    max_supported_version: Int16 = on("0+", default=0)


@wire
class VotersRecordVoter:
    voter_id: Int32 = on("0+", default=0)
    voter_directory_id: Uuid = on("0+", default=NO_UUID)
    endpoints: list[Endpoint] = on("0+", factory=list)
    kraft_version_feature: KRaftVersionFeature = on("0+", factory=KRaftVersionFeature)


@wire(versions="0", flexible="0+")
class VotersRecord:
    """The complete set of voters (KIP-853)."""

    version: Int16 = on("0+", default=0)
    voters: list[VotersRecordVoter] = on("0+", factory=list)


class ControlRecordType(IntEnum):
    """The type in the key of a control record."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


_VALUES = {
    ControlRecordType.ABORT: EndTxnMarker,
    ControlRecordType.COMMIT: EndTxnMarker,
    ControlRecordType.LEADER_CHANGE: LeaderChangeMessage,
    ControlRecordType.SNAPSHOT_HEADER: SnapshotHeaderRecord,
    ControlRecordType.SNAPSHOT_FOOTER: SnapshotFooterRecord,
    ControlRecordType.KRAFT_VERSION: KRaftVersionRecord,
    ControlRecordType.KRAFT_VOTERS: VotersRecord,
}
_INT16 = Format(">h")


def key_bytes(kind: ControlRecordType) -> bytes:
    """Encode the key of a control record."""
    return _INT16.pack(0) + _INT16.pack(kind)


def value_bytes(value: Any, version: int = 0) -> bytes:
    """Encode the value of a control record. The version field of a quorum message is set to `version`."""
    if isinstance(value, EndTxnMarker):
        return _INT16.pack(version) + encode(value, version)
    value.version = version
    return encode(value, version)


def kind_of(key: Buffer) -> int:
    """Return the type in a control record's key. Callers must skip unknown types."""
    if len(key) < 4 or _INT16.unpack_from(key)[0] < 0:
        raise Malformed(f"a control record's key of {len(key)} bytes")
    return int(_INT16.unpack_from(key, 2)[0])


def parse_change(key: Buffer, value: Buffer) -> Any:
    """Return the message of a metadata log's control record; None if it only names the leader of an epoch."""
    return None if kind_of(key) == ControlRecordType.LEADER_CHANGE else parse(key, value)[1]


def parse(key: Buffer, value: Buffer) -> tuple[ControlRecordType, Any]:
    """Return (type, message) of a control record. Malformed for an unknown type."""
    kind = kind_of(key)
    if kind not in _VALUES:
        raise Malformed(f"unknown control record type {kind}")
    if len(value) < 2:
        raise Malformed(f"a control record's value of {len(value)} bytes")
    (version,) = _INT16.unpack_from(value)
    cls: Any = _VALUES[ControlRecordType(kind)]
    versions = schema(cls).versions
    assert versions is not None
    # A newer version only adds fields; like Kafka, decode the known ones.
    if version < 0:
        raise Malformed(f"{cls.__name__} version {version}")
    message, _ = decode(cls, min(version, versions.stop - 1), value, 2 if cls is EndTxnMarker else 0)
    return ControlRecordType(kind), message
