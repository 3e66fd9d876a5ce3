"""AlterClientQuotas and DescribeClientQuotas."""

from collections.abc import Mapping
from typing import Any

import pytest

from ottla.controller import decision
from ottla.controller.quota import describe_client_quotas
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.metadata.image import Image
from ottla.metadata.snapshot import snapshot_records
from ottla.wire.api import alter_client_quotas as alter
from ottla.wire.api import describe_client_quotas as describe
from ottla.wire.record.metadata import ClientQuotaRecord, EntityData
from tests.controller.scene import Cluster, ended

Names = dict[str, str | None]


def change(cluster: Cluster, names: Names, values: Mapping[str, float | None], *, validate_only: bool = False) -> str:
    entry = alter.RequestEntryData(
        entity=[alter.EntityData(entity_type=kind, entity_name=name) for kind, name in names.items()],
        ops=[alter.OpData(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()],
    )
    response = cluster.ask(alter.AlterClientQuotasRequest(entries=[entry], validate_only=validate_only))
    return ErrorCode(response.entries[0].error_code).name


def found(
    image: Image, *components: tuple[str, int, str | None], strict: bool = False
) -> list[tuple[Names, dict[str, float]]]:
    wanted = [describe.ComponentData(entity_type=kind, match_type=how, match=name) for kind, how, name in components]
    response = ended(
        describe_client_quotas(image, describe.DescribeClientQuotasRequest(components=wanted, strict=strict))
    )
    return [
        ({each.entity_type: each.entity_name for each in entry.entity}, {each.key: each.value for each in entry.values})
        for entry in response.entries or ()
    ]


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def test_a_quota_is_set_changed_and_removed(cluster: Cluster) -> None:
    user: Names = {"user": "ann"}
    assert change(cluster, user, {"producer_byte_rate": 1000.0, "request_percentage": 12.5}) == "NONE"
    assert change(cluster, user, {"producer_byte_rate": 2000.0, "request_percentage": None}) == "NONE"
    assert found(cluster.image) == [(user, {"producer_byte_rate": 2000.0})]
    assert change(cluster, user, {"producer_byte_rate": None}) == "NONE"
    assert found(cluster.image) == []


def test_nothing_is_written_where_nothing_changes(cluster: Cluster) -> None:
    change(cluster, {"user": "ann"}, {"producer_byte_rate": 1000.0})
    before = len(cluster.log)
    assert change(cluster, {"user": "ann"}, {"producer_byte_rate": 1000.0, "request_percentage": None}) == "NONE"
    assert change(cluster, {"user": "bob"}, {"producer_byte_rate": 1.0}, validate_only=True) == "NONE"
    assert len(cluster.log) == before


def test_one_bad_value_and_nothing_of_the_entity_changes(cluster: Cluster) -> None:
    assert (
        change(cluster, {"user": "ann"}, {"producer_byte_rate": 1.0, "request_percentage": -1.0}) == "INVALID_REQUEST"
    )
    assert found(cluster.image) == []


@pytest.mark.parametrize("value", [0.0, -1.0, 0.5, 2.0**63 + 2048, float("nan"), float("inf")])
def test_a_rate_of_bytes_is_a_whole_number_above_zero(cluster: Cluster, value: float) -> None:
    assert change(cluster, {"user": "ann"}, {"producer_byte_rate": value}) == "INVALID_REQUEST"


def test_defaults_and_names_are_told_apart(cluster: Cluster) -> None:
    change(cluster, {"user": None}, {"producer_byte_rate": 1.0})
    change(cluster, {"user": "ann"}, {"producer_byte_rate": 2.0})
    change(cluster, {"user": "ann", "client-id": None}, {"producer_byte_rate": 3.0})
    assert found(cluster.image, ("user", 1, None)) == [({"user": None}, {"producer_byte_rate": 1.0})]
    assert len(found(cluster.image, ("user", 0, "ann"))) == 2
    assert len(found(cluster.image, ("user", 0, "ann"), strict=True)) == 1
    assert len(found(cluster.image, ("user", 2, None))) == 3


def test_an_ip_stands_alone_and_is_an_address(cluster: Cluster) -> None:
    rate = {"connection_creation_rate": 5.0}
    assert change(cluster, {"ip": "127.0.0.1"}, rate) == "NONE"
    assert change(cluster, {"ip": "::1"}, rate) == "NONE"
    assert change(cluster, {"ip": "300.0.0.1"}, rate) == "INVALID_REQUEST"
    assert change(cluster, {"ip": "127.0.0.1", "user": "ann"}, rate) == "INVALID_REQUEST"
    assert change(cluster, {"ip": "127.0.0.1"}, {"producer_byte_rate": 5.0}) == "INVALID_REQUEST"


@pytest.mark.parametrize("kind", ["user", "client-id"])
def test_an_entity_has_a_name_or_is_the_default(cluster: Cluster, kind: str) -> None:
    assert change(cluster, {kind: ""}, {"producer_byte_rate": 5.0}) == "INVALID_REQUEST"
    assert found(cluster.image) == []
    assert change(cluster, {kind: None}, {"producer_byte_rate": 5.0}) == "NONE"


def test_an_entity_or_a_quota_that_stands_twice_changes_nothing(cluster: Cluster) -> None:
    def entry(name: str, *values: float) -> alter.RequestEntryData:
        return alter.RequestEntryData(
            entity=[alter.EntityData(entity_type="user", entity_name=name)],
            ops=[alter.OpData(key="producer_byte_rate", value=value, remove=False) for value in values],
        )

    request = alter.AlterClientQuotasRequest(entries=[entry("ann", 1, 2), entry("bob", 3), entry("cid", 4)])
    codes = [each.error_code for each in cluster.ask(request).entries]
    assert codes == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE, ErrorCode.NONE]
    assert found(cluster.image) == [
        ({"user": "bob"}, {"producer_byte_rate": 3.0}),
        ({"user": "cid"}, {"producer_byte_rate": 4.0}),
    ]
    request = alter.AlterClientQuotasRequest(entries=[entry("dan", 5), entry("dan", 6)])
    [answer] = cluster.ask(request).entries
    assert (answer.error_code, answer.entity[0].entity_name) == (ErrorCode.INVALID_REQUEST, "dan")


