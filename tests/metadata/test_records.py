"""The records of metadata, one by one: what each changes, what it leaves, and which cannot be right."""

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from ottla.kernel.error import OttlaError
from ottla.kernel.ids import TopicPartition, Uuid
from ottla.metadata.delta import MetadataReplayer
from ottla.metadata.feature import (
    CONTROLLER_REGISTRATIONS_FROM,
    DIRECTORIES_FROM,
    ELR_FROM,
    METADATA_VERSION_LEAST,
    METADATA_VERSION_UNSTABLE,
    SUPPORTED,
    default_levels,
    feature_records,
    missing_for,
    needed,
    new_cluster_levels,
    supported,
)
from ottla.metadata.image import BROKER, METADATA_VERSION, TOPIC, BrokerEndpoint, BrokerImage, Image
from ottla.metadata.index import PartitionIndex, PartitionKey
from ottla.metadata.record_version import record_version
from ottla.metadata.snapshot import snapshot_records
from ottla.wire.record import metadata as record
from ottla.wire.record import registration as registering

A, B, D, E = (Uuid(letter * 16) for letter in (b"a", b"b", b"d", b"e"))


def replayed(records: list[Any], start: Image | None = None) -> Image:
    """The image behind these records; the one before them stays what it was."""
    before = start or Image.empty()
    kept = deepcopy(before)
    replayer = MetadataReplayer(before)
    for offset, each in enumerate(records, before.offset + 1):
        replayer.replay(each, offset, 1, 0)
    image = replayer.publish(before.offset + len(records), 1, 0)
    assert before == kept
    return image


def config(name: str, value: str | None, key: str = "retention.ms", kind: int = TOPIC) -> record.ConfigRecord:
    return record.ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value)


def quota(value: float | None, key: str = "producer_byte_rate", user: str | None = "ann") -> record.ClientQuotaRecord:
    entity = [
        record.EntityData(entity_type="user", entity_name=user),
        record.EntityData(entity_type="client-id", entity_name="c"),
    ]
    return record.ClientQuotaRecord(entity=entity, key=key, value=value or 0.0, remove=value is None)


def topic(name: str, topic_id: Uuid, *leaders: int, **fields: Any) -> list[Any]:
    """A topic whose partitions have replicas 1, 2 and 3 and these leaders."""
    made = [
        record.PartitionRecord(
            **{
                "partition_id": index,
                "topic_id": topic_id,
                "replicas": [1, 2, 3],
                "isr": [1, 2, 3],
                "leader": leader,
                **fields,
            }
        )
        for index, leader in enumerate(leaders)
    ]
    return [record.TopicRecord(name=name, topic_id=topic_id), *made]


def broker_record(**fields: Any) -> record.RegisterBrokerRecord:
    return record.RegisterBrokerRecord(
        **{
            "broker_id": 1,
            "broker_epoch": 7,
            "incarnation_id": A,
            "end_points": [registering.BrokerEndpoint(name="X", host="h", port=9, security_protocol=3)],
            "features": [registering.BrokerFeature(name="f", min_supported_version=1, max_supported_version=4)],
            "rack": "r",
            "fenced": True,
            "log_dirs": [D, E],
            "cordoned_log_dirs": [E],
            **fields,
        }
    )


BROKER_1 = BrokerImage(
    1, 7, A, (BrokerEndpoint("X", "h", 9, 3),), (("f", 1, 4),), "r", True, False, False, (D, E), (E,)
)

# -- brokers and controllers


def test_a_registration_is_kept_field_by_field_and_replaced_by_the_next() -> None:
    image = replayed([broker_record()])
    assert image.brokers == {1: BROKER_1}
    image = replayed([broker_record(broker_epoch=8, cordoned_log_dirs=None, is_migrating_zk_broker=True)], image)
    assert image.brokers == {
        1: BROKER_1._replace(epoch=8, cordoned_log_dirs=None, is_migrating_zk_broker=True),
    }
    stopping = broker_record(broker_id=2, in_controlled_shutdown=True, fenced=False)
    image = replayed([stopping], image)
    assert image.brokers[2] == BROKER_1._replace(broker_id=2, in_controlled_shutdown=True, fenced=False)
    assert set(image.brokers) == {1, 2}


