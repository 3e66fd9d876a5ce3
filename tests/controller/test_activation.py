"""What a controller writes when it begins to lead."""

from typing import Any

import pytest

from ottla.controller.activation import activation_records
from ottla.kernel.ids import Uuid
from ottla.metadata.delta import MetadataReplayer
from ottla.metadata.feature import METADATA_VERSION_LATEST, TRANSACTIONS_FROM, feature_records, new_cluster_levels
from ottla.metadata.image import Image
from ottla.wire.record.metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    TopicRecord,
)


class Log:
    """A metadata log: one record a batch, so that a transaction spans many."""

    def __init__(self) -> None:
        self.records: list[Any] = []
        self.fold = MetadataReplayer(Image.empty())

    def append(self, records: list[Any]) -> None:
        for record in records:
            self.fold.replay(record, len(self.records), 1, 0)
            self.fold.publish(len(self.records), 1, 0)
            self.records.append(record)

    def lead(self, bootstrap: list[Any]) -> list[Any]:
        """A new leader writes what it has to; that."""
        in_transaction = self.fold.transaction_offset >= 0
        written = activation_records(self.fold.image, in_transaction=in_transaction, bootstrap=bootstrap, min_isr=2)
        self.append(written)
        return written


def levels(metadata_version: int = METADATA_VERSION_LATEST) -> list[Any]:
    return feature_records(new_cluster_levels(metadata_version, {}))


def test_a_new_cluster_is_written_as_one_transaction() -> None:
    log = Log()
    written = log.lead(levels())
    assert isinstance(written[0], BeginTransactionRecord) and isinstance(written[-1], EndTransactionRecord)
    assert log.fold.image.metadata_version == METADATA_VERSION_LATEST
    assert log.lead([]) == []


def test_a_level_without_transactions_gets_plain_records() -> None:
    log = Log()
    written = log.lead(levels(TRANSACTIONS_FROM - 1))
    assert not any(isinstance(each, BeginTransactionRecord) for each in written)
    assert log.fold.image.metadata_version == TRANSACTIONS_FROM - 1


@pytest.mark.parametrize("reached", range(1, 9))
def test_a_leader_that_died_within_the_first_transaction_leaves_nothing_of_it(reached: int) -> None:
    whole = Log()
    whole.lead(levels())
    log = Log()
    log.append(whole.records[:reached])
    assert log.fold.image.metadata_version == 0, "a transaction that is open is not seen"
    written = log.lead(levels())
    assert isinstance(written[0], AbortTransactionRecord)
    assert log.fold.transaction_offset == -1
    assert log.fold.image.features == whole.fold.image.features
    assert log.fold.image.configs == whole.fold.image.configs


def test_a_transaction_that_the_last_leader_left_open_is_aborted() -> None:
    log = Log()
    log.lead(levels())
    log.append([BeginTransactionRecord(name="two topics"), TopicRecord(name="t", topic_id=Uuid(bytes([9]) * 16))])
    assert [type(each) for each in log.lead([])] == [AbortTransactionRecord]
    assert log.fold.image.topics == {}
    log.append([TopicRecord(name="u", topic_id=Uuid(bytes([8]) * 16))])
    assert list(log.fold.image.topics) == ["u"]
    assert log.lead([]) == []
