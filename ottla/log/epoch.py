"""Leader epochs: the offset where each leader began to write, kept in the file `leader-epoch-checkpoint`.

Rules:
- Epochs and start offsets both rise strictly.
- The file is written late, at flush and close; recovery reads the epochs of later batches from the batches.

KIPs: 101 (truncation by epoch), 320 (fencing).
"""

from bisect import bisect_left, bisect_right

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class LeaderEpochs:
    """The epochs of one log. `Log` creates it."""

    __slots__ = ("_epochs", "_starts", "dirty", "latest")

    def __init__(self, entries: list[tuple[int, int]]) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        #: The last epoch assigned, or -1.
        self.latest = UNDEFINED_EPOCH
        for epoch, start_offset in entries:
            self.assign(epoch, start_offset)
        #: Does the file lack a change?
        self.dirty = False

    def entries(self) -> list[tuple[int, int]]:
        """(epoch, start offset) of each epoch."""
        return list(zip(self._epochs, self._starts, strict=True))

    def assign(self, epoch: int, start_offset: int) -> None:
        """Record that `epoch` writes from `start_offset` on; drop entries that contradict it."""
        if epoch < 0 or start_offset < 0:
            return
        if self._epochs and self._epochs[-1] == epoch and self._starts[-1] <= start_offset:
            return
        while self._epochs and (self._epochs[-1] >= epoch or self._starts[-1] >= start_offset):
            self._epochs.pop()
            self._starts.pop()
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        self._changed()

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """(the greatest known epoch that is at most `epoch`, its end offset); (-1, -1) if unknown."""
        if epoch == UNDEFINED_EPOCH or not self._epochs:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if epoch == self.latest:
            return epoch, log_end_offset
        higher = bisect_right(self._epochs, epoch)
        if higher == len(self._epochs):
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if higher == 0:
            # Older than every known epoch: it ended, at the latest, where the first known one begins.
            return epoch, self._starts[0]
        return self._epochs[higher - 1], self._starts[higher]

    def epoch_of(self, offset: int) -> int:
        """The epoch that wrote `offset`, or -1."""
        slot = bisect_right(self._starts, offset) - 1
        return self._epochs[slot] if slot >= 0 else UNDEFINED_EPOCH

    def truncate_end(self, end_offset: int) -> None:
        """Drop the epochs that begin at or above `end_offset`."""
        keep = bisect_left(self._starts, end_offset)
        if keep < len(self._starts):
            del self._epochs[keep:]
            del self._starts[keep:]
            self._changed()

    def truncate_start(self, start_offset: int) -> None:
        """Drop the epochs that end at or below `start_offset`; the epoch that contains it begins there."""
        below = bisect_right(self._starts, start_offset) - 1
        if below > 0 or (below == 0 and self._starts[0] != start_offset):
            del self._epochs[:below]
            del self._starts[:below]
            self._starts[0] = start_offset
            self._changed()

    def clear(self) -> None:
        if self._epochs:
            self._epochs.clear()
            self._starts.clear()
            self._changed()

    def _changed(self) -> None:
        self.latest = self._epochs[-1] if self._epochs else UNDEFINED_EPOCH
        self.dirty = True
