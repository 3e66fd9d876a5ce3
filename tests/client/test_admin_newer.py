"""Numbers that this client does not know, from a newer broker: they are named UNKNOWN, and the rest is read."""

from __future__ import annotations

import pickle

import pytest

from ottla.client import AsyncAdmin, ConfigResource, GroupType, ResourceType, ScramMechanism
from ottla.client.admin.acl import Acl, AclFilter, AclOperation, AclPermission, AclResource, PatternType
from ottla.client.connection.cluster import Cluster
from ottla.client.connection.telemetry import TelemetryPush
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.net.request import retry_version
from ottla.wire.api.api_versions import ApiVersionsResponse
from ottla.wire.api.delete_acls import DeleteAclsFilterResult, DeleteAclsMatchingAcl, DeleteAclsResponse
from ottla.wire.api.describe_acls import AclDescription, DescribeAclsResource, DescribeAclsResponse
from ottla.wire.api.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from ottla.wire.api.get_telemetry_subscriptions import GetTelemetrySubscriptionsResponse
from ottla.wire.api.list_config_resources import ConfigResource as Listed
from ottla.wire.api.list_config_resources import ListConfigResourcesResponse
from ottla.wire.api.list_groups import ListedGroup, ListGroupsResponse
from tests.client.test_admin_left_out import asked

NEW = 99


def test_unknown_parts_of_a_rule_are_told_beside_the_others() -> None:
    acls = [
        AclDescription(principal="User:ann", host="*", operation=NEW, permission_type=NEW),
        AclDescription(principal="User:ann", host="*", operation=3, permission_type=3),
    ]
    of = [
        DescribeAclsResource(resource_type=kind, resource_name="n", pattern_type=kind, acls=acls) for kind in (2, NEW)
    ]
    found: list[Acl] = asked(lambda admin: admin.describe_acls(), DescribeAclsResponse(resources=of))
    names = [[part.name for part in (each.resource, each.operation, each.permission)] for each in found]
    assert names == [
        ["TOPIC", "UNKNOWN", "UNKNOWN"],
        ["TOPIC", "READ", "ALLOW"],
        ["UNKNOWN", "UNKNOWN", "UNKNOWN"],
        ["UNKNOWN", "READ", "ALLOW"],
    ]
    assert found[2].pattern.name == "UNKNOWN"
    assert found[2].resource == NEW
    removed = DeleteAclsMatchingAcl(resource_type=NEW, resource_name="n", pattern_type=NEW, operation=NEW)
    result = DeleteAclsResponse(filter_results=[DeleteAclsFilterResult(matching_acls=[removed])])
    [acl] = asked(lambda admin: admin.delete_acls([AclFilter()]), result)[AclFilter()]
    assert acl.operation == NEW


def test_an_unknown_mechanism_hides_no_other() -> None:
    infos = [CredentialInfo(mechanism=number, iterations=4096) for number in (1, NEW)]
    answer = DescribeUserScramCredentialsResponse(
        results=[DescribeUserScramCredentialsResult(user="ann", credential_infos=infos)]
    )
    found = asked(lambda admin: admin.describe_scram_credentials(["ann"]), answer)["ann"]
    assert found == {ScramMechanism.SCRAM_SHA_256: 4096, ScramMechanism(NEW): 4096}
    assert [each.name for each in found] == ["SCRAM_SHA_256", "UNKNOWN"]


def test_unknown_kinds_of_resources_and_groups_are_listed() -> None:
    resources = ListConfigResourcesResponse(
        config_resources=[Listed(resource_name="a", resource_type=number) for number in (2, NEW)]
    )
    listed = asked(lambda admin: admin.list_config_resources(), resources)
    assert listed == [ConfigResource(ResourceType.TOPIC, "a"), ConfigResource(ResourceType(NEW), "a")]
    groups = ListGroupsResponse(groups=[ListedGroup(group_id="g", group_type="Quorate", group_state="Pondering")])
    [group] = asked(lambda admin: admin.list_groups(), groups)
    assert (group.type, group.state) == (GroupType.UNKNOWN, "Pondering")


@pytest.mark.parametrize("kind", [AclResource, AclOperation, AclPermission, PatternType, ResourceType, ScramMechanism])
def test_an_unknown_number_is_no_member(kind: type) -> None:
    assert NEW not in [each.value for each in kind]  # type: ignore[attr-defined]
    assert "UNKNOWN" not in kind.__members__  # type: ignore[attr-defined]
    assert pickle.loads(pickle.dumps(kind(NEW))) == NEW
    with pytest.raises(ValueError):
        kind("READ")


def test_an_unknown_error_code_of_a_connection_is_an_error_of_the_broker() -> None:
    with pytest.raises(KafkaError, match="unknown error code 9999") as raised:
        retry_version(ApiVersionsResponse(error_code=9999), 0)
    assert raised.value.code is ErrorCode.UNKNOWN_SERVER_ERROR


def test_an_unknown_error_code_does_not_end_telemetry() -> None:
    async def turn(admin: AsyncAdmin) -> float | None:
        cluster = admin._cluster
        assert isinstance(cluster, Cluster)
        return await TelemetryPush(cluster, lambda: iter(()), dict, enabled=True)._step()

    assert asked(turn, GetTelemetrySubscriptionsResponse(error_code=9999)) is not None
