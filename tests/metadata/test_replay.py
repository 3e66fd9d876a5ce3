"""Replay: the same records give the same image, whoever reads them and from where."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ottla.controller.broker import register_broker, unfence
from ottla.kernel.ids import Uuid
from ottla.metadata.delta import Delta, MetadataReplayer
from ottla.metadata.feature import CORDONED_DIRECTORIES_FROM
from ottla.metadata.image import BROKER, TOPIC, Image
from ottla.metadata.record_version import record_version
from ottla.metadata.snapshot import snapshot_records
from ottla.wire.api import incremental_alter_configs as incremental
from ottla.wire.api.allocate_producer_ids import AllocateProducerIdsRequest
from ottla.wire.api.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.wire.api.delete_topics import DeleteTopicsRequest
from ottla.wire.batch import read
from ottla.wire.record import metadata as record
from ottla.wire.record.metadata import pack, parse
from tests.controller.scene import CLUSTER_ID, Cluster, registration, without_place

GOLDEN = Path(__file__).parent.parent / "golden" / "log" / "__cluster_metadata-0" / "00000000000000000000.log"


def replayed(records: list[Any], start: Image | None = None) -> Image:
    fold = MetadataReplayer(start or Image.empty())
    for offset, each in enumerate(records):
        fold.replay(each, offset, 1, 0)
    return fold.publish(len(records) - 1, 1, 0)


def golden_values() -> list[bytes]:
    batches = [batch for batch in read(GOLDEN.read_bytes()) if not batch.header.is_control]
    return [each.value or b"" for batch in batches for each in batch.records()]


def test_what_apache_wrote_is_replayed_to_what_it_had() -> None:
    image = replayed([parse(value)[0] for value in golden_values()])
    image.validate()
    assert {name: len(topic.partitions) for name, topic in image.topics.items()} == {
        "t1": 1,
        "t6": 6,
        "__consumer_offsets": 50,
    }
    assert image.metadata_version == 30
    assert image.next_producer_id == 1000
    assert image.config(TOPIC, "__consumer_offsets")["cleanup.policy"] == "compact"
    assert image.config(BROKER, "") == {"min.insync.replicas": "1"}
    assert image.brokers[1].is_active
    assert image.brokers[1].epoch == 13
    assert image.brokers[1].cordoned_log_dirs == ()


def test_records_are_written_in_the_versions_in_which_apache_writes_them() -> None:
    kinds = set()
    for value in golden_values():
        each, version = parse(value)
        kinds.add(type(each).__name__)
        assert record_version(each, 30) == version
        assert pack(each, version) == value
    assert {"RegisterBrokerRecord", "PartitionRecord", "BrokerRegistrationChangeRecord"} <= kinds


@pytest.mark.parametrize(
    ("level", "partition", "broker"), [(7, 0, 1), (8, 0, 2), (16, 0, 2), (17, 1, 3), (23, 2, 3), (29, 2, 3), (30, 2, 4)]
)
def test_an_older_metadata_version_gets_older_records(level: int, partition: int, broker: int) -> None:
    assert record_version(record.PartitionRecord(), level) == partition
    assert record_version(record.PartitionChangeRecord(), level) == partition
    assert record_version(record.RegisterBrokerRecord(), level) == broker


def test_every_record_type_is_replayed() -> None:
    from ottla.metadata.delta import _REPLAY

    transactions = {record.BeginTransactionRecord, record.EndTransactionRecord, record.AbortTransactionRecord}
    assert set(_REPLAY) | transactions == set(record.RECORDS.values())


def test_a_transaction_is_seen_as_a_whole() -> None:
    cluster = Cluster()
    topic = record.TopicRecord(name="a", topic_id=Uuid(b"a" * 16))
    partition = record.PartitionRecord(partition_id=0, topic_id=topic.topic_id, replicas=[1], isr=[1], leader=1)
    before = cluster.image
    cluster.append([record.BeginTransactionRecord(), topic])
    assert cluster.image == before
    cluster.append([partition])
    assert cluster.image == before
    cluster.append([record.EndTransactionRecord()])
    assert list(cluster.image.topics) == ["a"]


def test_an_aborted_transaction_never_was() -> None:
    cluster = Cluster()
    before = cluster.image
    topic = record.TopicRecord(name="a", topic_id=Uuid(b"a" * 16))
    cluster.append([record.BeginTransactionRecord(), topic, record.AbortTransactionRecord()])
    assert without_place(cluster.image) == without_place(before)


def test_what_no_record_touched_is_the_same_object() -> None:
    cluster = Cluster()
    cluster.create("a")
    cluster.create("b", num_partitions=2)
    before = cluster.image
    cluster.append([record.ConfigRecord(resource_type=TOPIC, resource_name="a", name="retention.ms", value="1")])
    assert cluster.image.topics is before.topics
    assert cluster.image.brokers is before.brokers
    assert cluster.image.configs[BROKER, ""] is before.configs[BROKER, ""]
    change = record.PartitionChangeRecord(topic_id=before.topics["b"].topic_id, partition_id=1, leader=1)
    middle = cluster.image
    cluster.append([change])
    assert cluster.image.topics["a"] is before.topics["a"]
    assert cluster.image.topics["b"].partitions[0] is before.topics["b"].partitions[0]
    assert cluster.image.configs is middle.configs


def test_an_image_never_changes() -> None:
    cluster = Cluster()
    cluster.create("a", configs={"retention.ms": "1"})
    before, copy = cluster.image, replayed(cluster.log)
    cluster.create("b")
    cluster.ask(DeleteTopicsRequest(topic_names=["a"]))
    assert before == copy


@pytest.mark.parametrize(
    "damaged",
    [
        record.PartitionRecord(partition_id=0, topic_id=Uuid(b"x" * 16)),
        record.PartitionChangeRecord(partition_id=0, topic_id=Uuid(b"x" * 16)),
        record.RemoveTopicRecord(topic_id=Uuid(b"x" * 16)),
        record.UnfenceBrokerRecord(id=1, epoch=99),
        record.UnregisterBrokerRecord(broker_id=7, broker_epoch=1),
        record.ClearElrRecord(topic_name="none"),
        record.RemoveAccessControlEntryRecord(id=Uuid(b"x" * 16)),
        "no record at all",
    ],
)
def test_a_record_that_cannot_be_right_is_not_passed_over(damaged: object) -> None:
    with pytest.raises(ValueError, match=r"."):
        Delta(Cluster().image).replay(damaged)


def test_partitions_without_the_one_before_them_are_damage() -> None:
    cluster = Cluster()
    topic_id = cluster.create("a").topic_id
    with pytest.raises(ValueError, match="topic a has 2 partitions, but not partition 1"):
        cluster.append([record.PartitionRecord(partition_id=2, topic_id=topic_id, replicas=[1], isr=[1], leader=1)])


@pytest.mark.parametrize(
    ("fields", "leader_epochs"),
    [
        ({"isr": [1]}, 0),
        ({"leader": 1}, 1),
        ({"leader": -1, "isr": [1]}, 1),
        ({"leader": 2, "leader_recovery_state": 1}, 1),
        ({"replicas": [1, 2], "directories": [Uuid(b"d" * 16)] * 2}, 0),
        ({"adding_replicas": [3]}, 0),
        ({"removing_replicas": [2]}, 0),
        ({"eligible_leader_replicas": [2]}, 0),
        ({"last_known_elr": [2]}, 0),
        ({}, 0),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else None,
)
def test_every_change_of_a_partition_has_its_epochs_and_touches_what_it_names(
    fields: dict[str, Any], leader_epochs: int
) -> None:
    """Any change raises the partition's epoch; only one that names a leader begins a leader epoch (KIP-631)."""
    topic_id = Uuid(b"a" * 16)
    partition = record.PartitionRecord(
        partition_id=0,
        topic_id=topic_id,
        replicas=[2, 1],
        isr=[2, 1],
        leader=2,
        leader_epoch=7,
        partition_epoch=11,
        directories=[Uuid(b"e" * 16)] * 2,
    )
    delta = Delta(replayed([record.TopicRecord(name="a", topic_id=topic_id), partition]))
    change = record.PartitionChangeRecord(topic_id=topic_id, partition_id=0, **fields)
    for number in (1, 2):
        delta.replay(change)
        old = delta._partitions["a"][0]
        assert (old.leader_epoch, old.partition_epoch) == (7 + number * leader_epochs, 11 + number)
    after = delta.image(5, 1, 0).topics["a"].partitions[0]
    untouched = {"replicas": (2, 1), "isr": (2, 1), "leader": 2, "directories": (Uuid(b"e" * 16),) * 2}
    for name in (*untouched, "adding_replicas", "removing_replicas", "eligible_leader_replicas", "last_known_elr"):
        wanted = fields.get(name, untouched.get(name, ()))
        assert getattr(after, name) == (tuple(wanted) if isinstance(wanted, list) else wanted), name
    assert after.leader_recovery_state == fields.get("leader_recovery_state", 0)


