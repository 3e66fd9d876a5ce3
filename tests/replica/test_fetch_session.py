"""Fetch sessions as KIP-227 has them."""

from __future__ import annotations

from random import Random

import pytest

from ottla.kernel.error import ErrorCode, KafkaError
from ottla.replica.fetch_session import PARTITIONS_MAX, CachedPartition, Session, Sessions


def sessions(slots_max: int = 2) -> Sessions:
    return Sessions(slots_max, Random(1))


def created(table: Sessions, now_ms: int = 0, by_id: bool = False) -> Session:
    session = table.create(by_id, [CachedPartition("a", 0, 5, 100), CachedPartition("a", 1, 7, 100)], now_ms)
    assert session is not None
    return session


def resume(table: Sessions, session: Session, epoch: int, **more: object) -> Session:
    arguments: dict[str, object] = {"by_id": False, "changed": [], "forgotten": [], "now_ms": 1} | more
    return table.resume(session.session_id, epoch, **arguments)  # type: ignore[arg-type]


def test_epochs_follow_each_other_and_wrap_to_one() -> None:
    table = sessions()
    session = created(table)
    assert resume(table, session, 1).epoch == 2
    session.epoch = 0x7FFFFFFF
    assert resume(table, session, 0x7FFFFFFF).epoch == 1


