"""Deadlines by key, and the time of the next one for the driver."""

from enum import IntEnum
from heapq import heapify, heappop, heappush

from ottla.kernel.named import NamedTuple


class Alarm(IntEnum):
    """The purpose of a deadline."""

    #: A classic member, or one with only a promised member id, was silent for its session timeout.
    CLASSIC_SESSION = 0
    #: A round of an empty classic group's first join phase ends (group.initial.rebalance.delay.ms).
    CLASSIC_INITIAL_JOIN = 1
    #: The join phase of a classic group has lasted its rebalance timeout.
    CLASSIC_JOIN = 2
    #: The sync phase of a classic group has lasted its rebalance timeout.
    CLASSIC_SYNC = 3
    #: A consumer group was just converted into a classic group, whose members must rejoin.
    CLASSIC_REBALANCE = 4
    #: A member of a consumer, share or streams group was silent for its session timeout.
    SESSION = 5
    #: A member of a consumer or streams group has not given up what was revoked in time.
    REBALANCE = 6
    #: A classic member of a consumer group was told to rejoin and has not done so in time.
    MEMBER_JOIN = 7
    #: A classic member of a consumer group has joined and not synced in time.
    MEMBER_SYNC = 8
    #: The check for expired offsets is due.
    RETENTION = 9
    #: A streams group's initial delay ends (group.streams.initial.rebalance.delay.ms).
    STREAMS_INITIAL = 10
    #: A share group's heartbeat was held for the longest time.
    SHARE_HOLD = 11


#: When a deadline is due again if the log has refused the records of its step: Apache Kafka's backoff.
RETRY_MS = 500
_GROUP_ALARMS = (
    Alarm.CLASSIC_INITIAL_JOIN,
    Alarm.CLASSIC_JOIN,
    Alarm.CLASSIC_SYNC,
    Alarm.CLASSIC_REBALANCE,
    Alarm.STREAMS_INITIAL,
)


class TimerKey(NamedTuple):
    """The owner of a deadline."""

    alarm: Alarm
    group_id: str = ""
    member_id: str = ""


class Timers:
    """At most one deadline per key; setting it again moves it.

    Every heartbeat moves a deadline, so a move leaves the old entry in the heap; an entry that is not the key's present
    deadline is dropped when it reaches the top.
    """

    def __init__(self) -> None:
        self._deadlines: dict[TimerKey, int] = {}
        self._heap: list[tuple[int, TimerKey]] = []
        #: Key -> its deadline at the last `begin`, of those that have changed since.
        self._before: dict[TimerKey, int | None] = {}

    def begin(self) -> None:
        """Note the deadlines, for `undo` to return to them."""
        self._before.clear()

    def undo(self) -> None:
        """Take back all changes since `begin`; a deadline that was taken is due again after `RETRY_MS`."""
        before, self._before = self._before, {}
        for key, deadline_ms in before.items():
            if deadline_ms is None:
                self.cancel(key)
            else:
                self.set(key, deadline_ms)

    def set(self, key: TimerKey, deadline_ms: int) -> None:
        self._before.setdefault(key, self._deadlines.get(key))
        self._deadlines[key] = deadline_ms
        heappush(self._heap, (deadline_ms, key))
        if len(self._heap) > 64 + 4 * len(self._deadlines):
            self._heap = [(deadline, key) for key, deadline in self._deadlines.items()]
            heapify(self._heap)

    def cancel(self, key: TimerKey) -> None:
        self._before.setdefault(key, self._deadlines.pop(key, None))

    def cancel_group(self, group_id: str) -> None:
        """Cancel the deadlines of the group itself. Those of its members find no member when they are reached."""
        for alarm in _GROUP_ALARMS:
            self.cancel(TimerKey(alarm, group_id))

    def __contains__(self, key: TimerKey) -> bool:
        return key in self._deadlines

    def deadline(self, key: TimerKey) -> int | None:
        return self._deadlines.get(key)

    def next_ms(self) -> int | None:
        """The earliest deadline, or None."""
        while self._heap:
            deadline, key = self._heap[0]
            if self._deadlines.get(key) == deadline:
                return deadline
            heappop(self._heap)
        return None

    def take_due(self, now_ms: int) -> TimerKey | None:
        """Remove and return the key with the earliest deadline, if it is due."""
        deadline = self.next_ms()
        if deadline is None or deadline > now_ms:
            return None
        _, key = heappop(self._heap)
        self._before.setdefault(key, now_ms + RETRY_MS)
        del self._deadlines[key]
        return key

    def clear(self) -> None:
        self._deadlines.clear()
        self._heap.clear()
