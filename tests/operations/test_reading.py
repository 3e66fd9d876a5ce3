"""Reading between two offsets while the records at the first of them are deleted: against a node."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest

import ottla
from ottla.cli.records.read import chosen
from ottla.client import Admin, Producer, TopicPartition
from ottla.kernel.error import KafkaError, OttlaError
from ottla.operations import reading
from ottla.operations.reading import until_ends
from ottla.operations.topics.copy import TopicCopy, prepare_target
from ottla.operations.topics.diff import TopicSide, differences
from tests.cli.tool import in_process

ZERO = TopicPartition("t", 0)
BEGINS, ENDS = {ZERO: 0}, {ZERO: 100}


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """A topic whose first 60 records of 100 are gone since their offsets were looked up."""
    with (
        ottla.Node(settings={"transaction.state.log.num.partitions": "1"}) as node,
        Admin(node.bootstrap_servers) as admin,
        Producer(node.bootstrap_servers) as producer,
    ):
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


class Quiet:
    """A consumer of one partition that never gets a record."""

    def __init__(self, end: int) -> None:
        self.end, self.polls = end, 0

    def assignment(self) -> set[TopicPartition]:
        return {ZERO}

    def position(self, _: TopicPartition) -> int:
        return 40

    def poll(self, _: float) -> list[object]:
        self.polls += 1
        return []

    def end_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, self.end)


def test_a_read_to_an_end_that_the_topic_has_no_more_is_an_error() -> None:
    shorter: Any = Quiet(60)
    with pytest.raises(OttlaError, match=r"t-0 ends at offset 60 now, before 100"):
        for _ in islice(until_ends(shorter, ENDS), 1_000):
            pass
    slow: Any = Quiet(100)
    assert len(list(islice(until_ends(slow, ENDS), 1_000))) == 1_000


def test_a_topic_that_is_deleted_while_it_is_read_is_an_error_and_is_not_created_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reading, "_QUIET_POLLS", 2)
    with ottla.Node() as node, Admin(node.bootstrap_servers) as admin:
        admin.create_topic("t", 1)
        with Producer(node.bootstrap_servers) as producer:
            for number in range(2_000):
                producer.send("t", b"%d" % number)
        settings = {"bootstrap.servers": node.bootstrap_servers, "default.api.timeout.ms": 500}
        found = chosen({**settings, "max.poll.records": 10}, BEGINS, {ZERO: 9_000}, None, None)
        next(found)
        admin.delete_topics(["t"]).check()
        with pytest.raises(KafkaError, match="UNKNOWN_TOPIC"):
            list(found)
        assert admin.list_topics() == []


def test_a_target_that_is_deleted_is_not_created_again_by_the_copy() -> None:
    with ottla.Node() as node, Admin(node.bootstrap_servers) as admin:
        admin.create_topic("t", 1)
        with Producer(node.bootstrap_servers) as producer:
            producer.send("t", b"1")
        settings: dict[str, object] = {"bootstrap.servers": node.bootstrap_servers}
        copy = TopicCopy(settings, {**settings, "max.block.ms": 500}, BEGINS, {ZERO: 1}, "gone", keeps=True)
        with pytest.raises(KafkaError):
            copy.run(lambda _: None)
        assert [topic.name for topic in admin.list_topics()] == ["t"]


def test_a_copy_of_what_is_committed_ends_before_an_open_transaction(bootstrap: str) -> None:
    with Admin(bootstrap) as admin, Producer(bootstrap, transactional_id="open") as producer:
        admin.create_topic("half", 1)
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("half", b"done")
        producer.commit_transaction()
        producer.begin_transaction()
        producer.send("half", b"open")
        producer.flush()
        said = in_process(
            "topics", "copy", "half", "half2", "--create", "--committed", OTTLA_BOOTSTRAP_SERVERS=bootstrap
        )
        assert (said.code, said.err) == (0, "1 record copied to half2, partition by partition\n")
        producer.abort_transaction()


def test_a_copy_that_a_record_ends_says_that_later_ones_may_be_there(bootstrap: str) -> None:
    with Admin(bootstrap) as admin, Producer(bootstrap) as producer:
        admin.create_topic("mixed", 1)
        admin.create_topic("small", 1, configs={"max.message.bytes": "300"})
        for number in range(6):
            producer.send("mixed", b"x" * (1_000 if number == 2 else 10))
    said = in_process("topics", "copy", "mixed", "small", OTTLA_BOOTSTRAP_SERVERS=bootstrap)
    assert said.code == 1
    assert "2 records copied for certain (up to 4 more may be); continue with --append --from 0:2" in said.err


def test_the_total_of_a_copy_counts_nothing_for_a_partition_without_records() -> None:
    empty, beyond = TopicPartition("t", 1), TopicPartition("t", 2)
    begins, ends = {ZERO: 7, empty: 4, beyond: 9}, {ZERO: 10, empty: 4, beyond: 5}
    assert TopicCopy({}, {}, begins, ends, "copied", keeps=True).total == 3
