"""A client's view of leaders never goes back: what is older than what it knows changes nothing (KIP-320, KIP-951)."""

from ottla.client.connection.metadata import Metadata
from ottla.kernel.ids import Uuid
from ottla.wire.api.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)


def _answer(leader: int, epoch: int, *, topic_id: bytes = b"i" * 16) -> MetadataResponse:
    brokers = [MetadataResponseBroker(node_id=number, host="h", port=number) for number in (1, 2)]
    partition = MetadataResponsePartition(partition_index=0, leader_id=leader, leader_epoch=epoch, replica_nodes=[1, 2])
    return MetadataResponse(
        brokers=brokers, topics=[MetadataResponseTopic(name="t", topic_id=Uuid(topic_id), partitions=[partition])]
    )


def _known(metadata: Metadata) -> tuple[int, int]:
    state = metadata.leader("t", 0)
    assert state is not None
    return state.leader, state.leader_epoch


def test_an_answer_with_an_older_epoch_moves_no_leader() -> None:
    metadata = Metadata(max_age_ms=1000, max_idle_ms=1000, now_ms=0)
    assert len(metadata.apply(_answer(1, 5), 0)) == 1
    assert metadata.apply(_answer(2, 4), 1) == []
    assert _known(metadata) == (1, 5)
    assert len(metadata.apply(_answer(2, 6), 2)) == 1
    assert _known(metadata) == (2, 6)
    # A topic made again begins with its own epochs.
    metadata.apply(_answer(1, 0, topic_id=b"j" * 16), 3)
    assert _known(metadata) == (1, 0)


def test_only_a_hint_with_a_newer_epoch_is_followed() -> None:
    metadata = Metadata(max_age_ms=1000, max_idle_ms=1000, now_ms=0)
    metadata.apply(_answer(1, 5), 0)
    for leader, epoch, follows in ((2, 4, False), (2, 5, False), (7, 6, False), (2, 6, True)):
        assert metadata.leader_moved("t", 0, leader, epoch) == follows
        assert _known(metadata) == ((2, 6) if follows else (1, 5))
    assert not metadata.leader_moved("other", 0, 2, 9)
    assert not metadata.leader_moved("t", 1, 2, 9)
