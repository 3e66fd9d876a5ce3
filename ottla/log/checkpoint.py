"""The small files of a log directory: checkpoints, ids, the clean shutdown marker.

Rules:
- A file is replaced as a whole: written to a `.tmp` file, synced, renamed, and its directory synced.
- A file that cannot be parsed raises CorruptCheckpoint; its content is never guessed.
"""

import json
from collections.abc import Iterable, Mapping, Sequence

from ottla.kernel.ids import NO_UUID, TopicPartition, Uuid, parse_uuid, uuid_text
from ottla.kernel.ports import Disk
from ottla.log.path import PARTITION_METADATA

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
START_OFFSETS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
META_PROPERTIES = "meta.properties"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
LOCK = ".lock"


class CorruptCheckpoint(ValueError):
    """A file that neither Ottla nor Kafka can have written."""


def read_text(disk: Disk, path: str) -> str | None:
    """The file's text, or None if there is no file."""
    try:
        file = disk.open(path)
    except FileNotFoundError:
        return None
    try:
        data = file.read(file.size(), 0)
    finally:
        file.close()
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise CorruptCheckpoint(f"{path} is not UTF-8 text: {error}") from error


def write_text(disk: Disk, path: str, text: str, *, sync_name: bool = True) -> None:
    """Replace the file durably. Without `sync_name` the caller must sync the directory."""
    disk.rename(write_beside(disk, path, text, sync=True), path)
    if sync_name:
        disk.sync_directory(path.rpartition("/")[0])


def write_beside(disk: Disk, path: str, text: str, *, sync: bool) -> str:
    """Write the replacement of a file next to it; the path of the replacement."""
    beside = f"{path}.tmp"
    file = disk.open(beside, create=True)
    try:
        if file.size():
            # Left over from a crash. An empty file is not truncated: ext4 would write it out when it is closed.
            file.truncate(0)
        file.write(text.encode(), 0)
        if sync:
            file.sync()
    finally:
        file.close()
    return beside


# ---- version, count, lines


def encode_lines(lines: Iterable[str]) -> str:
    """Kafka's checkpoint format: the version (0), the number of lines, the lines."""
    entries = list(lines)
    return "\n".join(["0", str(len(entries)), *entries]) + "\n"


def decode_lines(text: str, path: str) -> list[list[str]]:
    """The words of each line. Raises CorruptCheckpoint if the version or the count is wrong."""
    lines = text.split("\n")
    if lines and lines[-1] == "":
        lines.pop()
    if len(lines) < 2 or lines[0].strip() != "0" or not lines[1].strip().isdecimal():
        raise CorruptCheckpoint(f"{path} does not begin with version 0 and a count")
    words = [line.split() for line in lines[2:]]
    if int(lines[1]) != len(words):
        raise CorruptCheckpoint(f"{path} declares {lines[1].strip()} entries but has {len(words)}")
    return words


def read_offsets(disk: Disk, path: str) -> dict[TopicPartition, int]:
    """An offset checkpoint (`<topic> <partition> <offset>`); empty if there is no file."""
    text = read_text(disk, path)
    if text is None:
        return {}
    try:
        return {
            TopicPartition(topic, int(partition)): int(offset) for topic, partition, offset in decode_lines(text, path)
        }
    except ValueError as error:
        raise CorruptCheckpoint(f"{path}: {error}") from error


def write_offsets(disk: Disk, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Replace an offset checkpoint."""
    lines = (f"{tp.topic} {tp.partition} {offset}" for tp, offset in offsets.items())
    write_text(disk, path, encode_lines(lines))


def encode_epochs(entries: Iterable[tuple[int, int]]) -> str:
    """The text of `leader-epoch-checkpoint`."""
    return encode_lines(f"{epoch} {start_offset}" for epoch, start_offset in entries)


def read_epochs(disk: Disk, path: str) -> list[tuple[int, int]] | None:
    """(epoch, start offset) of each line; None if there is no file."""
    text = read_text(disk, path)
    if text is None:
        return None
    try:
        return [(int(epoch), int(start_offset)) for epoch, start_offset in decode_lines(text, path)]
    except ValueError as error:
        raise CorruptCheckpoint(f"{path}: {error}") from error


# ---- ids


def read_topic_id(disk: Disk, directory: str) -> Uuid:
    """The topic id in `partition.metadata`, or NO_UUID if there is no such file."""
    path = f"{directory}/{PARTITION_METADATA}"
    text = read_text(disk, path)
    if text is None:
        return NO_UUID
    fields = _fields(text, ":")
    if fields.get("version") != "0" or "topic_id" not in fields:
        raise CorruptCheckpoint(f"{path} is not version 0 or has no topic_id")
    try:
        return parse_uuid(fields["topic_id"])
    except ValueError as error:
        raise CorruptCheckpoint(f"{path}: {error}") from error


def write_topic_id(disk: Disk, directory: str, topic_id: Uuid) -> None:
    """Write `partition.metadata`."""
    write_text(disk, f"{directory}/{PARTITION_METADATA}", f"version: 0\ntopic_id: {uuid_text(topic_id)}\n")


def read_properties(disk: Disk, path: str) -> dict[str, str] | None:
    """A Java properties file such as `meta.properties`; None if there is no file."""
    text = read_text(disk, path)
    return None if text is None else _fields(text, "=")


def write_properties(disk: Disk, path: str, properties: Mapping[str, str]) -> None:
    """Write a Java properties file; the values need no escaping."""
    lines = [f"{name}={value}" for name, value in properties.items()]
    write_text(disk, path, "\n".join(["#", *lines]) + "\n")


def _fields(text: str, mark: str) -> dict[str, str]:
    fields = {}
    for line in text.splitlines():
        if line.strip() and not line.lstrip().startswith(("#", "!")):
            name, _, value = line.partition(mark)
            fields[name.strip()] = value.strip()
    return fields


# ---- the clean shutdown marker


def take_clean_shutdown(disk: Disk, directory: str) -> tuple[bool, int]:
    """(was the shutdown clean?, the broker epoch then or -1). Removes the marker, which is valid for one start."""
    path = f"{directory}/{CLEAN_SHUTDOWN}"
    try:
        text = read_text(disk, path)
    except CorruptCheckpoint:
        text = ""
    if text is None:
        return False, -1
    disk.remove(path)
    disk.sync_directory(directory)
    try:
        return True, int(json.loads(text)["brokerEpoch"])
    except (ValueError, KeyError, TypeError):
        # Versions before 3.8 leave an empty file.
        return True, -1


def clean_shutdown_epoch(disk: Disk, directories: Sequence[str]) -> int:
    """The broker epoch of the last clean shutdown; -1 unless all directories have it.

    The markers stay in place.
    """
    epochs = set()
    for directory in directories:
        try:
            epochs.add(int(json.loads(read_text(disk, f"{directory}/{CLEAN_SHUTDOWN}") or "")["brokerEpoch"]))
        except (CorruptCheckpoint, ValueError, KeyError, TypeError):
            return -1
    return epochs.pop() if len(epochs) == 1 else -1


def write_clean_shutdown(disk: Disk, directory: str, broker_epoch: int) -> None:
    """Write the marker, so that the next start needs no recovery."""
    write_text(disk, f"{directory}/{CLEAN_SHUTDOWN}", f'{{"version":0,"brokerEpoch":{broker_epoch}}}')
