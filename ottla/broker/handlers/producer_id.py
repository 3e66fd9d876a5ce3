"""InitProducerId (key 22): a producer id and epoch for idempotent producing (KIP-98, KIP-360).

Rules:
- Ids come from blocks of 1000 that the controller allocates and records in the metadata log; no id is used twice.
- A producer that sends its id and epoch gets the next epoch, or a new id when its epochs are exhausted.
- Version 6 is served with `unstable.api.versions.enable`. Transactions prepared for an external coordinator (KIP-939)
  are refused as in Apache Kafka without `transaction.two.phase.commit.enable`.
"""

from __future__ import annotations

from typing import Any

from ottla.broker.call.handler import Call, handles
from ottla.broker.call.reply import Later, Reply
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.wire.api import ApiKey
from ottla.wire.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.batch import NO_PRODUCER_ID

_NO_EPOCH = -1
_FENCED_SINCE = 4


def _error_response(request: InitProducerIdRequest, version: int, error: KafkaError) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error.code, producer_id=-1, producer_epoch=-1)


@handles(ApiKey.INIT_PRODUCER_ID, error_response=_error_response)
def init_producer_id(call: Call, request: InitProducerIdRequest) -> Reply:
    """A new id with epoch 0; with a transactional id, its coordinator's answer."""
    if request.transactional_id == "":
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == _NO_EPOCH):
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    later = Later()
    call.node.producer_ids.when_available(lambda: _init(call, request, later))
    return later


def _init(call: Call, request: InitProducerIdRequest, later: Later) -> None:
    """Answer when an id is available, or the controller could not allocate any."""

    def answered(response: Any) -> None:
        failed = isinstance(response, KafkaError)
        if call.version < _FENCED_SINCE and not failed and response.error_code == ErrorCode.PRODUCER_FENCED:
            response.error_code = ErrorCode.INVALID_PRODUCER_EPOCH
        later.resolve(response)

    try:
        if request.transactional_id is not None:
            call.node.transactions.driver_of(request.transactional_id).ask(request, call.version, answered)
        else:
            producer_id = call.node.producer_ids.next()
            if producer_id is None:
                raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            later.resolve(InitProducerIdResponse(producer_id=producer_id, producer_epoch=0))
    except KafkaError as error:
        later.resolve(error)
