"""A member's decisions without a socket, in both protocols."""

import asyncio
from collections.abc import Sequence

import pytest

from ottla.client.assignment.consumer_protocol import assignment_bytes, parse_assignment, parse_subscription
from ottla.client.connection.cluster import Cluster
from ottla.client.membership.classic import ClassicGroupMember
from ottla.client.membership.consumer import ConsumerGroupMember
from ottla.client.membership.membership import ClassicMembership, ConsumerMembership, Outcome
from ottla.client.settings.consumer import ConsumerSettings
from ottla.kernel.client_error import Fenced, NotReachable
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import TopicPartition, Uuid
from ottla.wire.api.consumer_group_heartbeat import Assignment, ConsumerGroupHeartbeatResponse, TopicPartitions
from ottla.wire.api.join_group import JoinGroupResponse, JoinGroupResponseMember
from ottla.wire.api.sync_group import SyncGroupResponse

ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)
ID = Uuid(b"i" * 16)


def settings(**more: object) -> ConsumerSettings:
    return ConsumerSettings.read("localhost:9092", {"group_id": "g", **more})


def joined(membership: ClassicMembership, leader: str = "me") -> JoinGroupResponse:
    request = membership.join_request(["t"], [])
    members = [JoinGroupResponseMember(member_id=one, metadata=request.protocols[0].metadata) for one in ("me", "you")]
    return JoinGroupResponse(
        generation_id=3, protocol_name="range", leader=leader, member_id="me", members=members if leader == "me" else []
    )


def test_a_newcomer_gets_its_id_first_and_joins_with_it() -> None:
    membership = ClassicMembership(settings())
    answer = JoinGroupResponse(error_code=int(ErrorCode.MEMBER_ID_REQUIRED), member_id="me")
    assert membership.join_answered(answer) is Outcome.REJOIN
    assert membership.join_request(["t"], []).member_id == "me"


def test_the_leader_assigns_for_all_and_a_follower_for_nobody() -> None:
    membership = ClassicMembership(settings())
    answer = joined(membership)
    assert membership.join_answered(answer) is Outcome.GOOD
    assigned = membership.sync_request(answer, {"t": 2}).assignments
    assert {one.member_id: parse_assignment(one.assignment) for one in assigned} == {"me": (ONE,), "you": (TWO,)}

    follower = ClassicMembership(settings())
    answer = joined(follower, leader="you")
    follower.join_answered(answer)
    assert follower.sync_request(answer, {"t": 2}).assignments == []


def test_a_sync_ends_the_join() -> None:
    membership = ClassicMembership(settings())
    membership.join_answered(joined(membership))
    outcome, assigned = membership.sync_answered(SyncGroupResponse(assignment=assignment_bytes([TWO])))
    assert (outcome, assigned) == (Outcome.GOOD, (TWO,))
    assert membership.join_reason is None


@pytest.mark.parametrize("assignment", [b"\x00", b"\xff\xff", b"\x00\x03\x00\x00"], ids=["short", "version", "cut"])
def test_an_assignment_that_cannot_be_read_does_not_end_the_join(assignment: bytes) -> None:
    # Otherwise the member would be in the group with no partitions and no heartbeats, and its polls would say nothing.
    membership = ClassicMembership(settings())
    membership.join_answered(joined(membership))
    with pytest.raises(KafkaError, match="INCONSISTENT_GROUP_PROTOCOL"):
        membership.sync_answered(SyncGroupResponse(assignment=assignment))
    assert membership.join_reason is not None


def test_a_rebalance_keeps_the_member_and_an_unknown_member_has_lost_everything() -> None:
    membership = ClassicMembership(settings())
    membership.join_answered(joined(membership))
    assert membership.heartbeat_answered(int(ErrorCode.REBALANCE_IN_PROGRESS)) is Outcome.REJOIN
    assert membership.generation == 3
    assert membership.heartbeat_answered(int(ErrorCode.UNKNOWN_MEMBER_ID)) is Outcome.LOST
    assert membership.generation == -1
    assert membership.join_request(["t"], []).member_id == ""


def test_a_generation_that_is_over_keeps_the_member_id() -> None:
    # A new id would leave the old one in the group, which waits for it until its session ends.
    membership = ClassicMembership(settings())
    membership.join_answered(joined(membership))
    assert membership.commit_failed(int(ErrorCode.ILLEGAL_GENERATION)) is Outcome.LOST
    assert not membership.joined
    assert membership.join_request(["t"], []).member_id == "me"