@pytest.mark.parametrize("name", ["a", ""])
def test_clearing_elr_is_a_change_of_the_partitions_that_have_one(name: str) -> None:
    topic_id = Uuid(b"a" * 16)
    replicas: list[tuple[list[int], list[int]]] = [([2], []), ([], [2]), ([], [])]
    partitions = [
        record.PartitionRecord(
            partition_id=index,
            topic_id=topic_id,
            replicas=[1, 2],
            isr=[1],
            leader=1,
            partition_epoch=5,
            eligible_leader_replicas=eligible,
            last_known_elr=last,
        )
        for index, (eligible, last) in enumerate(replicas)
    ]
    image = replayed([record.TopicRecord(name="a", topic_id=topic_id), *partitions])
    after = replayed([record.ClearElrRecord(topic_name=name)], image).topics["a"].partitions
    assert [each.partition_epoch for each in after] == [6, 6, 5]
    assert all(not each.eligible_leader_replicas and not each.last_known_elr for each in after)


def test_what_this_program_has_no_commands_for_survives_a_snapshot() -> None:
    entity = [record.EntityData(entity_type="user", entity_name=None)]
    cluster = Cluster()
    cluster.append(
        [
            record.ClientQuotaRecord(entity=entity, key="producer_byte_rate", value=5.0),
            record.ClientQuotaRecord(entity=entity, key="consumer_byte_rate", value=6.0),
            record.ClientQuotaRecord(entity=entity, key="producer_byte_rate", remove=True),
            record.UserScramCredentialRecord(name="alice", mechanism=1, salt=b"s", iterations=4096),
            record.UserScramCredentialRecord(name="bob", mechanism=1, salt=b"s", iterations=4096),
            record.RemoveUserScramCredentialRecord(name="bob", mechanism=1),
            record.AccessControlEntryRecord(id=Uuid(b"1" * 16), principal="User:alice"),
            record.AccessControlEntryRecord(id=Uuid(b"2" * 16), principal="User:bob"),
            record.RemoveAccessControlEntryRecord(id=Uuid(b"2" * 16)),
            record.DelegationTokenRecord(token_id="t", owner="User:alice"),
            record.DelegationTokenRecord(token_id="u", owner="User:bob"),
            record.RemoveDelegationTokenRecord(token_id="u"),
            record.RegisterControllerRecord(controller_id=1),
            record.NoOpRecord(),
        ]
    )
    image = cluster.image
    assert image.quotas == {(("user", None),): {"consumer_byte_rate": 6.0}}
    assert list(image.scram) == [("alice", 1)]
    assert [acl.principal for acl in image.acls.values()] == ["User:alice"]
    assert list(image.tokens) == ["t"]
    assert without_place(replayed(list(snapshot_records(image)))) == without_place(image)


