"""The tables of calls are true: every method that they name is there, on both sides."""

import re
from pathlib import Path

import aiokafka
import confluent_kafka
import confluent_kafka.admin
import kafka
import pytest

import ottla.client
import ottla.streams

_PAGES = Path(__file__).parents[2] / "docs" / "coming-from"
_ROW = re.compile(r"^\| (.*?) \| (.*?) \|$", re.MULTILINE)
_CALL = re.compile(r"\b(producer|consumer|admin|transaction)\.(\w+)\(")
_CLASS = re.compile(r"`([A-Z][A-Za-z]+)\(")
_THEIRS: dict[str, dict[str, type]] = {
    "confluent-kafka": {
        "producer": confluent_kafka.Producer,
        "consumer": confluent_kafka.Consumer,
        "admin": confluent_kafka.admin.AdminClient,
    },
    "kafka-python": {
        "producer": kafka.KafkaProducer,
        "consumer": kafka.KafkaConsumer,
        "admin": kafka.KafkaAdminClient,
    },
    "aiokafka": {"producer": aiokafka.AIOKafkaProducer, "consumer": aiokafka.AIOKafkaConsumer},
}
_OURS: dict[str, type] = {
    "producer": ottla.client.Producer,
    "consumer": ottla.client.Consumer,
    "admin": ottla.client.Admin,
    "transaction": ottla.client.Producer,
}


def _missing(cell: str, classes: dict[str, type]) -> list[str]:
    return [f"{who}.{name}" for who, name in _CALL.findall(cell) if who in classes and not hasattr(classes[who], name)]


@pytest.mark.parametrize("page", sorted(_PAGES.glob("*a*k*a*.md")), ids=lambda page: page.stem)
def test_every_call_of_a_table_is_there(page: Path) -> None:
    rows = _ROW.findall(page.read_text(encoding="utf-8"))
    assert len(rows) > 10
    assert [name for _, ours in rows for name in _missing(ours, _OURS)] == []
    assert [name for theirs, _ in rows for name in _missing(theirs, _THEIRS.get(page.stem, {}))] == []
    named = {name for _, ours in rows for name in _CLASS.findall(ours)}
    assert {name for name in named if not hasattr(ottla.client, name) and not hasattr(ottla.streams, name)} == set()
