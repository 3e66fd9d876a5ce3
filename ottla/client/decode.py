"""Runs keys and values through the deserializers, and handles records that fail (`on.decode.error`).

Rules:
- raise: the poll returns the records before the bad one, the next poll raises `RecordDeserializationError`, and the
  position stays at that record until the program seeks past it.
- skip: the record is dropped, and a warning names it.
- dead-letter: the record is written to `dead.letter.topic` with headers that name its origin and the error. The
  position passes the record only when that write is acknowledged (acks=all); a crash before then writes it again.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TypeVar

from ottla.client.acknowledgement import ShareRecord
from ottla.client.producer.delivery import Delivery
from ottla.client.producer.producer import AsyncProducer
from ottla.client.settings.consumer import ConsumerSettings
from ottla.client.settings.producer import ProducerSettings
from ottla.columns.record import ConsumerRecord
from ottla.kernel.client_error import RecordDeserializationError
from ottla.kernel.error import KafkaError, OttlaError
from ottla.wire.batch import Header

R = TypeVar("R", ConsumerRecord, ShareRecord)

_log = logging.getLogger("ottla.client")

#: Prefix of a dead letter's context headers; their values are UTF-8 text.
CONTEXT = "__ottla.errors."


def decode(records: Sequence[R], settings: ConsumerSettings) -> tuple[list[R], list[RecordDeserializationError]]:
    """Deserialize records; returns the good ones, and an error for each bad one."""
    key_deserializer, value_deserializer = settings.key_deserializer, settings.value_deserializer
    good: list[R] = []
    bad: list[RecordDeserializationError] = []
    for record in records:
        key, value = record.key, record.value
        part = "key"
        try:
            if key is not None and key_deserializer is not None:
                key = key_deserializer(key)
            part = "value"
            if value is not None and value_deserializer is not None:
                value = value_deserializer(value)
        except Exception as error:
            bad.append(unreadable(record, part, error))
        else:
            good.append(record._replace(key=key, value=value))
    return good, bad


def unreadable(record: ConsumerRecord | ShareRecord, part: str, why: Exception | str) -> RecordDeserializationError:
    """The error for a record whose `part` ("key" or "value") failed; its key and value are still bytes."""
    error = RecordDeserializationError(record[:7], part, why if isinstance(why, str) else _error_text(why))
    if isinstance(why, Exception):
        error.__cause__ = why
    return error


def _error_text(error: Exception) -> str:
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def skipped(errors: Sequence[RecordDeserializationError]) -> None:
    """Log a warning for skipped records: the first one, and how many there are."""
    more = f", and {len(errors) - 1} more of this poll" if len(errors) > 1 else ""
    _log.warning("skipped %s (on.decode.error=skip)%s", errors[0].summary, more)


class DeadLetters:
    """Writes one consumer's dead letters. Runs on the consumer's loop; the consumer closes it."""

    def __init__(self, settings: ConsumerSettings) -> None:
        self._settings = settings
        self._producer: AsyncProducer | None = None

    async def write(self, errors: Sequence[RecordDeserializationError]) -> None:
        """Write these records as dead letters and wait until all are acknowledged. OttlaError if a write fails."""
        topic = self._settings.dead_letter_topic
        assert topic is not None
        for error in errors:
            if error.topic == topic:
                raise OttlaError(
                    f"{error.summary}; the record is in the dead letter topic: read {topic} without deserializers"
                )
        if self._producer is None:
            self._producer = AsyncProducer(_producer_settings(self._settings))
        try:
            deliveries: list[Delivery] = []
            for error in errors:
                headers = [*error.headers, *context_headers(error, self._settings.group_id)]
                stamp = error.timestamp if error.timestamp >= 0 else None
                deliveries.append(
                    await self._producer.send(topic, error.value, error.key, headers=headers, timestamp=stamp)
                )
            for delivery in deliveries:
                await delivery
        except (KafkaError, OttlaError) as error:
            why = f"writing to the dead letter topic {topic} failed: {error}; {errors[0].summary}"
            raise OttlaError(why) from error

    async def close(self) -> None:
        """Close the producer, if one was made."""
        if self._producer is not None:
            await self._producer.close(flush=False)


def context_headers(error: RecordDeserializationError, group: str | None) -> list[Header]:
    """The headers that name a dead letter's origin and its error."""
    cause = error.__cause__
    kind = type(error if cause is None else cause)
    context = {
        "topic": error.topic,
        "partition": str(error.partition),
        "offset": str(error.offset),
        "timestamp": str(error.timestamp),
        "group": group,
        "part": error.part,
        "exception.class.name": f"{kind.__module__}.{kind.__qualname__}",
        "exception.message": error.reason,
    }
    return [(CONTEXT + name, text.encode()) for name, text in context.items() if text is not None]


def _producer_settings(settings: ConsumerSettings) -> dict[str, object]:
    """The consumer's connection settings; the rest are a producer's defaults (acks=all, idempotent)."""
    return {name: value for name, value in settings.given.items() if name in ProducerSettings.declared}
