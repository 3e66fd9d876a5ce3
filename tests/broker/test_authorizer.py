"""A node with an authorizer: what a client that may do nothing learns and changes, and when rules count."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

import ottla
from ottla.broker.dispatch.dispatch import CONTROLLER_HANDLERS, HANDLERS
from ottla.broker.guard.authorizer import Authorizer
from ottla.broker.guard.guards import GUARDS
from ottla.broker.guard.parts import divided
from ottla.client import Admin, Producer
from ottla.client.admin.acl import Acl
from ottla.kernel.error import ErrorCode, OttlaError
from ottla.kernel.ids import Uuid
from ottla.kernel.re2.automaton import drained
from ottla.metadata.image import Image, Step
from ottla.security.acl import AclOperation, AclResource
from ottla.settings.server.settings import ServerSettings
from ottla.settings.server.single_node import single_node
from ottla.settings.server.unserved import STANDARD_AUTHORIZER
from ottla.wire.api import API, ApiKey
from ottla.wire.api.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from ottla.wire.api.create_acls import AclCreation, CreateAclsRequest
from ottla.wire.api.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.api.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from ottla.wire.api.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.api.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from ottla.wire.api.envelope import EnvelopeRequest
from ottla.wire.api.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.api.find_coordinator import FindCoordinatorRequest
from ottla.wire.api.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.api.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.wire.compile import decoder
from ottla.wire.header import ResponseHeader, response_header_version
from ottla.wire.record.security import AccessControlEntryRecord
from ottla.wire.schema import fields
from tests.broker.sasl_scene import PASSWORD, SETTINGS, plaintext, secured, sign_in
from tests.broker.wire_client import WireClient

SECURED = SETTINGS | {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS;User:root"}
SECRET, ABSENT = "secret-there", "secret-none!"
#: Everyone may ask these.
OPEN = {
    ApiKey.API_VERSIONS,
    ApiKey.SASL_HANDSHAKE,
    ApiKey.SASL_AUTHENTICATE,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
    ApiKey.PUSH_TELEMETRY,
    ApiKey.DESCRIBE_CLUSTER,
}
READ, WRITE, DESCRIBE = 3, 4, 8


@pytest.fixture(scope="module")
def node() -> Iterator[ottla.Node]:
    with ottla.Node(settings=SECURED) as node:
        for name in (SECRET, "other-secret"):
            node.create_topic(name, 2)
        settings = {"bootstrap.servers": plaintext(node), "transactional.id": SECRET}
        with Producer(settings) as producer, producer.transaction():
            producer.send(SECRET, b"told-to-nobody", partition=0)
        yield node


@pytest.fixture
def super_user(node: ottla.Node) -> Iterator[WireClient]:
    with WireClient(plaintext(node)) as client:
        yield client
        everything = DeleteAclsFilter(
            resource_type_filter=1,
            resource_name_filter=None,
            pattern_type_filter=1,
            principal_filter=None,
            host_filter=None,
            operation=1,
            permission_type=1,
        )
        client.ask(DeleteAclsRequest(filters=[everything]), 3)


@pytest.fixture
def ann(node: ottla.Node) -> Iterator[WireClient]:
    with WireClient(secured(node)) as client:
        assert sign_in(client, "PLAIN", "ann", PASSWORD).error_code == 0
        yield client


def grant(client: WireClient, operation: int, kind: int = 2, name: str = SECRET, **more: Any) -> None:
    rule = AclCreation(
        resource_type=kind,
        resource_name=name,
        principal="User:ann",
        host="*",
        operation=operation,
        permission_type=3,
    )
    for field, value in more.items():
        setattr(rule, field, value)
    answer = client.ask(CreateAclsRequest(creations=[rule]), 3)
    assert not answer.results[0].error_code, answer


def revoke(client: WireClient, operation: int, name: str = SECRET) -> None:
    gone = DeleteAclsFilter(
        resource_type_filter=2,
        resource_name_filter=name,
        pattern_type_filter=3,
        principal_filter="User:ann",
        host_filter=None,
        operation=operation,
        permission_type=1,
    )
    assert client.ask(DeleteAclsRequest(filters=[gone]), 3).filter_results[0].matching_acls


# ---- nothing is told, nothing is changed


def filled(cls: type[Any], version: int, name: str) -> Any:
    """A request that names `name` wherever it can, with one element in each list."""
    made = cls()
    for field in fields(cls):
        if version not in field.versions:
            continue
        if field.struct is not None:
            inner = filled(field.struct, version, name)
            setattr(made, field.name, [inner] if field.is_array else inner)
        elif field.type == "String":
            setattr(made, field.name, [name] if field.is_array else name)
        elif field.type in ("Int8", "Int16", "Int32", "Int64"):
            # Kinds of resources, patterns and operations of ACLs and settings: 2 and 3 mean something in all of them.
            value = {"resource_type": 2, "key_type": 0}.get(field.name, 3 if "type" in field.name else 0)
            setattr(made, field.name, [0] if field.is_array else value)
    for field_name in ("operation", "permission_type"):
        if hasattr(made, field_name):
            setattr(made, field_name, 3)
    return made


def walked() -> list[tuple[int, int]]:
    return [
        (key, version) for key in sorted(HANDLERS) if ApiKey(key) not in OPEN for version in API[key].stable_versions
    ]


def told(node: ottla.Node, key: int, version: int, name: str) -> str:
    """What a client without rules is told, with the name taken out."""
    with WireClient(secured(node)) as client:
        assert sign_in(client, "PLAIN", "bob", "bobs").error_code == 0
        try:
            client.send(filled(API[ApiKey(key)].request, version, name), version)
            return repr(client.receive(key, version)).replace(name, "NAME")
        except ConnectionError:
            return "closed"


def state(node: ottla.Node) -> tuple[Any, ...]:
    """Everything that a request could have changed."""
    inside = node._running()
    logs = {str(tp): (log.start_offset, log.end_offset) for tp, log in inside.store.logs().items()}
    groups = [sorted(each.machine.shard.groups) for each in inside.groups.drivers()]
    return inside.image.offset, inside.quorum.image.offset, logs, groups


def test_who_may_do_nothing_is_told_nothing_and_changes_nothing(node: ottla.Node) -> None:
    before = state(node)
    wrong = []
    for key, version in walked():
        there, absent = told(node, key, version, SECRET), told(node, key, version, ABSENT)
        name = API[ApiKey(key)].name
        if there != absent:
            wrong.append(f"{name} v{version} tells what is there: {there} and not {absent}")
        if "other-secret" in there or "told-to-nobody" in there:
            wrong.append(f"{name} v{version} tells: {there}")
    assert wrong == []
    assert state(node) == before


def test_a_request_that_names_much_writes_few_lines_into_the_log(
    ann: WireClient, caplog: pytest.LogCaptureFixture
) -> None:
    topics = [MetadataRequestTopic(name=f"not-there-{number}") for number in range(1_000)]
    for _ in range(2):
        caplog.clear()
        with caplog.at_level("INFO", "ottla.authorizer"):
            told = ann.ask(MetadataRequest(topics=topics), 12)
        assert len(told.topics) == 1_000
        lines = [each for each in caplog.messages if "User:ann" in each]
        assert len(lines) == 101
        assert lines[-1] == "further checks of User:ann in this request are not logged"


def test_refused_settings_are_said_by_kind_and_logged_once(ann: WireClient, caplog: pytest.LogCaptureFixture) -> None:
    topic, broker, group = (2, SECRET), (4, ""), (32, "crowd")
    for kinds in ([topic, broker, group, topic], [topic], [broker, (77, "")]):
        asked = [DescribeConfigsResource(resource_type=kind, resource_name=name) for kind, name in kinds]
        caplog.clear()
        with caplog.at_level("INFO", "ottla.authorizer"):
            told = ann.ask(DescribeConfigsRequest(resources=asked), 4)
        codes = {2: ErrorCode.TOPIC_AUTHORIZATION_FAILED, 4: ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
        codes |= {32: ErrorCode.GROUP_AUTHORIZATION_FAILED, 77: ErrorCode.INVALID_REQUEST}
        found = sorted((each.resource_type, each.error_code) for each in told.results)
        assert found == sorted((kind, codes[kind]) for kind, _ in kinds)
        assert len(caplog.messages) == len([kind for kind, _ in kinds if kind != 77])


def test_each_entry_of_a_group_that_is_named_many_times_has_its_own_refusals(
    super_user: WireClient, ann: WireClient
) -> None:
    grant(super_user, DESCRIBE, kind=3, name="crowd")
    names = [f"hidden-{number}" for number in range(100)]
    while coordinator_loads(super_user, "crowd"):
        pass
    groups = [
        OffsetFetchRequestGroup(
            group_id="crowd", topics=[OffsetFetchRequestTopics(name=name, partition_indexes=[0, 1])]
        )
        for name in names
    ]
    told = ann.ask(OffsetFetchRequest(groups=groups), 9)
    assert [[topic.name for topic in group.topics] for group in told.groups] == [[name] for name in names]
    codes = {part.error_code for group in told.groups for topic in group.topics for part in topic.partitions}
    assert codes == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    shares = [
        DescribeShareGroupOffsetsRequestGroup(
            group_id="crowd", topics=[DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=[0])]
        )
        for name in names
    ]
    told = ann.ask(DescribeShareGroupOffsetsRequest(groups=shares), 0)
    assert [[topic.topic_name for topic in group.topics] for group in told.groups] == [[name] for name in names]


def test_a_share_group_moves_in_no_topic_that_is_hidden(super_user: WireClient, ann: WireClient) -> None:
    grant(super_user, READ, kind=3, name="crowd")
    while coordinator_loads(super_user, "crowd"):
        pass
    topics = [
        AlterShareGroupOffsetsRequestTopic(
            topic_name=name, partitions=[AlterShareGroupOffsetsRequestPartition(partition_index=0)]
        )
        for name in (SECRET, ABSENT)
    ]
    told = ann.ask(AlterShareGroupOffsetsRequest(group_id="crowd", topics=topics), 0)
    assert told.error_code == 0
    there, absent = told.responses
    assert repr(there).replace(SECRET, ABSENT) == repr(absent)
    assert there.partitions[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def coordinator_loads(client: WireClient, group: str) -> bool:
    """Is the group's coordinator not there yet?"""
    client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=[group]), 4)
    answer = client.ask(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=[])]), 9)
    return bool(answer.groups[0].error_code)


