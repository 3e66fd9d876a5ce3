"""How records get into an open batch: any number of threads fill its slots without a lock.

A record takes a ticket, fills the slot of that number and is counted. A ticket, an item of a list and an `append` are
one step of the interpreter each; where they are not, without a GIL, each record comes by `add`. A lock that Ctrl-C
cannot leave taken would cost a fourth of a `send`.

Rules:
- A record is in the batch if its slot was filled when `seal` looked. The thread that has filled it reads `sealed`
  afterwards, and then asks `place`: if that is false, the record must go into another batch.
- `add`, `place` and `seal` are called under the lock of the producer.
- A ticket whose slot is empty at the end is lost, since its thread has not got that far, or Ctrl-C came. Later records
  move up, and `position` says where they are.
- A program's own timestamp is kept for its record alone; the others share those of runs. So a record that comes in
  while the run changes is off by the time that it waited, never by more.
- Threads beside each other may count `room` down wrongly. A batch that has become too large is refused and split.
- Ctrl-C may come anywhere in `seal`, which is then done again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import count, pairwise
from typing import Any

from ottla.columns.encode_records import Run
from ottla.wire.batch import Header

#: What a slot holds before its record's value.
_EMPTY: Any = object()
_SLOTS_MIN = 64
_NO_HEADERS: Sequence[Header] = ()


class Filling:
    """Records of one partition while they come in, and after `seal` as columns."""

    __slots__ = (
        "count",
        "given",
        "header_slots",
        "headers",
        "key_slots",
        "keys",
        "lost",
        "room",
        "runs",
        "sealed",
        "since_s",
        "slots",
        "stamps",
        "stored",
        "tickets",
        "timestamp",
        "until_s",
        "values",
    )

    def __init__(self) -> None:
        #: The bytes that are left.
        self.room = 0
        self.tickets: Iterator[int] = count()
        #: By ticket. Keys are None until a record has one, headers too.
        self.slots: list[bytes | None] = []
        self.key_slots: list[bytes | None] | None = None
        self.header_slots: list[Sequence[Header]] | None = None
        #: An item for each filled slot: appending one is a single step, unlike adding 1.
        self.stored: list[None] = []
        #: The timestamp in ms of the records from a ticket on; the last one, and the clock's range in s that has it.
        self.stamps: list[Run] = []
        self.timestamp = -1
        self.since_s = self.until_s = 0.0
        #: The programs' own timestamps, by ticket.
        self.given: dict[int, int] = {}
        #: Whether no record comes in any more. From then on the columns hold, and the number of records.
        self.sealed = False
        self.values: list[bytes | None] = []
        self.keys: list[bytes | None] | None = None
        self.headers: list[Sequence[Header]] | None = None
        self.runs: list[Run] = []
        self.count = 0
        #: Tickets without a record, in order.
        self.lost: list[int] = []

    @property
    def records(self) -> int:
        """The number of records."""
        # Not by `sealed`: Ctrl-C may have cut `seal` short.
        return len(self.stored) if self.slots else self.count

    def add(
        self,
        value: bytes | None,
        key: bytes | None,
        headers: Sequence[Header] | None,
        timestamp: int | None,
        now_ms: int,
    ) -> int:
        """Put a record in; returns its ticket. `timestamp` is None for the clock's, `now_ms`. Under the lock."""
        ticket = next(self.tickets)
        if timestamp is not None:
            self.given[ticket] = timestamp
        elif now_ms != self.timestamp:
            self._stamp(ticket, now_ms)
        if ticket >= len(self.slots):
            self._reach(ticket)
        if headers:
            if self.header_slots is None:
                self.header_slots = [_NO_HEADERS] * len(self.slots)
            self.header_slots[ticket] = headers
        if key is not None:
            self._set_key(ticket, key)
        # The last step: the record is in the batch with its value.
        self.slots[ticket] = value
        self.stored.append(None)
        return ticket

    def place(self, ticket: int, value: bytes, key: bytes | None) -> bool:
        """See to it that a record is in its slot. False if the batch was sealed without it. Under the lock."""
        if self.sealed:
            self.seal()
            return ticket < self.count + len(self.lost) and ticket not in self.lost
        if ticket >= len(self.slots):
            self._reach(ticket)
        if self.slots[ticket] is _EMPTY:
            if key is not None:
                self._set_key(ticket, key)
            self.slots[ticket] = value
            self.stored.append(None)
        return True

    def _set_key(self, ticket: int, key: bytes) -> None:
        if self.key_slots is None:
            self.key_slots = [None] * len(self.slots)
        self.key_slots[ticket] = key

    def _reach(self, ticket: int) -> None:
        """Make slots up to this ticket."""
        size = max(ticket + 1, 2 * len(self.slots), _SLOTS_MIN)
        # `slots` last: Ctrl-C may come in between, and then this is done again.
        if self.key_slots is not None:
            self.key_slots.extend([None] * (size - len(self.key_slots)))
        if self.header_slots is not None:
            self.header_slots.extend([_NO_HEADERS] * (size - len(self.header_slots)))
        self.slots.extend([_EMPTY] * (size - len(self.slots)))

    def _stamp(self, ticket: int, timestamp: int) -> None:
        self.stamps.append((ticket, timestamp))
        self.timestamp = timestamp
        self.since_s = timestamp / 1000
        self.until_s = (timestamp + 1) / 1000

    # ---- the end

    def seal(self) -> None:
        """Take no more records, and lay those that are in out as columns. Under the lock."""
        self.sealed = True
        if not self.slots:
            return
        # Counted before the tickets end: a record that comes in between would make up for a slot that is empty.
        stored = len(self.stored)
        taken = next(self.tickets)
        values = self.slots[:taken]
        keys = None if self.key_slots is None else self.key_slots[:taken]
        headers = None if self.header_slots is None else self.header_slots[:taken]
        runs = self.stamps
        lost: list[int] = []
        if stored != taken:
            lost = [ticket for ticket in range(taken) if ticket >= len(values) or values[ticket] is _EMPTY]
        if lost or self.given:
            gone = set(lost)
            kept = [ticket for ticket in range(taken) if ticket not in gone]
            values = [values[ticket] for ticket in kept]
            keys = None if keys is None else [keys[ticket] for ticket in kept]
            headers = None if headers is None else [headers[ticket] for ticket in kept]
            times = self._times(taken)
            runs = _runs([times[ticket] for ticket in kept])
        self.keys, self.headers, self.runs, self.values = keys, headers, runs, values
        self.lost, self.count = lost, len(values)
        # The columns are complete. A thread on its way to a slot finds none, or one of the old list.
        self.slots = []
        self.key_slots = self.header_slots = None
        self.stored, self.stamps, self.given = [], [], {}

    def _times(self, taken: int) -> list[int]:
        """The timestamp of each ticket."""
        times: list[int] = []
        for (_, timestamp), (end, _) in pairwise([*self.stamps, (taken, 0)]):
            times += [timestamp] * (end - len(times))
        times += [0] * (taken - len(times))
        for ticket, timestamp in self.given.items():
            times[ticket] = timestamp
        return times

    def position(self, ticket: int) -> int:
        """The index of a ticket's record."""
        return ticket - bisect_left(self.lost, ticket) if self.lost else ticket


def _runs(times: Sequence[int]) -> list[Run]:
    return [(0, first) for first in times[:1]] + [
        (index, later) for index, (earlier, later) in enumerate(pairwise(times), 1) if later != earlier
    ]
