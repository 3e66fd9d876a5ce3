"""The metadata log on a disk: what it writes, what it reads again, and what survives a crash."""

import errno
import json
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest

from ottla.broker.metadata.format import format_directories
from ottla.broker.metadata.loader import LogRead, image_of, replay
from ottla.broker.metadata.metadata_log import MetadataLog
from ottla.host.disk import HostDisk
from ottla.kernel.error import ErrorCode, KafkaError, OttlaError
from ottla.kernel.ids import NO_UUID
from ottla.log.log import Log
from ottla.metadata.image import Image
from ottla.raft.checkpoint import Checkpoint, Membership, SnapshotId, VoterEndpoint
from ottla.raft.role import Voter
from ottla.raft.voters import VoterHistory
from ottla.sim.disk import Crashed, SimDisk
from ottla.wire.api.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.wire.batch import read
from ottla.wire.record import control
from ottla.wire.record.metadata import FeatureLevelRecord, NoOpRecord, pack, parse
from tests.controller.place import Place, allocate, ask, create
from tests.controller.scene import without_place

GOLDEN = Path(__file__).parent.parent / "golden" / "log" / "__cluster_metadata-0"
PARTITION = "/data/__cluster_metadata-0"


@pytest.fixture
def place() -> Place:
    one = Place(SimDisk(Random(1)))
    one.format()
    return one


def shape(data: bytes) -> list[tuple[bool, list[str]]]:
    """Batches as (is control, names of the records), without NoOps."""
    found = []
    for batch in read(data):
        control_batch = batch.header.is_control
        names = [
            control.parse(each.key or b"", each.value or b"")[0].name
            if control_batch
            else type(parse(each.value or b"")[0]).__name__
            for each in batch.records()
        ]
        if names != ["NoOpRecord"]:
            found.append((control_batch, names))
    return found


def whole(place: Place, name: str) -> bytes:
    file = place.disk.open(f"{PARTITION}/{name}")
    data: bytes = file.read(file.size(), 0)
    return data


def test_a_first_boot_writes_what_apaches_first_boot_writes(place: Place) -> None:
    with place.node():
        ours = shape(whole(place, "00000000000000000000.log"))
    theirs = shape((GOLDEN / "00000000000000000000.log").read_bytes())
    assert ours[:4] == theirs[:4]
    # Apache tells of cordoned directories in a record of its own; then both let the broker serve.
    assert ours[4] == theirs[4] == theirs[5] == (False, ["BrokerRegistrationChangeRecord"])
    assert json.loads(whole(place, "quorum-state")) == json.loads((GOLDEN / "quorum-state").read_text())
    assert whole(place, "partition.metadata") == (GOLDEN / "partition.metadata").read_bytes().rstrip(b"\n") + b"\n"


def test_a_first_boot_has_batches_of_the_sizes_of_apaches(place: Place) -> None:
    with place.node():
        ours = [batch.header.size for batch in read(whole(place, "00000000000000000000.log"))][:4]
    theirs = [batch.header.size for batch in read((GOLDEN / "00000000000000000000.log").read_bytes())][:4]
    assert ours == theirs


def test_what_was_decided_is_there_after_a_clean_stop(place: Place) -> None:
    with place.node() as log:
        create(log, "a", "b", partitions=3)
        before = log.image
    with place.node() as log:
        assert log.image.topics == before.topics
        assert log.image.brokers[1].is_active
        assert log.leader_epoch == 2


@pytest.mark.parametrize("seed", range(20))
def test_what_was_answered_survives_a_power_failure(seed: int) -> None:
    place = Place(SimDisk(Random(seed)), seed=seed)
    place.format()
    with place.node(crashes=True) as log:
        create(log, "a", partitions=2)
        assert allocate(log) == range(1000)
        before = log.image
        place.disk.crash()
    with place.node() as log:
        assert log.image.topics["a"].topic_id == before.topics["a"].topic_id
        assert allocate(log) == range(1000, 2000)
        assert [partition.leader_epoch for partition in log.image.topics["a"].partitions] == [1, 1]


