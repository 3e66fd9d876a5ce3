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
from tests.crash.check import partition_log
from tests.sim.actor import SimClient
from tests.sim.history import History

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


@pytest.mark.parametrize("seed", range(4))
def test_a_flipped_bit_of_a_log_is_no_record_that_nobody_wrote(seed: int) -> None:
    history = _stopped(seed, clean=seed % 3 > 0)
    path = _flip(history.machine, history.random, (".log",))
    if "__cluster_metadata" in path:
        # Read whole at the start, and cut where the CRC is wrong.
        return
    history.machine.start()
    history.machine.settle()
    sent = {value for each in (history.records, history.compacted) for batch in each.sent for value in batch.values}
    sent |= {value for each in history.transactor.transfers for side in each.values for value in side}
    for topic in ("records", "transactions"):
        for index in (0, 1):
            client: Any = SimClient(history.machine)
            # Where the bit is, the reader's own check of the CRC ends the reading.
            with suppress(KafkaError):
                assert all(each.control or each.value in sent for each in partition_log(client, topic, index))


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