@pytest.mark.parametrize(
    ("change", "after"),
    [
        (record.UnfenceBrokerRecord(id=1, epoch=7), {"fenced": False}),
        (record.FenceBrokerRecord(id=1, epoch=7), {"fenced": True}),
        (record.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=7, fenced=-1), {"fenced": False}),
        (record.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=7, fenced=1), {"fenced": True}),
        (record.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=7), {}),
        (
            record.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=7, in_controlled_shutdown=1),
            {"in_controlled_shutdown": True},
        ),
        (record.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=7, log_dirs=[D]), {"log_dirs": (D,)}),
        (
            record.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=7, cordoned_log_dirs=[]),
            {"cordoned_log_dirs": ()},
        ),
        (
            record.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=7, cordoned_log_dirs=[D]),
            {"cordoned_log_dirs": (D,)},
        ),
    ],
)
@pytest.mark.parametrize("fenced", [True, False])
def test_a_changed_registration_keeps_the_rest(change: Any, after: dict[str, Any], fenced: bool) -> None:
    image = replayed([broker_record(fenced=fenced), change])
    assert image.brokers == {1: BROKER_1._replace(**{"fenced": fenced, **after})}


@pytest.mark.parametrize(
    "change",
    [
        record.UnfenceBrokerRecord(id=1, epoch=6),
        record.FenceBrokerRecord(id=1, epoch=8),
        record.FenceBrokerRecord(id=2, epoch=7),
        record.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=6),
        record.UnregisterBrokerRecord(broker_id=1, broker_epoch=6),
    ],
)
def test_a_change_of_another_registration_is_damage(change: Any) -> None:
    with pytest.raises(ValueError, match="unknown broker registration"):
        replayed([broker_record(), change])


def test_nodes_come_and_go() -> None:
    controllers = [record.RegisterControllerRecord(controller_id=number) for number in (1, 2)]
    image = replayed([broker_record(), broker_record(broker_id=2), *controllers])
    assert set(image.brokers) == set(image.controllers) == {1, 2}
    image = replayed(
        [
            record.UnregisterBrokerRecord(broker_id=1, broker_epoch=7),
            record.UnregisterControllerRecord(controller_id=2),
            record.UnregisterControllerRecord(controller_id=9),
        ],
        image,
    )
    assert (set(image.brokers), set(image.controllers)) == ({2}, {1})


# -- topics


def test_a_topic_goes_with_its_settings_and_one_of_its_name_begins_with_none() -> None:
    image = replayed([*topic("a", A, 1, 1), config("a", "5"), config("b", "6"), config("a", "7", kind=BROKER)])
    assert image.topic(A) is image.topics["a"] and image.topic(B) is None
    again = replayed([record.RemoveTopicRecord(topic_id=A), *topic("a", B, 2)], image)
    assert (again.topics["a"].topic_id, len(again.topics["a"].partitions)) == (B, 1)
    assert again.topic_names == {B: "a"}
    assert again.config(TOPIC, "a") == {} and again.config(TOPIC, "b") == {"retention.ms": "6"}
    assert again.config(BROKER, "a") == {"retention.ms": "7"}
    with_config = replayed([record.RemoveTopicRecord(topic_id=A), *topic("a", B, 2), config("a", "8")], image)
    assert with_config.config(TOPIC, "a") == {"retention.ms": "8"}
    assert image.config(TOPIC, "a") == {"retention.ms": "5"}, "an image never changes"
    gone = replayed([config("a", "9"), record.RemoveTopicRecord(topic_id=A)], image)
    assert not gone.topics and not gone.topic_names and gone.config(TOPIC, "a") == {}
    assert set(gone.touched_topics(image)) == {"a"} and gone.changed_configs(image, TOPIC) == ["a"]


def test_a_change_of_a_partition_that_is_not_there_is_damage() -> None:
    with pytest.raises(ValueError, match="change of an unknown partition"):
        replayed([*topic("a", A, 1), record.PartitionChangeRecord(topic_id=A, partition_id=1)])


def test_an_image_tells_whether_a_partition_exists() -> None:
    image = replayed(topic("a", A, 1, 1))
    asked = {index: image.has(TopicPartition("a", index)) for index in (-1, 0, 1, 2)}
    assert asked == {-1: False, 0: True, 1: True, 2: False}
    assert not image.has(TopicPartition("b", 0))


