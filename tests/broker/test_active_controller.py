"""What a controller is asked for a client: with a quota for what the request creates, or with none."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest

from ottla.broker.handlers.active_controller import decide
from ottla.controller.decision import unlimited
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.wire.api.broker_heartbeat import BrokerHeartbeatRequest
from ottla.wire.api.create_topics import CreateTopicsRequest, CreateTopicsResponse


@pytest.mark.parametrize(
    ("request_", "quotas", "throttle_ms"),
    [
        (CreateTopicsRequest(), True, 70),
        (CreateTopicsRequest(), False, 0),
        (BrokerHeartbeatRequest(), True, 0),
    ],
)
def test_a_quota_is_charged_and_its_pause_told_where_it_applies(request_: Any, quotas: bool, throttle_ms: int) -> None:
    mutations = Mock(throttle_ms=70)
    call: Any = Mock(version=7)
    call.node.quotas.active = quotas
    call.node.quotas.mutations.return_value = mutations
    later = decide(call, request_)
    (asked, committed, version, charge), _ = call.node.quorum.ask.call_args
    assert asked is request_ and version == 7
    assert charge is (mutations.charge if throttle_ms else unlimited)
    assert not later.resolved, "nothing is committed yet"
    response = CreateTopicsResponse()
    committed(response)
    assert later.value is response and response.throttle_time_ms == throttle_ms


def test_a_refusal_of_the_whole_request_is_passed_on() -> None:
    call: Any = Mock(version=7)
    later = decide(call, CreateTopicsRequest())
    error = KafkaError(ErrorCode.NOT_CONTROLLER)
    call.node.quorum.ask.call_args.args[1](error)
    assert later.value is error