def test_dividing_compares_no_elements() -> None:
    class Topic:
        def __eq__(self, other: object) -> bool:
            raise AssertionError("each with each: a request of many topics holds the loop")

        __hash__ = None  # type: ignore[assignment]

    topics = [Topic() for _ in range(5)]
    call: Any = SimpleNamespace(is_long=False)
    kept, refused = drained(divided(call, topics, lambda each: each is topics[1] or each is topics[4]))
    assert [list(map(id, some)) for some in (kept, refused)] == [
        [id(topics[index]) for index in some] for some in ((1, 4), (0, 2, 3))
    ]


def test_every_api_has_its_question() -> None:
    served = set(HANDLERS) | set(CONTROLLER_HANDLERS)
    assert served - set(GUARDS) == set()
    assert set(GUARDS) - served == set()


# ---- when rules count


def fetched(client: WireClient, name: str = SECRET, **more: Any) -> Any:
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1000,
        topics=[FetchTopic(topic=name, partitions=[FetchPartition(partition=0, partition_max_bytes=1000)])],
    )
    for field, value in more.items():
        setattr(request, field, value)
    return client.ask(request, 12)


def code_of(response: Any) -> int:
    return int(response.responses[0].partitions[0].error_code) if response.responses else -1


def test_a_rule_counts_until_it_goes_also_in_an_open_session(super_user: WireClient, ann: WireClient) -> None:
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert code_of(fetched(ann)) == denied
    grant(super_user, READ)
    opened = fetched(ann, session_epoch=0)
    assert code_of(opened) == 0
    assert b"told-to-nobody" in bytes(opened.responses[0].partitions[0].records)
    revoke(super_user, READ)
    # The session has the partition, and the request names nothing.
    again = fetched(ann, session_id=opened.session_id, session_epoch=1, topics=[])
    assert again.responses == [] or code_of(again) == denied
    assert not any(part.records for topic in again.responses for part in topic.partitions)
    assert code_of(fetched(ann)) == denied