class Alone:
    """An owner of a group, who owns nothing."""

    def pattern_text(self) -> str | None:
        return None

    def owned(self) -> set[TopicPartition]:
        return set()

    def something_to_do(self) -> None:
        pass

    async def subscribed(self) -> set[str]:
        return {"t"}

    def subscription(self) -> set[str]:
        return {"t"}

    async def before_revoke(self) -> None:
        pass

    async def revoke(self, partitions: set[TopicPartition], *, lost: bool = False) -> None:
        pass

    async def assign_more(self, partitions: set[TopicPartition]) -> None:
        pass


PAST = [ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS]


@pytest.mark.parametrize("code", PAST)
def test_an_answer_about_a_past_generation_does_not_end_the_present_one(code: ErrorCode) -> None:
    async def run() -> None:
        cluster = Cluster(settings())
        group = ClassicGroupMember(cluster, settings(), Alone())
        membership = group.membership
        membership.join_answered(joined(membership))
        membership.sync_answered(SyncGroupResponse(assignment=assignment_bytes([ONE])))
        assert group._commit_failed(int(code), "me", 2) is Outcome.REJOIN, "the commit did not count"
        assert membership.joined and not group.busy
        # While a join is under way its answer decides, also about the generation that it leaves.
        membership.rejoin("the subscription has changed")
        group._joining = asyncio.get_running_loop().create_future()  # type: ignore[assignment]
        assert group._commit_failed(int(code), "me", 3) is Outcome.REJOIN
        assert (membership.joined, membership.member_id) == (True, "me")
        group._joining = None
        assert group._commit_failed(int(code), "me", 3) in (Outcome.LOST, Outcome.REJOIN)
        assert membership.joined is (code == ErrorCode.REBALANCE_IN_PROGRESS) and group.busy

    asyncio.run(run())


def test_who_was_thrown_out_says_nothing_until_the_program_has_polled() -> None:
    async def run() -> None:
        group = ConsumerGroupMember(Cluster(settings()), settings(), Alone())
        group._set_identity("me", 3)
        group.membership.lost()
        group._lost = True
        # There is no broker: a heartbeat would raise.
        await group._beat()
        assert group.identity()[:2] == ("me", 3)
        assert await group.poll() is not None
        assert not group._lost
        await group.end("", 0, leaves=False)

    asyncio.run(run())


def generation_of(members: dict[str, ClassicMembership], number: int) -> dict[str, tuple[TopicPartition, ...]]:
    """Let these members join and sync; the first leads. Returns what each of them is given of six partitions."""
    answers = {
        name: JoinGroupResponse(
            generation_id=number, protocol_name="sticky", leader=next(iter(members)), member_id=name
        )
        for name in members
    }
    leader, answer = next(iter(answers.items()))
    answer.members = [
        # Partitions are given up before the join in an eager group: the request names none as owned.
        JoinGroupResponseMember(member_id=name, metadata=each.join_request(["t"], []).protocols[0].metadata)
        for name, each in members.items()
    ]
    for name, each in members.items():
        assert each.join_answered(answers[name]) is Outcome.GOOD
    given = {one.member_id: one.assignment for one in members[leader].sync_request(answer, {"t": 6}).assignments}
    return {name: each.sync_answered(SyncGroupResponse(assignment=given[name]))[1] for name, each in members.items()}


@pytest.mark.parametrize("leaves", ["a", "b", "c"])
def test_members_of_a_sticky_group_keep_what_they_had(leaves: str) -> None:
    members = {name: ClassicMembership(settings(partition_assignment_strategy="sticky")) for name in "abc"}
    before = generation_of(members, 1)
    assert sorted(map(len, before.values())) == [2, 2, 2]
    del members[leaves]
    after = generation_of(members, 2)
    for name in members:
        assert set(before[name]) < set(after[name]) and len(after[name]) == 3
    members["d"] = ClassicMembership(settings(partition_assignment_strategy="sticky"))
    last = generation_of(members, 3)
    assert all(set(last[name]) < set(after[name]) for name in members if name != "d")


