"""Partitions that this node may not lead: a log that is elsewhere is never made again empty, and nothing of it goes."""

from __future__ import annotations

import errno
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ottla.broker.observe.cluster_changes import ClusterChanges
from ottla.broker.observe.metrics import lines
from ottla.broker.observe.raft_latency import RaftLatency
from ottla.broker.observe.requests import Requests
from ottla.broker.partitions.leadership import Leadership
from ottla.controller.placement import UNASSIGNED_DIRECTORY
from ottla.kernel.error import ErrorCode
from ottla.kernel.ids import TopicPartition, Uuid
from ottla.log.log import Log, LogSettings, Origin
from ottla.metadata.image import Image, PartitionImage
from ottla.wire.api import describe_topic_partitions as paged
from ottla.wire.api import elect_leaders, fetch
from ottla.wire.api.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.batch import build
from ottla.wire.record.metadata import PartitionChangeRecord
from tests.broker.disk_scene import TOPIC, Scene

PREFERRED, UNCLEAN = 0, 1


def change(scene: Scene, partition: int, **fields: Any) -> None:
    """The controller says something of a partition."""
    topic_id = scene.node.image.topics[TOPIC].topic_id
    scene.node.quorum.append([PartitionChangeRecord(topic_id=topic_id, partition_id=partition, **fields)])
    scene.machine.settle()


def elect(scene: Scene, partition: int, kind: int) -> str:
    wanted = [elect_leaders.TopicPartitions(topic=TOPIC, partitions=[partition])]
    request = elect_leaders.ElectLeadersRequest(election_type=kind, topic_partitions=wanted, timeout_ms=1000)
    response = scene.ask(request, 2)
    scene.machine.settle()
    return ErrorCode(response.replica_election_results[0].partition_result[0].error_code).name


def offline(**settings: Any) -> tuple[Scene, int]:
    """Two partitions are in /b, which has failed; the first has one acknowledged record."""
    scene = Scene(**settings)
    scene.create()
    lost, _ = scene.in_b()
    assert scene.write(lost, b"one") == "NONE"
    scene.machine.disk.break_directory("/b")
    assert scene.write(lost, b"two") == "KAFKA_STORAGE_ERROR"
    scene.machine.settle()
    return scene, lost


def offline_shown(scene: Scene) -> float:
    """What the node's metrics say."""
    pieces = lines(scene.node, Requests(lambda: 0.0, lambda _: None), ClusterChanges(), RaftLatency())
    text = "\n".join(line for piece in pieces for line in piece) + "\n"
    name = "kafka_server_replicamanager_offlinereplicacount"
    [found] = [each for each in text_string_to_metric_families(text) if each.name == name]
    return found.samples[0].value


def mended(scene: Scene) -> None:
    scene.machine.stop()
    scene.machine.disk.mend_directory("/b")
    scene.machine.start()
    scene.machine.settle()


@pytest.mark.parametrize(
    ("kind", "code"), [(PREFERRED, "PREFERRED_LEADER_NOT_AVAILABLE"), (UNCLEAN, "ELIGIBLE_LEADERS_NOT_AVAILABLE")]
)
def test_no_election_leads_a_partition_whose_directory_has_failed(kind: int, code: str) -> None:
    scene, lost = offline()
    assert offline_shown(scene) == 2
    assert elect(scene, lost, kind) == code
    assert scene.leader(lost) == (-1, [1])
    assert scene.write(lost, b"three") == "KAFKA_STORAGE_ERROR"
    mended(scene)
    assert offline_shown(scene) == 0
    assert scene.write(lost, b"four") == "NONE"
    assert scene.read(lost) == [b"one", b"four"]


def test_a_replica_is_shown_offline_after_a_start_without_its_directory_until_its_topic_is_gone() -> None:
    scene, _ = offline()
    scene.machine.stop()
    scene.machine.start()
    scene.machine.settle()
    assert offline_shown(scene) == 2
    scene.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=TOPIC)], timeout_ms=1000), 6)
    scene.machine.settle()
    assert offline_shown(scene) == 0


