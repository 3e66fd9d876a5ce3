"""A long message is read and written in steps, and is the same message."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from ottla.wire.api.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from ottla.wire.api.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse, MetadataResponseTopic
from ottla.wire.compile import Deferred, decode, encode, step_decoder, step_encoder
from ottla.wire.reader import ELEMENTS_A_STEP, ELEMENTS_MAX
from ottla.wire.type import Malformed


def finished(work: Generator[None, None, Any]) -> tuple[Any, int]:
    """(the result, steps before it)."""
    steps = 0
    while True:
        try:
            next(work)
        except StopIteration as done:
            return done.value, steps
        steps += 1


@pytest.mark.parametrize("version", [1, 9, 12])
@pytest.mark.parametrize("count", [0, 1, ELEMENTS_A_STEP, 10 * ELEMENTS_A_STEP + 1])
def test_a_message_in_steps_is_the_same(version: int, count: int) -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=f"t{number}") for number in range(count)])
    data = encode(request, version)
    (decoded, end), steps = finished(step_decoder(MetadataRequest, version)(data))
    assert (decoded, end) == decode(MetadataRequest, version, data)
    assert steps == count // ELEMENTS_A_STEP
    topics = [MetadataResponseTopic(error_code=3, name=f"t{number}") for number in range(count)]
    response = MetadataResponse(topics=topics)
    deferred = MetadataResponse(topics=Deferred(count, lambda: iter(topics)))
    parts, steps = finished(step_encoder(MetadataResponse, version)(deferred))
    assert b"".join(parts) == encode(response, version) == encode(deferred, version)
    assert steps == count // ELEMENTS_A_STEP


def test_arrays_in_arrays_are_counted_together() -> None:
    partitions = [FetchPartition(partition=number) for number in range(300)]
    request = FetchRequest(topics=[FetchTopic(topic=f"t{number}", partitions=partitions) for number in range(4)])
    data = encode(request, 11)
    (decoded, _), steps = finished(step_decoder(FetchRequest, 11)(data))
    assert decoded == decode(FetchRequest, 11, data)[0]
    assert steps == 1204 // ELEMENTS_A_STEP
    parts, _ = finished(step_encoder(FetchRequest, 11)(request))
    assert b"".join(parts) == data


def test_more_elements_than_a_long_message_may_have_are_refused() -> None:
    data = (ELEMENTS_MAX + 600).to_bytes(4, "big") + b"\0\1x" * (ELEMENTS_MAX + 600) + b"\1"
    with pytest.raises(Malformed, match="too many"):
        finished(step_decoder(MetadataRequest, 4)(data))


def test_numbers_and_ids_are_bounded_too() -> None:
    many = ForgottenTopic(topic="t", partitions=[0] * (ELEMENTS_MAX // 2))
    data = encode(FetchRequest(forgotten_topics_data=[many, many]), 11)
    assert finished(step_decoder(FetchRequest, 11)(data))[0][1] == len(data)
    with pytest.raises(Malformed, match="too many"):
        finished(step_decoder(FetchRequest, 11)(encode(FetchRequest(forgotten_topics_data=[many] * 3), 11)))


@pytest.mark.parametrize("cut", [1, 100, 4000])
def test_a_message_that_ends_early_is_malformed_in_steps_too(cut: int) -> None:
    data = encode(MetadataRequest(topics=[MetadataRequestTopic(name="t") for _ in range(2000)]), 9)
    with pytest.raises(Malformed):
        finished(step_decoder(MetadataRequest, 9)(data[:-cut]))
