"""The heartbeats of a group's member: which failures end them, and how long it waits after the others."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock, Mock

import pytest

import ottla
from ottla.client import Admin, AsyncConsumer, AsyncShareConsumer, Consumer, Fenced, Producer
from ottla.client.connection.clock import now_ms
from ottla.client.membership.classic import ClassicGroupMember
from ottla.client.membership.consumer import ConsumerGroupMember
from ottla.client.membership.group import Group
from ottla.client.settings.consumer import ConsumerSettings
from ottla.client.share.group import ShareGroupMember
from ottla.kernel.client_error import NotReachable, TlsFailed
from ottla.kernel.error import ErrorCode, KafkaError, OttlaError
from ottla.kernel.ids import TopicPartition, Uuid
from ottla.wire.api import ApiKey
from ottla.wire.api.consumer_group_heartbeat import Assignment, TopicPartitions
from tests.client.conftest import eventually
from tests.client.hurried import hurried

PAUSE_MS, BACKOFF_MS, BACKOFF_MAX_MS = 7, 100, 1_000


class Beating(Group):
    """A group whose heartbeats end as the test says."""

    def __init__(self, outcomes: list[Exception | None]) -> None:
        self.owner, self.cluster, self.outcomes = Mock(), Mock(), outcomes
        self.pauses: list[int] = []
        self.reasons: list[str] = []
        settings: Any = SimpleNamespace(
            group_id="g",
            max_poll_interval_ms=60_000,
            retry_backoff_ms=BACKOFF_MS,
            retry_backoff_max_ms=BACKOFF_MAX_MS,
        )
        super().__init__(self.cluster, settings, self.owner)

    @property
    def joined(self) -> bool:
        return True

    @property
    def busy(self) -> bool:
        return False

    async def poll(self) -> None: ...
    def subscription_changed(self) -> None: ...
    def _commit_failed(self, code: int, member_id: str, generation: int) -> Any:
        return None

    async def _send_leave(self, reason: str) -> None:
        self.reasons.append(reason)

    async def _sleep(self, pause_ms: int) -> None:
        self.pauses.append(pause_ms)
        self._closed = not self.outcomes

    def _pause_ms(self) -> int:
        return PAUSE_MS

    async def _beat(self) -> bool:
        outcome = self.outcomes.pop(0)
        if outcome is not None:
            raise outcome
        return True

    def run(self) -> None:
        asyncio.run(self._run_heartbeats())


@pytest.mark.parametrize(
    ("outcome", "pause_ms"),
    [
        (None, PAUSE_MS),
        (KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE), BACKOFF_MS),
        (KafkaError(ErrorCode.NOT_COORDINATOR), BACKOFF_MS),
        (KafkaError(ErrorCode.NETWORK_EXCEPTION), BACKOFF_MS),
        (KafkaError(ErrorCode.REQUEST_TIMED_OUT), BACKOFF_MS),
        (KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), BACKOFF_MS),
        (NotReachable("no broker can be reached"), BACKOFF_MAX_MS),
    ],
)
def test_heartbeats_go_on_after_what_may_pass(outcome: Exception | None, pause_ms: int) -> None:
    group = Beating([outcome, None])
    group.run()
    assert group.pauses == pytest.approx([pause_ms, PAUSE_MS], rel=0.2)
    assert group.error is None
    loads = isinstance(outcome, KafkaError) and outcome.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert group.cluster.forget_coordinator.called == (outcome is not None and not loads), "it may have moved"
    assert not group.owner.something_to_do.called


def test_the_pause_without_a_coordinator_grows_until_it_is_there() -> None:
    missing = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    group = Beating([*[missing] * 8, None, missing, None])
    group.run()
    expected = [*(min(BACKOFF_MS << attempt, BACKOFF_MAX_MS) for attempt in range(8)), PAUSE_MS, BACKOFF_MS, PAUSE_MS]
    assert group.pauses == pytest.approx(expected, rel=0.2)


@pytest.mark.parametrize("error", [NotReachable("no broker"), KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)])
def test_the_pause_of_a_join_without_a_coordinator_grows(error: Exception) -> None:
    async def run() -> None:
        consumer: Any = AsyncConsumer("127.0.0.1:1", group_id="g", retry_backoff_ms=100, retry_backoff_max_ms=1_000)
        consumer.subscribe(["t"])
        group, pauses = consumer._group, []

        async def sleep(pause_ms: int) -> None:
            pauses.append(pause_ms)
            if len(pauses) == 6:
                raise KeyError

        group._sleep, group._coordinator = sleep, AsyncMock(side_effect=error)
        consumer._existence_checked = frozenset("t")
        with pytest.raises(KeyError):
            await group._join()
        assert pauses == pytest.approx([100, 200, 400, 800, 1_000, 1_000], rel=0.2)
        await consumer.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    "error",
    [
        KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED),
        TlsFailed("the certificate has expired"),
        OttlaError("the function gave no token"),
    ],
)
def test_an_error_that_only_the_program_can_fix_is_raised_by_the_next_poll_and_they_go_on(error: Exception) -> None:
    group = Beating([None, error, None])
    group.run()
    assert group.pauses == [PAUSE_MS, BACKOFF_MAX_MS, PAUSE_MS]
    group.owner.something_to_do.assert_called_once_with()
    with pytest.raises(type(error)):
        group.raise_error()
    group.raise_error()


def test_a_member_whose_place_another_has_taken_ends_them_and_every_poll_says_so() -> None:
    group = Beating([None, Fenced(ErrorCode.FENCED_INSTANCE_ID), None])
    group.run()
    assert group.pauses == [PAUSE_MS]
    for _ in range(2):
        with pytest.raises(Fenced):
            group.raise_error()


@pytest.fixture(scope="module")
def node() -> Iterator[ottla.Node]:
    kinds = [f"group.{kind}.{least}heartbeat.interval.ms" for kind in ("consumer", "share") for least in ("", "min.")]
    with ottla.Node(settings=dict.fromkeys(kinds, "100")) as node:
        yield node


@pytest.mark.parametrize(
    ("protocol", "heartbeat"), [("classic", ApiKey.HEARTBEAT), ("consumer", ApiKey.CONSUMER_GROUP_HEARTBEAT)]
)
def test_a_member_goes_on_when_it_has_its_rights_again(node: ottla.Node, protocol: str, heartbeat: ApiKey) -> None:
    settings = {"group.id": protocol, "group.protocol": protocol, "auto.offset.reset": "earliest"}
    settings |= {"heartbeat.interval.ms": "100"} if protocol == "classic" else {}
    with (
        Producer(node.bootstrap_servers) as producer,
        Consumer({"bootstrap.servers": node.bootstrap_servers, **settings}) as consumer,
    ):
        producer.send(protocol, b"before").result(30)
        consumer.subscribe([protocol])
        assert [record.value for record in consumer.poll(30)] == [b"before"]
        with node.faults.error(heartbeat, ErrorCode.GROUP_AUTHORIZATION_FAILED) as fault:
            fault.wait()
            with pytest.raises(KafkaError, match="GROUP_AUTHORIZATION_FAILED"):
                consumer.poll(30)
        with node.faults.watch(heartbeat) as beats:
            beats.wait()
        producer.send(protocol, b"after").result(30)
        assert [record.value for record in consumer.poll(30)] == [b"after"]
        consumer.commit()


def test_a_member_gets_a_topic_that_was_deleted_and_created_again(node: ottla.Node) -> None:
    """It had given up the deleted one on its own, and never confirmed that to the coordinator, which waited for it."""
    settings = {"group.protocol": "consumer", "auto.offset.reset": "earliest", "metadata.max.age.ms": "100"}
    settings |= {"bootstrap.servers": node.bootstrap_servers, "allow.auto.create.topics": "false"}
    with (
        Admin(node.bootstrap_servers) as admin,
        Producer(node.bootstrap_servers) as producer,
        Consumer(settings, group_id="again") as consumer,
    ):
        admin.create_topic("again", 1)
        consumer.subscribe(["again"])
        eventually(lambda: consumer.poll(0.1) == [] and len(consumer.assignment()) == 1)
        admin.delete_topics(["again"]).check()
        eventually(lambda: consumer.poll(0.1) == [] and not consumer.assignment())
        admin.create_topic("again", 1)
        producer.send("again", b"v").result(30)
        eventually(lambda: [record.value for record in consumer.poll(0.1)] == [b"v"], 20)


def test_a_member_that_does_not_poll_leaves() -> None:
    group = Beating([None])
    group.polled_at_ms -= 60_001
    group.run()
    assert group.reasons == ["no poll for max.poll.interval.ms"]
    assert not group.pauses


def test_a_member_whose_poll_waits_stays_however_long_that_takes() -> None:
    group = Beating([None, None])
    with group.poll_waits():
        with group.poll_waits():
            pass  # A commit beside it.
        group.polled_at_ms -= 60_001
        group.run()
    assert (group.reasons, group.pauses) == ([], [PAUSE_MS, PAUSE_MS])
    # Its program may take as long again for what the poll returns.
    group.outcomes, group._closed = [None], False
    group.run()
    assert group.reasons == []


@pytest.mark.parametrize("poll", ["poll", "poll_table"])
def test_a_poll_of_what_is_in_hand_already_counts_too(node: ottla.Node, poll: str) -> None:
    with Producer(node.bootstrap_servers) as producer:
        for _ in range(3):
            producer.send(poll, b"a batch").result(30)
    with Consumer(
        node.bootstrap_servers, group_id=poll, group_protocol="consumer", auto_offset_reset="earliest"
    ) as consumer:
        consumer.subscribe([poll])
        take, group = getattr(consumer, poll), consumer._async._group
        assert group is not None
        for _ in range(3):
            group.polled_at_ms = 0
            assert len(take(30, max_records=1)) == 1
            assert group.polled_at_ms > 0


@pytest.mark.parametrize("kind", [AsyncConsumer, AsyncShareConsumer])
def test_a_poll_says_to_its_group_that_it_waits(kind: Any) -> None:
    async def run() -> None:
        group = Beating([None])
        nothing: Any = set() if kind is AsyncShareConsumer else None
        consumer: Any = SimpleNamespace(_waiting=nothing, _positions={}, _group=group)
        waiting = asyncio.ensure_future(kind._wait(consumer, 600_000))
        await asyncio.sleep(0)
        assert group._poll_waits
        kind.something_to_do(consumer)
        await asyncio.wait_for(waiting, 20)
        assert not group._poll_waits

    asyncio.run(run())


class Coordinator:
    """Answers heartbeats as the test says, and notes when they came; then another process takes the member's place."""

    def __init__(self, *outcomes: ErrorCode | Exception) -> None:
        self.outcomes = list(outcomes)
        self.came: list[float] = []

    async def call(self, request: Any, response: type[Any], **more: object) -> Any:
        self.came.append(asyncio.get_running_loop().time())
        outcome = self.outcomes.pop(0) if self.outcomes else Fenced(ErrorCode.FENCED_INSTANCE_ID)
        if isinstance(outcome, Exception):
            raise outcome
        answer = response(error_code=int(outcome))
        if hasattr(answer, "member_epoch"):
            answer.member_epoch, answer.heartbeat_interval_ms = 4, 3_000
        return answer

    def pauses_ms(self) -> list[int]:
        return [round(1_000 * (late - soon) / 100) * 100 for soon, late in zip(self.came, self.came[1:], strict=False)]


