"""Kafka's console tools that end in the middle: nothing is lost of what was typed, or was not shown yet."""

from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

import pytest

from ottla.cli.kafka.program.tool import Failed
from ottla.cli.kafka.records import console_consumer, console_producer
from ottla.client import Consumer, Producer
from tests.cli.test_loss import committed, fill, values


def test_lines_that_were_typed_before_ctrl_c_are_written(
    bootstrap: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def typed() -> Iterator[str]:
        yield "a"
        yield "b"
        raise KeyboardInterrupt

    monkeypatch.setattr(console_producer, "_lines", typed)
    with pytest.raises(KeyboardInterrupt), Producer(bootstrap, linger_ms=60_000) as producer:
        console_producer._write(producer, topic, console_producer._Reader({}), sync=False)
    assert sorted(values(bootstrap, topic), key=repr) == [b"a", b"b"]


@pytest.mark.parametrize(
    ("end", "raised", "next_offset"), [(KeyboardInterrupt, KeyboardInterrupt, 2), (ValueError, Failed, 3)]
)
def test_what_a_console_consumer_has_not_shown_is_not_committed(
    bootstrap: str, topic: str, end: type[BaseException], raised: type[BaseException], next_offset: int
) -> None:
    fill(bootstrap, topic, 5)
    given: Any = {}
    formatter = Mock(write=Mock(side_effect=[None, None, end("x")]))
    with Consumer(bootstrap, group_id=topic, auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        records: list[Any] = []
        while not records:
            records = consumer.poll(0.2)
        assert len(records) == 5
        with pytest.raises(raised):
            console_consumer._write(given, consumer, formatter, records)
    assert committed(bootstrap, topic)[0] == next_offset