@pytest.mark.parametrize("seed", range(40))
def test_a_crash_at_any_effect_leaves_a_log_that_opens(seed: int) -> None:
    """Whatever was answered is there, and nothing is there by half."""
    rng = Random(seed)
    disk = SimDisk(rng)
    place = Place(disk, seed=seed, metadata_log_max_record_bytes_between_snapshots="600")
    place.format()
    disk.crash_at = disk.effects + rng.randrange(120)
    answered = []
    try:
        with place.node() as log:
            for number in range(6):
                create(log, f"t{number}", partitions=2)
                answered.append(f"t{number}")
    except Crashed:
        pass
    disk.crash_at = None
    disk.crash()
    with place.node() as log:
        assert set(answered) <= set(log.image.topics)
        assert all(len(topic.partitions) == 2 for topic in log.image.topics.values())
        create(log, "after")


def test_every_start_leads_a_new_epoch_and_says_so(place: Place) -> None:
    for epoch in (1, 2, 3):
        with place.node() as log:
            assert log.leader_epoch == epoch
    epochs = [
        batch.header.partition_leader_epoch
        for batch in read(whole(place, "00000000000000000000.log"))
        if batch.header.is_control
    ]
    assert epochs == [1, 2, 3]
    assert whole(place, "leader-epoch-checkpoint").startswith(b"0\n3\n1 0\n")


def test_subscribers_see_each_commit_once_in_order(place: Place) -> None:
    with place.node() as log:
        seen: list[tuple[Image, Image]] = []
        log.subscribe(lambda old, new: seen.append((old, new)))
        create(log, "a")
        create(log, "b")
        create(log, "a")
        assert [(list(old.topics), list(new.topics)) for old, new in seen] == [([], ["a"]), (["a"], ["a", "b"])]
        assert seen[1][1] is log.image


def test_a_changed_address_of_the_controller_goes_into_the_log(place: Place) -> None:
    with place.node() as log:
        assert log.membership.voters[0].endpoints[0].port == 9093
    moved = Place(place.disk, listeners="PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9999")
    with moved.node() as log:
        assert log.membership.voters[0].endpoints[0].port == 9999
    with moved.node() as log:
        assert log.membership.voters[0].endpoints[0].port == 9999


# ---- snapshots


def snapshots(place: Place) -> list[str]:
    return [name for name in place.disk.list(PARTITION) if name.endswith(".checkpoint")]


def test_a_snapshot_and_the_tail_are_the_whole_log(place: Place) -> None:
    small = Place(place.disk, metadata_log_max_record_bytes_between_snapshots="3000")
    with small.node() as log:
        for number in range(30):
            create(log, f"t{number}", partitions=2)
        before = log.image
    assert len(snapshots(place)) > 2
    with place.node() as log:
        assert log.image.topics == before.topics
        assert log.image.configs == before.configs
    newest = snapshots(place)[-1]
    assert int(newest[:20]) > 15


def test_the_image_of_a_snapshot_ends_right_before_it() -> None:
    found = Checkpoint(1, Membership(0), [pack(FeatureLevelRecord(name="metadata.version", feature_level=20))])
    image = image_of(found, SnapshotId(9, 2))
    assert (image.offset, image.epoch, image.metadata_version) == (8, 2, 20)


class _Seen:
    """What is replayed, and the images that are wanted of it."""

    def __init__(self) -> None:
        self.replayed: list[tuple[str, int, int, int]] = []

    def replay(self, record: object, offset: int, epoch: int, timestamp: int) -> None:
        self.replayed.append((type(record).__name__, offset, epoch, timestamp))

    def publish(self, offset: int, epoch: int, timestamp: int) -> tuple[int, int, int]:
        return offset, epoch, timestamp