@pytest.mark.parametrize("kind", [ClassicGroupMember, ConsumerGroupMember, ShareGroupMember])
@pytest.mark.parametrize(
    ("failure", "pause_ms"),
    [
        (ErrorCode.NOT_COORDINATOR, 100),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, 100),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 100),
        (KafkaError(ErrorCode.NETWORK_EXCEPTION), 100),
        (NotReachable("no broker can be reached"), 1_000),
        (ErrorCode.NONE, 3_000),
    ],
    ids=lambda each: each.name if isinstance(each, ErrorCode) else str(each),
)
def test_a_heartbeat_that_failed_is_sent_again_after_the_backoff_and_not_only_when_the_next_is_due(
    kind: Any, failure: ErrorCode | Exception, pause_ms: int
) -> None:
    settings = ConsumerSettings.read("127.0.0.1:1", {"group_id": "g"})
    coordinator = Coordinator(ErrorCode.NONE, failure, ErrorCode.NONE)
    owner = Mock(pattern_text=lambda: None, owned=set, subscribed=AsyncMock(return_value={"t"}))
    cluster = Mock(coordinator=AsyncMock(return_value=coordinator))

    async def run() -> None:
        group = kind(cluster, settings, owner)
        if kind is ClassicGroupMember:
            group.membership.generation, group.membership.assignor = 3, "range"
        await group._run_heartbeats()

    hurried(run())
    assert coordinator.pauses_ms() == [3_000, pause_ms, 3_000]


