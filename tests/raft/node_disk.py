"""What a node of a quorum keeps: its log with the records, its snapshots, the newest election."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ottla.kernel.ids import Uuid
from ottla.raft.checkpoint import Membership, SnapshotId, VoterEndpoint
from ottla.raft.role import Election
from tests.raft.memory_log import MemoryLog

LISTENER = "CONTROLLER"


def directory_of(node_id: int, disks: int) -> Uuid:
    """The directory id of the n-th disk of a node."""
    return Uuid(bytes([node_id, disks]) * 8)


def endpoint_of(node_id: int) -> VoterEndpoint:
    return VoterEndpoint(LISTENER, f"n{node_id}", 9093)


class Entry(NamedTuple):
    """A record: a value, or a control record's message."""

    epoch: int
    value: Any
    #: The first offset of its batch.
    base: int


class EntryLog(MemoryLog):
    """A log with its records."""

    def __init__(self) -> None:
        super().__init__()
        #: Offset -> record, in their order.
        self.entries: dict[int, Entry] = {}

    def add(self, epoch: int, values: list[Any]) -> int:
        """A batch; its first offset."""
        base = self.end_offset
        for offset, value in enumerate(values, base):
            self.entries[offset] = Entry(epoch, value, base)
        self.append(len(values), epoch)
        return base

    def truncate(self, end_offset: int) -> None:
        super().truncate(end_offset)
        self.entries = {offset: entry for offset, entry in self.entries.items() if offset < end_offset}

    def begin_at(self, snapshot: SnapshotId) -> None:
        super().begin_at(snapshot)
        self.entries = {offset: entry for offset, entry in self.entries.items() if offset >= snapshot.end_offset}

    def restart(self, snapshot: SnapshotId) -> None:
        super().restart(snapshot)
        self.entries = {}

    def batches(self, offset: int, count: int) -> tuple[tuple[Entry, ...], ...]:
        """Up to so many whole batches from here on."""
        found: list[tuple[Entry, ...]] = []
        while offset < self.end_offset and len(found) < count:
            base = self.entries[offset].base
            batch = [self.entries[base]]
            while base + len(batch) < self.end_offset and self.entries[base + len(batch)].base == base:
                batch.append(self.entries[base + len(batch)])
            found.append(tuple(batch))
            offset = base + len(batch)
        return tuple(found)


@dataclass
class Disk:
    """What a node keeps."""

    directory: Uuid
    election: Election = field(default_factory=Election)
    log: EntryLog = field(default_factory=EntryLog)
    synced: int = 0
    #: Snapshot -> (the values in it, who votes).
    contents: dict[SnapshotId, tuple[tuple[Any, ...], Membership]] = field(default_factory=dict)
    #: Whether a leader's control records have no room.
    is_full: bool = False
