"""Which directory a replica is in, as brokers say it, and what a broker that lost directories writes itself."""

from __future__ import annotations

import pytest

from ottla.controller.directory import directories_left
from ottla.kernel.error import ErrorCode
from ottla.kernel.ids import Uuid
from ottla.metadata.feature import DIRECTORIES_FROM
from ottla.metadata.image import METADATA_VERSION
from ottla.wire.api import assign_replicas_to_dirs as assign
from tests.controller.fleet import Fleet
from tests.controller.scene import directory


def assigned(fleet: Fleet, broker_id: int, place: Uuid, topic_id: Uuid, *indexes: int) -> list[ErrorCode]:
    """The answer for each partition when the broker says that its replicas are in `place`."""
    partitions = [assign.RequestPartitionData(partition_index=index) for index in indexes]
    topic = assign.RequestTopicData(topic_id=topic_id, partitions=partitions)
    request = assign.AssignReplicasToDirsRequest(
        broker_id=broker_id,
        broker_epoch=fleet.image.brokers[broker_id].epoch,
        directories=[assign.RequestDirectoryData(id=place, topics=[topic])],
    )
    [answered] = fleet.ask(request).directories[0].topics
    return [ErrorCode(each.error_code) for each in answered.partitions]


def test_only_a_replica_of_the_broker_is_put_in_its_directory() -> None:
    fleet = Fleet(3, directories=2)
    topic_id = fleet.topic("flights", [1, 2], [2, 3])
    before = [fleet.partition("flights", index).directories for index in (0, 1)]
    other = next(each for each in fleet.image.brokers[1].log_dirs if each != before[0][0])
    assert assigned(fleet, 1, other, topic_id, 1, -1, 2, 0) == [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NONE,
    ]
    assert fleet.partition("flights", 0).directories == (other, before[0][1])
    assert fleet.partition("flights", 1).directories == before[1]
    assert assigned(fleet, 1, other, Uuid(bytes([9]) * 16), 0) == [ErrorCode.UNKNOWN_TOPIC_ID]


def test_a_replica_in_a_directory_that_is_gone_leads_nothing() -> None:
    fleet = Fleet(2, directories=2)
    topic_id = fleet.topic("flights", [1, 2])
    assert assigned(fleet, 1, directory(99), topic_id, 0) == [ErrorCode.NONE]
    assert (fleet.partition("flights").leader, fleet.partition("flights").isr) == (2, (2,))


@pytest.mark.parametrize("is_there", [True, False])
def test_a_broker_leads_nothing_in_the_directories_that_it_lost(is_there: bool) -> None:
    fleet = Fleet(2, directories=2)
    topic_id = fleet.topic("flights", [1, 2], [2, 1], [1, 2])
    first, second = fleet.image.brokers[1].log_dirs
    assigned(fleet, 1, first, topic_id, 0, 1)
    assigned(fleet, 1, second, topic_id, 2)
    online = [first, second] if is_there else [second]
    fleet.append(directories_left(fleet.image, 1, online))
    assert fleet.image.brokers[1].log_dirs == tuple(online)
    assert fleet.image.brokers[2].log_dirs == (directory(20), directory(21))
    leaders = [fleet.partition("flights", index).leader for index in range(3)]
    assert leaders == ([1, 2, 1] if is_there else [-1, 2, 1])
    # Nothing is written where nothing changes.
    assert directories_left(fleet.image, 1, online) == []


def test_a_level_without_directories_has_none_to_lose() -> None:
    fleet = Fleet(2, features={METADATA_VERSION: DIRECTORIES_FROM - 1})
    fleet.topic("flights", [1, 2])
    assert directories_left(fleet.image, 1, [directory(99)]) == []