@pytest.mark.parametrize("kind", [ConsumerGroupMember, ShareGroupMember])
@pytest.mark.parametrize(
    ("outcome", "epochs"),
    [
        (None, []),
        ("no answer yet", [0, -1]),
        (KafkaError(ErrorCode.REQUEST_TIMED_OUT), [0, -1]),
        (ErrorCode.NOT_COORDINATOR, [0, -1]),
        (ErrorCode.NONE, [0, -1]),
        (ErrorCode.UNKNOWN_MEMBER_ID, [0]),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, [0]),
    ],
    ids=str,
)
def test_a_member_leaves_also_when_it_does_not_know_whether_it_has_joined(
    kind: Any, outcome: ErrorCode | Exception | str | None, epochs: list[int]
) -> None:
    """Otherwise it would have partitions until its session times out. It leaves on the connection that it joined on,
    so that the coordinator sees both in this order.
    """
    sent: list[tuple[str, int]] = []

    async def run() -> None:
        settings = ConsumerSettings.read("127.0.0.1:1", {"group_id": "g", "group_protocol": "consumer"})
        owner = Mock(pattern_text=lambda: None, owned=set, subscribed=AsyncMock(return_value={"t"}))
        coordinator = Coordinator(*([outcome] if isinstance(outcome, ErrorCode | Exception) else []), ErrorCode.NONE)
        came = asyncio.Event()

        async def connection(_: int, group: str, purpose: str) -> Any:
            async def call(request: Any, response: type[Any], **more: object) -> Any:
                sent.append((purpose, request.member_epoch))
                came.set()
                if outcome == "no answer yet" and request.member_epoch == 0:
                    await asyncio.get_running_loop().create_future()
                return await coordinator.call(request, response, **more)

            return SimpleNamespace(call=call)

        group = kind(Mock(coordinator=connection), settings, owner)
        if outcome is not None:
            await group.poll()
            await came.wait()
            await asyncio.sleep(0)
        await group.end("the consumer was closed", now_ms() + 10_000)

    asyncio.run(run())
    assert [epoch for _, epoch in sent] == epochs
    assert len({purpose for purpose, _ in sent}) <= 1