def test_who_follows_step_by_step_looks_at_what_was_touched_and_who_leaps_at_all() -> None:
    cluster = Cluster()
    first = cluster.image
    cluster.create("a", configs={"retention.ms": "1"})
    second = cluster.image
    cluster.create("b")
    third = cluster.image
    assert list(second.touched_topics(first)) == ["a"]
    assert list(third.touched_topics(second)) == ["b"]
    assert set(third.touched_topics(first)) == {"a", "b"}
    assert third.changed_configs(first, TOPIC) == ["a"]
    assert third.changed_configs(second, TOPIC) == []


class Life(RuleBasedStateMachine):
    """A cluster lives; at every moment its image is that of its log, and that of a snapshot and the log behind it."""

    names = st.sampled_from(["a", "b.c", "b_c", "d", "é", ""])

    def __init__(self) -> None:
        super().__init__()
        self.cluster = Cluster(brokers=2)
        self.snapshot: list[Any] = []
        self.snapshot_end = 0
        self.incarnation = 1

    @rule(name=names, count=st.integers(-1, 4), factor=st.integers(-1, 3), ms=st.sampled_from(["1", "x", None]))
    def create(self, name: str, count: int, factor: int, ms: str | None) -> None:
        configs = {} if ms is None else {"retention.ms": ms}
        self.cluster.create(name, num_partitions=count, replication_factor=factor, configs=configs)

    @rule(name=names)
    def delete(self, name: str) -> None:
        self.cluster.ask(DeleteTopicsRequest(topic_names=[name]))

    @rule(name=names, count=st.integers(0, 6))
    def grow(self, name: str, count: int) -> None:
        topic = CreatePartitionsTopic(name=name, count=count, assignments=None)
        self.cluster.ask(CreatePartitionsRequest(topics=[topic]))

    @rule(
        kind=st.sampled_from([(TOPIC, "a"), (TOPIC, "d"), (BROKER, ""), (BROKER, "1")]),
        key=st.sampled_from(["cleanup.policy", "min.insync.replicas", "log.cleaner.threads"]),
        operation=st.integers(0, 3),
        value=st.sampled_from(["compact", "delete", "1", "2"]),
    )
    def configure(self, kind: tuple[int, str], key: str, operation: int, value: str) -> None:
        change = incremental.AlterableConfig(name=key, config_operation=operation, value=value)
        resource = incremental.AlterConfigsResource(resource_type=kind[0], resource_name=kind[1], configs=[change])
        self.cluster.ask(incremental.IncrementalAlterConfigsRequest(resources=[resource]))

    @rule()
    def allocate(self) -> None:
        epoch = self.cluster.image.brokers[1].epoch
        self.cluster.ask(AllocateProducerIdsRequest(broker_id=1, broker_epoch=epoch))

    @rule(crashed=st.booleans())
    def restart(self, crashed: bool) -> None:
        self.incarnation += 1
        request = registration(incarnation=self.incarnation)
        cluster = self.cluster
        cluster.append(register_broker(cluster.image, CLUSTER_ID, request, len(cluster.log)).records)
        cluster.append(unfence(cluster.image, 1, crashed=crashed))

    @rule()
    def take_snapshot(self) -> None:
        self.snapshot = list(snapshot_records(self.cluster.image))
        self.snapshot_end = len(self.cluster.log)

    @invariant()
    def the_whole_log_gives_the_leaders_image(self) -> None:
        assert replayed(self.cluster.log) == self.cluster.image

    @invariant()
    def a_snapshot_and_the_log_behind_it_give_the_leaders_image(self) -> None:
        if self.snapshot_end:
            start = replayed(self.snapshot)
            image = replayed(self.cluster.log[self.snapshot_end :], start)
            assert without_place(image) == without_place(self.cluster.image)

    @invariant()
    def every_record_is_the_same_after_it_was_written_and_read(self) -> None:
        level = self.cluster.image.metadata_version
        for each in self.cluster.log[self.snapshot_end :]:
            assert parse(pack(each, record_version(each, level)))[0] == each


TestLife = Life.TestCase
TestLife.settings = hypothesis_settings(max_examples=25, stateful_step_count=25, deadline=None)


def test_a_snapshot_names_cordoned_directories_from_their_level_on() -> None:
    cluster = Cluster()
    (place,) = cluster.image.brokers[1].log_dirs
    broker = cluster.image.brokers[1]._replace(cordoned_log_dirs=(place,))
    for level, told in ((CORDONED_DIRECTORIES_FROM, [place]), (CORDONED_DIRECTORIES_FROM - 1, None)):
        image = replace(
            cluster.image, brokers={1: broker}, features={**cluster.image.features, "metadata.version": level}
        )
        (said,) = [each for each in snapshot_records(image) if isinstance(each, record.RegisterBrokerRecord)]
        assert said.cordoned_log_dirs == told