@pytest.mark.parametrize("place", [None, UNASSIGNED_DIRECTORY])
def test_a_leader_that_the_controller_names_all_the_same_makes_no_empty_log(place: Any) -> None:
    scene, lost = offline()
    change(scene, lost, leader=1, directories=None if place is None else [place])
    assert not [path for path in ("/a",) if f"{TOPIC}-{lost}" in scene.machine.disk.list(path)]
    assert scene.write(lost, b"three") == "KAFKA_STORAGE_ERROR"
    scene.node.leadership.retry_creation()
    scene.machine.settle()
    assert scene.write(lost, b"three") == "KAFKA_STORAGE_ERROR"
    mended(scene)
    assert scene.write(lost, b"four") == "NONE"
    assert scene.read(lost) == [b"one", b"four"]


def test_a_directory_that_fails_before_the_controller_knew_of_its_logs_is_told_with_them() -> None:
    scene = Scene()
    scene.create()
    lost, kept = scene.in_b()
    change(scene, lost, directories=[UNASSIGNED_DIRECTORY])
    scene.node.log_dirs._unassigned.clear()
    there = scene.node.log_dirs._id_of("/b")
    change(scene, lost, directories=[UNASSIGNED_DIRECTORY])
    scene.machine.disk.break_directory("/b")
    assert scene.write(lost, b"x") == "KAFKA_STORAGE_ERROR"
    scene.machine.settle()
    assert scene.node.image.topics[TOPIC].partitions[lost].directories == (there,)
    assert scene.leader(lost) == (-1, [1])
    assert scene.leader(kept) == (1, [])


@pytest.mark.parametrize("place", ["known", "unassigned"])
def test_a_start_with_a_failed_directory_makes_no_empty_log_for_what_may_be_in_it(place: str) -> None:
    scene = Scene()
    scene.create()
    lost, kept = scene.in_b()
    assert scene.write(lost, b"one") == "NONE"
    if place == "unassigned":
        # The power goes between the making of the log and the controller's word on it.
        change(scene, lost, directories=[UNASSIGNED_DIRECTORY])
        scene.node.log_dirs._unassigned.clear()
        topic_id = scene.node.image.topics[TOPIC].topic_id
        scene.node.quorum.append(
            [PartitionChangeRecord(topic_id=topic_id, partition_id=lost, directories=[UNASSIGNED_DIRECTORY])]
        )
    scene.machine.power_off()
    scene.machine.disk.break_directory("/b")
    scene.machine.start()
    scene.machine.settle()
    assert scene.write(lost, b"two") == "KAFKA_STORAGE_ERROR"
    assert scene.write(kept, b"two") == "NONE"
    mended(scene)
    assert scene.write(lost, b"three") == "NONE"
    assert scene.read(lost) == [b"one", b"three"]


def replace_b(scene: Scene) -> None:
    """A new disk is in the place of /b; the node is stopped."""
    disk = scene.machine.disk
    properties = bytes(disk.open("/b/meta.properties").read(1 << 16, 0))
    for name in disk.list("/b"):
        disk.remove_tree(f"/b/{name}") if disk.is_directory(f"/b/{name}") else disk.remove(f"/b/{name}")
    old = next(line for line in properties.splitlines() if line.startswith(b"directory.id="))
    file = disk.open("/b/meta.properties", create=True)
    file.write(properties.replace(old, b"directory.id=AAAAAAAAAAAAAAAAAAAAfw"), 0)
    file.sync()


def test_a_new_disk_in_the_place_of_a_failed_one_leads_nothing_of_it() -> None:
    """As Apache Kafka: the records are in the directory that is gone, and only it may bring them back."""
    scene = Scene()
    scene.create()
    lost, kept = scene.in_b()
    assert scene.write(lost, b"one") == "NONE"
    scene.machine.stop()
    replace_b(scene)
    scene.machine.start()
    scene.machine.settle()
    assert scene.leader(lost) == (-1, [1])
    for kind in (PREFERRED, UNCLEAN):
        assert elect(scene, lost, kind) != "NONE"
    assert scene.write(lost, b"two") == "KAFKA_STORAGE_ERROR"
    assert scene.write(kept, b"two") == "NONE"


