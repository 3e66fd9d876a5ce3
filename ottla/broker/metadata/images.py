"""The metadata as it is appended, and as it is committed: the fold over the log, and the images that others follow.

Rules:
- The fold is always at the end of the log, whatever node wrote it. A leader decides on `appended`.
- Everyone else sees `committed`, and is told of each step from one committed image to the next, batch by batch: an
  image knows what changed since the one right before it.
- A metadata transaction (KIP-868) is one step, when its end is committed.
- A truncation goes back to the committed image and reads from there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from ottla.broker.metadata.loader import LoadedMetadata, replay
from ottla.log.log import Log
from ottla.metadata.delta import Fold
from ottla.metadata.image import Image

Subscriber = Callable[[Image, Image], None]


class Images:
    """The raft driver tells it what is appended, truncated, installed and committed."""

    def __init__(self) -> None:
        self._log: Log
        self._fold = Fold(Image.empty())
        self.committed = Image.empty()
        #: Up to here the log is committed; `committed` may be older while a metadata transaction is open.
        self._committed_end = 0
        #: Where each batch ends that is not committed, and what the metadata is with it.
        self._uncommitted: deque[tuple[int, Image]] = deque()
        self._subscribers: list[Subscriber] = []

    def load(self, loaded: LoadedMetadata) -> None:
        """Take what the disk holds: the snapshot is committed; how much of the log behind it is not known yet."""
        self._log, self._fold, self.committed = loaded.log, loaded.fold, loaded.snapshot
        self._committed_end = loaded.snapshot_end_offset
        self._uncommitted.extend(loaded.steps)

    @property
    def appended(self) -> Image:
        """The metadata with what is not committed yet."""
        return self._fold.image

    @property
    def in_transaction(self) -> bool:
        """Does the log end within a metadata transaction?"""
        return self._fold.transaction_offset >= 0

    @property
    def has_uncommitted(self) -> bool:
        """Is something appended that is not committed?"""
        return bool(self._uncommitted)

    def subscribe(self, subscriber: Subscriber) -> None:
        """Call `subscriber(old, new)` after each commit that changed something."""
        self._subscribers.append(subscriber)

    # ---- what happens to the log

    def append(self, records: Iterable[object], base_offset: int, epoch: int, timestamp: int) -> None:
        """A batch of these records was appended by this node; none: a batch of control records."""
        for offset, record in enumerate(records, base_offset):
            self._fold.replay(record, offset, epoch, timestamp)
        end_offset = self._log.end_offset
        self._uncommitted.append((end_offset, self._fold.publish(end_offset - 1, epoch, timestamp)))

    def follow(self, offset: int) -> None:
        """Batches from `offset` on were appended as another node wrote them."""
        self._uncommitted += replay(self._fold, self._log, offset, self._log.end_offset, batch_by_batch=True)

    def truncate(self) -> None:
        """The log was cut, not below what is committed."""
        self._refold([self._log.end_offset])

    def install(self, image: Image, end_offset: int) -> None:
        """A snapshot took the place of the log and of everything before it."""
        self._uncommitted.clear()
        self._fold, self._committed_end = Fold(image), end_offset
        old, self.committed = self.committed, image
        self._publish(old, image)

    def commit(self, high_watermark: int) -> None:
        """Everything below `high_watermark` is committed."""
        uncommitted = self._uncommitted
        self._commit_whole(high_watermark)
        if uncommitted and self._committed_end < high_watermark:
            # A start reads many batches as one step, and the high watermark is within them.
            self._refold([high_watermark, self._log.end_offset])
            self._commit_whole(high_watermark)

    def _commit_whole(self, high_watermark: int) -> None:
        while self._uncommitted and self._uncommitted[0][0] <= high_watermark:
            self._committed_end, new = self._uncommitted.popleft()
            old, self.committed = self.committed, new
            self._publish(old, new)

    def _publish(self, old: Image, new: Image) -> None:
        if new is not old:
            for subscriber in self._subscribers:
                subscriber(old, new)

    def _refold(self, ends: list[int]) -> None:
        """Read the log again from the committed image on, with a step at each of these ends."""
        self._fold = Fold(self.committed)
        self._uncommitted.clear()
        offset = self.committed.offset + 1
        for end_offset in ends:
            if end_offset > offset:
                for _ in replay(self._fold, self._log, offset, end_offset):
                    pass
                offset = end_offset
            if end_offset > self._committed_end:
                self._uncommitted.append((end_offset, self._fold.image))
