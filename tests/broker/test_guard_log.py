"""Which questions of a guard stay out of the authorizer's log: those with an alternative, and those that filter all
topics or groups that there are (Metadata, ListGroups). What other lists leave out is logged, as by Apache's brokers.

A denial in the log is taken for an attack, or for a rule that is missing.
"""

from __future__ import annotations

import contextlib
import re

import pytest

from ottla.broker.guard.guards import GUARDS
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import Uuid
from ottla.security.acl import AclOperation
from ottla.wire.api import API, ApiKey
from ottla.wire.schema import fields
from tests.broker.guard_scene import Scene, filled

#: API: the questions of a request that names something everywhere, and of one that names nothing. The names of the
#: elements of a list are the list's.
TABLE = """
Metadata : CREATE CLUSTER : DESCRIBE TOPIC there
OffsetForLeaderEpoch : CLUSTER_ACTION CLUSTER : CLUSTER_ACTION CLUSTER
CreateTopics : CREATE CLUSTER, DESCRIBE_CONFIGS TOPIC name : CREATE CLUSTER, DESCRIBE_CONFIGS TOPIC name
DeleteTopics : DELETE CLUSTER, DESCRIBE TOPIC there : DELETE CLUSTER, DESCRIBE TOPIC there
ListGroups : DESCRIBE CLUSTER, DESCRIBE GROUP group_id : DESCRIBE CLUSTER, DESCRIBE GROUP group_id
WriteTxnMarkers : ALTER CLUSTER : ALTER CLUSTER
InitProducerId : : IDEMPOTENT_WRITE CLUSTER
"""


def _expected() -> dict[str, tuple[set[str], set[str]]]:
    found: dict[str, tuple[set[str], set[str]]] = {}
    for line in TABLE.strip().replace("\n    ", " ").splitlines():
        names, *questions = line.split(":")
        full, empty = ({one.strip() for one in each.split(",") if one.strip()} for each in questions)
        found |= dict.fromkeys(names.split(), (full, empty))
    return found


EXPECTED = _expected()


def _unlogged(key: ApiKey, *, named: bool) -> set[str]:
    """The questions, without the numbers in their names, when nothing is allowed on the cluster."""
    # Later versions name topics by id.
    version = 9 if key == ApiKey.OFFSET_FETCH else None
    scene = Scene(key, version, *(f"{each.name} CLUSTER" for each in AclOperation))
    scene.response = filled(API[key].response, scene.version)
    for each in getattr(scene.response, "responses", ()) if key == ApiKey.DELETE_TOPICS else ():
        each.error_code, each.topic_id = ErrorCode.TOPIC_AUTHORIZATION_FAILED, Uuid(b"1" * 16)
    if key == ApiKey.PRODUCE:
        scene.request.transactional_id = None
    if not named:
        for field in fields(type(scene.request)):
            if field.name in ("transactional_id", "topology"):
                setattr(scene.request, field.name, None)
            elif field.name == "groups" and field.struct is not None:
                for group in scene.request.groups:
                    group.topics = None
            elif field.is_array:
                setattr(scene.request, field.name, None if field.nullable else [])
    with contextlib.suppress(KafkaError):
        scene.ask()
    return {re.sub(r"\d+$", "", question) for question in scene.authorizer.unlogged}


@pytest.mark.parametrize("key", [ApiKey(key) for key in GUARDS], ids=lambda key: API[key].name)
def test_what_filters_and_what_has_an_alternative_is_not_logged(key: ApiKey) -> None:
    full, empty = EXPECTED.get(API[key].name, (set(), set()))
    assert _unlogged(key, named=True) == full
    assert _unlogged(key, named=False) == empty


@pytest.mark.parametrize(
    ("key", "version", "questions"),
    [
        (ApiKey.OFFSET_FETCH, 7, {"TOPIC name"}),
        (ApiKey.OFFSET_FETCH, 9, {"TOPIC name"}),
        (ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, None, {"TOPIC topic_name"}),
        (ApiKey.CONSUMER_GROUP_DESCRIBE, None, {"TOPIC subscribed_topic_names", "TOPIC topic_name"}),
        (ApiKey.SHARE_GROUP_DESCRIBE, None, {"TOPIC subscribed_topic_names", "TOPIC topic_name"}),
        (
            ApiKey.STREAMS_GROUP_DESCRIBE,
            None,
            {"TOPIC name", "TOPIC repartition_sink_topics", "TOPIC source_topics"},
        ),
        (ApiKey.DESCRIBE_TRANSACTIONS, None, {"TOPIC topic"}),
        (ApiKey.LIST_TRANSACTIONS, None, {"TRANSACTIONAL_ID transactional_id"}),
        (ApiKey.DESCRIBE_TOPIC_PARTITIONS, None, {"TOPIC there"}),
    ],
)
def test_what_is_left_out_of_an_answer_is_logged(key: ApiKey, version: int | None, questions: set[str]) -> None:
    """As by Apache's brokers: an administrator finds the rule that is missing."""
    scene = Scene(key, version)
    scene.response = filled(API[key].response, scene.version)
    parts = [scene.request] if key != ApiKey.DESCRIBE_TOPIC_PARTITIONS else []
    for part in [*parts, *(getattr(scene.request, "groups", None) or ())]:
        if hasattr(part, "topics"):
            part.topics = None
    if not parts:
        scene.request.topics = []
    scene.ask()
    logged = {re.sub(r"\d+$", "", question) for question in scene.authorizer.logged}
    assert {f"DESCRIBE {question}" for question in questions} <= logged
    assert not scene.authorizer.unlogged


def test_a_client_may_be_shown_its_operations_on_the_cluster() -> None:
    """Whether it may is logged: it asked for them."""
    for key in (ApiKey.METADATA, ApiKey.DESCRIBE_CLUSTER):
        scene = Scene(key, 8 if key == ApiKey.METADATA else 1)
        scene.request.include_cluster_authorized_operations = True
        scene.ask()
        assert "DESCRIBE CLUSTER" in scene.authorizer.logged - scene.authorizer.unlogged
