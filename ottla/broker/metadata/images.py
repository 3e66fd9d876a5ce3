"""The appended and the committed metadata: replays the log, and publishes images to subscribers.

Rules:
- The appended image is always at the end of the log, whichever node wrote it. A leader decides on `appended`.
- All others see `committed`, and are notified of each step from one committed image to the next, batch by batch: an
  image records what changed since the one right before it.
- A metadata transaction (KIP-868) is one step, at the commit of its end.
- A truncation returns to the committed image and replays the log from there.
- An error of one subscriber keeps the step neither from the other subscribers nor from the quorum (as in Apache Kafka).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from ottla.broker.metadata.loader import LoadedMetadata, replay
from ottla.log.log import Log
from ottla.metadata.delta import MetadataReplayer
from ottla.metadata.image import Image

Subscriber = Callable[[Image, Image], None]


def raise_error(error: Exception) -> None:
    """Raise it; as a callback, it reaches the handler of the loop's errors."""
    raise error


class Images:
    """The metadata images. The raft driver reports appends, truncations, snapshots and commits to it."""

    def __init__(self) -> None:
        self._log: Log
        self._fold = MetadataReplayer(Image.empty())
        self.committed = Image.empty()
        #: The log is committed up to here; `committed` may be older while a metadata transaction is open.
        self._committed_end = 0
        #: (end offset, image) of each uncommitted batch.
        self._uncommitted: deque[tuple[int, Image]] = deque()
        self._subscribers: list[Subscriber] = []
        #: Called with what a subscriber raises.
        self.on_error: Callable[[Exception], object] = raise_error

    def load(self, loaded: LoadedMetadata) -> None:
        """Take the loaded metadata. The snapshot is committed; the commit of the log behind it is not known yet."""
        self._log, self._fold, self.committed = loaded.log, loaded.fold, loaded.snapshot
        self._committed_end = loaded.snapshot_end_offset
        self._uncommitted.extend(loaded.steps)

    @property
    def appended(self) -> Image:
        """The metadata including uncommitted records."""
        return self._fold.image

    @property
    def in_transaction(self) -> bool:
        """Whether the log ends inside a metadata transaction."""
        return self._fold.transaction_offset >= 0

    @property
    def has_uncommitted(self) -> bool:
        """Whether uncommitted records are in the log."""
        return bool(self._uncommitted)

    def subscribe(self, subscriber: Subscriber) -> None:
        """Call `subscriber(old, new)` after each commit that changed something."""
        self._subscribers.append(subscriber)

    # ---- changes of the log

    def append(self, records: Iterable[object], base_offset: int, epoch: int, timestamp: int) -> None:
        """Apply a batch that this node appended; no records means a batch of control records."""
        for offset, record in enumerate(records, base_offset):
            self._fold.replay(record, offset, epoch, timestamp)
        end_offset = self._log.end_offset
        self._uncommitted.append((end_offset, self._fold.publish(end_offset - 1, epoch, timestamp)))

    def follow(self, offset: int) -> None:
        """Apply the batches from `offset` on, which another node wrote."""
        self._uncommitted += replay(self._fold, self._log, offset, self._log.end_offset, batch_by_batch=True)

    def truncate(self) -> None:
        """Apply a truncation, which never goes below the committed offset."""
        self._refold([self._log.end_offset])

    def install(self, image: Image, end_offset: int) -> None:
        """Apply a snapshot that replaces the log and everything before it."""
        self._uncommitted.clear()
        self._fold, self._committed_end = MetadataReplayer(image), end_offset
        old, self.committed = self.committed, image
        self._publish(old, image)

    def commit(self, high_watermark: int) -> None:
        """Commit everything below `high_watermark`."""
        uncommitted = self._uncommitted
        self._commit_whole(high_watermark)
        if uncommitted and self._committed_end < high_watermark:
            # At startup many batches are read as one step, and the high watermark lies within them.
            self._refold([high_watermark, self._log.end_offset])
            self._commit_whole(high_watermark)

    def _commit_whole(self, high_watermark: int) -> None:
        while self._uncommitted and self._uncommitted[0][0] <= high_watermark:
            self._committed_end, new = self._uncommitted.popleft()
            old, self.committed = self.committed, new
            self._publish(old, new)

    def _publish(self, old: Image, new: Image) -> None:
        if new is old:
            return
        for subscriber in self._subscribers:
            try:
                subscriber(old, new)
            except Exception as error:
                self.on_error(error)

    def _refold(self, ends: list[int]) -> None:
        """Replay the log from the committed image on, with a step at each of these end offsets."""
        self._fold = MetadataReplayer(self.committed)
        self._uncommitted.clear()
        offset = self.committed.offset + 1
        for end_offset in ends:
            if end_offset > offset:
                for _ in replay(self._fold, self._log, offset, end_offset):
                    pass
                offset = end_offset
            if end_offset > self._committed_end:
                self._uncommitted.append((end_offset, self._fold.image))
