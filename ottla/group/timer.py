"""Deadlines by key: what must happen when, and how soon the driver must call."""

from enum import IntEnum
from heapq import heapify, heappop, heappush

from ottla.kernel.named import NamedTuple


class Alarm(IntEnum):
    """What a deadline is for."""

    #: A classic member, or one that was only promised a member id, is silent for too long.
    CLASSIC_SESSION = 0
    #: The first members of an empty classic group have gathered (group.initial.rebalance.delay.ms).
    CLASSIC_INITIAL_JOIN = 1
    #: The join phase of a classic group has lasted its rebalance timeout.
    CLASSIC_JOIN = 2
    #: The sync phase of a classic group has lasted its rebalance timeout.
    CLASSIC_SYNC = 3
    #: A consumer group was just turned into a classic group, whose members must rejoin.
    CLASSIC_REBALANCE = 4
    #: A member of a consumer group is silent for too long.
    SESSION = 5
    #: A member of a consumer group has not given up its revoked partitions in time.
    REBALANCE = 6
    #: A classic member of a consumer group was told to rejoin and has not.
    MEMBER_JOIN = 7
    #: A classic member of a consumer group has joined and not synced.
    MEMBER_SYNC = 8
    #: Expired offsets are looked for.
    RETENTION = 9
    #: The first members of a streams group have gathered (group.streams.initial.rebalance.delay.ms).
    STREAMS_INITIAL = 10
    #: A share group's heartbeat was held for long enough.
    SHARE_HOLD = 11


_OF_GROUPS = (
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
    """At most one deadline a key; setting it again moves it.

    Heartbeats move their deadline all the time, so a move leaves the old entry in the heap, and an entry that no
    longer says the key's deadline is dropped when it comes up.
    """

    def __init__(self) -> None:
        self._deadlines: dict[TimerKey, int] = {}
        self._heap: list[tuple[int, TimerKey]] = []

    def set(self, key: TimerKey, deadline_ms: int) -> None:
        self._deadlines[key] = deadline_ms
        heappush(self._heap, (deadline_ms, key))
        if len(self._heap) > 64 + 4 * len(self._deadlines):
            self._heap = [(deadline, key) for key, deadline in self._deadlines.items()]
            heapify(self._heap)

    def cancel(self, key: TimerKey) -> None:
        self._deadlines.pop(key, None)

    def cancel_group(self, group_id: str) -> None:
        """Forget the deadlines of a group as a whole. Those of its members find no member when they come."""
        for alarm in _OF_GROUPS:
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
        """Remove and return the key whose deadline is the earliest, if it has come."""
        deadline = self.next_ms()
        if deadline is None or deadline > now_ms:
            return None
        _, key = heappop(self._heap)
        del self._deadlines[key]
        return key

    def clear(self) -> None:
        self._deadlines.clear()
        self._heap.clear()
