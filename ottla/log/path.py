"""The names of a log's files and directories."""

import re

from ottla.kernel.ids import TopicPartition

LOG = ".log"
OFFSET_INDEX = ".index"
TIME_INDEX = ".timeindex"
TRANSACTION_INDEX = ".txnindex"
SNAPSHOT = ".snapshot"
#: A file that the cleaner is writing.
CLEANED = ".cleaned"
#: A complete file of the cleaner that is about to replace the original.
SWAP = ".swap"
#: A deleted file, to be removed after `file.delete.delay.ms`.
DELETED = ".deleted"

EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
#: In the copy of a move: the copy is durable and has all that the log has.
COMPLETE_COPY = "complete-copy"

DELETE_DIRECTORY = "-delete"
FUTURE_DIRECTORY = "-future"
STRAY_DIRECTORY = "-stray"

#: The files that make up one segment.
SEGMENT_SUFFIXES = (LOG, OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX)

_OFFSET_NAME = re.compile(r"(\d{20})(\.[a-z]+)((?:\.[a-z]+)?)")
_PARTITION_NAME = re.compile(r"(.+)-(\d+)")


def offset_name(offset: int, suffix: str) -> str:
    """A file name such as `00000000000000000042.log`."""
    return f"{offset:020d}{suffix}"


def parse_offset_name(name: str) -> tuple[int, str, str] | None:
    """(offset, suffix, temporary suffix or "") of a file name, or None if it has no offset."""
    match = _OFFSET_NAME.fullmatch(name)
    return (int(match[1]), match[2], match[3]) if match else None


def parse_partition_name(name: str) -> TopicPartition | None:
    """The partition of a directory such as `flights-3`, or None for any other directory."""
    match = _PARTITION_NAME.fullmatch(name)
    return TopicPartition(match[1], int(match[2])) if match else None