def test_quotas_survive_a_snapshot(cluster: Cluster) -> None:
    change(cluster, {"user": "ann", "client-id": None}, {"producer_byte_rate": 3.0, "request_percentage": 0.5})
    again = Cluster()
    again.append([record for record in snapshot_records(cluster.image) if type(record).__name__ == "ClientQuotaRecord"])
    assert again.image.quotas == cluster.image.quotas


def test_a_filter_of_a_kind_that_no_quota_has_is_refused(cluster: Cluster) -> None:
    with pytest.raises(KafkaError) as raised:
        found(cluster.image, ("group", 0, "g"))
    assert raised.value.code is ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize(
    ("components", "why"),
    [
        ([("", 0, "a")], "Invalid empty entity type"),
        ([("user", 0, "a"), ("user", 0, "b")], "Entity type user cannot appear more than once"),
        ([("user", 2, None), ("user", 0, "b")], "Entity type user cannot appear more than once"),
        ([("user", 3, None)], "Unknown match type 3"),
        ([("user", -1, None)], "Unknown match type -1"),
        ([("user", 0, None)], "MATCH_TYPE_EXACT, but set match string to null"),
        ([("user", 1, "a")], "MATCH_TYPE_DEFAULT, but also specified a match string"),
        ([("user", 2, "a")], "MATCH_TYPE_SPECIFIED, but also specified a match string"),
        ([("ip", 2, None), ("user", 2, None)], "IP filter component should not be used with user or clientId"),
        (
            [("client-id", 1, None), ("ip", 0, "10.0.0.1")],
            "IP filter component should not be used with user or clientId",
        ),
    ],
)
def test_a_filter_that_cannot_be_is_refused_in_apaches_words(
    cluster: Cluster, components: list[tuple[str, int, str | None]], why: str
) -> None:
    with pytest.raises(KafkaError, match=why) as raised:
        found(cluster.image, *components)
    assert raised.value.code is ErrorCode.INVALID_REQUEST


