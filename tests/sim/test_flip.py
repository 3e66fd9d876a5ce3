"""A bit that turns over at rest: whatever file it is in, no record is served that nobody wrote.

Bytes of a log are guarded by their CRC, so a reader notices. Indexes have no checksum: where one leads astray, the
segment is read instead. A small file that does not read is an error in words, or is not needed.
"""

from collections.abc import Iterator
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from ottla.kernel.error import ErrorCode, KafkaError, OttlaError
from ottla.sim.disk import SimDisk
from ottla.sim.machine import Machine
from ottla.wire.api.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from ottla.wire.batch import HEADER_BYTES, Batch, Record, check, read
from tests.crash.inventory import fetch
from tests.sim.actor import SimClient
from tests.sim.history import PARTITIONS, History

_LIFE_MS = 9000


def _files(disk: SimDisk, path: str) -> Iterator[str]:
    for name in disk.list(path):
        where = f"{path}/{name}"
        if disk.is_directory(where):
            yield from _files(disk, where)
        elif disk.open(where).size():
            yield where


def _flip(machine: Machine, rng: Random, ends: tuple[str, ...]) -> str:
    """Turn over one bit of what was written to a file with such a name; the file."""
    disk = machine.disk
    path = rng.choice([each for each in _files(disk, "/data") if each.endswith(ends)])
    file = disk.open(path)
    written = file.read(file.size(), 0).rstrip(b"\0")
    disk.flip(path, rng.randrange(8 * max(1, len(written))))
    return path


def _stopped(seed: int, *, clean: bool) -> History:
    history = History(seed, power=False)
    machine = history.machine
    machine.run(lambda: machine.clock.monotonic_ms() >= _LIFE_MS)
    if clean:
        machine.stop()
    else:
        machine.kill()
    return history


@pytest.mark.parametrize("seed", range(4))
def test_a_flipped_index_hides_nothing(seed: int) -> None:
    history = _stopped(seed, clean=seed % 3 > 0)
    for _ in range(5):
        _flip(history.machine, history.random, (".index", ".timeindex"))
    history.machine.start()
    history.machine.settle()
    history.check()


def _logs(disk: SimDisk, topic: str) -> dict[int, list[tuple[str, int, Batch]]]:
    """By partition its batches, each with its file and its place in it."""
    found: dict[int, list[tuple[str, int, Batch]]] = {}
    for index in range(PARTITIONS):
        for name in disk.list(f"/data/{topic}-{index}"):
            if name.endswith(".log"):
                path, position = f"/data/{topic}-{index}/{name}", 0
                file = disk.open(path)
                for batch in read(file.read(file.size(), 0)):
                    found.setdefault(index, []).append((path, position, batch))
                    position += batch.header.size
    return found


def _served(client: Any, topic: str, index: int, offset: int) -> tuple[list[Record], int]:
    """The data records from this offset to the first batch whose CRC is wrong or to the end; and where that is."""
    found: list[Record] = []
    while True:
        answer = fetch(client, (topic, index), offset)
        batches = list(read(bytes(answer.records or b"")))
        for batch in batches:
            try:
                check(batch.data)
            except KafkaError:
                return found, offset
            found += [] if batch.header.is_control else [each for each in batch.records() if each.offset >= offset]
            offset = batch.header.last_offset + 1
        if not batches:
            return found, offset


#: Behind base offset, length and leader epoch, which the CRC does not cover: the bytes from the attributes on.
_GUARDED_FROM = 21