def test_a_member_tells_the_sticky_assignor_what_it_had_as_javas_does() -> None:
    membership = ClassicMembership(settings(partition_assignment_strategy="range,sticky"))
    membership.join_answered(joined(membership))
    membership.sync_answered(SyncGroupResponse(assignment=assignment_bytes([ONE, TopicPartition("u", 2), TWO])))
    told = {each.name: each.metadata for each in membership.join_request(["t"], []).protocols}
    topics = b"\x00\x01t" + b"\0\0\0\2" + b"\0\0\0\0" + b"\0\0\0\1", b"\x00\x01u" + b"\0\0\0\1" + b"\0\0\0\2"
    assert parse_subscription(told["sticky"]).user_data == b"\0\0\0\2" + b"".join(topics) + b"\0\0\0\3"
    assert parse_subscription(told["range"]).user_data is None


def test_a_fenced_instance_id_is_the_end() -> None:
    membership = ClassicMembership(settings(group_instance_id="i"))
    with pytest.raises(Fenced):
        membership.heartbeat_answered(int(ErrorCode.FENCED_INSTANCE_ID))


def test_only_cooperative_assignors_keep_partitions_through_a_rebalance() -> None:
    assert ClassicMembership(settings(partition_assignment_strategy="cooperative-sticky")).cooperative
    assert not ClassicMembership(settings()).cooperative


def test_an_assignment_that_came_and_went_before_it_was_taken_up_is_confirmed() -> None:
    membership = ConsumerMembership(settings(group_protocol="consumer"), "m")
    membership.heartbeat_request(["t"], None, {})

    def told(*partitions: int) -> None:
        topics = [TopicPartitions(topic_id=ID, partitions=list(partitions))]
        membership.heartbeat_answered(
            ConsumerGroupHeartbeatResponse(member_epoch=2, assignment=Assignment(topic_partitions=topics))
        )

    def said(*owned: int) -> list[int] | None:
        parts = membership.heartbeat_request(["t"], None, {ID: owned}).topic_partitions
        return None if parts is None else [number for part in parts for number in part.partitions]

    told(0)
    assert (said(0), said(0)) == ([0], None)
    told(1, 0)
    assert said(0) is None, "the program has not polled yet"
    told(0)
    assert (said(0), said(0)) == ([0], None), "the coordinator waits until it hears that 1 is free"


def test_a_consumer_member_says_everything_once_and_then_only_what_is_new() -> None:
    membership = ConsumerMembership(settings(group_protocol="consumer"), "me")
    first = membership.heartbeat_request(["t"], None, {})
    assert (first.member_epoch, first.subscribed_topic_names, first.topic_partitions) == (0, ["t"], [])
    target = Assignment(topic_partitions=[TopicPartitions(topic_id=ID, partitions=[0, 1])])
    answer = ConsumerGroupHeartbeatResponse(member_epoch=4, heartbeat_interval_ms=1000, assignment=target)
    assert membership.heartbeat_answered(answer) is Outcome.GOOD
    assert membership.target == {ID: (0, 1)}

    owned: dict[Uuid, tuple[int, ...]] = {ID: (0, 1)}
    second = membership.heartbeat_request(["t"], None, owned)
    assert (second.member_epoch, second.subscribed_topic_names, second.rebalance_timeout_ms) == (4, None, -1)
    assert second.topic_partitions == [TopicPartitions(topic_id=ID, partitions=[0, 1])]
    assert membership.heartbeat_request(["t"], None, owned).topic_partitions is None


def test_a_new_assignment_is_confirmed_though_nothing_changes() -> None:
    """Of a deleted topic, which the member had given up before the coordinator asked for it back."""
    membership = ConsumerMembership(settings(group_protocol="consumer"), "me")
    membership.heartbeat_request(["t"], None, {})
    membership.heartbeat_answered(ConsumerGroupHeartbeatResponse(member_epoch=1))
    membership.heartbeat_request(["t"], None, {ID: (0,)})
    assert membership.heartbeat_request(["t"], None, {}).topic_partitions == []
    membership.heartbeat_answered(ConsumerGroupHeartbeatResponse(member_epoch=1))
    assert membership.heartbeat_request(["t"], None, {}).topic_partitions is None
    membership.heartbeat_answered(ConsumerGroupHeartbeatResponse(member_epoch=1, assignment=Assignment()))
    assert membership.heartbeat_request(["t"], None, {}).topic_partitions == []
    assert membership.heartbeat_request(["t"], None, {}).topic_partitions is None