def test_a_quota_is_of_a_user_a_client_or_an_address(cluster: Cluster) -> None:
    rate = {"producer_byte_rate": 5.0}
    assert change(cluster, {}, rate) == "INVALID_REQUEST"
    assert change(cluster, {"group": "g"}, rate) == "INVALID_REQUEST"
    assert change(cluster, {"user": "ann", "group": "g"}, rate) == "INVALID_REQUEST"
    assert found(cluster.image) == []
    assert change(cluster, {"user": "ann", "client-id": "c"}, rate) == "NONE"
    assert found(cluster.image) == [({"user": "ann", "client-id": "c"}, rate)]


def test_a_strict_filter_leaves_out_entities_of_more_kinds(cluster: Cluster) -> None:
    both: Names = {"user": "ann", "client-id": "c"}
    ann: Names = {"user": "ann"}
    default: Names = {"user": None}
    for entity in (both, ann, default):
        assert change(cluster, entity, {"producer_byte_rate": 5.0}) == "NONE"

    def names(*components: tuple[str, int, str | None], strict: bool = False) -> list[Names]:
        return [each for each, _ in found(cluster.image, *components, strict=strict)]

    assert names(("user", 0, "ann")) == [both, ann]
    assert names(("user", 0, "ann"), strict=True) == [ann]
    assert names(("user", 1, None)) == [{"user": None}]
    assert names(("user", 2, None), strict=True) == [ann, {"user": None}]
    assert names(("user", 2, None), ("client-id", 0, "c"), strict=True) == [both]
    assert names(("user", 2, None), ("client-id", 1, None)) == []
    assert len(names()) == 3 and names(strict=True) == []


def test_a_change_that_is_only_checked_changes_nothing(cluster: Cluster) -> None:
    assert change(cluster, {"user": "ann"}, {"producer_byte_rate": 5.0}, validate_only=True) == "NONE"
    assert change(cluster, {"user": "ann"}, {"producer_byte_rate": 0.0}, validate_only=True) == "INVALID_REQUEST"
    assert found(cluster.image) == []


def test_quotas_for_more_than_a_batch_are_not_set_to_the_end(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decision, "RECORDS_MAX", 2)
    unread: Any = object()
    entries = [
        alter.RequestEntryData(
            entity=[alter.EntityData(entity_type="user", entity_name=name)],
            ops=[alter.OpData(key="producer_byte_rate", value=5.0)],
        )
        for name in "abc"
    ]
    with pytest.raises(KafkaError) as refused:
        cluster.ask(alter.AlterClientQuotasRequest(entries=[*entries, unread]))
    assert refused.value.code is ErrorCode.POLICY_VIOLATION
    assert len(cluster.ask(alter.AlterClientQuotasRequest(entries=entries[:2])).entries) == 2


def test_a_stored_quota_of_a_host_by_its_name_can_be_removed_alone(cluster: Cluster) -> None:
    """A controller of Apache Kafka takes names; see decision 0140."""
    host: Names = {"ip": "db.example"}
    assert change(cluster, host, {"connection_creation_rate": None}) == "INVALID_REQUEST"
    parts = [EntityData(entity_type="ip", entity_name="db.example")]
    cluster.append([ClientQuotaRecord(entity=parts, key="connection_creation_rate", value=5.0)])
    assert change(cluster, host, {"connection_creation_rate": 6.0}) == "INVALID_REQUEST"
    assert found(cluster.image) == [(host, {"connection_creation_rate": 5.0})]
    assert change(cluster, host, {"connection_creation_rate": None}) == "NONE"
    assert found(cluster.image) == []


def test_a_quota_that_is_not_there_is_removed_without_a_record(cluster: Cluster) -> None:
    before = len(cluster.log)
    assert change(cluster, {"user": "ann"}, {"producer_byte_rate": None}) == "NONE"
    assert len(cluster.log) == before
    change(cluster, {"user": "ann"}, {"producer_byte_rate": 5.0, "consumer_byte_rate": 6.0})
    assert change(cluster, {"user": "ann"}, {"producer_byte_rate": None, "consumer_byte_rate": 7.0}) == "NONE"
    assert found(cluster.image) == [({"user": "ann"}, {"consumer_byte_rate": 7.0})]
