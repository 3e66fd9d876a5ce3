"""InitProducerId (key 22): a producer id and epoch for idempotent producing (KIP-98, KIP-360).

Rules:
- Ids come from blocks of 1000 that the controller allocates and records in the metadata log; no id is used twice.
- A request that needs a new id waits for a block if none is left; all others are answered at once.
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
    if request.transactional_id is None:
        return _new_id(call)
    later = Later()
    _ask_coordinator(call, request, later)
    return later


def _new_id(call: Call) -> Later:
    later = Later()

    def take() -> None:
        producer_id = call.node.producer_ids.next()
        later.resolve(
            KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            if producer_id is None
            else InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
        )

    call.node.producer_ids.when_available(take)
    return later


def _ask_coordinator(call: Call, request: InitProducerIdRequest, later: Later, *, is_second: bool = False) -> None:
    """Ask the coordinator, and again when there is an id if it lacked one."""

    def answered(response: Any) -> None:
        code = ErrorCode.NONE if isinstance(response, KafkaError) else response.error_code
        if code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and not is_second:
            call.node.producer_ids.when_available(lambda: _ask_coordinator(call, request, later, is_second=True))
            return
        if code == ErrorCode.PRODUCER_FENCED and call.version < _FENCED_SINCE:
            response.error_code = ErrorCode.INVALID_PRODUCER_EPOCH
        later.resolve(response)

    assert request.transactional_id is not None
    try:
        call.node.transactions.driver_of(request.transactional_id).ask(request, call.version, answered)
    except KafkaError as error:
        later.resolve(error)