def test_what_may_not_have_arrived_is_said_again() -> None:
    membership = ConsumerMembership(settings(group_protocol="consumer"), "me")
    membership.heartbeat_request(["t"], None, {})
    membership.heartbeat_answered(ConsumerGroupHeartbeatResponse(member_epoch=1))
    membership.heartbeat_request(["t", "u"], None, {ID: (0,)})
    membership.unanswered()
    again = membership.heartbeat_request(["t", "u"], None, {ID: (0,)})
    assert again.subscribed_topic_names == ["t", "u"]
    assert again.topic_partitions == [TopicPartitions(topic_id=ID, partitions=[0])]


def test_what_was_refused_is_said_again() -> None:
    """The coordinator may take it later, when the member has its rights again."""
    membership = ConsumerMembership(settings(group_protocol="consumer"), "me")
    membership.heartbeat_request(["t"], None, {})
    membership.heartbeat_answered(ConsumerGroupHeartbeatResponse(member_epoch=1))
    membership.heartbeat_request(["t", "u"], None, {ID: (0,)})
    with pytest.raises(KafkaError):
        membership.heartbeat_answered(ConsumerGroupHeartbeatResponse(error_code=29))
    assert membership.heartbeat_request(["t", "u"], None, {ID: (0,)}).subscribed_topic_names == ["t", "u"]


@pytest.mark.parametrize("lost", ["never", "the answer", "the membership"])
def test_a_pattern_that_was_given_up_is_taken_back_whatever_gets_lost(lost: str) -> None:
    """Null means unchanged: the member went on getting the topics of its old pattern."""
    membership = ConsumerMembership(settings(group_protocol="consumer"), "me")
    assert membership.heartbeat_request([], "^a", {}).subscribed_topic_regex == "^a"
    membership.heartbeat_answered(ConsumerGroupHeartbeatResponse(member_epoch=1))
    request = membership.heartbeat_request(["t"], None, {})
    if lost != "never":
        membership.unanswered() if lost == "the answer" else membership.lost()
        request = membership.heartbeat_request(["t"], None, {})
    assert (request.subscribed_topic_names, request.subscribed_topic_regex) == (["t"], "")


def test_a_fenced_epoch_joins_again_owning_nothing() -> None:
    membership = ConsumerMembership(settings(group_protocol="consumer"), "me")
    membership.heartbeat_answered(ConsumerGroupHeartbeatResponse(member_epoch=5))
    answer = ConsumerGroupHeartbeatResponse(error_code=int(ErrorCode.FENCED_MEMBER_EPOCH))
    assert membership.heartbeat_answered(answer) is Outcome.LOST
    request = membership.heartbeat_request(["t"], None, {ID: (0,)})
    assert (request.member_epoch, request.topic_partitions) == (0, [])


def test_leaving_is_for_good_or_for_a_while() -> None:
    assert ConsumerMembership(settings(group_protocol="consumer"), "me").leave_request().member_epoch == -1
    static = settings(group_protocol="consumer", group_instance_id="i")
    assert ConsumerMembership(static, "me").leave_request().member_epoch == -2


class _Owner(Alone):
    """An owner of partitions, who writes down what is asked of it."""

    def __init__(self) -> None:
        self.partitions = {ONE, TWO, TopicPartition("u", 0)}
        self.told: list[object] = []

    def owned(self) -> set[TopicPartition]:
        return set(self.partitions)

    async def before_revoke(self) -> None:
        self.told.append("commit")

    async def revoke(self, partitions: set[TopicPartition], *, lost: bool = False) -> None:
        self.told.append(partitions)
        self.partitions -= partitions


@pytest.mark.parametrize("assignor", ["cooperative-sticky", "range"])
def test_a_member_gives_up_what_it_does_not_subscribe_to_before_it_joins(assignor: str) -> None:
    """A cooperative member keeps the rest."""

    async def run() -> None:
        owner = _Owner()
        given = settings(partition_assignment_strategy=assignor)
        group = ClassicGroupMember(Cluster(given), given, owner)
        group.membership.member_id = "me"
        first, joining = await group.poll(), await group.poll()
        assert joining is not None and joining is first and not joining.done()
        cooperative = assignor == "cooperative-sticky"
        assert owner.told == ["commit", {TopicPartition("u", 0)} if cooperative else {ONE, TWO, TopicPartition("u", 0)}]
        joining.cancel()

    asyncio.run(run())