def test_the_logs_of_a_replica_that_is_not_led_here_stay() -> None:
    """As a cluster leaves it when the other broker is unregistered."""
    scene = Scene()
    scene.create()
    assert scene.write(1, b"one") == "NONE"
    change(scene, 1, replicas=[2, 1], isr=[2], leader=-1, directories=[])
    assert scene.write(1, b"two") == "NOT_LEADER_OR_FOLLOWER"
    for end in (scene.machine.stop, scene.machine.power_off):
        end()
        scene.machine.start()
        scene.machine.settle()
        names = scene.machine.disk.list("/a") + scene.machine.disk.list("/b")
        assert not [name for name in names if name.endswith("-stray")]
    assert elect(scene, 1, UNCLEAN) == "NONE"
    assert scene.write(1, b"two") == "NONE"
    assert scene.read(1) == [b"one", b"two"]


def test_the_log_of_a_replica_that_is_not_led_here_is_described() -> None:
    scene = Scene()
    scene.create()
    home = scene.lies_in(1)
    change(scene, 1, replicas=[2, 1], isr=[2], leader=-1, directories=[])
    topic = next(each for each in scene.described()[home].topics if each.name == TOPIC)
    assert 1 in [each.partition_index for each in topic.partitions]


def test_the_log_of_a_replica_that_is_not_led_here_goes_with_its_topic() -> None:
    scene = Scene()
    scene.create()
    change(scene, 1, replicas=[2, 1], isr=[2], leader=-1, directories=[])
    scene.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=TOPIC)], timeout_ms=1000), 6)
    scene.machine.settle()
    assert TopicPartition(TOPIC, 1) not in scene.node.store.logs()


def test_share_partitions_end_with_their_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    scene.create()
    ended: list[Any] = []
    monkeypatch.setattr(scene.node.shares, "resign", ended.append)
    scene.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=TOPIC)], timeout_ms=1000), 6)
    scene.machine.settle()
    assert sorted(partition.tp for partition in ended) == [TopicPartition(TOPIC, index) for index in range(4)]


def test_logs_that_the_image_does_not_give_to_this_node_are_set_aside_at_the_start() -> None:
    scene = Scene()
    scene.create()
    scene.machine.stop()
    place = f"/a/{TOPIC}-77"
    Log.open(scene.machine.disk, place, LogSettings(), now_ms=1, clean=True).close()
    scene.machine.start()
    assert TopicPartition(TOPIC, 77) not in scene.node.store.logs()
    assert [name for name in scene.machine.disk.list("/a") if name.endswith("-stray")]


def test_a_partition_is_given_up_when_the_image_has_another_leader() -> None:
    scene = Scene()
    scene.create()
    assert scene.write(1, b"one") == "NONE"
    woken: list[bool] = []
    scene.node.partitions[TOPIC, 1].waiting[lambda: woken.append(True)] = None
    change(scene, 1, leader=-1)
    assert (TOPIC, 1) not in scene.node.partitions
    assert woken == [True]
    assert scene.write(1, b"two") == "NOT_LEADER_OR_FOLLOWER"
    assert elect(scene, 1, PREFERRED) == "NONE"
    assert scene.write(1, b"two") == "NONE"
    assert scene.read(1) == [b"one", b"two"]


def test_a_partition_that_is_led_takes_each_new_leader_epoch() -> None:
    scene = Scene()
    scene.create()
    assert scene.write(1, b"one") == "NONE"
    before = scene.node.partitions[TOPIC, 1]
    change(scene, 1, leader=1)
    partition = scene.node.partitions[TOPIC, 1]
    assert partition is not before
    assert partition.leader_epoch == before.leader_epoch + 1
    assert scene.write(1, b"two") == "NONE"
    assert partition.log.epochs.latest == partition.leader_epoch
    assert scene.read(1) == [b"one", b"two"]


def test_a_replica_that_is_taken_from_this_node_has_no_log_here() -> None:
    scene = Scene()
    scene.create()
    change(scene, 1, replicas=[2], isr=[2], leader=-1, directories=[])
    assert TopicPartition(TOPIC, 1) not in scene.node.store.logs()
    assert scene.write(1, b"two") == "NOT_LEADER_OR_FOLLOWER"


