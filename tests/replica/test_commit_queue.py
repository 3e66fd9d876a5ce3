"""What waits for a commit is called once, in the order of the offsets, whoever gave up meanwhile."""

from random import Random

import pytest

from ottla.kernel.error import ErrorCode, KafkaError
from ottla.replica.commit_queue import CommitQueue, CommitWaiter


@pytest.mark.parametrize("seed", range(20))
def test_those_who_wait_are_called_in_the_order_of_their_offsets_though_others_give_up(seed: int) -> None:
    rng, queue = Random(seed), CommitQueue()
    called: list[tuple[int, int]] = []
    waiting: dict[tuple[int, int], CommitWaiter] = {}
    high_watermark = most = 0
    for number in range(0, 2400, 4):
        for each in range(number, number + rng.randrange(4)):
            key = (high_watermark + rng.randrange(1, 400), each)
            waiting[key] = queue.add(key[0], lambda _, key=key: called.append(key))  # type: ignore[misc]
        for key in rng.sample(sorted(waiting), min(len(waiting), rng.randrange(3))):
            waiting.pop(key).cancel()
        assert queue.first_offset is None or queue.first_offset <= min((each[0] for each in waiting), default=1 << 60)
        most = max(most, len(waiting))
        assert len(queue._heap) <= max(64, 2 * most) + 4, "those who gave up are kept"
        if rng.random() < 0.1:
            high_watermark += rng.randrange(100)
            called.clear()
            queue.complete(high_watermark)
            due = sorted(key for key in waiting if key[0] <= high_watermark)
            assert called == due
            for key in due:
                del waiting[key]


def test_what_is_left_at_the_end_is_told_why() -> None:
    queue, told = CommitQueue(), list[tuple[str, KafkaError | None]]()
    for name, offset in (("late", 9), ("first", 3), ("second", 3)):
        queue.add(offset, lambda error, name=name: told.append((name, error)))  # type: ignore[misc]
    queue.add(1, lambda _: told.append(("gave up", None))).cancel()
    assert len(queue) == 3
    error = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    queue.fail(error)
    queue.fail(error)
    queue.complete(100)
    assert told == [("first", error), ("second", error), ("late", error)]
    assert (len(queue), queue.first_offset) == (0, None)


@pytest.mark.parametrize("fails", [False, True])
def test_an_error_of_one_waiter_keeps_none_of_the_others_waiting(fails: bool) -> None:
    queue, told = CommitQueue(), list[int]()

    def breaks(error: KafkaError | None) -> None:
        raise ValueError("a bug")

    queue.add(3, breaks)
    for offset in (2, 3, 4):
        queue.add(offset, lambda error, offset=offset: told.append(offset))  # type: ignore[misc]
    with pytest.raises(ValueError, match="a bug"):
        queue.fail(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)) if fails else queue.complete(4)
    assert told == [2, 3, 4] and not queue


def test_those_who_stay_are_called_in_their_order_and_before_the_next_epochs() -> None:
    before, queue, told = CommitQueue(), CommitQueue(), list[int]()
    for number in range(9):
        before.add(3, lambda _, number=number: told.append(number), stays=True)  # type: ignore[misc]
    before.add(3, lambda _: told.append(-1))
    queue.adopt(before.take_staying())
    assert (len(before), len(queue)) == (1, 9)
    queue.add(3, lambda _: told.append(9))
    queue.complete(3)
    assert told == list(range(10))