def test_a_fetch_that_waits_is_refused_when_its_rule_has_gone(super_user: WireClient, ann: WireClient) -> None:
    grant(super_user, READ, name="other-secret")
    waits = FetchRequest(
        max_wait_ms=60_000,
        min_bytes=1,
        max_bytes=1000,
        topics=[FetchTopic(topic="other-secret", partitions=[FetchPartition(partition=0, partition_max_bytes=1000)])],
    )
    ann.send(waits, 12)
    revoke(super_user, READ, "other-secret")
    address = "{}:{}".format(*super_user.sock.getpeername())
    with Producer(address) as producer:
        producer.send("other-secret", b"told-to-nobody", partition=0).result(20)
    answer = ann.receive(ApiKey.FETCH, 12)
    assert code_of(answer) == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_a_denial_goes_before_and_prefixes_and_hosts_count(super_user: WireClient, ann: WireClient) -> None:
    grant(super_user, READ, name="secret", resource_pattern_type=4)
    assert code_of(fetched(ann)) == 0
    grant(super_user, READ, host="10.1.2.3", permission_type=2)
    assert code_of(fetched(ann)) == 0
    grant(super_user, READ, principal="User:*", permission_type=2)
    assert code_of(fetched(ann)) == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_a_topic_is_made_only_by_those_who_may(super_user: WireClient, ann: WireClient, node: ottla.Node) -> None:
    def make(name: str) -> int:
        asked = CreateTopicsRequest(
            topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1)], timeout_ms=9000
        )
        return int(ann.ask(asked, 7).topics[0].error_code)

    assert make("new-1") == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    named = MetadataRequest(allow_auto_topic_creation=True)
    named.topics = [filled(fields_struct(MetadataRequest, "topics"), 1, "new-1")]
    assert ann.ask(named, 9).topics[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    grant(super_user, DESCRIBE, name="new-", resource_pattern_type=4)
    assert ann.ask(named, 9).topics[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert "new-1" not in node._running().image.topics
    grant(super_user, 5, name="new-", resource_pattern_type=4)
    assert make("new-1") == 0
    assert make("other-1") == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def fields_struct(cls: type[Any], name: str) -> type[Any]:
    struct = next(field.struct for field in fields(cls) if field.name == name)
    assert struct is not None
    return struct


@pytest.mark.parametrize(
    ("field", "value"), [("resource_type", 1), ("operation", 1), ("permission_type", 1), ("resource_pattern_type", 2)]
)
def test_what_is_for_filters_makes_no_rule(super_user: WireClient, field: str, value: int) -> None:
    rule = AclCreation(resource_type=2, resource_name="t", principal="User:ann", host="*", operation=3)
    rule.permission_type = 3
    setattr(rule, field, value)
    (result,) = super_user.ask(CreateAclsRequest(creations=[rule]), 3).results
    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert result.error_message.startswith("Invalid ")


def test_rules_are_there_after_a_restart(tmp_path: Any) -> None:
    with ottla.Node(tmp_path, settings=SECURED) as node:
        node.create_topic(SECRET)
        with WireClient(plaintext(node)) as client:
            grant(client, READ)
    with ottla.Node(tmp_path, settings=SECURED) as node, WireClient(secured(node)) as client:
        assert sign_in(client, "PLAIN", "ann").error_code == 0
        assert code_of(fetched(client)) == 0
        with Admin(plaintext(node)) as admin:
            rules: list[Acl] = list(admin.describe_acls())
        assert [each.principal for each in rules] == ["User:ann"]


def test_all_may_what_no_rule_speaks_of_if_it_is_set() -> None:
    with (
        ottla.Node(settings=SECURED | {"allow.everyone.if.no.acl.found": "true"}) as node,
        WireClient(plaintext(node)) as super_user,
        WireClient(secured(node)) as client,
    ):
        node.create_topic(SECRET)
        assert sign_in(client, "PLAIN", "ann").error_code == 0
        assert code_of(fetched(client)) == 0
        grant(super_user, READ, principal="User:other")
        assert code_of(fetched(client)) == ErrorCode.TOPIC_AUTHORIZATION_FAILED


# ---- forwarded requests


def test_an_envelope_needs_the_cluster_s_trust_and_carries_its_own_principal(node: ottla.Node) -> None:
    from ottla.broker.controllers.envelope import Requester, wrap

    inside = node._running()
    port = inside.controller_listeners[0].port
    request = CreateTopicsRequest(topics=[CreatableTopic(name="forwarded", num_partitions=1, replication_factor=1)])
    api = API[ApiKey.CREATE_TOPICS]

    def code(principal: str) -> int:
        envelope: EnvelopeRequest = wrap(api, request, Requester(principal, "127.0.0.1", "c", 7, 1))
        with WireClient(f"127.0.0.1:{port}") as client:
            answer = client.ask(envelope, 0)
        assert answer.error_code == 0, answer
        data = bytes(answer.response_data)
        _, position = decoder(ResponseHeader, response_header_version(int(api.key), 7))(data, 0)
        return int(decoder(api.response, 7)(data, position)[0].topics[0].error_code)

    assert code("User:ann") == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert "forwarded" not in inside.image.topics
    assert code("User:root") == 0


def test_an_envelope_of_a_stranger_is_not_opened() -> None:
    from ottla.broker.controllers.envelope import Requester, wrap

    with ottla.Node(settings=SECURED | {"super.users": "User:root"}) as node:
        port = node._running().controller_listeners[0].port
        request = CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)])
        envelope = wrap(API[ApiKey.CREATE_TOPICS], request, Requester("User:root", "127.0.0.1", "c", 7, 1))
        with WireClient(f"127.0.0.1:{port}") as client:
            assert client.ask(envelope, 0).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert "t" not in node._running().image.topics


