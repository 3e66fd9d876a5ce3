"""Reading between two offsets while the records at the first of them are deleted: against a node."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import ottla
from ottla.cli.records.read import chosen
from ottla.client import Admin, Producer, TopicPartition
from ottla.operations.topics.copy import TopicCopy, prepare_target
from ottla.operations.topics.diff import TopicSide, differences

ZERO = TopicPartition("t", 0)
BEGINS, ENDS = {ZERO: 0}, {ZERO: 100}


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """A topic whose first 60 records of 100 are gone since their offsets were looked up."""
    with ottla.Node() as node, Admin(node.bootstrap_servers) as admin, Producer(node.bootstrap_servers) as producer:
        admin.create_topic("t", 1)
        for number in range(100):
            producer.send("t", b"%d" % number)
        producer.flush()
        admin.delete_records({ZERO: 60}).check()
        yield node.bootstrap_servers


def test_a_copy_has_what_is_left(bootstrap: str) -> None:
    settings: dict[str, object] = {"bootstrap.servers": bootstrap}
    with Admin(bootstrap) as admin:
        prepare_target(admin, "copied", 1, {})
        copy = TopicCopy(settings, settings, BEGINS, ENDS, "copied", keeps=True)
        copy.run(lambda _: None)
    assert (copy.written, copy.reached) == (40, ENDS)


def test_an_export_has_what_is_left(bootstrap: str) -> None:
    found = chosen({"bootstrap.servers": bootstrap}, BEGINS, ENDS, None, None)
    assert [record.offset for record in found] == list(range(60, 100))


def test_a_comparison_has_what_is_left(bootstrap: str) -> None:
    side = TopicSide({}, BEGINS, ENDS, {"bootstrap.servers": bootstrap})
    assert differences(side, side) == (40, [])