@pytest.mark.parametrize(
    ("session_id", "epoch", "by_id", "code"),
    [
        (-5, 1, False, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (None, 2, False, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (None, 0, False, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (None, 0x7FFFFFFF, False, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (None, 1, True, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
    ],
)
def test_a_request_that_does_not_fit_its_session_is_refused(
    session_id: int | None, epoch: int, by_id: bool, code: ErrorCode
) -> None:
    table = sessions()
    session = created(table)
    with pytest.raises(KafkaError) as refused:
        table.resume(session_id or session.session_id, epoch, by_id, [], [], 1)
    assert refused.value.code is code
    assert session.epoch == 1, "a refused request leaves the session as it was"


def test_an_epoch_is_taken_once() -> None:
    table = sessions()
    session = created(table)
    for epoch in (1, 2):
        resume(table, session, epoch)
        for other in (epoch - 1, epoch, epoch + 2):
            with pytest.raises(KafkaError) as refused:
                resume(table, session, other)
            assert refused.value.code is ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_a_session_learns_changes_and_forgets() -> None:
    table = sessions()
    session = created(table)
    resume(
        table,
        session,
        1,
        changed=[CachedPartition("a", 1, 9, 50), CachedPartition("b", 0, 0, 10)],
        forgotten=[("a", 0)],
    )
    assert [(each.topic, each.partition, each.fetch_offset) for each in session.partitions.values()] == [
        ("a", 1, 9),
        ("b", 0, 0),
    ]


def test_a_partition_without_news_is_left_out_until_something_changes() -> None:
    wanted = CachedPartition("a", 0, 0, 100)
    assert wanted.must_respond(5, 0, has_records=False, failed=False)
    assert not wanted.must_respond(5, 0, has_records=False, failed=False)
    assert wanted.must_respond(5, 0, has_records=True, failed=False)
    assert wanted.must_respond(6, 0, has_records=False, failed=False)
    assert wanted.must_respond(6, 1, has_records=False, failed=False)


def test_a_failed_partition_is_told_again() -> None:
    wanted = CachedPartition("a", 0, 0, 100)
    assert wanted.must_respond(-1, -1, has_records=False, failed=True)
    assert wanted.must_respond(-1, -1, has_records=False, failed=True)


def test_sessions_in_use_are_not_evicted_and_old_ones_are() -> None:
    table = sessions(slots_max=2)
    first, second = created(table, now_ms=0), created(table, now_ms=100_000)
    assert table.create(False, [], 110_000) is None
    assert table.create(False, [], 125_000) is not None
    with pytest.raises(KafkaError):
        resume(table, first, 1)
    assert resume(table, second, 1) is second


def test_a_partition_that_had_records_waits_behind_the_others() -> None:
    session = created(sessions())
    session.move_to_end(("a", 0))
    assert list(session.partitions) == [("a", 1), ("a", 0)]


def test_the_session_that_is_longest_unused_makes_room() -> None:
    table = sessions(slots_max=2)
    first, second = created(table, now_ms=0), created(table, now_ms=1)
    resume(table, first, 1, now_ms=2)
    assert table.create(False, [], 300_000) is not None
    assert table.find(first.session_id) is first
    assert table.find(second.session_id) is None


@pytest.mark.parametrize(
    ("size", "used_ms", "evicted"),
    [(3, 120_001, [2]), (6, 120_001, [2]), (2, 120_001, []), (3, 120_000, [])],
    ids=["larger", "the smallest goes", "not larger", "too young"],
)
def test_a_larger_session_takes_the_place_of_the_smallest_that_is_old(
    size: int, used_ms: int, evicted: list[int]
) -> None:
    table = sessions(slots_max=3)
    given = {count: table.create(False, wide(count, f"of-{count}"), 0) for count in (5, 2, 4)}
    for session in given.values():
        assert session is not None
        resume(table, session, 1, now_ms=used_ms)
    made = table.create(False, wide(size, "new"), used_ms + 10)
    assert (made is not None) == bool(evicted)
    assert [count for count, known in given.items() if known and table.find(known.session_id) is None] == evicted


def test_a_session_counts_as_used_by_each_of_its_requests() -> None:
    table = sessions(slots_max=1)
    session = created(table, now_ms=0)
    resume(table, session, 1, now_ms=100_000)
    assert table.create(False, [], 219_999) is None
    assert table.create(False, [], 220_000) is not None


def test_a_session_learns_every_field_of_a_changed_partition() -> None:
    table = sessions()
    session = created(table)
    change = CachedPartition("a", 1, 9, 50, current_leader_epoch=3, last_fetched_epoch=2, log_start_offset=1)
    resume(table, session, 1, changed=[change])
    assert session.partitions["a", 1] == change


def wide(count: int, topic: str = "t") -> list[CachedPartition]:
    return [CachedPartition(topic, index, 0, 1) for index in range(count)]


def test_the_partitions_of_all_sessions_are_bounded() -> None:
    table = sessions(1000)
    third = PARTITIONS_MAX // 3
    first = [table.create(False, wide(third), 0) for _ in range(3)]
    assert all(first)
    assert table.partition_count <= PARTITIONS_MAX
    # As large as those that are there: its client sends its whole list each time.
    assert table.create(False, wide(third), 1) is None
    # A small client has a session, and the largest of the others pays.
    small = table.create(False, wide(10), 1)
    assert small is not None
    assert len(table) == 3
    assert table.partition_count == 2 * third + 10
    # What was not used for two minutes goes first.
    assert table.create(False, wide(third), 200_000) is not None
    assert table.partition_count <= PARTITIONS_MAX
    for session_id in list(table._sessions):
        table.close(session_id)
    assert table.partition_count == 0


def test_one_session_larger_than_all_may_be_costs_nobody_a_session() -> None:
    table = sessions()
    created(table)
    assert table.create(False, wide(PARTITIONS_MAX + 1), 200_000) is None
    assert len(table) == 1


def test_a_session_that_grows_beyond_the_bound_begins_anew() -> None:
    table = sessions()
    session = created(table)
    assert table.create(False, wide(PARTITIONS_MAX - 10), 0) is not None
    resume(table, session, 1, changed=wide(5, "b"), forgotten=[("a", 0)])
    assert table.partition_count == PARTITIONS_MAX - 10 + 6
    with pytest.raises(KafkaError) as refused:
        resume(table, session, 2, changed=wide(50, "c"))
    assert refused.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert table.partition_count == PARTITIONS_MAX - 10