# ---- settings


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"super.users": "root"}, r"super\.users: root is not TYPE:NAME"),
        ({"allow.everyone.if.no.acl.found": "maybe"}, "expected true or false"),
        ({"authorizer.class.name": "com.example.Mine"}, "this node runs no Java class"),
    ],
)
def test_settings_that_cannot_be_kept_stop_the_start(change: dict[str, str], words: str) -> None:
    with pytest.raises(OttlaError, match=words), ottla.Node(settings=SECURED | change):
        pass


def _image(offset: int, *rules: AccessControlEntryRecord) -> Image:
    return replace(Image.empty(), offset=offset, acls={rule.id: rule for rule in rules})


def test_rules_of_a_start_that_the_quorum_did_not_commit_go() -> None:
    def rule(number: int, principal: str) -> AccessControlEntryRecord:
        return AccessControlEntryRecord(
            id=Uuid(bytes([number] * 16)),
            resource_type=2,
            resource_name="t",
            pattern_type=3,
            principal=principal,
            host="*",
            operation=3,
            permission_type=3,
        )

    def readers() -> list[str]:
        may, names = authorizer.rules.allows, ("User:ann", "User:bob", "User:cid")
        return [each for each in names if may(each, "::1", AclOperation.READ, AclResource.TOPIC, "t")]

    ann, bob, cid = rule(1, "User:ann"), rule(2, "User:bob"), rule(3, "User:cid")
    authorizer = Authorizer(
        ServerSettings.parse(single_node("/x", "h", 1, 3) | {"authorizer.class.name": STANDARD_AUTHORIZER})
    )
    authorizer.begin(_image(7, ann, bob))
    assert readers() == ["User:ann", "User:bob"]
    # Another leader wrote another record at the same offset.
    authorizer.follow(replace(_image(8, ann, cid), step=Step(7, (), (), (cid.id,))))
    assert readers() == ["User:ann", "User:cid"]
    authorizer.follow(replace(_image(9, cid), step=Step(8, (), (), (ann.id,))))
    assert readers() == ["User:cid"]
