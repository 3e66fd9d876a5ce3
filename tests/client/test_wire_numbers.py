"""The numbers that a client's words have on the wire, which brokers of every kind must understand alike."""

from __future__ import annotations

from enum import IntEnum

import pytest

from ottla.client.acknowledgement import GAP, Acknowledge
from ottla.client.admin.acl import AclOperation, AclPermission, AclResource, PatternType
from ottla.client.admin.credential import ScramMechanism
from ottla.client.admin.result import AlterOperation, ConfigSource, Downgrade, OffsetSpec, ResourceType
from ottla.client.connection.cluster import GROUP, SHARE, TRANSACTION
from ottla.security.acl import OPERATIONS
from ottla.settings.schema import ConfigType, SettingSource

#: As the Java classes of Apache Kafka 4.3 have them, which its protocol guide does not list.
NUMBERS: list[tuple[type[IntEnum], dict[str, int]]] = [
    (Acknowledge, {"ACCEPT": 1, "RELEASE": 2, "REJECT": 3, "RENEW": 4}),
    (
        OffsetSpec,
        {
            "LATEST": -1,
            "EARLIEST": -2,
            "MAX_TIMESTAMP": -3,
            "EARLIEST_LOCAL": -4,
            "LATEST_TIERED": -5,
            "EARLIEST_PENDING_UPLOAD": -6,
        },
    ),
    (ResourceType, {"TOPIC": 2, "BROKER": 4, "BROKER_LOGGER": 8, "CLIENT_METRICS": 16, "GROUP": 32}),
    (
        ConfigSource,
        {
            "UNKNOWN": 0,
            "DYNAMIC_TOPIC_CONFIG": 1,
            "DYNAMIC_BROKER_CONFIG": 2,
            "DYNAMIC_DEFAULT_BROKER_CONFIG": 3,
            "STATIC_BROKER_CONFIG": 4,
            "DEFAULT_CONFIG": 5,
            "DYNAMIC_BROKER_LOGGER_CONFIG": 6,
            "DYNAMIC_CLIENT_METRICS_CONFIG": 7,
            "DYNAMIC_GROUP_CONFIG": 8,
        },
    ),
    (
        SettingSource,
        {
            "TOPIC": 1,
            "DYNAMIC_BROKER": 2,
            "DYNAMIC_DEFAULT_BROKER": 3,
            "STATIC_BROKER": 4,
            "DEFAULT": 5,
            "CLIENT_METRICS": 7,
            "GROUP": 8,
        },
    ),
    (
        ConfigType,
        {
            "BOOLEAN": 1,
            "STRING": 2,
            "INT": 3,
            "SHORT": 4,
            "LONG": 5,
            "DOUBLE": 6,
            "LIST": 7,
            "CLASS": 8,
            "PASSWORD": 9,
        },
    ),
    (AlterOperation, {"SET": 0, "DELETE": 1, "APPEND": 2, "SUBTRACT": 3}),
    (Downgrade, {"NO": 1, "SAFE": 2, "UNSAFE": 3}),
    (ScramMechanism, {"SCRAM_SHA_256": 1, "SCRAM_SHA_512": 2}),
    (
        AclResource,
        {
            "ANY": 1,
            "TOPIC": 2,
            "GROUP": 3,
            "CLUSTER": 4,
            "TRANSACTIONAL_ID": 5,
            "DELEGATION_TOKEN": 6,
            "USER": 7,
        },
    ),
    (PatternType, {"ANY": 1, "MATCH": 2, "LITERAL": 3, "PREFIXED": 4}),
    (AclPermission, {"ANY": 1, "DENY": 2, "ALLOW": 3}),
    (
        AclOperation,
        {
            "ANY": 1,
            "ALL": 2,
            "READ": 3,
            "WRITE": 4,
            "CREATE": 5,
            "DELETE": 6,
            "ALTER": 7,
            "DESCRIBE": 8,
            "CLUSTER_ACTION": 9,
            "DESCRIBE_CONFIGS": 10,
            "ALTER_CONFIGS": 11,
            "IDEMPOTENT_WRITE": 12,
            "CREATE_TOKENS": 13,
            "DESCRIBE_TOKENS": 14,
            "TWO_PHASE_COMMIT": 15,
        },
    ),
]


@pytest.mark.parametrize(("kind", "numbers"), NUMBERS, ids=lambda each: getattr(each, "__name__", ""))
def test_a_word_has_kafkas_number(kind: type[IntEnum], numbers: dict[str, int]) -> None:
    assert {each.name: int(each) for each in kind} == numbers


def test_the_coordinators_and_a_gap_have_kafkas_numbers() -> None:
    assert (GROUP, TRANSACTION, SHARE, GAP) == (0, 1, 2, 0)


#: AclEntry.supportedOperations, for what is described with the operations that the user may do.
ALLOWED = {
    "TOPIC": "READ WRITE CREATE DELETE ALTER DESCRIBE DESCRIBE_CONFIGS ALTER_CONFIGS",
    "GROUP": "READ DELETE DESCRIBE DESCRIBE_CONFIGS ALTER_CONFIGS",
    "CLUSTER": "CREATE ALTER DESCRIBE CLUSTER_ACTION DESCRIBE_CONFIGS ALTER_CONFIGS IDEMPOTENT_WRITE",
}


def test_the_operations_of_a_kind_of_resource_are_kafkas() -> None:
    found = {
        AclResource(kind).name: {AclOperation(number).name for number in numbers}
        for kind, numbers in OPERATIONS.items()
    }
    assert found == {kind: set(words.split()) for kind, words in ALLOWED.items()}
