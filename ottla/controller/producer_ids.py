"""AllocateProducerIds (key 67): blocks of producer ids; no id is ever allocated twice (KIP-730)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.controller.broker import check_broker_epoch
from ottla.controller.decision import Decision
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.lazy import LazyModule
from ottla.metadata.image import Image
from ottla.wire.record.metadata import ProducerIdsRecord

if TYPE_CHECKING:
    from ottla.wire.api import allocate_producer_ids as allocate
else:
    allocate = LazyModule("ottla.wire.api.allocate_producer_ids")

BLOCK_SIZE = 1000
_INT64_MAX = (1 << 63) - 1


def allocate_producer_ids(image: Image, request: allocate.AllocateProducerIdsRequest) -> Decision:
    """Allocate the next block to a registered broker."""
    check_broker_epoch(image, request.broker_id, request.broker_epoch)
    first = max(0, image.next_producer_id)
    if first > _INT64_MAX - BLOCK_SIZE:
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            "Exhausted all producerIds as the next block's end producerId has exceeded the int64 type limit",
        )
    record = ProducerIdsRecord(
        broker_id=request.broker_id, broker_epoch=request.broker_epoch, next_producer_id=first + BLOCK_SIZE
    )
    return Decision([record], allocate.AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=BLOCK_SIZE))
