"""The producer ids of this node, taken from blocks of a thousand that the controller allocates.

Rules:
- No id is used twice: a block belongs to this node once its record is committed, and a restart loses its rest.
- The next block is requested when nine tenths of the current one are used, as in Apache Kafka, without blocking the
  loop.
- A caller that finds no id left waits (`when_available`) or is refused and retries, as in Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.controller.producer_ids import BLOCK_SIZE
from ottla.kernel.callbacks import call_each
from ottla.kernel.error import KafkaError
from ottla.kernel.lazy import LazyModule

if TYPE_CHECKING:
    from ottla.broker.controllers.controllers import Controllers
    from ottla.wire.api import allocate_producer_ids as allocate
else:
    allocate = LazyModule("ottla.wire.api.allocate_producer_ids")

_LOW = BLOCK_SIZE // 10


class ProducerIds:
    """A node's supply of producer ids. The node creates it."""

    def __init__(self, node_id: int, controllers: Controllers, broker_epoch: Callable[[], int]) -> None:
        self._node_id = node_id
        self._controllers = controllers
        self._broker_epoch = broker_epoch
        self._block = self._spare = range(0)
        self._asked = False
        self._waiting: list[Callable[[], None]] = []

    def when_available(self, done: Callable[[], None]) -> None:
        """Call `done` when an id is available, or the controller has failed to allocate a block."""
        if self._block or self._spare:
            done()
        else:
            self._waiting.append(done)
            self._ask()

    def next(self) -> int | None:
        """A new id; None when none is left until the next block arrives."""
        if not self._block:
            self._block, self._spare = self._spare, range(0)
        if not self._block:
            self._ask()
            return None
        first, self._block = self._block[0], self._block[1:]
        if len(self._block) <= _LOW and not self._spare:
            self._ask()
        return first

    def _ask(self) -> None:
        if self._asked:
            return
        self._asked = True
        request = allocate.AllocateProducerIdsRequest(broker_id=self._node_id, broker_epoch=self._broker_epoch())
        self._controllers.ask(request, self._allocated)

    def _allocated(self, response: allocate.AllocateProducerIdsResponse | KafkaError) -> None:
        self._asked = False
        if not isinstance(response, KafkaError):
            first = response.producer_id_start
            self._spare = range(first, first + response.producer_id_len)
        waiting, self._waiting = self._waiting, []
        call_each(waiting)