def test_eligible_leaders_of_one_topic_are_cleared_and_those_of_the_others_stay() -> None:
    elr = {"partition_epoch": 4, "isr": [1], "eligible_leader_replicas": [2], "last_known_elr": [3]}
    image = replayed([*topic("a", A, 1, **elr), *topic("b", B, 1, **elr)])
    changed = replayed([record.ClearElrRecord(topic_name="a")], image)
    first, second = changed.topics["a"].partitions[0], changed.topics["b"].partitions[0]
    assert (first.eligible_leader_replicas, first.last_known_elr, first.partition_epoch) == ((), (), 5)
    assert (first.isr, first.leader, first.replicas) == ((1,), 1, (1, 2, 3))
    assert changed.topics["b"] is image.topics["b"] and second.eligible_leader_replicas == (2,)
    assert list(changed.touched_topics(image)) == ["a"]


# -- settings, quotas, features


def test_a_setting_that_is_taken_back_leaves_nothing_and_one_that_is_not_there_does_nothing() -> None:
    image = replayed([config("a", "5"), config("a", "6", "segment.ms"), config("b", "7")])
    assert image.config(TOPIC, "a") == {"retention.ms": "5", "segment.ms": "6"}
    assert image.config_names(TOPIC) == ["a", "b"] and image.config_names(BROKER) == []
    fewer = replayed([config("a", None), config("none", None)], image)
    assert fewer.configs == {(TOPIC, "a"): {"segment.ms": "6"}, (TOPIC, "b"): {"retention.ms": "7"}}
    none = replayed([config("a", None, "segment.ms"), config("a", "8")], fewer)
    assert none.config(TOPIC, "a") == {"retention.ms": "8"}
    emptied = replayed([config("b", None), config("b", "9"), config("b", None)], image)
    assert (TOPIC, "b") not in emptied.configs
    assert image.config(TOPIC, "b") == {"retention.ms": "7"}


def test_a_quota_is_of_its_entity_in_any_order_and_goes_with_its_last_value() -> None:
    image = replayed([quota(5.0), quota(6.0, "consumer_byte_rate"), quota(7.0, user=None)])
    ann, default = (("client-id", "c"), ("user", "ann")), (("client-id", "c"), ("user", None))
    assert image.quotas == {
        ann: {"producer_byte_rate": 5.0, "consumer_byte_rate": 6.0},
        default: {"producer_byte_rate": 7.0},
    }
    fewer = replayed([quota(None), quota(None, user=None), quota(None, "request_percentage", "bob")], image)
    assert fewer.quotas == {ann: {"consumer_byte_rate": 6.0}}
    assert image.quotas[ann]["producer_byte_rate"] == 5.0, "an image never changes"
    back = replayed([quota(None, user=None), quota(8.0, user=None)], image)
    assert back.quotas[default] == {"producer_byte_rate": 8.0}


def test_a_feature_of_level_0_is_off_and_the_quorums_version_is_not_metadata() -> None:
    levels = {"metadata.version": 20, "group.version": 1}
    image = replayed(feature_records(levels))
    assert image.features == levels and image.metadata_version == 20 and not image.has_elr
    image = replayed(
        [
            record.FeatureLevelRecord(name="group.version", feature_level=0),
            record.FeatureLevelRecord(name="kraft.version", feature_level=1),
            record.FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1),
            record.FeatureLevelRecord(name="share.version", feature_level=0),
        ],
        image,
    )
    assert image.features == {"metadata.version": 20, "eligible.leader.replicas.version": 1} and image.has_elr


def test_an_image_tells_which_rules_may_differ() -> None:
    rules = [record.AccessControlEntryRecord(id=each, principal="User:a") for each in (A, B, D)]
    first = replayed(rules[:1])
    second = replayed([*rules[1:], record.RemoveAccessControlEntryRecord(id=A)], first)
    third = replayed([config("a", "1")], second)
    assert set(second.touched_acls(first)) == {A, B, D} and set(second.acls) == {B, D}
    assert third.touched_acls(second) == ()
    assert set(third.touched_acls(first)) == {A, B, D}
    fourth = replayed([record.RemoveAccessControlEntryRecord(id=B)], third)
    assert list(fourth.touched_acls(third)) == [B]
    assert third.changed_configs(second, TOPIC) == third.changed_configs(first, TOPIC) == ["a"]
    assert third.changed_configs(first, BROKER) == []


def test_a_producer_id_is_handed_on() -> None:
    image = replayed([record.ProducerIdsRecord(next_producer_id=1000)])
    assert Image.empty().next_producer_id == -1 and image.next_producer_id == 1000
    assert replayed([record.NoOpRecord()], image).next_producer_id == 1000


# -- transactions