@pytest.mark.parametrize("topic", ["records", "transactions"])
@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("seed", range(3))
def test_a_flipped_bit_of_a_log_hides_its_batch_and_nothing_before_it(seed: int, clean: bool, topic: str) -> None:
    history = _stopped(seed, clean=clean)
    disk, rng = history.machine.disk, history.random
    index, batches = rng.choice(sorted(_logs(disk, topic).items()))
    path, position, flipped = rng.choice(batches)
    before = [
        (each.offset, each.value)
        for _, _, batch in batches
        if not batch.header.is_control and batch.header.base_offset < flipped.header.base_offset
        for each in batch.records()
    ]
    # A header that is wrong about its last offset may hide what is behind it, too.
    guarded = HEADER_BYTES if clean else _GUARDED_FROM
    disk.flip(path, 8 * (position + guarded) + rng.randrange(8 * (flipped.header.size - guarded)))
    history.machine.start()
    history.machine.settle()
    client: Any = SimClient(history.machine)
    start = batches[0][2].header.base_offset
    served, end = _served(client, topic, index, start)
    assert [(each.offset, each.value) for each in served if each.offset < flipped.header.base_offset] == before
    if clean:
        # A log that was closed is not read at the start: the batch is there, and its reader sees what it is.
        assert end == flipped.header.base_offset
        behind, _ = _served(client, topic, index, flipped.header.last_offset + 1)
        assert len(behind) == sum(
            batch.header.count
            for _, _, batch in batches
            if not batch.header.is_control and batch.header.base_offset > flipped.header.base_offset
        )
    else:
        # What was not flushed was read and cut there; from then on it is an ordinary log again.
        assert end >= flipped.header.base_offset


@pytest.mark.parametrize("seed", range(4))
def test_a_flipped_bit_of_the_metadata_log_is_cut_away_or_said_in_words(seed: int) -> None:
    history = _stopped(seed, clean=seed % 2 > 0)
    disk = history.machine.disk
    *_, path = [each for each in _files(disk, "/data/__cluster_metadata-0") if each.endswith(".log")]
    batches = list(read(disk.open(path).read(disk.open(path).size(), 0).rstrip(b"\0")))
    flipped = history.random.choice(batches[len(batches) // 2 :])
    position = sum(each.header.size for each in batches[: batches.index(flipped)])
    disk.flip(path, 8 * (position + _GUARDED_FROM) + history.random.randrange(8))
    try:
        history.machine.start()
    except OttlaError as error:
        said = str(error)
    else:
        said = ""
        history.machine.settle()
        # Cut, and written to again: no batch is wrong any more.
        for path in _files(disk, "/data/__cluster_metadata-0"):
            if path.endswith(".log"):
                for batch in read(disk.open(path).read(disk.open(path).size(), 0).rstrip(b"\0")):
                    check(batch.data)
    assert not said or "__cluster_metadata" in said


@pytest.mark.parametrize("seed", range(3))
def test_a_coordinator_whose_log_has_a_flipped_bit_knows_nothing_wrong(seed: int) -> None:
    history = _stopped(seed, clean=True)
    for part in range(2):
        name = next(
            each for each in history.machine.disk.list(f"/data/__consumer_offsets-{part}") if each[-4:] == ".log"
        )
        # In the last value of the first segment's first batch.
        path = f"/data/__consumer_offsets-{part}/{name}"
        size = int.from_bytes(history.machine.disk.open(path).read(4, 8), "big")
        history.machine.disk.flip(path, 8 * (12 + size - 12))
    history.machine.start()
    history.machine.settle()
    client: Any = SimClient(history.machine)
    for group in (history.committer.group, history.member.group, history.transactor.group):
        answer = client.ask(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)]), 8)
        assert answer.groups[0].error_code == ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize("seed", range(4))
def test_a_flipped_bit_of_a_small_file_is_said_in_words_or_harmless(seed: int) -> None:
    history = _stopped(seed, clean=seed % 2 > 0)
    path = _flip(history.machine, history.random, ("checkpoint", ".snapshot", "partition.metadata"))
    if path.endswith("partition.metadata"):
        with suppress(OttlaError):
            history.machine.start()
        return
    history.machine.start()
    history.machine.settle()
    history.check()


def test_a_topic_id_that_does_not_read_is_said_in_words() -> None:
    history = _stopped(1, clean=True)
    history.machine.disk.flip("/data/records-0/partition.metadata", 8 * 3)
    with pytest.raises(OttlaError, match=r"partition\.metadata .* restore /data/records-0 from a backup"):
        history.machine.start()


def test_a_directory_with_another_topics_id_is_kept_beside() -> None:
    history = _stopped(1, clean=True)
    disk = history.machine.disk
    path = "/data/records-0/partition.metadata"
    text = disk.open(path).read(100, 0)
    # A letter in the middle of the id that becomes another: an id that reads.
    disk.flip(path, 8 * next(at for at in range(25, 40) if chr(text[at]).isalpha() and chr(text[at] ^ 1).isalpha()))
    history.machine.start()
    assert [name for name in disk.list("/data") if name.startswith("records-0.") and name.endswith("-stray")]