def test_a_heartbeat_that_is_being_made_does_not_join_again_behind_the_request_to_leave() -> None:
    sent: list[int] = []

    async def run() -> None:
        settings = ConsumerSettings.read("127.0.0.1:1", {"group_id": "g", "retry_backoff_ms": 0})
        making, leaving = asyncio.Event(), asyncio.Event()

        async def subscribed() -> set[str]:
            if sent:
                making.set()
                await leaving.wait()
            return {"t"}

        async def call(request: Any, response: type[Any], **_: object) -> Any:
            sent.append(request.member_epoch)
            if request.member_epoch == 0:
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
            leaving.set()
            for _turn in range(5):
                await asyncio.sleep(0)
            return response()

        owner = Mock(pattern_text=lambda: None, owned=set, subscribed=subscribed)
        group = ConsumerGroupMember(
            Mock(coordinator=AsyncMock(return_value=SimpleNamespace(call=call))), settings, owner
        )
        await group.poll()
        await making.wait()
        await group.end("the consumer was closed", now_ms() + 10_000)

    asyncio.run(run())
    assert sent == [0, -1]


class Owning(SimpleNamespace):
    """A consumer that takes up and gives up what its group says."""

    partitions: set[TopicPartition]

    def owned(self) -> set[TopicPartition]:
        return set(self.partitions)

    async def revoke(self, partitions: set[TopicPartition], *, lost: bool = False) -> None:
        self.partitions -= partitions

    async def assign_more(self, partitions: set[TopicPartition]) -> None:
        self.partitions |= partitions