@pytest.mark.parametrize("batch_by_batch", [True, False])
@pytest.mark.parametrize("start", ["at the first batch", "at a batch", "in a batch"])
def test_every_record_from_an_offset_on_is_replayed_once_with_its_place(
    place: Place, start: str, batch_by_batch: bool
) -> None:
    with place.node():
        pass
    with place.node() as metadata:
        place.clock.advance(1000)
        create(metadata, "flights", partitions=3)
        log = metadata.raft.log
        batches = list(read(log.read(0, 1 << 20, end_offset=log.end_offset).bytes()))
        assert len({each.header.partition_leader_epoch for each in batches}) > 1
        topic = next(each.header for each in batches if each.header.count == 4)
        offset = {"at the first batch": 0, "at a batch": topic.base_offset, "in a batch": topic.base_offset + 2}[start]
        fold, seen = _Seen(), LogRead(VoterHistory(()))
        steps = replay(cast(Any, fold), log, offset, log.end_offset, seen, batch_by_batch=batch_by_batch)
    read_too = [each for each in batches if each.header.last_offset >= offset]
    assert fold.replayed == [
        (type(parse(record.value or b"")[0]).__name__, record.offset, epoch, record.timestamp)
        for each in read_too
        if not each.header.is_control
        for record, epoch in ((one, each.header.partition_leader_epoch) for one in each.records())
        if record.offset >= offset
    ]
    ends = [
        (header.last_offset + 1, (header.last_offset, header.partition_leader_epoch, header.max_timestamp))
        for header in (each.header for each in read_too)
    ]
    assert cast(Any, steps) == (ends if batch_by_batch else ends[-1:])
    assert seen.size == sum(each.header.size for each in read_too)
    assert [each.voter.node_id for each in seen.voters.last.voters] == ([1] if offset == 0 else [])


def test_old_snapshots_and_segments_go(place: Place) -> None:
    small = Place(
        place.disk,
        metadata_log_max_record_bytes_between_snapshots="1000",
        metadata_max_retention_bytes="1",
        metadata_log_segment_bytes="8388608",
    )
    with small.node() as log:
        for number in range(10):
            create(log, f"t{number}")
            log.log.roll(small.clock.now_ms())
        before = log.image
        assert log.log.start_offset > 20
    assert len(snapshots(place)) == 1
    with small.node() as log:
        assert log.image.topics == before.topics


def test_snapshots_younger_than_the_retention_stay(place: Place) -> None:
    small = Place(place.disk, metadata_log_max_record_bytes_between_snapshots="300", metadata_max_retention_ms="5000")
    with small.node() as log:
        for number in range(10):
            create(log, f"t{number}")
            small.clock.advance(1000)
    count = len(snapshots(place))
    assert count >= 3
    with small.node() as log:
        small.clock.advance(60_000)
        for number in range(10, 14):
            create(log, f"t{number}")
        assert log.log.start_offset > 0
    assert len(snapshots(place)) < count


def test_an_hour_makes_a_snapshot_due(place: Place) -> None:
    with place.node() as log:
        create(log, "a")
        place.clock.advance(3_600_000)
        assert len(snapshots(place)) == 1
        create(log, "b")
        assert len(snapshots(place)) == 2
        before = log.image
    with place.node() as log:
        assert without_place(log.image).topics == before.topics


def test_without_an_interval_no_time_makes_a_snapshot_due(place: Place) -> None:
    small = Place(place.disk, metadata_log_max_snapshot_interval_ms="0")
    with small.node() as log:
        create(log, "a")
        small.clock.advance(100 * 3_600_000)
        create(log, "b")
    assert len(snapshots(place)) == 1


def test_what_an_interrupted_writer_left_is_removed(place: Place) -> None:
    place.disk.open(f"{PARTITION}/00000000000000000009-0000000001.checkpoint.part", create=True)
    with place.node():
        assert snapshots(place) == ["00000000000000000000-0000000000.checkpoint"]
    assert not [name for name in place.disk.list(PARTITION) if name.endswith(".part")]


def test_a_damaged_snapshot_is_told_in_words(place: Place) -> None:
    place.disk.open(f"{PARTITION}/00000000000000000009-0000000001.checkpoint", create=True)
    with pytest.raises(OttlaError, match=r"the snapshot .*00009-0000000001\.checkpoint is damaged"):
        place.start()


# ---- what does not go


