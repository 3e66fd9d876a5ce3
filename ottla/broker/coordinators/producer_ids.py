"""The producer ids of this node, from blocks of a thousand that the controller gives out.

Rules:
- No id is given twice: a block is this node's when its record is committed, and what a stop leaves of it is lost.
- The next block is asked for when nine tenths of one are given, as Apache Kafka does, and comes while the loop goes on.
- Who comes when there is none left may wait (`when_there`); who cannot has the loop wait for the disk.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from ottla.controller.producer_ids import BLOCK_SIZE
from ottla.kernel.error import KafkaError

if TYPE_CHECKING:
    from ottla.broker.node import BrokerNode

_LOW = BLOCK_SIZE // 10


class ProducerIds:
    """The node makes it."""

    def __init__(self, node: BrokerNode) -> None:
        self._node = node
        self._block = self._spare = range(0)
        self._asked = False
        self._waiting: list[Callable[[], None]] = []

    def when_there(self, done: Callable[[], None]) -> None:
        """Call `done` when there is an id, or a block cannot be had."""
        if self._block or self._spare:
            done()
        else:
            self._waiting.append(done)
            self._ask()

    def next(self) -> int:
        """An id that was never given before. KafkaError when there is none and the metadata log cannot be written."""
        if not self._block:
            if self._asked:
                with suppress(OSError):
                    self._node.quorum.settle()
            self._block, self._spare = self._spare or self._node.quorum.allocate_producer_ids(), range(0)
        first, self._block = self._block[0], self._block[1:]
        if len(self._block) <= _LOW and not self._spare:
            self._ask()
        return first

    def _ask(self) -> None:
        if self._asked:
            return
        self._asked = True
        try:
            self._node.quorum.allocate_producer_ids_later(self._given)
        except KafkaError:
            self._given(range(0))

    def _given(self, block: range) -> None:
        self._asked = False
        self._spare = block
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            done()
