"""The op "secured" of librdkafka: one record through a secured listener and back."""

import time
from collections.abc import Iterator
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.interop.python.job import Json

TIMEOUT_S = 30
#: Said after the error that says why.
_LATER = (KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT)


def settings(job: Json) -> dict[str, Any]:
    found: dict[str, Any] = {
        "bootstrap.servers": job["bootstrap"],
        "security.protocol": job["security"],
        "broker.address.family": "v4",
        "log_level": 0,
    }
    if job["security"].endswith("SSL"):
        found["ssl.ca.location"] = job["ca"]
    if job["certificate"]:
        found |= {"ssl.certificate.location": job["certificate"], "ssl.key.location": job["key"]}
    if job["mechanism"] == "OAUTHBEARER":
        found |= {"sasl.mechanism": "OAUTHBEARER", "oauth_cb": lambda _: (job["token"], time.time() + 3600)}
    elif job["mechanism"]:
        found |= {"sasl.mechanism": job["mechanism"], "sasl.username": job["user"], "sasl.password": job["password"]}
    return found


def secured(job: Json) -> Iterator[Json]:
    errors: list[KafkaError] = []
    outcome: list[tuple[Any, Any]] = []
    producer = Producer({**settings(job), "error_cb": errors.append})
    producer.produce(job["topic"], job["id"].encode(), on_delivery=lambda *told: outcome.append(told))
    deadline = time.monotonic() + TIMEOUT_S
    while not outcome:
        producer.poll(0.1)
        why = next((error for error in errors if error.code() not in _LATER), None)
        if why is not None or time.monotonic() > deadline:
            raise KafkaException(why or KafkaError(KafkaError._TIMED_OUT))
    error, sent = outcome[0]
    if error is not None:
        raise KafkaException(error)
    consumer = Consumer({**settings(job), "group.id": job["group"], "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(job["topic"], sent.partition(), sent.offset())])
        message = consumer.poll(TIMEOUT_S)
        if message is None or message.error() is not None:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT) if message is None else message.error())
        value = message.value()
        assert value is not None
        yield {"read": value.decode()}
    finally:
        consumer.close()