class Reporting(Coordinator):
    """It also notes what the member says that it owns, and sends it an assignment with its first answer."""

    def __init__(self, target: dict[Uuid, list[int]]) -> None:
        super().__init__(ErrorCode.NONE, ErrorCode.NONE)
        self.reports: list[Any] = []
        self.target = [TopicPartitions(topic_id=each, partitions=numbers) for each, numbers in target.items()]

    async def call(self, request: Any, response: type[Any], **more: object) -> Any:
        answer = await super().call(request, response, **more)
        self.reports.append(request.topic_partitions)
        if len(self.reports) == 1:
            answer.assignment = Assignment(topic_partitions=self.target)
        return answer


OLD, NEW = Uuid(b"o" * 16), Uuid(b"n" * 16)


def member_of(target: dict[Uuid, list[int]], names: dict[Uuid, str]) -> tuple[Any, Owning, Reporting]:
    """A member that has this assignment, the metadata with these names, and its coordinator."""
    settings = ConsumerSettings.read("127.0.0.1:1", {"group_id": "g", "group_protocol": "consumer"})
    coordinator = Reporting(target)
    owner = Owning(
        partitions=set(),
        pattern_text=lambda: None,
        subscribed=AsyncMock(return_value={"t"}),
        before_revoke=AsyncMock(),
        something_to_do=Mock(),
    )
    metadata = SimpleNamespace(topic_names=names, topics={})
    cluster: Any = Mock(coordinator=AsyncMock(return_value=coordinator), update=AsyncMock(), metadata=metadata)
    group: Any = ConsumerGroupMember(cluster, settings, cast(Any, owner))
    group._start_beating = lambda: None
    group._is_beating = lambda: True
    return group, owner, coordinator


def test_a_topic_that_one_brokers_metadata_lack_is_neither_given_up_nor_left_out_of_a_heartbeat() -> None:
    """The member revoked it, and told the coordinator that another member may have it."""

    async def run() -> None:
        names = {OLD: "t"}
        group, owner, coordinator = member_of({OLD: [0, 1]}, names)
        await group._beat()
        await group.poll()
        assert owner.partitions == {TopicPartition("t", 0), TopicPartition("t", 1)}
        names.clear()
        assert not group.busy
        await group.poll()
        assert owner.partitions == {TopicPartition("t", 0), TopicPartition("t", 1)}
        await group._beat()
        assert coordinator.reports == [[], [TopicPartitions(topic_id=OLD, partitions=[0, 1])]]

    asyncio.run(run())


def test_a_topic_that_no_broker_has_a_name_for_is_looked_up_until_one_has() -> None:
    """One look-up came too early: the member read nothing of the topic until its metadata were too old."""

    async def run() -> list[int]:
        names = {OLD: "old"}
        group, owner, _ = member_of({OLD: [0], NEW: [0]}, names)
        group._cluster.update.side_effect = [NotReachable("no broker can be reached"), *[None] * 20]
        await group._beat()
        looked: list[int] = []
        never = asyncio.get_running_loop().create_future()
        for _ in range(20):
            if group.busy:
                await group.poll()
            looked.append(group._cluster.update.await_count)
            assert owner.partitions == {TopicPartition("old", 0)}, "the others do not wait"
            await asyncio.wait([never], timeout=0.1)
        assert group._owner.something_to_do.called, "a poll that waits looks it up, too"
        names[NEW] = "new"
        assert group.busy
        await group.poll()
        assert owner.partitions == {TopicPartition("old", 0), TopicPartition("new", 0)}
        assert not group.busy
        return looked

    looked = hurried(run())
    assert looked[0] == 1 and 3 <= looked[-1] <= 6, "it backs off"