def test_noops_are_written_when_they_are_asked_for(place: Place) -> None:
    with place.node() as log:
        assert log.deadline_ms() is None
    asked = Place(place.disk, metadata_max_idle_interval_ms="500")
    with asked.node() as log:
        deadline_ms = log.deadline_ms()
        assert deadline_ms == asked.clock.monotonic_ms() + 500
        end = log.log.end_offset
        log.time_passed()
        assert log.log.end_offset == end
        asked.clock.advance(500)
        log.time_passed()
        assert log.log.end_offset == end + 1
        assert log.image.offset == end
        data = log.log.read(end, 1000, end_offset=end + 1).bytes()
        [batch] = read(data)
        assert parse(batch.records()[0].value or b"")[0] == NoOpRecord()


def test_after_a_failed_sync_nothing_more_is_decided(place: Place) -> None:
    store, log = place.start()
    place.disk.syncs_to_fail = 1
    with pytest.raises(OSError, match=r"."):
        create(log, "a")
    assert "a" not in log.image.topics
    with pytest.raises(KafkaError, match="KAFKA_STORAGE_ERROR"):
        create(log, "b")
    with pytest.raises(KafkaError, match="KAFKA_STORAGE_ERROR"):
        log.append([NoOpRecord()])
    log.close()
    store.abandon()


def test_a_cluster_of_a_later_release_is_refused_in_words(place: Place) -> None:
    with place.node() as log:
        log.append([FeatureLevelRecord(name="metadata.version", feature_level=33)])
    with pytest.raises(OttlaError, match=r"the cluster is at metadata\.version 33, and this node supports 7 to 30"):
        place.start()


def test_a_directory_of_another_voter_is_refused_in_words(place: Place) -> None:
    with place.node():
        pass
    file = place.disk.open("/data/meta.properties")
    text = file.read(file.size(), 0).decode()
    other = text.replace(text.split("directory.id=")[1][:22], "AAAAAAAAAAAAAAAAAAAAtQ")
    file.write(other.encode(), 0)
    with pytest.raises(OttlaError, match="node 1 is not a voter: "):
        place.start()


def test_what_apache_wrote_is_taken_over(tmp_path: Path) -> None:
    """Apache's own directory of one boot, with topics."""
    directory = tmp_path / "__cluster_metadata-0"
    directory.mkdir()
    for path in GOLDEN.iterdir():
        (directory / path.name).write_bytes(path.read_bytes())
    (tmp_path / "meta.properties").write_bytes((GOLDEN.parent / "meta.properties").read_bytes())
    place = Place(HostDisk(), str(tmp_path))
    with place.node() as log:
        assert {name: len(topic.partitions) for name, topic in log.image.topics.items()} == {
            "t1": 1,
            "t6": 6,
            "__consumer_offsets": 50,
        }
        assert log.leader_epoch == 2
        # Apache was killed: every partition begins a new leader epoch.
        assert log.image.topics["t1"].partitions[0].leader_epoch == 1
        assert allocate(log) == range(1000, 2000)
        assert create(log, "ours") == [0]
    with place.node() as log:
        assert "ours" in log.image.topics


def static_quorum(disk: SimDisk) -> Place:
    """A formatted node whose settings name its one voter: kraft.version 0."""
    place = Place(disk, seed=3, controller_quorum_voters="1@127.0.0.1:9093", controller_quorum_bootstrap_servers="")
    format_directories(disk, place.settings, "a-cluster", clock=place.clock, rng=place.rng)
    return place


def raise_kraft_version(log: MetadataLog, level: int = 1, **more: bool) -> int:
    wanted = FeatureUpdateKey(feature="kraft.version", max_version_level=level, upgrade_type=1)
    answer = ask(log, UpdateFeaturesRequest(feature_updates=[wanted], **more), 2)
    return int(answer.error_code)