class _Joining(ClassicGroupMember):
    """A member whose requests to join are answered by these codes or errors, and then well."""

    def __init__(self, codes: Sequence[ErrorCode | Exception], owned: set[TopicPartition] | None = None) -> None:
        owner = Alone()
        owner.owned = lambda: owned or set()  # type: ignore[method-assign]
        super().__init__(Cluster(settings()), settings(), owner)
        self._codes = list(codes)
        self.pauses: list[int] = []
        self.look_ups = 0
        #: The member id of each request.
        self.ids: list[str] = []

    async def _join_once(self) -> tuple[Outcome, tuple[TopicPartition, ...]]:
        self.ids.append(self.membership.member_id)
        code = self._codes.pop(0) if self._codes else ErrorCode.NONE
        if isinstance(code, Exception):
            raise code
        return self.membership.join_answered(JoinGroupResponse(error_code=int(code), member_id="me")), (ONE,)

    def _start_beating(self) -> None:
        pass

    async def _sleep(self, pause_ms: int) -> None:
        self.pauses.append(pause_ms)

    def _coordinator_moved(self) -> None:
        self.look_ups += 1


@pytest.mark.parametrize(
    ("answer", "looked_up", "lost", "next_id"),
    [
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 0, False, "before"),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, 1, False, "before"),
        (ErrorCode.NOT_COORDINATOR, 1, False, "before"),
        (ErrorCode.NETWORK_EXCEPTION, 1, False, "before"),
        (ErrorCode.REQUEST_TIMED_OUT, 1, False, "before"),
        (ErrorCode.UNKNOWN_MEMBER_ID, 0, True, ""),
        (ErrorCode.ILLEGAL_GENERATION, 0, True, "before"),
        (NotReachable("no broker can be reached"), 1, False, "before"),
        (KafkaError(ErrorCode.REQUEST_TIMED_OUT), 1, False, "before"),
        (KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), 0, False, "before"),
    ],
)
@pytest.mark.parametrize("owned", [set(), {ONE}])
def test_a_join_that_fails_for_now_is_tried_again(
    answer: ErrorCode | Exception, looked_up: int, lost: bool, next_id: str, owned: set[TopicPartition]
) -> None:
    member = _Joining([answer], owned)
    member.membership.member_id = "before"
    if lost and owned:
        assert asyncio.run(member._join()) == () and member._lost, "a poll gives up what was owned first"
        assert (member.pauses, member.ids) == ([], ["before"])
        assert asyncio.run(member._join()) == (ONE,)
    else:
        assert asyncio.run(member._join()) == (ONE,) and not member._lost
        assert member.pauses == pytest.approx([settings().retry_backoff_ms], rel=0.2)
        assert member.look_ups == looked_up
    assert member.ids == ["before", next_id]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.INVALID_SESSION_TIMEOUT,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_a_join_that_only_the_program_can_cure_is_told_to_it(code: ErrorCode) -> None:
    member = _Joining([code])
    with pytest.raises(
        (KafkaError, Fenced), match=code.name if code is not ErrorCode.FENCED_INSTANCE_ID else None
    ) as told:
        asyncio.run(member._join())
    assert isinstance(told.value, Fenced) == (code is ErrorCode.FENCED_INSTANCE_ID)
    assert (len(member.ids), member.pauses) == (1, [])


@pytest.mark.parametrize(
    ("code", "pauses"),
    [
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 2),
        (ErrorCode.NOT_COORDINATOR, 2),
        (ErrorCode.MEMBER_ID_REQUIRED, 0),
        (ErrorCode.REBALANCE_IN_PROGRESS, 0),
    ],
)
def test_a_coordinator_that_is_not_ready_is_asked_again_after_a_pause(code: ErrorCode, pauses: int) -> None:
    member = _Joining([code, code])
    assert asyncio.run(member._join()) == (ONE,)
    assert member.pauses == pytest.approx(
        [settings().retry_backoff_ms, 2 * settings().retry_backoff_ms][:pauses], rel=0.2
    )
