"""A position knows the leader epoch of the last batch before it, and a commit carries it (KIP-320)."""

from __future__ import annotations

import pytest

from ottla.client import CommittedOffset, Consumer, Producer, TopicPartition
from ottla.client.consumer import table
from ottla.client.consumer.position import Chunk, PartitionPosition
from ottla.client.membership.commit import offsets_of
from ottla.columns.record import ConsumerRecord
from ottla.wire.batch import NewRecord, build

ONE = TopicPartition("t", 0)


def batch(offset: int, epoch: int, count: int = 5, *, control: bool = False) -> bytes:
    """A batch of so many records, as the leader of this epoch has stored it."""
    key = b"\0\0\0\1" if control else None
    records: list[NewRecord] = [(1, key, b"%d" % number, []) for number in range(count)]
    return build(records, base_offset=offset, leader_epoch=epoch, control=control)


def chunk(offset: int, *batches: bytes) -> Chunk:
    return Chunk(b"".join(batches), offset, None, check_crcs=True)


def placed(offset: int, *batches: bytes, epoch: int = -1) -> PartitionPosition:
    state = PartitionPosition(ONE)
    state.seek(offset, epoch)
    assert state.fetched(chunk(offset, *batches), offset)
    return state


def test_the_epoch_is_that_of_the_last_batch_that_was_read() -> None:
    state = placed(3, batch(0, 1), batch(5, 2), batch(10, 4), epoch=0)
    assert (state.position, state.epoch) == (3, 0)
    passed = []
    for _ in range(4):
        assert len(state.take(3)) == 3
        passed.append((state.position, state.epoch))
    assert passed == [(6, 2), (9, 2), (12, 4), (15, 4)]


def test_it_moves_behind_what_is_not_shown() -> None:
    state = placed(0, batch(0, 1), batch(5, 2, 1, control=True))
    assert len(state.take(10)) == 5
    assert (state.position, state.epoch) == (6, 2)


@pytest.mark.parametrize(("at", "epoch"), [(0, 7), (1, 1), (5, 1), (6, 2), (10, 2), (20, 4), (21, 4), (25, 4)])
def test_a_poll_that_is_given_back_goes_back_in_its_epochs_too(at: int, epoch: int) -> None:
    # What lay between 10 and 20 is compacted away: what is known of 20 is the epoch of the batch behind it.
    state = placed(0, batch(0, 1), batch(5, 2), batch(20, 4), epoch=7)
    assert len(state.take(100)) == 15
    state.stop(at, None)
    assert (state.position, state.epoch, state.fetch_offset) == (at, epoch, at)


def test_the_next_poll_forgets_what_the_last_one_passed() -> None:
    state = placed(0, batch(0, 1), batch(5, 2), batch(10, 3))
    state.take(7)
    state.take(5)
    assert state.epochs == [(5, 2), (10, 3)]


def test_a_batch_that_cannot_be_read_leaves_the_epoch_before_it() -> None:
    broken = bytearray(batch(5, 2))
    broken[-1] ^= 1
    state = placed(0, batch(0, 1), bytes(broken))
    assert len(state.take(100)) == 5
    assert state.error is not None
    assert (state.position, state.epoch) == (5, 1)


def test_a_table_moves_the_epoch_as_records_do() -> None:
    state = placed(0, batch(0, 1), batch(5, 2), batch(10, 2, 1, control=True))
    assert table.take(state, 5) is not None
    assert (state.position, state.epoch) == (5, 1)
    assert table.take(state, 5) is not None
    assert table.take(state, 5) is None
    assert (state.position, state.epoch) == (11, 2)


def test_a_table_after_a_part_of_a_batch_goes_back_to_its_position() -> None:
    state = placed(0, batch(0, 1), batch(5, 2))
    state.take(7)
    assert table.take(state, 5) is None
    assert (state.position, state.fetch_offset, state.epoch) == (7, 7, 2)


def test_a_reset_forgets_the_epoch() -> None:
    state = placed(0, batch(0, 1))
    state.take(5)
    state.forget("earliest")
    assert state.epoch == -1
    state.seek(3)
    assert state.epoch == -1


def test_what_is_committed_carries_its_epoch() -> None:
    record = ConsumerRecord("t", 0, 4, 1, None, b"", (), 3)
    assert offsets_of(record) == {ONE: (5, 3, "")}
    assert offsets_of({ONE: CommittedOffset(7, "why", 2)}) == {ONE: (7, 2, "why")}
    assert offsets_of({ONE: CommittedOffset(7)}) == offsets_of({ONE: 7}) == {ONE: (7, -1, "")}
    for wrong in (CommittedOffset(-1), CommittedOffset(0, leader_epoch=-1)):
        with pytest.raises(ValueError):
            offsets_of({ONE: wrong})


def test_commits_and_transactions_bring_the_epoch_to_the_group_and_back(bootstrap: str, topic: str) -> None:
    one = TopicPartition(topic, 0)
    with Producer(bootstrap) as producer:
        for number in range(5):
            producer.send(topic, b"%d" % number, partition=0)
    with (
        Consumer(bootstrap, group_id=topic, auto_offset_reset="earliest", enable_auto_commit=False) as consumer,
        Producer(bootstrap, transactional_id=topic) as mover,
    ):
        consumer.assign([one])
        epoch = next(record.leader_epoch for record in consumer if record.offset == 2)
        assert epoch >= 0
        assert consumer.next_offsets() == {one: CommittedOffset(3, leader_epoch=epoch)}
        consumer.commit()
        assert consumer.committed([one]) == {one: CommittedOffset(3, leader_epoch=epoch)}
        consumer.commit({one: CommittedOffset(2, "by hand", epoch)})
        assert consumer.committed([one]) == {one: CommittedOffset(2, "by hand", epoch)}
        consumer.commit({one: 1})
        assert consumer.committed([one]) == {one: CommittedOffset(1)}
        with mover.transaction() as transaction:
            transaction.send_offsets(consumer)
        assert consumer.committed([one]) == {one: CommittedOffset(3, leader_epoch=epoch)}


@pytest.mark.parametrize("epoch", [-1, 1 << 31])
def test_an_epoch_that_no_leader_has_is_not_committed(epoch: int) -> None:
    with pytest.raises(ValueError, match=rf"a leader epoch: {epoch} "):
        offsets_of({ONE: CommittedOffset(5, "", epoch)})
    offsets_of({ONE: CommittedOffset(5, "", (1 << 31) - 1)})