def test_transactions_do_not_nest_and_have_a_beginning() -> None:
    begin, end, abort = record.BeginTransactionRecord, record.EndTransactionRecord, record.AbortTransactionRecord
    with pytest.raises(ValueError, match="metadata transaction at 1 begins inside the one at 0"):
        replayed([begin(), begin()])
    for kind in (end, abort):
        with pytest.raises(ValueError, match="metadata transaction end at 1 without a begin"):
            replayed([config("a", "1"), kind()])
    image = replayed([config("a", "1"), begin(), config("a", "2"), abort(), config("b", "3"), begin(), end()])
    assert image.config(TOPIC, "a") == {"retention.ms": "1"} and image.config(TOPIC, "b") == {"retention.ms": "3"}


def test_what_stood_before_a_transaction_is_visible_while_it_is_open() -> None:
    replayer = MetadataReplayer(Image.empty())
    for offset, each in enumerate([config("a", "1"), record.BeginTransactionRecord(), config("a", "2")]):
        replayer.replay(each, offset, 3, 99)
    assert replayer.transaction_offset == 1
    assert replayer.publish(2, 3, 99) is replayer.image
    assert (replayer.image.offset, replayer.image.epoch, replayer.image.timestamp) == (0, 3, 99)
    assert replayer.image.config(TOPIC, "a") == {"retention.ms": "1"}
    replayer.replay(record.EndTransactionRecord(), 3, 3, 99)
    assert replayer.publish(3, 3, 100).config(TOPIC, "a") == {"retention.ms": "2"}
    assert (replayer.transaction_offset, replayer.image.offset, replayer.image.timestamp) == (-1, 3, 100)


# -- snapshots


def whole(level: int) -> Image:
    """Something of everything, at this level of metadata.version."""
    features = feature_records({METADATA_VERSION: level, "transaction.version": 2})
    return replayed(
        [
            *features,
            broker_record(is_migrating_zk_broker=True, in_controlled_shutdown=True),
            record.RegisterControllerRecord(controller_id=3),
            *topic(
                "a",
                A,
                1,
                isr=[1],
                leader_epoch=4,
                partition_epoch=5,
                adding_replicas=[3],
                removing_replicas=[2],
                leader_recovery_state=1,
                directories=[D, E, D],
                eligible_leader_replicas=[2],
                last_known_elr=[3],
            ),
            config("a", "5"),
            quota(5.0),
            record.ProducerIdsRecord(next_producer_id=1000),
            record.AccessControlEntryRecord(id=A, principal="User:a"),
            record.UserScramCredentialRecord(name="a", mechanism=1, salt=b"s", iterations=4096),
            record.DelegationTokenRecord(token_id="t", owner="User:a"),
        ]
    )


def test_a_snapshot_at_the_newest_level_has_everything() -> None:
    image = whole(SUPPORTED[METADATA_VERSION][1])
    again = replayed(list(snapshot_records(image)))
    assert replace(again, offset=0) == replace(image, offset=0)


@pytest.mark.parametrize("level", [CONTROLLER_REGISTRATIONS_FROM, DIRECTORIES_FROM, ELR_FROM])
def test_a_snapshot_has_what_its_level_knows(level: int) -> None:
    for at in (level - 1, level):
        image = whole(at)
        again = replayed(list(snapshot_records(image)))
        partition, broker = again.topics["a"].partitions[0], again.brokers[1]
        assert (again.controllers == image.controllers) is (at >= CONTROLLER_REGISTRATIONS_FROM)
        assert (partition.directories, broker.log_dirs) == (((D, E, D), (D, E)) if at >= DIRECTORIES_FROM else ((), ()))
        assert (partition.eligible_leader_replicas, partition.last_known_elr) == (
            ((2,), (3,)) if at >= ELR_FROM else ((), ())
        )
        for each in snapshot_records(image):
            assert record.parse(record.pack(each, record_version(each, at)))[0] == each


def test_a_snapshot_of_nothing_has_no_records() -> None:
    assert list(snapshot_records(Image.empty())) == []


@pytest.mark.parametrize(
    ("fields", "version"),
    [
        ({}, 0),
        ({"fenced": 1}, 0),
        ({"in_controlled_shutdown": 1}, 1),
        ({"log_dirs": [D], "in_controlled_shutdown": 1}, 2),
        ({"cordoned_log_dirs": []}, 3),
    ],
)
def test_a_changed_registration_has_the_lowest_version_that_holds_it(fields: dict[str, Any], version: int) -> None:
    assert record_version(record.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=7, **fields), 29) == version