def test_the_log_of_another_topic_of_this_name_stays_when_a_replica_is_taken_from_this_node() -> None:
    scene = Scene()
    scene.create()
    scene.node.partitions[TOPIC, 1].log.topic_id = Uuid(bytes(range(16)))
    change(scene, 1, replicas=[2], isr=[2], leader=-1, directories=[])
    assert TopicPartition(TOPIC, 1) in scene.node.store.logs()


def test_a_replica_that_was_taken_from_a_stopped_node_is_set_aside_and_not_deleted() -> None:
    scene = Scene()
    scene.create()
    change(scene, 1, replicas=[2], isr=[2], leader=-1, directories=[])
    topic_id = scene.node.image.topics[TOPIC].topic_id
    scene.machine.stop()
    place = f"/a/{TOPIC}-1"
    Log.open(scene.machine.disk, place, LogSettings(), now_ms=1, clean=True, topic_id=topic_id).close()
    scene.machine.start()
    scene.machine.settle()
    assert TopicPartition(TOPIC, 1) not in scene.node.store.logs()
    names = [name for name in scene.machine.disk.list("/a") if name.startswith(f"{TOPIC}-1.")]
    assert [name.endswith("-stray") for name in names] == [True]


def fork(scene: Scene, partition: int, path: str, epoch: int, values: list[bytes]) -> None:
    """Another log of the same partition in another directory; the node is stopped."""
    topic_id = scene.node.image.topics[TOPIC].topic_id
    scene.machine.stop()
    where = f"{path}/{TOPIC}-{partition}"
    log = Log.open(scene.machine.disk, where, LogSettings(), now_ms=1, clean=True, topic_id=topic_id)
    for value in values:
        data = bytearray(build([(1, b"k", value, ())]))
        log.append(data, leader_epoch=epoch, now_ms=1, origin=Origin.COORDINATOR)
    log.close()


@pytest.mark.parametrize(
    ("epoch", "values", "winner"),
    [
        # A later epoch counts, however short it is.
        (5, [b"new"], "other"),
        # Of one epoch the longer has all that the other has.
        (0, [b"one", b"two", b"three"], "other"),
        (0, [b"one"], "own"),
        # Of equals, the one that the metadata names.
        (0, [b"one", b"two"], "own"),
    ],
)
def test_of_two_logs_of_a_partition_the_one_that_is_left_out_is_set_aside_whole(
    epoch: int, values: list[bytes], winner: str
) -> None:
    scene = Scene()
    scene.create()
    for index in (scene.in_b()[0], scene.in_b()[1]):
        scene.write(index, b"one")
        scene.write(index, b"two")
    for index in scene.in_b():
        here, there = scene.lies_in(index), scene.other(index)
        fork(scene, index, there, epoch, values)
        scene.machine.start()
        scene.machine.settle()
        kept, left = (there, here) if winner == "other" else (here, there)
        assert scene.lies_in(index) == kept
        assert scene.read(index) == (values if winner == "other" else [b"one", b"two"])
        names = [name for name in scene.machine.disk.list(left) if name.startswith(f"{TOPIC}-{index}")]
        assert [name.endswith("-stray") for name in names] == [True]
        scene.node.store.remove_deleted(scene.machine.clock.now_ms() + (1 << 40))
        assert scene.machine.disk.list(f"{left}/{names[0]}")


def test_eligible_leaders_are_told_as_the_image_has_them() -> None:
    scene = Scene()
    scene.create()
    own = scene.node.image.topics[TOPIC].partitions[1].directories[0]
    change(
        scene, 1, replicas=[1, 2, 3], isr=[1], eligible_leader_replicas=[2], last_known_elr=[3], directories=[own] * 3
    )
    request = paged.DescribeTopicPartitionsRequest(topics=[paged.TopicRequest(name=TOPIC)])
    answers = scene.ask(request, 0).topics[0].partitions
    assert [(each.eligible_leader_replicas, each.last_known_elr) for each in answers] == [
        ([], []),
        ([2], [3]),
        ([], []),
        ([], []),
    ]