@pytest.mark.parametrize("crashes", [False, True])
def test_kraft_version_goes_up_while_the_quorum_runs(crashes: bool) -> None:
    disk = SimDisk(Random(3))
    place = static_quorum(disk)
    with place.node(crashes=crashes) as log:
        [voter] = log.voters
        assert (voter.voter, voter.endpoints) == (Voter(1), (VoterEndpoint("CONTROLLER", "127.0.0.1", 9093),))
        assert raise_kraft_version(log, validate_only=True) == 0
        assert log.membership.kraft_version == 0
        assert raise_kraft_version(log) == 0
        assert raise_kraft_version(log) == 0
        assert raise_kraft_version(log, 0) == ErrorCode.INVALID_UPDATE_VERSION
        assert log.membership.kraft_version == 1
        [voter] = log.voters
        assert voter.voter.directory_id != NO_UUID
        create(log, "a")
    with place.node() as log:
        assert (log.membership.kraft_version, log.voters) == (1, (voter,))
        assert "a" in log.image.topics
    assert json.loads(whole(place, "quorum-state"))["data_version"] == 1


def test_a_full_disk_takes_no_change_of_the_voters_and_ends_no_controller() -> None:
    disk = SimDisk(Random(3))
    with static_quorum(disk).node() as log:
        disk.fill(0)
        with pytest.raises(KafkaError, match="the simulated disk is full") as refused:
            raise_kraft_version(log)
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert log.membership.kraft_version == 0
        disk.fill(None)
        assert raise_kraft_version(log) == 0
        assert log.membership.kraft_version == 1
        create(log, "a")


def test_with_kraft_version_0_the_other_features_go_down() -> None:
    place = static_quorum(SimDisk(Random(3)))
    with place.node() as log:
        down = [
            FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=2)
            for name, level in {"transaction.version": 1, "kraft.version": 0}.items()
        ]
        assert ask(log, UpdateFeaturesRequest(feature_updates=down), 2).error_code == 0
        assert log.image.features["transaction.version"] == 1
        assert log.membership.kraft_version == 0


def test_before_kip_853_the_settings_name_the_voters() -> None:
    disk = SimDisk(Random(3))
    texts = {"controller_quorum_voters": "1@127.0.0.1:9093", "controller_quorum_bootstrap_servers": ""}
    place = Place(disk, "/data", seed=3, **texts)
    format_directories(disk, place.settings, "a-cluster", clock=place.clock, rng=place.rng)
    with place.node() as log:
        create(log, "a")
        assert log.membership.kraft_version == 0
    state = json.loads(whole(place, "quorum-state"))
    assert (state["data_version"], state["currentVoters"]) == (0, [{"voterId": 1}])


def test_a_log_that_has_failed_waits_for_no_deadline() -> None:
    place = Place(SimDisk(Random(1)), metadata_max_idle_interval_ms="500")
    place.format()
    with place.node(crashes=True) as log:
        assert log.deadline_ms() is not None
        log.raft.sync.fail(OSError(errno.ENOSPC, "the disk is full"))
        assert log.deadline_ms() is None


@pytest.mark.parametrize("room", range(0, 300, 12))
def test_a_stop_with_a_full_disk_says_so_in_one_line_and_loses_nothing(place: Place, room: int, caplog: Any) -> None:
    store, log = place.start()
    create(log, "a", partitions=3)
    topic_id = log.image.topics["a"].topic_id
    # The broker's last record may fit, the index files may not.
    place.disk.fill(place.disk._used() + room)
    log.close()
    store.abandon()
    said = [record.getMessage() for record in caplog.records]
    assert len(said) <= 1 and all("the simulated disk is full" in line for line in said)
    assert said or room
    place.disk.fill(None)
    with place.node() as again:
        assert again.image.topics["a"].topic_id == topic_id


@pytest.mark.parametrize("refused", [1, 2])
def test_a_controller_whose_first_records_the_disk_refuses_ends_its_node(
    place: Place, refused: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Append 0 is the record of the new leader, then come the features and the controller's registration."""
    append, appends = Log.append, count()

    def full(log: Log, data: Any, **more: Any) -> Any:
        if next(appends) >= refused:
            raise OSError(errno.ENOSPC, "the disk is full")
        return append(log, data, **more)

    monkeypatch.setattr(Log, "append", full)
    with pytest.raises(OSError, match="the disk is full"):
        place.start()