# -- the index


def test_partitions_are_found_by_who_has_them() -> None:
    first = replayed(
        [
            *topic("a", A, 1, 2, -1, isr=[2], eligible_leader_replicas=[3], directories=[D, E, E]),
            *topic("b", B, 1, adding_replicas=[3]),
        ]
    )
    index = PartitionIndex(first)
    a = [PartitionKey(A, number) for number in range(3)]
    b = PartitionKey(B, 0)
    assert (index.in_isr(2), index.in_isr(1), index.in_isr(9)) == ([*a, b], [b], [])
    assert (index.in_elr(3), index.in_elr(2)) == (a, [])
    assert index.leaderless() == [a[2]]
    assert [broker for broker in (1, 2, 3) if index.leads(broker)] == [1, 2]
    assert (index.in_directory(D), index.in_directory(E), index.in_directory(A)) == (a, a, [])
    assert index.unpreferred() == [a[1], a[2]] and index.reassigning() == [b]
    led = record.PartitionChangeRecord(topic_id=A, partition_id=2, leader=1, isr=[1])
    moved = record.PartitionChangeRecord(topic_id=B, partition_id=0, adding_replicas=[])
    second = replayed([led, moved, *topic("c", D, 3)], first)
    index.follow(second)
    index.validate()
    assert index.leaderless() == [] and index.reassigning() == [] and index.in_isr(1) == sorted([a[2], b, (D, 0)])
    assert index.unpreferred() == sorted([a[1], PartitionKey(D, 0)]) and index.leads(3)
    index.follow(replayed([record.RemoveTopicRecord(topic_id=D), record.RemoveTopicRecord(topic_id=A)], second))
    index.validate()
    assert (index.in_isr(2), index.unpreferred(), index.leads(3), index.in_directory(D)) == ([b], [], False, [])


# -- levels of features


def test_unstable_levels_are_there_when_they_are_wanted() -> None:
    assert supported(unstable=False) == SUPPORTED
    more = supported(unstable=True)
    assert more[METADATA_VERSION] == (METADATA_VERSION_LEAST, METADATA_VERSION_UNSTABLE)
    assert {name: span for name, span in more.items() if name != METADATA_VERSION} == {
        name: span for name, span in SUPPORTED.items() if name != METADATA_VERSION
    }
    assert SUPPORTED[METADATA_VERSION][1] < METADATA_VERSION_UNSTABLE


def test_each_release_has_its_default_levels() -> None:
    since = {
        "kraft.version": (21, 1),
        "group.version": (22, 1),
        "transaction.version": (24, 2),
        "eligible.leader.replicas.version": (26, 1),
        "share.version": (28, 1),
        "streams.version": (29, 1),
    }
    for level in range(METADATA_VERSION_LEAST, SUPPORTED[METADATA_VERSION][1] + 1):
        expected = {name: above if level >= least else 0 for name, (least, above) in since.items()}
        assert default_levels(level) == {METADATA_VERSION: level, **expected}
        chosen = {name: on for name, on in expected.items() if on and name != "kraft.version"}
        assert new_cluster_levels(level, {}) == {METADATA_VERSION: level, **chosen}
    assert list(default_levels(30))[:2] == [METADATA_VERSION, "kraft.version"]


def test_a_level_that_there_is_not_or_that_needs_more_is_not_chosen() -> None:
    assert new_cluster_levels(30, {"group.version": 0})["metadata.version"] == 30
    assert "group.version" not in new_cluster_levels(30, {"group.version": 0})
    for level in (-1, 2):
        with pytest.raises(OttlaError, match=rf"No feature:group\.version with feature level {level}"):
            new_cluster_levels(30, {"group.version": level})
    with pytest.raises(OttlaError, match=r"Unsupported feature: none\. Supported features are: eligible"):
        new_cluster_levels(30, {"none": 1})
    elr = "eligible.leader.replicas.version"
    assert needed(elr, 1) == {METADATA_VERSION: ELR_FROM} and needed(elr, 0) == needed("none", 1) == {}
    assert missing_for(elr, 1, ELR_FROM) == missing_for(elr, 0, 1) == ""
    assert missing_for(elr, 1, ELR_FROM - 1) == (
        f"{elr} could not be set to 1 because it depends on metadata.version level {ELR_FROM}"
    )
    with pytest.raises(OttlaError, match=r"depends on metadata\.version level"):
        new_cluster_levels(ELR_FROM - 1, {elr: 1})
