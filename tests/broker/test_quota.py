"""Quotas in force on a live node: what clients are told, and that they are not listened to meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

import ottla
from ottla.broker.call.reply import NO_REPLY
from ottla.broker.dispatch.dispatch import Dispatch
from ottla.broker.limits.quota import Mutations, Quotas
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.metadata.image import Image
from ottla.wire.api import (
    ApiKey,
    alter_client_quotas,
    create_partitions,
    create_topics,
    delete_topics,
    fetch,
    incremental_alter_configs,
    metadata,
    produce,
)
from ottla.wire.batch import build
from tests.broker.wire_client import WireClient
from tests.share.member import Member, records_of, set_group

_names = count()
BIG = build([(1_700_000_000_000, b"k", b"v" * 100_000, [])])
Names = dict[str, str | None]


@pytest.fixture
def quota(node: ottla.Node) -> Iterator[Callable[..., None]]:
    """Set quotas; they are gone at the end of the test."""
    made: list[tuple[Names, str]] = []
    # Opened before there are limits, so that it can take them away.
    admin = WireClient(node.bootstrap_servers, client_id="the quotas' own")

    def alter(names: Names, key: str, value: float | None) -> None:
        entity = [alter_client_quotas.EntityData(entity_type=kind, entity_name=name) for kind, name in names.items()]
        op = alter_client_quotas.OpData(key=key, value=value or 0.0, remove=value is None)
        entry = alter_client_quotas.RequestEntryData(entity=entity, ops=[op])
        response = admin.ask(alter_client_quotas.AlterClientQuotasRequest(entries=[entry]), 1)
        assert response.entries[0].error_code == 0, response

    def put(names: Names, key: str, value: float) -> None:
        alter(names, key, value)
        made.append((names, key))

    yield put
    for names, key in made:
        alter(names, key, None)
    admin.sock.close()


@pytest.fixture
def topic(node: ottla.Node) -> str:
    name = f"quota-{next(_names)}"
    node.create_topic(name)
    return name


def write(client: WireClient, topic: str, acks: int = 1) -> produce.ProduceRequest:
    data = produce.PartitionProduceData(index=0, records=BIG)
    topics = [produce.TopicProduceData(name=topic, partition_data=[data])]
    return produce.ProduceRequest(acks=acks, timeout_ms=1000, topic_data=topics)


def read(topic: str) -> fetch.FetchRequest:
    partition = fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topics = [fetch.FetchTopic(topic=topic, partitions=[partition])]
    return fetch.FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, replica_id=-1, topics=topics)


def hears_nothing(client: WireClient, seconds: float) -> bool:
    client.sock.settimeout(seconds)
    try:
        client.receive_frame()
    except TimeoutError:
        return True
    finally:
        client.sock.settimeout(20)
    return False


def test_a_producer_that_is_too_fast_is_told_and_not_listened_to(
    node: ottla.Node, quota: Callable[..., None], topic: str
) -> None:
    quota({"client-id": "fast"}, "producer_byte_rate", 1000.0)
    with WireClient(node.bootstrap_servers, client_id="fast") as client:
        response = client.ask(write(client, topic), 9)
        assert response.responses[0].partition_responses[0].error_code == 0
        # 100 kB where 10 kB may come in ten seconds: nine tenths are too much, and a kB takes a second.
        assert 85_000 < response.throttle_time_ms < 95_000
        client.send(metadata.MetadataRequest(topics=[]), 9)
        assert hears_nothing(client, 0.2)
    with WireClient(node.bootstrap_servers, client_id="other") as client:
        assert client.ask(write(client, topic), 9).throttle_time_ms == 0


def test_what_came_behind_a_throttled_request_is_answered_when_the_time_is_over(
    node: ottla.Node, quota: Callable[..., None], topic: str
) -> None:
    quota({"user": "ANONYMOUS", "client-id": "pipelines"}, "producer_byte_rate", 9000.0)
    with WireClient(node.bootstrap_servers, client_id="pipelines") as client:
        for _ in range(2):
            client.send(metadata.MetadataRequest(topics=[]), 9)
        client.send(write(client, topic), 9)
        for _ in range(3):
            client.send(metadata.MetadataRequest(topics=[]), 9)
        answers = [client.receive(key, 9) for key in (3, 3, 0, 3, 3, 3)]
        assert 0 < answers[2].throttle_time_ms < 2000
        assert all(each.throttle_time_ms == 0 for each in (*answers[:2], *answers[3:]))


def test_a_write_without_acknowledgement_counts_too(node: ottla.Node, quota: Callable[..., None], topic: str) -> None:
    quota({"client-id": None}, "producer_byte_rate", 1000.0)
    with WireClient(node.bootstrap_servers, client_id="silent") as client:
        client.send(write(client, topic, acks=0), 9)
        client.send(metadata.MetadataRequest(topics=[]), 9)
        assert hears_nothing(client, 0.2)


def test_a_consumer_that_is_too_fast_gets_no_records_and_then_gets_them(
    node: ottla.Node, quota: Callable[..., None], topic: str
) -> None:
    with WireClient(node.bootstrap_servers, client_id="writes") as client:
        client.ask(write(client, topic), 9)
    quota({"client-id": "reads"}, "consumer_byte_rate", 9500.0)
    with WireClient(node.bootstrap_servers, client_id="reads") as client:
        # The first batch comes whole however small the bound is: more than ten windows' worth, so it has to wait.
        first = client.ask(read(topic), 12)
        assert first.throttle_time_ms > 0
        assert not first.responses
    quota({"client-id": "reads"}, "consumer_byte_rate", 1e6)
    with WireClient(node.bootstrap_servers, client_id="reads") as client:
        second = client.ask(read(topic), 12)
        assert second.throttle_time_ms == 0
        assert len(second.responses[0].partitions[0].records) > 100_000


def test_a_share_group_member_that_is_too_fast_gets_what_it_acquired_and_then_waits(
    node: ottla.Node, quota: Callable[..., None], topic: str
) -> None:
    group = f"quota-{next(_names)}"
    with WireClient(node.bootstrap_servers, client_id="writes") as client:
        client.ask(write(client, topic), 9)
        set_group(client, group, {"share.auto.offset.reset": "earliest"})
    quota({"client-id": "shares"}, "consumer_byte_rate", 1000.0)
    with Member(node.bootstrap_servers, group, topic) as member:
        member.client.client_id = "shares"
        member.join()
        response = member.fetch(wait_ms=10_000)
        assert len(records_of(response)) == 1
        assert response.throttle_time_ms > 0
        member.send_fetch()
        assert hears_nothing(member.client, 0.2)


def test_time_on_the_loop_is_a_quota_too(node: ottla.Node, quota: Callable[..., None]) -> None:
    quota({"client-id": "busy"}, "request_percentage", 1e-6)
    with WireClient(node.bootstrap_servers, client_id="busy") as client:
        # Bounded by one window, so that the client is heard again.
        assert client.ask(metadata.MetadataRequest(topics=[]), 9).throttle_time_ms == 1000


@pytest.mark.parametrize("acks", [0, 1])
def test_time_on_the_loop_does_not_count_for_a_write_without_acknowledgement(acks: int) -> None:
    """Its bytes do."""
    muted: list[float] = []
    quotas = _of_user(request_percentage=1e-6, producer_byte_rate=1000.0)
    clock: Any = SimpleNamespace(monotonic_ms=lambda: 0)
    call: Any = SimpleNamespace(user="u", client_id="c", connection=SimpleNamespace(mute=muted.append))
    dispatch: Any = SimpleNamespace(_node=SimpleNamespace(quotas=quotas, clock=clock))
    for size in (1, 100_000):
        meter: Any = SimpleNamespace(seconds=0.5, frame_bytes=size)
        reply = produce.ProduceResponse() if acks else NO_REPLY
        Dispatch._throttle(dispatch, call, meter, ApiKey.PRODUCE, reply)
    assert muted == ([1.0, 90.001] if acks else [90.001])


def test_topics_beyond_the_quota_are_refused_to_whom_understands_it(
    node: ottla.Node, quota: Callable[..., None]
) -> None:
    quota({"client-id": "makes"}, "controller_mutation_rate", 1.0)
    names = [f"quota-{next(_names)}" for _ in range(3)]
    wanted = [create_topics.CreatableTopic(name=name, num_partitions=6, replication_factor=1) for name in names]
    with WireClient(node.bootstrap_servers, client_id="makes") as client:
        made = client.ask(create_topics.CreateTopicsRequest(topics=wanted, timeout_ms=1000), 7)
    # Eleven are there at once; the second overdraws by one, the third has to wait for that.
    codes = [ErrorCode(each.error_code).name for each in made.topics]
    assert codes == ["NONE", "NONE", "THROTTLING_QUOTA_EXCEEDED"]
    assert 0 < made.throttle_time_ms <= 1000
    with WireClient(node.bootstrap_servers, client_id="makes") as client:
        grown = create_partitions.CreatePartitionsTopic(name=names[0], count=7, assignments=None)
        answer = client.ask(create_partitions.CreatePartitionsRequest(topics=[grown], timeout_ms=1000), 3)
        assert ErrorCode(answer.results[0].error_code).name == "THROTTLING_QUOTA_EXCEEDED"
    with WireClient(node.bootstrap_servers, client_id="makes") as client:
        gone = client.ask(delete_topics.DeleteTopicsRequest(topic_names=names[:2], timeout_ms=1000), 4)
        assert [each.error_code for each in gone.responses] == [0, 0]
        assert gone.throttle_time_ms > 10_000


def answered(client: WireClient) -> bool:
    try:
        client.ask(metadata.MetadataRequest(topics=[]), 9)
    except ConnectionError:
        return False
    return True


def test_an_address_that_connects_too_fast_is_closed(node: ottla.Node, quota: Callable[..., None]) -> None:
    quota({"ip": None}, "connection_creation_rate", 1.0)
    with ExitStack() as opened:
        clients = [opened.enter_context(WireClient(node.bootstrap_servers)) for _ in range(40)]
        taken = [answered(each) for each in clients]
    # Ten windows' worth come at once; what is too fast is closed after a second and not counted.
    assert taken[:10] == [True] * 10
    assert not all(taken)


def test_an_address_has_so_many_connections_and_no_more() -> None:
    def limit(value: str | None) -> None:
        change = incremental_alter_configs.AlterableConfig(
            name="max.connections.per.ip", config_operation=0 if value else 1, value=value
        )
        resource = incremental_alter_configs.AlterConfigsResource(resource_type=4, resource_name="", configs=[change])
        request = incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[resource])
        answer = first.ask(request, 1).responses[0]
        assert answer.error_code == 0, answer

    with ottla.Node() as node, WireClient(node.bootstrap_servers) as first:
        limit("2")
        with WireClient(node.bootstrap_servers) as second:
            assert answered(second)
            with WireClient(node.bootstrap_servers) as third:
                assert not answered(third)
        limit(None)


@pytest.mark.parametrize(
    ("set_on", "nearest"),
    [
        ([{"user": "u", "client-id": "c"}, {"user": "u", "client-id": None}, {"user": "u"}], 0),
        ([{"user": "u", "client-id": None}, {"user": "u"}, {"user": None, "client-id": "c"}], 0),
        ([{"user": None, "client-id": "c"}, {"user": "u"}], 1),
        ([{"client-id": "c"}, {"user": None}, {"user": None, "client-id": None}], 2),
        ([{"client-id": None}, {"client-id": "c"}, {"user": "other"}], 1),
    ],
)
def test_the_nearest_quota_counts(set_on: list[Names], nearest: int) -> None:
    entities = [tuple(sorted(names.items())) for names in set_on]
    bounds = {entity: {"producer_byte_rate": 100.0 * (number + 1)} for number, entity in enumerate(entities)}
    quotas = Quotas(11, 1, 11)
    quotas.follow(replace(Image.empty(), quotas=bounds))
    bound = 100 * (nearest + 1)
    assert quotas.produced("u", "c", bound * 10, 5_000_000) == 0
    assert quotas.produced("u", "c", bound, 5_000_000) == 1000


def test_clients_of_one_user_share_the_users_quota_and_others_have_their_own() -> None:
    quotas = Quotas(11, 1, 11)
    quotas.follow(replace(Image.empty(), quotas={(("user", None),): {"producer_byte_rate": 100.0}}))
    assert quotas.produced("ann", "one", 1000, 5_000_000) == 0
    assert quotas.produced("ann", "two", 1000, 5_000_000) > 0
    assert quotas.produced("bob", "one", 1000, 5_000_000) == 0


def test_idle_clients_are_forgotten() -> None:
    quotas = Quotas(11, 1, 11)
    quotas.follow(replace(Image.empty(), quotas={(("client-id", None),): {"producer_byte_rate": 100.0}}))
    for number in range(5000):
        quotas.produced("u", f"client {number}", 1, 5_000_000 + number * 100)
    assert len(quotas._produce.meters) <= 2000


def test_a_default_of_clients_counts_for_each_client_alone() -> None:
    quotas = Quotas(11, 1, 11)
    quotas.follow(replace(Image.empty(), quotas={(("client-id", None),): {"producer_byte_rate": 100.0}}))
    assert quotas.produced("u", "one", 1000, 5_000_000) == 0
    assert quotas.produced("u", "two", 1000, 5_000_000) == 0
    assert quotas.produced("other", "one", 1000, 5_000_000) > 0


def test_what_a_refused_fetch_would_have_read_is_not_counted() -> None:
    quotas = Quotas(11, 1, 11)
    quotas.follow(replace(Image.empty(), quotas={(("user", "u"),): {"consumer_byte_rate": 100.0}}))
    assert quotas.fetched("u", "c", 900, 5_000_000) == 0
    waits = [quotas.fetched("u", "c", 500, 5_000_000) for _ in range(5)]
    assert waits == [waits[0]] * 5
    assert waits[0] > 0
    assert quotas.fetched("u", "c", 100, 5_000_000) == 0


def _of_user(**bounds: float) -> Quotas:
    quotas = Quotas(11, 1, 11)
    quotas.follow(replace(Image.empty(), quotas={(("user", "u"),): bounds}))
    return quotas


def test_a_quota_of_addresses_alone_measures_no_requests() -> None:
    quotas = Quotas(11, 1, 11)
    for entity, active in (((("ip", None),), False), ((("client-id", "c"),), True)):
        quotas.follow(replace(Image.empty(), quotas={entity: {"connection_creation_rate": 1.0}}))
        assert quotas.active is active
    quotas.follow(Image.empty())
    assert not quotas.active


@pytest.mark.parametrize("bound", [float("nan"), float("inf")])
def test_a_quota_that_is_no_number_limits_nothing(bound: float) -> None:
    quotas = _of_user(consumer_byte_rate=bound, request_percentage=bound, controller_mutation_rate=bound)
    assert quotas.fetch_bytes_max("u", "c") is None
    assert quotas.fetched("u", "c", 1 << 30, 5_000_000) == quotas.used("u", "c", 1e6, 5_000_000) == 0
    assert quotas.mutations("u", "c", 5_000_000, strict=True) is None


def test_a_fetch_reads_no_more_than_its_quota_lets_through_in_all_windows_but_one() -> None:
    quotas = _of_user(consumer_byte_rate=100.0)
    assert (quotas.fetch_bytes_max("u", "c"), quotas.fetch_bytes_max("v", "c")) == (1000, None)
    # Records that were acquired are counted in any case.
    assert [quotas.shared("u", "c", 1000, 5_000_000) for _ in range(2)] == [0, 10_000]
    assert quotas.fetched("u", "c", 1, 5_000_000) > 0


def test_time_on_the_loop_holds_a_client_up_for_a_window_at_most() -> None:
    quotas = _of_user(request_percentage=10.0)
    assert quotas.used("u", "c", 1.0, 5_000_000) == 0
    assert quotas.used("u", "c", 0.05, 5_000_000) == 500
    assert quotas.used("u", "c", 60.0, 5_000_000) == 1000
    assert quotas.used("v", "c", 60.0, 5_000_000) == 0


@pytest.mark.parametrize("strict", [True, False])
def test_a_request_may_overdraw_its_mutations_once(strict: bool) -> None:
    quotas = _of_user(controller_mutation_rate=2.0)
    assert quotas.mutations("v", "c", 5_000_000, strict=strict) is None
    first = quotas.mutations("u", "c", 5_000_000, strict=strict)
    assert first is not None
    first.charge(22)
    assert first.throttle_ms == 0
    first.charge(4)
    assert first.throttle_ms == (0 if strict else 2000), "who does not refuse tells how long to wait"
    second = quotas.mutations("u", "c", 5_000_500, strict=strict)
    assert second is not None
    if strict:
        with pytest.raises(KafkaError, match="The throttling quota has been exceeded"):
            second.charge(1)
        assert second.throttle_ms == 1500
    else:
        second.charge(1)
        assert second.throttle_ms == 2000


@pytest.mark.parametrize(
    ("entity", "others"),
    [
        ({"user": "ann", "client-id": "one"}, []),
        ({"user": "ann", "client-id": None}, []),
        ({"user": "ann"}, ["ann two"]),
        ({"user": None, "client-id": "one"}, []),
        ({"user": None, "client-id": None}, []),
        ({"user": None}, ["ann two"]),
        ({"client-id": "one"}, ["bob one"]),
        ({"client-id": None}, ["bob one"]),
    ],
)
def test_clients_are_measured_together_if_they_share_what_the_entity_names(entity: Names, others: list[str]) -> None:
    quotas = Quotas(11, 1, 11)
    bounds = {tuple(sorted(entity.items())): {"producer_byte_rate": 100.0}}
    quotas.follow(replace(Image.empty(), quotas=bounds))
    assert quotas.produced("ann", "one", 1000, 5_000_000) == 0
    clients = [(user, client) for user in ("ann", "bob") for client in ("one", "two")]
    waiting = [f"{user} {client}" for user, client in clients if quotas.produced(user, client, 1, 5_000_000)]
    assert waiting == ["ann one", *others]


def test_a_client_that_still_owes_mutations_is_not_forgotten() -> None:
    quotas = Quotas(11, 1, 11)
    quotas.follow(replace(Image.empty(), quotas={(("client-id", None),): {"controller_mutation_rate": 1.0}}))

    def owes(client: str) -> Mutations:
        found = quotas.mutations("u", client, 5_000_000, strict=True)
        assert found is not None
        return found

    owes("greedy").charge(1000)
    for number in range(1500):
        owes(f"client {number}")
    assert len(quotas._mutations.meters) < 1500, "full buckets are"
    with pytest.raises(KafkaError, match="quota has been exceeded"):
        owes("greedy").charge(1)