def test_a_leaders_own_epoch_ends_at_the_end_of_its_log() -> None:
    """Not at the high watermark: a follower that has more than that would cut its log for ever."""
    scene = Scene()
    scene.create()
    assert scene.write(1, b"one") == "NONE"
    partition = scene.node.partitions[TOPIC, 1]
    partition.append(bytearray(build([(1, b"k", b"two", ())])), 1)
    assert (partition.high_watermark, partition.log.end_offset) == (1, 2)
    assert partition.end_offset_for_epoch(partition.leader_epoch) == (partition.leader_epoch, 2)
    part = fetch.FetchPartition(
        partition=1,
        current_leader_epoch=partition.leader_epoch,
        fetch_offset=2,
        last_fetched_epoch=partition.leader_epoch,
        partition_max_bytes=1 << 20,
    )
    topics = [fetch.FetchTopic(topic=TOPIC, partitions=[part])]
    request = fetch.FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, replica_id=-1, topics=topics)
    answer = scene.ask(request, 12).responses[0].partitions[0]
    assert (answer.error_code, answer.diverging_epoch.end_offset) == (0, -1)


def test_a_replica_that_is_moved_off_its_failed_disk_and_back_gets_a_new_log() -> None:
    scene, lost = offline()
    change(scene, lost, replicas=[2], isr=[2], leader=2, directories=[UNASSIGNED_DIRECTORY])
    change(scene, lost, replicas=[2, 1], isr=[2], leader=2, directories=[UNASSIGNED_DIRECTORY] * 2)
    assert TopicPartition(TOPIC, lost) in scene.node.hosted
    assert offline_shown(scene) == 1
    assert scene.lies_in(lost) == "/a"


def keep_in_b(scene: Scene, index: int, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on the log of a partition in /b cannot be renamed, and so not be removed."""
    disk, old_path = scene.machine.disk, f"/b/{TOPIC}-{index}"
    rename = disk.rename

    def failing(path: str, target: str) -> None:
        if path == old_path:
            raise OSError(code, "the old log cannot be renamed", path)
        rename(path, target)

    monkeypatch.setattr(disk, "rename", failing)


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_a_partition_that_has_just_moved_survives_the_failure_of_its_old_disk(
    code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene()
    scene.create()
    moved, _ = scene.in_b()
    assert scene.write(moved, b"one") == "NONE"
    keep_in_b(scene, moved, code, monkeypatch)
    assert scene.move(moved, "/a") == "NONE"
    scene.machine.settle()
    assert scene.lies_in(moved) == "/a"
    assert scene.write(moved, b"two") == "NONE"
    assert scene.read(moved) == [b"one", b"two"]
    monkeypatch.undo()
    mended(scene)
    assert scene.read(moved) == [b"one", b"two"]


def test_a_partition_moves_back_to_where_its_old_log_could_not_be_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    scene.create()
    moved, _ = scene.in_b()
    assert scene.write(moved, b"one") == "NONE"
    with monkeypatch.context() as patch:
        keep_in_b(scene, moved, errno.ENOSPC, patch)
        assert scene.move(moved, "/a") == "NONE"
        scene.machine.settle()
    assert scene.write(moved, b"two") == "NONE"
    assert scene.move(moved, "/b") == "NONE"
    scene.machine.settle()
    assert (scene.lies_in(moved), list(scene.node.failed_directories)) == ("/b", [])
    assert scene.write(moved, b"three") == "NONE"
    assert scene.read(moved) == [b"one", b"two", b"three"]
    scene.machine.kill()
    scene.machine.start()
    scene.machine.settle()
    assert (scene.lies_in(moved), scene.read(moved)) == ("/b", [b"one", b"two", b"three"])


def test_a_replica_that_is_elsewhere_by_now_is_not_offline_here() -> None:
    lost: Any = SimpleNamespace(offline={("t", 0)}, _runtime=SimpleNamespace(node_id=1, image=Image.empty()))
    for replicas, offline in (((1, 2), True), ((2, 3), False)):
        known = PartitionImage(2, 1, replicas, (2,))
        assert Leadership.is_offline(lost, "t", 0, known) is offline
